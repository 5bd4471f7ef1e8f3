# rallypoint_add_library(NAME SOURCES ... PRIVATE_LIBS ... HEADERS ...)
# One object library feeds the shared and the static library of a product: target NAME is shared,
# NAME-static is static, NAME-objects serves the unit tests, which see internal symbols.
function(rallypoint_add_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;PRIVATE_LIBS;HEADERS" ${ARGN})

    add_library(${name}-objects OBJECT ${ARG_SOURCES})
    set_target_properties(${name}-objects PROPERTIES
        POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden
        C_STANDARD 11 C_EXTENSIONS ON C_STANDARD_REQUIRED ON)
    target_include_directories(${name}-objects
        PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/include" "${CMAKE_CURRENT_SOURCE_DIR}/src"
               "${PROJECT_SOURCE_DIR}/common")
    target_compile_definitions(${name}-objects PRIVATE _GNU_SOURCE)
    target_link_libraries(${name}-objects PUBLIC ${ARG_PRIVATE_LIBS})
    rallypoint_warnings(${name}-objects)
    rallypoint_sanitize(${name}-objects)

    add_library(${name} SHARED $<TARGET_OBJECTS:${name}-objects>)
    set_target_properties(${name} PROPERTIES
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
        LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/lib${name}.map")
    target_link_options(${name} PRIVATE
        "LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/lib${name}.map"
        LINKER:--no-undefined-version LINKER:-z,relro LINKER:-z,now)
    if(NOT SANITIZE)
        target_link_options(${name} PRIVATE LINKER:-z,defs)
    endif()
    rallypoint_library_usage(${name} "${ARG_PRIVATE_LIBS}")

    if(WITH_STATIC)
        add_library(${name}-static STATIC $<TARGET_OBJECTS:${name}-objects>)
        set_target_properties(${name}-static PROPERTIES OUTPUT_NAME ${name})
        rallypoint_library_usage(${name}-static "${ARG_PRIVATE_LIBS}")
    endif()
endfunction()

function(rallypoint_library_usage target private_libs)
    target_include_directories(${target} PUBLIC
        "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>"
        "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
    target_link_libraries(${target} PRIVATE ${private_libs})
    rallypoint_sanitize(${target})
endfunction()
