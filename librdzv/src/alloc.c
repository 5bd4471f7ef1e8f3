/*
 * alloc.c: the allocator of a handle that was given none. No state.
 */
#include "alloc.h"

#include <stdlib.h>

static void *libc_alloc(void *ctx, size_t len_bytes, size_t align)
{
    (void)ctx;
    if (align <= _Alignof(max_align_t))
        return malloc(len_bytes);
    void *ptr = NULL;
    return posix_memalign(&ptr, align, len_bytes) == 0 ? ptr : NULL;
}

static void libc_free(void *ctx, void *ptr)
{
    (void)ctx;
    free(ptr);
}

const rdzv_allocator rdzv__allocator_libc = {libc_alloc, libc_free, NULL};
