/*
 * layout.c: the tensors of one shard, owned descriptions of them, and the file image that they
 * make. Invariant: every name, of an entry or an alias, is in `names` exactly once; the sum of all
 * sizes stays far below 2^63. Knows the order of tensors in a file, but not how a header is spelled
 * (safetensors.c), how strides are walked (stride.c), or what a file is.
 */
#include "format/layout.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* uthash asks for memory through macros; `hash_env` is a variable of the function that uses it. */
#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(key, len, hash) (hash) = (unsigned)XXH3_64bits_withSeed(key, len, hash_seed)
#define uthash_malloc(len) ckpt__alloc(hash_env, len)
#define uthash_free(ptr, len) ckpt__free(hash_env, ptr)
#define uthash_nonfatal_oom(item) hash_failed = true
#include <uthash.h>

#define MAX_DATA_BYTES (INT64_MAX / 2)

struct name {
    const char *text; /* of the entry or alias */
    size_t index;
    bool is_alias;
    UT_hash_handle hh;
};

struct ckpt__names {
    struct name *head;
};

/* File content chooses the names, so where they land in the table must not be known beforehand. */
static XXH64_hash_t seed_of(const struct ckpt__names *names)
{
    return (XXH64_hash_t)(uintptr_t)names;
}

static struct name *names_find(const struct ckpt__layout *l, const char *text)
{
    if (l->names == NULL)
        return NULL;
    XXH64_hash_t hash_seed = seed_of(l->names);
    struct name *found;
    HASH_FIND(hh, l->names->head, text, strlen(text), found);
    return found;
}

static int names_add(struct ckpt__layout *l, const char *text, size_t index, bool is_alias)
{
    const struct ckpt__env *hash_env = l->env;
    if (l->names == NULL) {
        l->names = ckpt__alloc_zero(l->env, sizeof *l->names);
        if (l->names == NULL)
            return CKPT_ENOMEM;
    }
    struct name *item = ckpt__alloc_zero(l->env, sizeof *item);
    if (item == NULL)
        return CKPT_ENOMEM;
    item->text = text;
    item->index = index;
    item->is_alias = is_alias;
    bool hash_failed = false;
    XXH64_hash_t hash_seed = seed_of(l->names);
    HASH_ADD_KEYPTR(hh, l->names->head, item->text, strlen(text), item);
    if (hash_failed) {
        ckpt__free(l->env, item);
        return CKPT_ENOMEM;
    }
    return CKPT_OK;
}

static void names_free(struct ckpt__layout *l)
{
    if (l->names == NULL)
        return;
    const struct ckpt__env *hash_env = l->env;
    struct name *item = l->names->head;
    HASH_CLEAR(hh, l->names->head);
    while (item != NULL) {
        struct name *next = item->hh.next;
        ckpt__free(l->env, item);
        item = next;
    }
    ckpt__free(l->env, l->names);
    l->names = NULL;
}

void ckpt__layout_init(struct ckpt__layout *l, const struct ckpt__env *env)
{
    *l = (struct ckpt__layout){.env = env};
}

static void entry_free(const struct ckpt__env *env, struct ckpt__entry *e)
{
    ckpt__free(env, e->name);
    ckpt__free(env, e->shape); /* the other arrays share its allocation */
}

static void alias_free(const struct ckpt__env *env, struct ckpt__alias *a)
{
    ckpt__free(env, a->name);
    ckpt__free(env, a->target);
}

void ckpt__layout_free(struct ckpt__layout *l)
{
    const struct ckpt__env *env = l->env;
    names_free(l);
    for (size_t i = 0; i < l->count; i++)
        entry_free(env, &l->entries[i]);
    for (size_t i = 0; i < l->alias_count; i++)
        alias_free(env, &l->aliases[i]);
    ckpt__free(env, l->entries);
    ckpt__free(env, l->aliases);
    ckpt__free(env, l->head);
    ckpt__layout_init(l, env);
}

static bool is_whole(const ckpt_tensor *t)
{
    for (int32_t i = 0; i < t->ndim; i++) {
        if ((t->offset != NULL && t->offset[i] != 0) ||
            (t->global_shape != NULL && t->global_shape[i] != t->shape[i]))
            return false;
    }
    return true;
}

static bool is_dense(const ckpt_tensor *t)
{
    if (t->strides_bytes == NULL)
        return true;
    int64_t dense = (int64_t)ckpt_dtype_size(t->dtype);
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] == 0)
            return true;
        if (t->shape[i] > 1 && t->strides_bytes[i] != dense)
            return false;
        dense *= t->shape[i];
    }
    return true;
}

static int64_t *copy_values(int64_t **free_space, const int64_t *values, int32_t n)
{
    int64_t *copy = *free_space;
    for (int32_t i = 0; i < n; i++)
        copy[i] = values != NULL ? values[i] : 0;
    *free_space += n;
    return copy;
}

