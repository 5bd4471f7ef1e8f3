/*
 * store.c: one hash table of names. Owns keys, values and queue elements; holds the heads of the
 * waiter lists but not the waiters. Invariant: a name is in the table while it has a key, a queue
 * element or a waiter, and st->bytes is the sum of what is allocated here. Knows nothing of
 * connections, replies or the wire.
 */
#include "core/store.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(keyptr, keylen, hashv) (hashv) = hash_name(st, (keyptr), (keylen))
#define uthash_malloc(size) rdzv__store_alloc(st, (size))
#define uthash_free(ptr, size) rdzv__store_release(st, (ptr), (size))
#define uthash_nonfatal_oom(name) st->why = st->why ? st->why : RDZV__WHY_NO_MEMORY
#include <uthash.h>

enum { MIN_VALUE_CAP = 24 }; /* a counter's text never has to move */

struct item {
    struct item *next;
    size_t len;
    uint8_t data[];
};

struct rdzv__name {
    UT_hash_handle hh;
    struct queue waiters;
    struct item *head; /* of the queue; tail is valid only when head is not NULL */
    struct item *tail;
    uint64_t items;
    uint8_t *value;
    size_t value_len;
    size_t value_cap;
    uint32_t text_len;
    uint8_t has_key;
    uint8_t text[];
};

static unsigned hash_name(const struct rdzv__store *st, const void *key, size_t len)
{
    return (unsigned)XXH3_64bits_withSeed(key, len, st->hash_seed);
}

void rdzv__store_init(struct rdzv__store *st, const rdzv_allocator *allocator, uint64_t hash_seed)
{
    memset(st, 0, sizeof *st);
    st->allocator = allocator;
    st->hash_seed = hash_seed;
}

void rdzv__store_free(struct rdzv__store *st)
{
    while (st->names != NULL) {
        struct rdzv__name *name = st->names;
        while (name->items > 0)
            rdzv__store_queue_pop(st, name);
        if (name->has_key)
            rdzv__store_remove(st, name);
        rdzv__store_settle(st, name);
    }
}

void *rdzv__store_alloc(struct rdzv__store *st, size_t size)
{
    if (size > st->max_bytes - st->bytes) {
        st->why = RDZV__WHY_STORE_FULL;
        return NULL;
    }
    void *ptr = rdzv__alloc(st->allocator, size);
    if (ptr == NULL)
        st->why = RDZV__WHY_NO_MEMORY;
    else
        st->bytes += size;
    return ptr;
}

void rdzv__store_release(struct rdzv__store *st, void *ptr, size_t size)
{
    if (ptr == NULL)
        return;
    rdzv__free(st->allocator, ptr);
    st->bytes -= size;
}

uint64_t rdzv__store_names(const struct rdzv__store *st)
{
    return HASH_COUNT(st->names);
}

struct rdzv__name *rdzv__store_find(struct rdzv__store *st, const uint8_t *key, size_t len)
{
    struct rdzv__name *name;
    HASH_FIND_BYHASHVALUE(hh, st->names, key, (unsigned)len, hash_name(st, key, len), name);
    return name;
}

struct rdzv__name *rdzv__store_name(struct rdzv__store *st, const uint8_t *key, size_t len)
{
    unsigned hash = hash_name(st, key, len);
    struct rdzv__name *name;
    HASH_FIND_BYHASHVALUE(hh, st->names, key, (unsigned)len, hash, name);
    if (name != NULL)
        return name;
    if (rdzv__store_names(st) >= st->max_names) {
        st->why = RDZV__WHY_KEYS_FULL;
        return NULL;
    }
    st->why = RDZV__WHY_OK;
    name = rdzv__store_alloc(st, sizeof *name + len);
    if (name == NULL)
        return NULL;
    memset(name, 0, sizeof *name);
    queue_init(&name->waiters);
    name->text_len = (uint32_t)len;
    memcpy(name->text, key, len);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, st->names, name->text, (unsigned)len, hash, name);
    if (st->why != RDZV__WHY_OK) { /* the table could not grow and has let go of the name */
        rdzv__store_release(st, name, sizeof *name + len);
        return NULL;
    }
    return name;
}

void rdzv__store_settle(struct rdzv__store *st, struct rdzv__name *name)
{
    if (name->has_key || name->items > 0 || !queue_empty(&name->waiters))
        return;
    HASH_DELETE(hh, st->names, name);
    rdzv__store_release(st, name, sizeof *name + name->text_len);
}

struct rdzv__name *rdzv__store_first(struct rdzv__store *st)
{
    return st->names;
}

