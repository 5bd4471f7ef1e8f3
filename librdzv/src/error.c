/*
 * error.c: the closed list of results and the library version. No state.
 */
#include "rdzv.h"

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
