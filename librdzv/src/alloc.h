/* alloc.h: the handle's allocator; every block of memory of the library comes from it. */
#ifndef RDZV_SRC_ALLOC_H
#define RDZV_SRC_ALLOC_H

#include "rdzv.h"

#include <stddef.h>

extern const rdzv_allocator rdzv__allocator_libc;

/* Aligned for any type. NULL when out of memory. */
static inline void *rdzv__alloc(const rdzv_allocator *a, size_t len_bytes)
{
    return a->alloc(a->ctx, len_bytes, _Alignof(max_align_t));
}

static inline void rdzv__free(const rdzv_allocator *a, void *ptr)
{
    a->free(a->ctx, ptr);
}

#endif
