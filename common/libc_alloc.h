/* libc_alloc.h: the two functions of the allocator of a handle that was given none. */
#ifndef COMMON_LIBC_ALLOC_H
#define COMMON_LIBC_ALLOC_H

#include <stddef.h>
#include <stdlib.h>

static inline void *libc_alloc(void *ctx, size_t len_bytes, size_t align)
{
    (void)ctx;
    if (align <= _Alignof(max_align_t))
        return malloc(len_bytes);
    void *ptr = NULL;
    return posix_memalign(&ptr, align, len_bytes) == 0 ? ptr : NULL;
}

static inline void libc_free(void *ctx, void *ptr)
{
    (void)ctx;
    free(ptr);
}

#endif
