/*
 * error.c: the closed list of results, the library version, the caller's error struct. No state, no
 * allocation: works when out of memory. Invariant: a text ends within its struct, and never in half
 * a character.
 */
#include "error.h"

#include "text.h"

#include <stdio.h>
#include <string.h>

int32_t rdzv_version(void)
{
    return RDZV_VERSION_MAJOR * 10000 + RDZV_VERSION_MINOR * 100 + RDZV_VERSION_PATCH;
}

const char *rdzv_strerror(int code)
{
    switch (code) {
#define RDZV_ERROR_CASE(name, value, text)                                                         \
    case (value):                                                                                  \
        return text;
        RDZV_ERRORS(RDZV_ERROR_CASE)
#undef RDZV_ERROR_CASE
    default:
        return "unknown error";
    }
}

int rdzv__vfail(rdzv_error *err, int code, int sys_errno, const char *format, va_list args)
{
    if (err == NULL)
        return code;
    err->code = code;
    err->sys_errno = sys_errno;
    vsnprintf(err->text, sizeof err->text, format, args);
    text_mend_end(err->text, sizeof err->text);
    return code;
}

int rdzv__fail(rdzv_error *err, int code, int sys_errno, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    rdzv__vfail(err, code, sys_errno, format, args);
    va_end(args);
    return code;
}

int rdzv__fail_sys(rdzv_error *err, int code, int sys_errno, const char *format, ...)
{
    char what[sizeof err->text];
    char reason[80];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return rdzv__fail(err, code, sys_errno, "%s: %s", what,
                      strerror_r(sys_errno, reason, sizeof reason));
}
