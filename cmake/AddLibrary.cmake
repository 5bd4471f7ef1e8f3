# rallypoint_add_library(NAME SOURCES ... OBJECTS ... REQUIRES ... LIBS ...)
#
# One object library feeds the shared and the static library of a product: target NAME is shared,
# NAME-static is static, NAME-objects serves the unit tests, which see internal symbols. Public
# headers are all of include/, exported symbols are those of libNAME.map.
#
# REQUIRES is the single list of what the library needs from pkg-config, each as "module" or
# "module>=version". It is linked (target PkgConfig::MODULE, upper case), written into
# Requires.private of libNAME.pc, and looked for again by NAMEConfig.cmake for static users.
# LIBS are further link libraries; OBJECTS are object libraries that become part of the product and
# whose headers its sources see (generated code).
include(CMakePackageConfigHelpers)

function(rallypoint_add_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;OBJECTS;REQUIRES;LIBS" ${ARGN})
    rallypoint_find_required("${ARG_REQUIRES}" found_targets)
    set(private_libs ${found_targets} ${ARG_LIBS})
    set(objects $<TARGET_OBJECTS:${name}-objects>)

    add_library(${name}-objects OBJECT ${ARG_SOURCES})
    set_target_properties(${name}-objects PROPERTIES
        POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden
        C_STANDARD 11 C_EXTENSIONS ON C_STANDARD_REQUIRED ON)
    target_include_directories(${name}-objects
        PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/include" "${CMAKE_CURRENT_SOURCE_DIR}/src"
               "${PROJECT_SOURCE_DIR}/common")
    target_compile_definitions(${name}-objects PRIVATE _GNU_SOURCE)
    target_link_libraries(${name}-objects PUBLIC ${private_libs})
    rallypoint_warnings(${name}-objects)
    rallypoint_sanitize(${name}-objects)
    foreach(part IN LISTS ARG_OBJECTS)
        list(APPEND objects $<TARGET_OBJECTS:${part}>)
        add_dependencies(${name}-objects ${part})
        target_include_directories(${name}-objects
            PRIVATE $<TARGET_PROPERTY:${part},INTERFACE_INCLUDE_DIRECTORIES>)
    endforeach()

    add_library(${name} SHARED ${objects})
    set_target_properties(${name} PROPERTIES
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
        LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/lib${name}.map")
    target_link_options(${name} PRIVATE
        "LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/lib${name}.map"
        LINKER:--no-undefined-version LINKER:-z,relro LINKER:-z,now)
    if(NOT SANITIZE)
        target_link_options(${name} PRIVATE LINKER:-z,defs)
    endif()
    rallypoint_library_usage(${name} "${private_libs}")

    if(WITH_STATIC)
        add_library(${name}-static STATIC ${objects})
        set_target_properties(${name}-static PROPERTIES OUTPUT_NAME ${name})
        rallypoint_library_usage(${name}-static "${private_libs}")
    endif()
    rallypoint_install_library(${name} "${ARG_REQUIRES}")
endfunction()

# rallypoint_find_required(REQUIRES OUT): looks each module up, OUT gets its imported target.
function(rallypoint_find_required requires out)
    set(targets)
    foreach(module_spec IN LISTS requires)
        rallypoint_module_prefix("${module_spec}" prefix)
        pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET GLOBAL "${module_spec}")
        list(APPEND targets PkgConfig::${prefix})
    endforeach()
    set(${out} ${targets} PARENT_SCOPE)
endfunction()

# rallypoint_module_prefix(SPEC OUT): "libprotobuf-c>=1.4" gives LIBPROTOBUF_C.
function(rallypoint_module_prefix module_spec out)
    string(REGEX REPLACE "[<>=].*" "" module "${module_spec}")
    string(MAKE_C_IDENTIFIER "${module}" module)
    string(TOUPPER "${module}" module)
    set(${out} ${module} PARENT_SCOPE)
endfunction()

function(rallypoint_library_usage target private_libs)
    target_include_directories(${target} PUBLIC
        "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>"
        "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
    target_link_libraries(${target} PRIVATE ${private_libs})
    rallypoint_sanitize(${target})
    string(REGEX REPLACE "-.*" "" product "${target}")
    add_library(${product}::${target} ALIAS ${target})
endfunction()

# Installs libraries, headers, libNAME.pc and the CMake package NAME. The static target has an
# export file of its own, so that users of the shared library need none of its dependencies.
function(rallypoint_install_library name requires)
    set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/${name}")
    install(TARGETS ${name} EXPORT ${name}Targets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT Runtime NAMELINK_COMPONENT Devel)
    install(EXPORT ${name}Targets NAMESPACE ${name}:: DESTINATION "${package_dir}" COMPONENT Devel)
    if(WITH_STATIC)
        install(TARGETS ${name}-static EXPORT ${name}StaticTargets
            ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT Devel)
        install(EXPORT ${name}StaticTargets NAMESPACE ${name}::
            DESTINATION "${package_dir}" COMPONENT Devel)
    endif()
    install(DIRECTORY include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT Devel
        FILES_MATCHING PATTERN "*.h")

    set(static_requires)
    foreach(module_spec IN LISTS requires)
        rallypoint_module_prefix("${module_spec}" prefix)
        string(APPEND static_requires
            "    pkg_check_modules(${prefix} QUIET IMPORTED_TARGET \"${module_spec}\")\n"
            "    if(NOT ${prefix}_FOUND)\n"
            "        list(APPEND ${name}_static_missing \"${module_spec}\")\n"
            "    endif()\n")
    endforeach()
    set(package "${name}")
    configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/Config.cmake.in"
        "${CMAKE_CURRENT_BINARY_DIR}/${name}Config.cmake" INSTALL_DESTINATION "${package_dir}"
        NO_CHECK_REQUIRED_COMPONENTS_MACRO)
    write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/${name}ConfigVersion.cmake"
        COMPATIBILITY SameMinorVersion)
    install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}Config.cmake"
                  "${CMAKE_CURRENT_BINARY_DIR}/${name}ConfigVersion.cmake"
        DESTINATION "${package_dir}" COMPONENT Devel)
    rallypoint_pkgconfig(${name} "${requires}")
endfunction()

# libNAME.pc finds its prefix from its own place, so an installed tree can be moved.
function(rallypoint_pkgconfig name requires)
    string(REGEX REPLACE "([<>=]+)" " \\1 " requires_private "${requires}")
    string(REPLACE ";" ", " requires_private "${requires_private}")
    if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
        set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
        set(pc_libdir "${CMAKE_INSTALL_LIBDIR}")
    else()
        string(REGEX REPLACE "[^/]+" ".." up "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
        set(pc_prefix "\${pcfiledir}/${up}")
        set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
    endif()
    if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
        set(pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
    else()
        set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
    endif()
    configure_file("${PROJECT_SOURCE_DIR}/pkgconfig/lib${name}.pc.in"
        "${CMAKE_CURRENT_BINARY_DIR}/lib${name}.pc" @ONLY)
    install(FILES "${CMAKE_CURRENT_BINARY_DIR}/lib${name}.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT Devel)
endfunction()
