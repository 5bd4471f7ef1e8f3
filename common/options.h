/*
 * options.h: the rule for every struct of a public header that may grow. It begins with its size: a
 * shorter one, of an older caller, gets defaults for the rest; a longer one, of a newer caller,
 * must have zeros there.
 */
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include <stddef.h>
#include <string.h>

enum { OPTIONS_MOST_BYTES = 4096 }; /* a size above was never set */

enum { OPTIONS_OK = 0, OPTIONS_NOT_INITIALIZED, OPTIONS_TOO_NEW };

/* Copies the struct at `opt` over the `known` bytes of defaults at `ret`. A size below `least`
 * means that nobody has set it. */
static inline int options_read(void *ret, size_t known, const void *opt, size_t least)
{
    size_t size = 0;
    if (opt != NULL)
        memcpy(&size, opt, sizeof size);
    if (size < least || size < sizeof size || size > OPTIONS_MOST_BYTES)
        return OPTIONS_NOT_INITIALIZED;
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)opt)[i] != 0)
            return OPTIONS_TOO_NEW;
    memcpy(ret, opt, size < known ? size : known);
    memcpy(ret, &known, sizeof known);
    return OPTIONS_OK;
}

/* The other half: fills the caller's struct of `size` bytes with defaults, or with counts. */
static inline void options_fill(void *opt, size_t size, const void *defaults, size_t known)
{
    memset(opt, 0, size);
    memcpy(opt, defaults, size < known ? size : known);
}

#endif
