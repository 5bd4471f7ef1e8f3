# rallypoint_warnings(TARGET): the project's warnings, as errors with WERROR.
function(rallypoint_warnings target)
    target_compile_options(${target} PRIVATE
        -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
        -Wformat=2 -Wcast-align -Wundef -Wvla)
    # Assertions state invariants and stay in every build, as tests' own do.
    target_compile_options(${target} PRIVATE -UNDEBUG)
    if(WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
endfunction()
