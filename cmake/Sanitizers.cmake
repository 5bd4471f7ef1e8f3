# rallypoint_sanitize(TARGET): compiles and links TARGET with the sanitizers named in SANITIZE.
function(rallypoint_sanitize target)
    if(SANITIZE)
        list(JOIN SANITIZE "," names)
        target_compile_options(${target} PRIVATE -fsanitize=${names} -fno-omit-frame-pointer
                               -fno-sanitize-recover=all)
        target_link_options(${target} PUBLIC -fsanitize=${names})
    endif()
endfunction()
