/*
 * options.c: the rule for every struct that may grow: it begins with its size, a shorter one of an
 * older caller gets defaults for the rest, a longer one of a newer caller must have zeros there.
 * Knows no field but the size. No state.
 */
#include "options.h"

#include "error.h"

#include <string.h>

void rdzv__options_fill(void *opt, size_t size, const void *defaults, size_t known)
{
    memset(opt, 0, size);
    memcpy(opt, defaults, size < known ? size : known);
}

int rdzv__options_read(void *ret, size_t known, const void *opt, size_t least, const char *what,
                       rdzv_error *err)
{
    size_t size = 0;
    if (opt != NULL)
        memcpy(&size, opt, sizeof size);
    if (opt == NULL || size < least)
        return rdzv__fail(err, RDZV_EINVAL, 0, "%s options: call rdzv_%s_options_init first", what,
                          what);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)opt)[i] != 0)
            return rdzv__fail(err, RDZV_EINVAL, 0,
                              "%s options: a field is set that version %d does not know", what,
                              (int)rdzv_version());
    memcpy(ret, opt, size < known ? size : known);
    return RDZV_OK;
}

int rdzv__options_allocator(const rdzv_allocator *a, const char *what, rdzv_error *err)
{
    if (a == NULL || (a->alloc != NULL && a->free != NULL))
        return RDZV_OK;
    return rdzv__fail(err, RDZV_EINVAL, 0, "%s options: allocator lacks a function", what);
}
