/*
 * error.c: the closed list of results, how errno maps to it, and the library version. No state, no
 * allocation: works when out of memory.
 */
#include "env.h"
#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int32_t ckpt_version(void)
{
    return CKPT_VERSION_MAJOR * 10000 + CKPT_VERSION_MINOR * 100 + CKPT_VERSION_PATCH;
}

const char *ckpt_strerror(int code)
{
    switch (code) {
#define CKPT_ERROR_CASE(name, value, text)                                                         \
    case (value):                                                                                  \
        return text;
        CKPT_ERRORS(CKPT_ERROR_CASE)
#undef CKPT_ERROR_CASE
    default:
        return "unknown error";
    }
}

int ckpt__code_of_errno(int sys_errno)
{
    switch (sys_errno) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return CKPT_ENOSPC;
    case EACCES:
    case EPERM:
    case EROFS:
        return CKPT_EACCES;
    case ENOMEM:
        return CKPT_ENOMEM;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
        return CKPT_EINVAL;
    case EEXIST:
    case ENOTEMPTY:
    case EBUSY:
        return CKPT_EBUSY;
    case ENOSYS:
    case EOPNOTSUPP:
        return CKPT_ENOTSUP;
    case ETIMEDOUT:
        return CKPT_ETIMEDOUT;
    case ECANCELED:
        return CKPT_ECANCELED;
    default:
        return CKPT_EIO;
    }
}

__attribute__((format(printf, 4, 0))) static void fill(ckpt_error *err, int code, int sys_errno,
                                                       const char *fmt, va_list args)
{
    if (err == NULL)
        return;
    err->code = code;
    err->sys_errno = sys_errno;
    int n = vsnprintf(err->text, sizeof err->text, fmt, args);
    if (sys_errno != 0 && n >= 0) {
        size_t used = strlen(err->text);
        char reason[80];
        const char *why = strerror_r(sys_errno, reason, sizeof reason);
        snprintf(err->text + used, sizeof err->text - used, ": %s", why);
    }
    text_mend_end(err->text, sizeof err->text);
}

int ckpt__fail(ckpt_error *err, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, code, 0, fmt, args);
    va_end(args);
    return code;
}

int ckpt__fail_sys(ckpt_error *err, int sys_errno, const char *fmt, ...)
{
    int code = ckpt__code_of_errno(sys_errno);
    va_list args;
    va_start(args, fmt);
    fill(err, code, sys_errno, fmt, args);
    va_end(args);
    return code;
}
