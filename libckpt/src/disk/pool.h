/*
 * pool.h: staging memory. Blocks of one size in one piece of huge-page memory, touched once at
 * creation and kept, because the first touch of a 4 KiB page costs more than copying it.
 *
 * Belongs to one thread. Does not cross fork: a child sees no memory there.
 */
#ifndef CKPT_POOL_H
#define CKPT_POOL_H

#include "env.h"

#include <stdbool.h>

struct ckpt__pool {
    const struct ckpt__env *env;
    uint8_t *base;
    size_t bytes; /* all of it: what to register with an engine */
    size_t block_bytes;
    uint32_t count;     /* blocks */
    uint32_t available; /* blocks not lent */
    uint32_t *stack;    /* numbers of the available ones; the last one put is got first: warm */
    bool *lent;
};

/* block_bytes: a multiple of 64 KiB. CKPT_EINVAL, CKPT_ENOMEM; on failure there is nothing to free.
 */
int ckpt__pool_init(struct ckpt__pool *p, const struct ckpt__env *env, uint32_t count,
                    size_t block_bytes, ckpt_error *err);

/* Every block is back, no engine holds the memory. Takes a pool of zeros. */
void ckpt__pool_free(struct ckpt__pool *p);

/* NULL when all are lent. Its content is whatever it was. */
void *ckpt__pool_get(struct ckpt__pool *p);
void ckpt__pool_put(struct ckpt__pool *p, void *block);

#endif
