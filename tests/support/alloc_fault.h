/*
 * alloc_fault.h: an allocator that fails the Nth allocation, once and then for ever, and that
 * counts what was not freed.
 *
 *     struct alloc_fault fault = ALLOC_FAULT_INIT;
 *     while (alloc_fault_next(&fault)) {
 *         ckpt_allocator a = {alloc_fault_alloc, alloc_fault_free, &fault};
 *         int rc = scenario(&a);
 *         ck_assert_int_eq(rc, alloc_fault_fired(&fault) ? CKPT_ENOMEM : CKPT_OK);
 *     }
 *
 * The last round is one in which nothing failed. Thread-safe except for alloc_fault_next.
 */
#ifndef TESTS_ALLOC_FAULT_H
#define TESTS_ALLOC_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct alloc_fault {
    long round;         /* -1 before the first; even: fail once, odd: fail for ever */
    atomic_long seen;   /* allocations asked for in this round */
    atomic_long failed; /* of these, refused */
    atomic_long live;   /* given and not freed */
};

#define ALLOC_FAULT_INIT                                                                           \
    {                                                                                              \
        .round = -1                                                                                \
    }

/* Starts the next round; asserts that the last one freed everything. False when it failed nothing.
 */
bool alloc_fault_next(struct alloc_fault *f);

bool alloc_fault_fired(struct alloc_fault *f);

/* For ckpt_allocator and rdzv_allocator, with the struct alloc_fault as ctx. */
void *alloc_fault_alloc(void *ctx, size_t len, size_t align);
void alloc_fault_free(void *ctx, void *p);

#endif