static int entry_fill(const struct ckpt__env *env, struct ckpt__entry *e, const ckpt_tensor *t)
{
    bool whole = is_whole(t);
    bool dense = is_dense(t);
    size_t n = (size_t)t->ndim;
    e->name = ckpt__strdup(env, t->name);
    e->shape =
        ckpt__alloc_array(env, n * (1u + (whole ? 0u : 2u) + (dense ? 0u : 1u)), sizeof *e->shape);
    if (e->name == NULL || e->shape == NULL) {
        entry_free(env, e);
        return CKPT_ENOMEM;
    }
    e->dtype = t->dtype;
    e->ndim = t->ndim;
    int64_t *space = e->shape;
    copy_values(&space, t->shape, t->ndim);
    if (!whole) {
        const int64_t *global = t->global_shape != NULL ? t->global_shape : t->shape;
        e->global_shape = copy_values(&space, global, t->ndim);
        e->offset = copy_values(&space, t->offset, t->ndim);
    }
    if (!dense)
        e->strides_bytes = copy_values(&space, t->strides_bytes, t->ndim);
    return CKPT_OK;
}

static int out_of_memory(ckpt_error *err, const char *name)
{
    return ckpt__fail(err, CKPT_ENOMEM, "tensor \"%s\": out of memory for its description",
                      ckpt__show_name(name).text);
}

int ckpt__layout_append(struct ckpt__layout *l, const ckpt_tensor *t, ckpt_error *err)
{
    assert(l->head == NULL);
    struct ckpt__entry e = {0};
    int rc = ckpt__tensor_check(t, &e.bytes, err);
    if (rc != CKPT_OK)
        return rc;
    if (names_find(l, t->name) != NULL)
        return ckpt__fail(err, CKPT_EINVAL, "tensor name \"%s\" is there twice",
                          ckpt__show_name(t->name).text);
    if (e.bytes > (uint64_t)MAX_DATA_BYTES - l->data_bytes)
        return ckpt__fail(err, CKPT_EINVAL,
                          "tensor \"%s\": all tensors together are larger than a file can be",
                          ckpt__show_name(t->name).text);
    if (!ckpt__grow(l->env, &l->entries, l->count, &l->capacity, sizeof *l->entries) ||
        entry_fill(l->env, &e, t) != CKPT_OK)
        return out_of_memory(err, t->name);
    if (names_add(l, e.name, l->count, false) != CKPT_OK) {
        entry_free(l->env, &e);
        return out_of_memory(err, t->name);
    }
    l->entries[l->count++] = e;
    l->data_bytes += e.bytes;
    return CKPT_OK;
}

int ckpt__layout_add(struct ckpt__layout *l, const ckpt_tensor *t, ckpt_error *err)
{
    uint64_t bytes;
    int rc = ckpt__tensor_check(t, &bytes, err);
    if (rc == CKPT_OK && bytes > 0 && t->data == NULL)
        rc = ckpt__fail(err, CKPT_EINVAL, "tensor \"%s\" has no data",
                        ckpt__show_name(t->name).text);
    if (rc == CKPT_OK)
        rc = ckpt__layout_append(l, t, err);
    if (rc == CKPT_OK)
        l->entries[l->count - 1].data = t->data;
    return rc;
}

int ckpt__layout_alias(struct ckpt__layout *l, const char *name, const char *target,
                       ckpt_error *err)
{
    int rc = ckpt__name_check(name, err);
    if (rc != CKPT_OK)
        return rc;
    if (names_find(l, name) != NULL)
        return ckpt__fail(err, CKPT_EINVAL, "tensor name \"%s\" is there twice",
                          ckpt__show_name(name).text);
    if (l->alias_count == CKPT__MAX_ALIASES)
        return ckpt__fail(err, CKPT_EINVAL, "alias \"%s\": %u aliases are there already",
                          ckpt__show_name(name).text, CKPT__MAX_ALIASES);
    const struct ckpt__entry *e = target != NULL ? ckpt__layout_find(l, target) : NULL;
    if (e == NULL)
        return ckpt__fail(err, CKPT_EINVAL, "alias \"%s\": its target \"%s\" is not there",
                          ckpt__show_name(name).text,
                          target != NULL ? ckpt__show_name(target).text : "");
    if (!ckpt__grow(l->env, &l->aliases, l->alias_count, &l->alias_capacity, sizeof *l->aliases))
        return out_of_memory(err, name);
    struct ckpt__alias a = {ckpt__strdup(l->env, name), ckpt__strdup(l->env, e->name)};
    if (a.name == NULL || a.target == NULL ||
        names_add(l, a.name, l->alias_count, true) != CKPT_OK) {
        alias_free(l->env, &a);
        return out_of_memory(err, name);
    }
    l->aliases[l->alias_count++] = a;
    return CKPT_OK;
}

