/*
 * pool.c: the staging pool.
 *
 * Invariant: a block is either lent or on the stack, never both. The pages are kept out of forked
 * children: those would get a copy of every registered page, and on older kernels the parent could
 * be left writing to pages that the ring no longer sees.
 */
#include "disk/pool.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define BLOCK_UNIT ((size_t)64 << 10)

static int lists_init(struct ckpt__pool *p)
{
    p->stack = ckpt__alloc_array(p->env, p->count, sizeof *p->stack);
    p->lent = ckpt__alloc_zero(p->env, p->count * sizeof *p->lent);
    if (p->stack == NULL || p->lent == NULL)
        return CKPT_ENOMEM;
    for (uint32_t i = 0; i < p->count; i++)
        p->stack[i] = p->count - 1 - i;
    p->available = p->count;
    return CKPT_OK;
}

int ckpt__pool_init(struct ckpt__pool *p, const struct ckpt__env *env, uint32_t count,
                    size_t block_bytes, ckpt_error *err)
{
    size_t bytes;
    if (count == 0 || block_bytes == 0 || block_bytes % BLOCK_UNIT != 0 ||
        __builtin_mul_overflow(block_bytes, count, &bytes) || bytes > SIZE_MAX - HUGE_BYTES)
        return ckpt__fail(err, CKPT_EINVAL,
                          "staging pool of %u blocks of %zu bytes: blocks are "
                          "multiples of 64 KiB",
                          count, block_bytes);
    /* whole huge pages, so that the advice below touches nobody else's memory */
    bytes = (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    *p =
        (struct ckpt__pool){.env = env, .bytes = bytes, .block_bytes = block_bytes, .count = count};
    p->base = ckpt__alloc_aligned(env, bytes, HUGE_BYTES);
    if (p->base == NULL || lists_init(p) < 0) {
        ckpt__pool_free(p);
        return ckpt__fail(err, CKPT_ENOMEM, "no memory for %zu MiB of staging", bytes >> 20);
    }
    /* both are advice: without them it is slower, not wrong */
    (void)madvise(p->base, bytes, MADV_HUGEPAGE);
    (void)madvise(p->base, bytes, MADV_DONTFORK);
    memset(p->base, 0, bytes);
    return CKPT_OK;
}

void ckpt__pool_free(struct ckpt__pool *p)
{
    if (p->env == NULL)
        return;
    assert(p->available == p->count || p->stack == NULL || p->lent == NULL);
    if (p->base != NULL) /* the allocator may use these pages for what a child needs */
        (void)madvise(p->base, p->bytes, MADV_DOFORK);
    ckpt__free(p->env, p->base);
    ckpt__free(p->env, p->stack);
    ckpt__free(p->env, p->lent);
    *p = (struct ckpt__pool){0};
}

void *ckpt__pool_get(struct ckpt__pool *p)
{
    if (p->available == 0)
        return NULL;
    uint32_t i = p->stack[--p->available];
    p->lent[i] = true;
    return p->base + (size_t)i * p->block_bytes;
}

void ckpt__pool_put(struct ckpt__pool *p, void *block)
{
    size_t at = (size_t)((uint8_t *)block - p->base);
    size_t i = at / p->block_bytes;
    assert(at % p->block_bytes == 0 && i < p->count && p->lent[i]);
    p->lent[i] = false;
    p->stack[p->available++] = (uint32_t)i;
}
