# rallypoint_warnings(TARGET): the project's warnings, as errors with WERROR.
function(rallypoint_warnings target)
    target_compile_options(${target} PRIVATE
        -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
        -Wformat=2 -Wcast-align -Wundef -Wvla)
    if(WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
endfunction()
