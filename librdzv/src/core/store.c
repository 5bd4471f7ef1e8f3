/*
 * store.c: one hash table of names. Owns keys, values and queue elements; holds the heads of the
 * waiter lists but not the waiters. Invariant: a name is in the table while it has a key, a queue
 * element or a waiter, and st->bytes is the sum of what is allocated here. Knows nothing of
 * connections, replies or the wire.
 */
#include "core/store.h"

#include "core/decimal.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(keyptr, keylen, hashv) (hashv) = hash_name(st, (keyptr), (keylen))
#define uthash_malloc(size) rdzv__store_alloc(st, (size))
#define uthash_free(ptr, size) rdzv__store_release(st, (ptr), (size))
#define uthash_nonfatal_oom(name) st->why = st->why ? st->why : RDZV__WHY_NO_MEMORY
#include <uthash.h>

enum { MIN_VALUE_CAP = RDZV__DECIMAL_BYTES }; /* a counter's text never has to move */

struct item {
    struct item *next;
    size_t len;
    uint8_t data[];
};

/* A value is text. One that ADD has made is kept as a number as well, and its text is written only
 * when somebody asks for it. */
struct entry {
    struct rdzv__name name; /* first, so that a name is an entry */
    UT_hash_handle hh;
    struct item *head; /* of the queue; tail is valid only when head is not NULL */
    struct item *tail;
    uint8_t *value;
    size_t value_len;
    size_t value_cap;
    int64_t number;
    uint32_t text_len;
    uint8_t counter;  /* `number` is the value */
    uint8_t text_due; /* and `value` is an older one */
    uint8_t text[];
};

static struct entry *entry_of(struct rdzv__name *name)
{
    return (struct entry *)name;
}

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

void rdzv__store_clear(struct rdzv__store *st)
{
    while (st->entries != NULL) {
        struct rdzv__name *name = &st->entries->name;
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
    return HASH_COUNT(st->entries);
}

/* Finds the entry of a key; NULL when there is none. */
static inline struct entry *find(struct rdzv__store *st, const uint8_t *key, size_t len,
                                 unsigned hash)
{
    struct entry *e;
    HASH_FIND_BYHASHVALUE(hh, st->entries, key, (unsigned)len, hash, e);
    return e;
}

struct rdzv__name *rdzv__store_find(struct rdzv__store *st, const uint8_t *key, size_t len)
{
    struct entry *e = find(st, key, len, hash_name(st, key, len));
    return e != NULL ? &e->name : NULL;
}

static struct rdzv__name *create(struct rdzv__store *st, const uint8_t *key, size_t len,
                                 unsigned hash)
{
    if (rdzv__store_names(st) >= st->max_names) {
        st->why = RDZV__WHY_KEYS_FULL;
        return NULL;
    }
    st->why = RDZV__WHY_OK;
    struct entry *e = rdzv__store_alloc(st, sizeof *e + len);
    if (e == NULL)
        return NULL;
    memset(e, 0, sizeof *e);
    queue_init(&e->name.waiters);
    e->text_len = (uint32_t)len;
    memcpy(e->text, key, len);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, st->entries, e->text, (unsigned)len, hash, e);
    if (st->why != RDZV__WHY_OK) { /* the table could not grow and has let go of the name */
        rdzv__store_release(st, e, sizeof *e + len);
        return NULL;
    }
    return &e->name;
}

struct rdzv__name *rdzv__store_name(struct rdzv__store *st, const uint8_t *key, size_t len)
{
    unsigned hash = hash_name(st, key, len);
    struct entry *e = find(st, key, len, hash);
    return e != NULL ? &e->name : create(st, key, len, hash);
}

void rdzv__store_drop(struct rdzv__store *st, struct rdzv__name *name)
{
    struct entry *e = entry_of(name);
    HASH_DELETE(hh, st->entries, e);
    rdzv__store_release(st, e, sizeof *e + e->text_len);
}

struct rdzv__name *rdzv__store_first(struct rdzv__store *st)
{
    return st->entries != NULL ? &st->entries->name : NULL;
}

struct rdzv__name *rdzv__name_next(struct rdzv__name *name)
{
    struct entry *next = entry_of(name)->hh.next;
    return next != NULL ? &next->name : NULL;
}

const uint8_t *rdzv__name_text(const struct rdzv__name *name, size_t *ret_len)
{
    const struct entry *e = (const struct entry *)name;
    *ret_len = e->text_len;
    return e->text;
}

/* Writes the text of a counter. There is room: its first value was a text, too. */
static void write_number(struct entry *e)
{
    if (e->text_due)
        e->value_len = rdzv__decimal_format(e->number, e->value);
    e->text_due = 0;
}

const uint8_t *rdzv__name_value(struct rdzv__name *name, size_t *ret_len)
{
    struct entry *e = entry_of(name);
    write_number(e);
    *ret_len = e->value_len;
    return e->value;
}

