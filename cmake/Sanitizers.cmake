# rallypoint_sanitize(TARGET): compiles and links TARGET with the sanitizers named in SANITIZE, and
# with gcov's counters under COVERAGE.
function(rallypoint_sanitize target)
    if(SANITIZE)
        list(JOIN SANITIZE "," names)
        target_compile_options(${target} PRIVATE -fsanitize=${names} -fno-omit-frame-pointer
                               -fno-sanitize-recover=all)
        target_link_options(${target} PUBLIC -fsanitize=${names})
    endif()
    if(COVERAGE)
        target_compile_options(${target} PRIVATE --coverage)
        target_link_options(${target} PUBLIC --coverage)
    endif()
endfunction()
