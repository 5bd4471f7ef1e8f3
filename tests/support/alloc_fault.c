/*
 * alloc_fault.c: see alloc_fault.h. Memory is filled with a pattern, so that code that counts on
 * zeros fails too.
 */
#include "alloc_fault.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

bool alloc_fault_next(struct alloc_fault *f)
{
    ck_assert_msg(f->live == 0, "round %ld leaked %ld allocations", f->round, (long)f->live);
    if (f->round >= 0 && f->failed == 0)
        return false;
    f->round++;
    f->seen = 0;
    f->failed = 0;
    return true;
}

bool alloc_fault_fired(struct alloc_fault *f)
{
    return f->failed > 0;
}

void *alloc_fault_alloc(void *ctx, size_t len, size_t align)
{
    struct alloc_fault *f = ctx;
    long number = atomic_fetch_add(&f->seen, 1);
    long target = f->round / 2;
    bool for_ever = f->round % 2 != 0;
    if (number == target || (for_ever && number > target)) {
        atomic_fetch_add(&f->failed, 1);
        return NULL;
    }
    void *p;
    if (posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, len) != 0)
        return NULL;
    memset(p, 0xa5, len);
    atomic_fetch_add(&f->live, 1);
    return p;
}

void alloc_fault_free(void *ctx, void *p)
{
    struct alloc_fault *f = ctx;
    if (p != NULL)
        atomic_fetch_sub(&f->live, 1);
    free(p);
}