const struct ckpt__entry *ckpt__layout_find(const struct ckpt__layout *l, const char *name)
{
    const struct name *found = names_find(l, name);
    if (found != NULL && found->is_alias)
        found = names_find(l, l->aliases[found->index].target);
    return found != NULL ? &l->entries[found->index] : NULL;
}

/* After entries have moved. */
static void renumber(struct ckpt__layout *l)
{
    for (size_t i = 0; i < l->count; i++)
        names_find(l, l->entries[i].name)->index = i;
}

/* Largest item size first: then every tensor starts on a multiple of its item size without holes,
 * which the format forbids. Sorting by counting keeps the order of put among equals. */
static int sort_entries(struct ckpt__layout *l)
{
    struct ckpt__entry *sorted = ckpt__alloc_array(l->env, l->count, sizeof *sorted);
    if (sorted == NULL)
        return CKPT_ENOMEM;
    size_t n = 0;
    for (size_t item = 16; item > 0; item /= 2) {
        for (size_t i = 0; i < l->count; i++) {
            if (ckpt_dtype_size(l->entries[i].dtype) == item)
                sorted[n++] = l->entries[i];
        }
    }
    assert(n == l->count);
    ckpt__free(l->env, l->entries);
    l->entries = sorted;
    l->capacity = l->count;
    renumber(l);
    return CKPT_OK;
}

int ckpt__layout_build(struct ckpt__layout *l, ckpt_error *err)
{
    assert(l->head == NULL);
    if (sort_entries(l) != CKPT_OK)
        return ckpt__fail(err, CKPT_ENOMEM, "out of memory for the layout of %zu tensors",
                          l->count);
    uint64_t at = 0;
    for (size_t i = 0; i < l->count; i++) {
        l->entries[i].begin = at;
        at += l->entries[i].bytes;
    }
    size_t head_bytes;
    int rc = ckpt__header_write(l, &l->head, &head_bytes, err);
    if (rc != CKPT_OK)
        return rc;
    l->data_offset = head_bytes;
    l->file_bytes = head_bytes + at;
    for (size_t i = 0; i < l->count; i++)
        l->entries[i].begin += head_bytes;
    return CKPT_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct ckpt__entry *x = a;
    const struct ckpt__entry *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name); /* empty tensors may share a place */
}

static bool is_sorted(const struct ckpt__layout *l)
{
    for (size_t i = 1; i < l->count; i++) {
        if (l->entries[i].begin < l->entries[i - 1].begin + l->entries[i - 1].bytes)
            return false;
    }
    return true;
}

int ckpt__layout_settle(struct ckpt__layout *l, uint64_t data_offset, uint64_t file_bytes,
                        ckpt_error *err)
{
    if (!is_sorted(l)) {
        qsort(l->entries, l->count, sizeof *l->entries, by_place);
        renumber(l);
    }
    uint64_t at = data_offset;
    for (size_t i = 0; i < l->count; i++) {
        const struct ckpt__entry *e = &l->entries[i];
        if (e->begin != at)
            return ckpt__fail(err, CKPT_EUNREADABLE,
                              "tensor \"%s\" starts at byte %llu, but the data before it ends at "
                              "byte %llu",
                              ckpt__show_name(e->name).text, (unsigned long long)e->begin,
                              (unsigned long long)at);
        at += e->bytes;
    }
    if (at != file_bytes)
        return ckpt__fail(err, CKPT_EUNREADABLE,
                          "the tensors end at byte %llu, but the file at byte %llu: %s",
                          (unsigned long long)at, (unsigned long long)file_bytes,
                          at > file_bytes ? "it was cut short" : "something follows them");
    l->data_offset = data_offset;
    l->file_bytes = file_bytes;
    return CKPT_OK;
}

/* The first entry that ends behind `off`; entries without bytes are passed by. */
static size_t entry_at(const struct ckpt__layout *l, uint64_t off)
{
    size_t low = 0;
    size_t high = l->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (l->entries[middle].begin + l->entries[middle].bytes > off)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void ckpt__layout_read(const struct ckpt__layout *l, uint64_t off, uint8_t *dst, size_t len)
{
    assert(l->head != NULL && off <= l->file_bytes && len <= l->file_bytes - off);
    if (off < l->data_offset && len > 0) {
        size_t n = l->data_offset - off < len ? (size_t)(l->data_offset - off) : len;
        memcpy(dst, l->head + off, n);
        off += n;
        dst += n;
        len -= n;
    }
    for (size_t i = entry_at(l, off); len > 0; i++) {
        const struct ckpt__entry *e = &l->entries[i];
        uint64_t within = off - e->begin;
        uint64_t left = e->bytes - within;
        size_t n = left < len ? (size_t)left : len;
        ckpt__gather(e, within, dst, n);
        off += n;
        dst += n;
        len -= n;
    }
}