/* Moves the value to a block of `cap` bytes, keeping its first `keep`. */
static int move_value(struct rdzv__store *st, struct entry *e, size_t cap, size_t keep)
{
    uint8_t *block = rdzv__store_alloc(st, cap);
    if (block == NULL)
        return st->why;
    if (keep > 0)
        memcpy(block, e->value, keep);
    rdzv__store_release(st, e->value, e->value_cap);
    e->value = block;
    e->value_cap = cap;
    return RDZV__WHY_OK;
}

/* `value` has the text of a new value. */
static void mark_text(struct rdzv__store *st, struct entry *e, size_t len)
{
    st->keys += !e->name.has_key;
    e->name.has_key = 1;
    e->value_len = len;
    e->counter = 0;
}

int rdzv__store_put(struct rdzv__store *st, struct rdzv__name *name, const uint8_t *value,
                    size_t len, int *ret_changed)
{
    struct entry *e = entry_of(name);
    *ret_changed = 0;
    write_number(e);
    if (name->has_key && e->value_len == len && (len == 0 || memcmp(e->value, value, len) == 0))
        return RDZV__WHY_OK;
    size_t cap = len > MIN_VALUE_CAP ? len : MIN_VALUE_CAP;
    /* A much shorter value gives the long block back. */
    if (cap > e->value_cap || cap < e->value_cap / 4) {
        int why = move_value(st, e, cap, 0);
        if (why != RDZV__WHY_OK)
            return why;
    }
    if (len > 0)
        memcpy(e->value, value, len);
    mark_text(st, e, len);
    *ret_changed = 1;
    return RDZV__WHY_OK;
}

/* The first ADD to a text. */
static int start_counter(struct rdzv__store *st, struct entry *e, uint64_t delta, int *ret_changed)
{
    int64_t old = 0;
    if (e->name.has_key && !rdzv__decimal_parse(e->value, e->value_len, &old))
        return RDZV__WHY_NOT_NUMBER;
    int64_t sum = (int64_t)((uint64_t)old + delta);
    uint8_t text[RDZV__DECIMAL_BYTES];
    size_t len = rdzv__decimal_format(sum, text);
    int why = rdzv__store_put(st, &e->name, text, len, ret_changed);
    if (why == RDZV__WHY_OK) {
        e->number = sum;
        e->counter = 1;
    }
    return why;
}

int rdzv__store_add(struct rdzv__store *st, struct rdzv__name *name, uint64_t delta,
                    int64_t *ret_sum, int *ret_changed)
{
    struct entry *e = entry_of(name);
    int why = RDZV__WHY_OK;
    if (e->counter) {
        e->number = (int64_t)((uint64_t)e->number + delta);
        e->text_due |= delta != 0;
        *ret_changed = delta != 0;
    } else {
        why = start_counter(st, e, delta, ret_changed);
    }
    *ret_sum = e->number;
    return why;
}

int rdzv__store_append(struct rdzv__store *st, struct rdzv__name *name, const uint8_t *value,
                       size_t len)
{
    struct entry *e = entry_of(name);
    write_number(e);
    if (len > st->max_bytes - e->value_len)
        return RDZV__WHY_STORE_FULL;
    size_t total = e->value_len + len;
    if (total > e->value_cap) {
        /* Never less than a counter's text takes, which it may become. */
        size_t tight = total > MIN_VALUE_CAP ? total : MIN_VALUE_CAP;
        size_t roomy = 2 * total > tight ? 2 * total : tight;
        int why = move_value(st, e, roomy, e->value_len);
        if (why != RDZV__WHY_OK)
            why = move_value(st, e, tight, e->value_len);
        if (why != RDZV__WHY_OK)
            return why;
    }
    if (len > 0)
        memcpy(e->value + e->value_len, value, len);
    mark_text(st, e, total);
    return RDZV__WHY_OK;
}

void rdzv__store_remove(struct rdzv__store *st, struct rdzv__name *name)
{
    struct entry *e = entry_of(name);
    rdzv__store_release(st, e->value, e->value_cap);
    e->value = NULL;
    e->value_len = 0;
    e->value_cap = 0;
    e->counter = 0;
    e->text_due = 0;
    name->has_key = 0;
    st->keys--;
}

int rdzv__store_queue_push(struct rdzv__store *st, struct rdzv__name *name, const uint8_t *value,
                           size_t len)
{
    struct entry *e = entry_of(name);
    struct item *item = rdzv__store_alloc(st, sizeof *item + len);
    if (item == NULL)
        return st->why;
    item->next = NULL;
    item->len = len;
    if (len > 0)
        memcpy(item->data, value, len);
    if (e->head == NULL)
        e->head = item;
    else
        e->tail->next = item;
    e->tail = item;
    name->items++;
    return RDZV__WHY_OK;
}

const uint8_t *rdzv__name_queue_head(const struct rdzv__name *name, size_t *ret_len)
{
    const struct item *head = ((const struct entry *)name)->head;
    *ret_len = head->len;
    return head->data;
}

void rdzv__store_queue_pop(struct rdzv__store *st, struct rdzv__name *name)
{
    struct entry *e = entry_of(name);
    struct item *item = e->head;
    e->head = item->next;
    name->items--;
    rdzv__store_release(st, item, sizeof *item + item->len);
}