struct rdzv__name *rdzv__name_next(struct rdzv__name *name)
{
    return name->hh.next;
}

const uint8_t *rdzv__name_text(const struct rdzv__name *name, size_t *ret_len)
{
    *ret_len = name->text_len;
    return name->text;
}

struct queue *rdzv__name_waiters(struct rdzv__name *name)
{
    return &name->waiters;
}

int rdzv__name_has_key(const struct rdzv__name *name)
{
    return name->has_key;
}

int rdzv__name_ready(const struct rdzv__name *name)
{
    return name->has_key || name->items > 0;
}

const uint8_t *rdzv__name_value(const struct rdzv__name *name, size_t *ret_len)
{
    *ret_len = name->value_len;
    return name->value;
}

uint64_t rdzv__name_queue_len(const struct rdzv__name *name)
{
    return name->items;
}

/* Moves the value to a block of `cap` bytes, keeping its first `keep`. */
static int move_value(struct rdzv__store *st, struct rdzv__name *name, size_t cap, size_t keep)
{
    uint8_t *block = rdzv__store_alloc(st, cap);
    if (block == NULL)
        return st->why;
    if (keep > 0)
        memcpy(block, name->value, keep);
    rdzv__store_release(st, name->value, name->value_cap);
    name->value = block;
    name->value_cap = cap;
    return RDZV__WHY_OK;
}

static void mark_present(struct rdzv__store *st, struct rdzv__name *name)
{
    if (!name->has_key)
        st->keys++;
    name->has_key = 1;
}

int rdzv__store_put(struct rdzv__store *st, struct rdzv__name *name, const uint8_t *value,
                    size_t len, int *ret_changed)
{
    *ret_changed = 0;
    /* Counters of equal length mostly differ at their end. */
    if (name->has_key && name->value_len == len &&
        (len == 0 ||
         (name->value[len - 1] == value[len - 1] && memcmp(name->value, value, len) == 0)))
        return RDZV__WHY_OK;
    size_t cap = len > MIN_VALUE_CAP ? len : MIN_VALUE_CAP;
    /* A much shorter value gives the long block back. */
    if (cap > name->value_cap || cap < name->value_cap / 4) {
        int why = move_value(st, name, cap, 0);
        if (why != RDZV__WHY_OK)
            return why;
    }
    if (len > 0)
        memcpy(name->value, value, len);
    name->value_len = len;
    mark_present(st, name);
    *ret_changed = 1;
    return RDZV__WHY_OK;
}

int rdzv__store_append(struct rdzv__store *st, struct rdzv__name *name, const uint8_t *value,
                       size_t len)
{
    if (len > st->max_bytes - name->value_len)
        return RDZV__WHY_STORE_FULL;
    size_t total = name->value_len + len;
    if (total > name->value_cap) {
        size_t roomy = total < MIN_VALUE_CAP / 2 ? MIN_VALUE_CAP : 2 * total;
        int why = move_value(st, name, roomy, name->value_len);
        if (why != RDZV__WHY_OK)
            why = move_value(st, name, total, name->value_len);
        if (why != RDZV__WHY_OK)
            return why;
    }
    if (len > 0)
        memcpy(name->value + name->value_len, value, len);
    name->value_len = total;
    mark_present(st, name);
    return RDZV__WHY_OK;
}

void rdzv__store_remove(struct rdzv__store *st, struct rdzv__name *name)
{
    rdzv__store_release(st, name->value, name->value_cap);
    name->value = NULL;
    name->value_len = 0;
    name->value_cap = 0;
    name->has_key = 0;
    st->keys--;
}

int rdzv__store_queue_push(struct rdzv__store *st, struct rdzv__name *name, const uint8_t *value,
                           size_t len)
{
    struct item *item = rdzv__store_alloc(st, sizeof *item + len);
    if (item == NULL)
        return st->why;
    item->next = NULL;
    item->len = len;
    if (len > 0)
        memcpy(item->data, value, len);
    if (name->head == NULL)
        name->head = item;
    else
        name->tail->next = item;
    name->tail = item;
    name->items++;
    return RDZV__WHY_OK;
}

const uint8_t *rdzv__name_queue_head(const struct rdzv__name *name, size_t *ret_len)
{
    *ret_len = name->head->len;
    return name->head->data;
}

void rdzv__store_queue_pop(struct rdzv__store *st, struct rdzv__name *name)
{
    struct item *item = name->head;
    name->head = item->next;
    name->items--;
    rdzv__store_release(st, item, sizeof *item + item->len);
}
