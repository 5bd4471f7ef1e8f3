/* caller_options.h: options as a caller gave them, checked as far as all kinds of them go. */
#ifndef RDZV_SRC_CALLER_OPTIONS_H
#define RDZV_SRC_CALLER_OPTIONS_H

#include "rdzv.h"

/* Copies the options at `opt` over the `known` bytes of defaults at `ret`. Each options struct
 * begins with its size, which is at least `least`; `what` names it in the message. */
int rdzv__options_read(void *ret, size_t known, const void *opt, size_t least, const char *what,
                       rdzv_error *err);
/* EINVAL when it lacks a function. `a` may be NULL. */
int rdzv__options_allocator(const rdzv_allocator *a, const char *what, rdzv_error *err);

#endif
