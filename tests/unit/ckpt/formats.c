/*
 * formats.c: see formats.h.
 */
#include "formats.h"

#include "alloc_fault.h"

#include <check.h>

ckpt_tensor formats_tensor(const char *name, uint32_t dtype, int32_t ndim, const int64_t *shape,
                           void *data)
{
    ckpt_tensor t;
    ckpt_tensor_init(&t, sizeof t);
    t.name = name;
    t.dtype = dtype;
    t.ndim = ndim;
    t.shape = shape;
    t.data = data;
    return t;
}

long formats_fail_each_allocation(int (*act)(const ckpt_allocator *))
{
    struct alloc_fault fault = ALLOC_FAULT_INIT;
    while (alloc_fault_next(&fault)) {
        const ckpt_allocator a = {alloc_fault_alloc, alloc_fault_free, &fault};
        int rc = act(&a);
        ck_assert_int_eq(rc, alloc_fault_fired(&fault) ? CKPT_ENOMEM : CKPT_OK);
    }
    return fault.round;
}
