/*
 * alloc.c: the allocator of a handle that was given none. No state.
 */
#include "alloc.h"

#include "libc_alloc.h"

const rdzv_allocator rdzv__allocator_libc = {libc_alloc, libc_free, NULL};
