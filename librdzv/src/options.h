/* options.h: a caller's struct that begins with its size, and may be older or newer than ours. */
#ifndef RDZV_SRC_OPTIONS_H
#define RDZV_SRC_OPTIONS_H

#include "rdzv.h"

/* Copies the options at `opt` over the `known` bytes of defaults at `ret`. Each options struct
 * begins with its size, which is at least `least`; `what` names it in the message. */
int rdzv__options_read(void *ret, size_t known, const void *opt, size_t least, const char *what,
                       rdzv_error *err);
/* The other half: fills the caller's struct of `size` bytes with defaults, or with counts. */
void rdzv__options_fill(void *opt, size_t size, const void *defaults, size_t known);
/* EINVAL when it lacks a function. `a` may be NULL. */
int rdzv__options_allocator(const rdzv_allocator *a, const char *what, rdzv_error *err);

#endif
