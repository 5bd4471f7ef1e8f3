/*
 * error.c: the closed list of results, the library version, the caller's error struct. No state.
 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

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

int rdzv__fail(rdzv_error *err, int code, int sys_errno, const char *format, ...)
{
    if (err == NULL)
        return code;
    err->code = code;
    err->sys_errno = sys_errno;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return code;
}
