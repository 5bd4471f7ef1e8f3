/*
 * caller_options.c: what is wrong with the options of a caller, in words. Knows no field but the
 * size and the allocator. No state.
 */
#include "caller_options.h"

#include "error.h"
#include "options.h"

int rdzv__options_read(void *ret, size_t known, const void *opt, size_t least, const char *what,
                       rdzv_error *err)
{
    switch (options_read(ret, known, opt, least)) {
    case OPTIONS_OK:
        return RDZV_OK;
    case OPTIONS_TOO_NEW:
        return rdzv__fail(err, RDZV_EINVAL, 0,
                          "%s options: a field is set that version %d does not know", what,
                          (int)rdzv_version());
    default:
        return rdzv__fail(err, RDZV_EINVAL, 0, "%s options: call rdzv_%s_options_init first", what,
                          what);
    }
}

int rdzv__options_allocator(const rdzv_allocator *a, const char *what, rdzv_error *err)
{
    if (a == NULL || (a->alloc != NULL && a->free != NULL))
        return RDZV_OK;
    return rdzv__fail(err, RDZV_EINVAL, 0, "%s options: allocator lacks a function", what);
}
