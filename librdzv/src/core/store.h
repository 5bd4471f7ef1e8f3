/*
 * store.h: names with their keys, queues and waiter lists. A key and a queue of one name live side
 * by side. Functions that need room answer RDZV__WHY_OK, RDZV__WHY_STORE_FULL, RDZV__WHY_KEYS_FULL
 * or RDZV__WHY_NO_MEMORY; after a failure nothing has changed.
 */
#ifndef RDZV_CORE_STORE_H
#define RDZV_CORE_STORE_H

#include "alloc.h"
#include "core/why.h"
#include "queue.h"

#include <stddef.h>
#include <stdint.h>

struct rdzv__store {
    const rdzv_allocator *allocator;
    uint64_t hash_seed;
    uint64_t max_bytes;
    uint64_t max_names;
    uint64_t bytes;        /* allocated for the store now */
    uint64_t keys;         /* names that have a key */
    struct entry *entries; /* hash table */
    int why;               /* why the last allocation failed */
};

/* The part of a name that others may read; valid until the next settle. */
struct rdzv__name {
    struct queue waiters;
    uint64_t items; /* in the queue */
    uint8_t has_key;
};

/* Present for CHECK and WAIT: has a key or a queue that is not empty. */
static inline int rdzv__name_ready(const struct rdzv__name *name)
{
    return name->has_key || name->items > 0;
}

/* Without room until max_bytes and max_names are set. */
void rdzv__store_init(struct rdzv__store *st, const rdzv_allocator *allocator, uint64_t hash_seed);
/* Drops every name; the store may be used again. No waiter may be left. */
void rdzv__store_clear(struct rdzv__store *st);

/* Memory that counts against max_bytes. `size` is the one that was allocated. */
void *rdzv__store_alloc(struct rdzv__store *st, size_t size);
void rdzv__store_release(struct rdzv__store *st, void *ptr, size_t size);

/* Names in the table: with a key, a queue or waiters. */
uint64_t rdzv__store_names(const struct rdzv__store *st);
/* NULL when there is none. */
struct rdzv__name *rdzv__store_find(struct rdzv__store *st, const uint8_t *key, size_t len);
/* Finds or creates; NULL is a failure, see st->why. To be settled when done. */
struct rdzv__name *rdzv__store_name(struct rdzv__store *st, const uint8_t *key, size_t len);
/* Takes a name without key, queue and waiter out of the table. */
void rdzv__store_drop(struct rdzv__store *st, struct rdzv__name *name);
static inline void rdzv__store_settle(struct rdzv__store *st, struct rdzv__name *name)
{
    if (!rdzv__name_ready(name) && queue_empty(&name->waiters))
        rdzv__store_drop(st, name);
}

/* In creation order, also names without a key. NULL at the end. */
struct rdzv__name *rdzv__store_first(struct rdzv__store *st);
struct rdzv__name *rdzv__name_next(struct rdzv__name *name);

const uint8_t *rdzv__name_text(const struct rdzv__name *name, size_t *ret_len);
/* Of a name without a key: empty. Borrowed until the name changes. */
const uint8_t *rdzv__name_value(struct rdzv__name *name, size_t *ret_len);

/* *ret_changed = 0 when the name had exactly this value. */
int rdzv__store_put(struct rdzv__store *st, struct rdzv__name *name, const uint8_t *value,
                    size_t len, int *ret_changed);
/* Adds to the decimal number that the value is; a name without a key counts from 0. The sum wraps
 * around like PyTorch's. RDZV__WHY_NOT_NUMBER when the value is none. */
int rdzv__store_add(struct rdzv__store *st, struct rdzv__name *name, uint64_t delta,
                    int64_t *ret_sum, int *ret_changed);
int rdzv__store_append(struct rdzv__store *st, struct rdzv__name *name, const uint8_t *value,
                       size_t len);
void rdzv__store_remove(struct rdzv__store *st, struct rdzv__name *name);

int rdzv__store_queue_push(struct rdzv__store *st, struct rdzv__name *name, const uint8_t *value,
                           size_t len);
/* First element of a queue that is not empty; borrowed until it is popped. */
const uint8_t *rdzv__name_queue_head(const struct rdzv__name *name, size_t *ret_len);
void rdzv__store_queue_pop(struct rdzv__store *st, struct rdzv__name *name);

#endif
