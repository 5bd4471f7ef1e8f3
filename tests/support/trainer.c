/*
 * trainer.c: see trainer.h. The state: a large tensor, a transposed view, a reversed one, every
 * dtype once, an empty one, a scalar and an alias.
 */
#include "trainer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TENSORS 40
#define WAIT_MS 60000

static size_t large_bytes = (3u << 20) + 12345 * 4;

void trainer_set_bytes(size_t bytes)
{
    large_bytes = bytes / 4 * 4;
}

struct part {
    ckpt_tensor t;
    char name[64];
    int64_t shape[2], strides[2];
    uint8_t *memory; /* allocation */
    size_t bytes;    /* dense size */
};

struct state {
    struct part parts[MAX_TENSORS];
    size_t count;
};

static uint8_t expected_byte(uint64_t seed, size_t at)
{
    uint64_t x = (seed + at) * 0x9e3779b97f4a7c15u;
    return (uint8_t)(x >> 56);
}

static void add(struct state *s, const char *name, uint32_t dtype, int64_t rows, int64_t cols,
                int32_t ndim, const char *view)
{
    struct part *p = &s->parts[s->count++];
    int64_t item = (int64_t)ckpt_dtype_size(dtype);
    snprintf(p->name, sizeof p->name, "%s", name);
    ckpt_tensor_init(&p->t, sizeof p->t);
    p->t.name = p->name;
    p->t.dtype = dtype;
    p->t.ndim = ndim;
    p->shape[0] = rows;
    p->shape[1] = cols;
    p->bytes = (size_t)(rows * cols * item);
    p->memory = malloc(p->bytes + 64);
    assert(p->memory != NULL);
    p->t.data = p->memory;
    if (strcmp(view, "transposed") == 0) {
        p->strides[0] = item;
        p->strides[1] = rows * item;
        p->t.strides_bytes = p->strides;
    } else if (strcmp(view, "reversed") == 0) {
        p->strides[0] = -cols * item;
        p->strides[1] = item;
        p->t.strides_bytes = p->strides;
        p->t.data = p->memory + (size_t)((rows - 1) * cols * item);
    }
    p->t.shape = p->shape;
}

static void build(struct state *s)
{
    static const char *const dtypes[] = {
#define NAME(name, value, item, other) [value] = #name,
        CKPT_DTYPES(NAME)
#undef NAME
    };
    memset(s, 0, sizeof *s);
    add(s, "large", CKPT_F32, (int64_t)(large_bytes / 4), 1, 1, "dense");
    add(s, "transposed", CKPT_BF16, 130, 257, 2, "transposed");
    add(s, "reversed", CKPT_F64, 33, 9, 2, "reversed");
    add(s, "empty/../\"name\"\n", CKPT_I64, 0, 7, 2, "dense");
    add(s, "scalar", CKPT_I32, 1, 1, 0, "dense");
    for (uint32_t d = 1; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        char name[32];
        snprintf(name, sizeof name, "dtype.%s", dtypes[d]);
        add(s, name, d, 3, 5, 2, "dense");
    }
}

static void drop(struct state *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->parts[i].memory);
}

static uint64_t seed_of(int64_t step, uint64_t salt, int32_t rank, size_t part)
{
    return (uint64_t)step * 1000003u + salt * 7919u + (uint64_t)rank * 104729u + part * 31u;
}

/* Address of dense byte number `at` of a part. */
static uint8_t *byte_of(const struct part *p, size_t at)
{
    size_t item = ckpt_dtype_size(p->t.dtype);
    if (p->t.strides_bytes == NULL)
        return (uint8_t *)p->t.data + at;
    int64_t element = (int64_t)(at / item);
    int64_t row = element / p->shape[1], col = element % p->shape[1];
    return (uint8_t *)p->t.data + row * p->strides[0] + col * p->strides[1] + (int64_t)(at % item);
}

static void fill(struct state *s, int64_t step, uint64_t salt, int32_t rank)
{
    for (size_t i = 0; i < s->count; i++) {
        for (size_t at = 0; at < s->parts[i].bytes; at++)
            *byte_of(&s->parts[i], at) = expected_byte(seed_of(step, salt, rank, i), at);
    }
}

static void compare(const struct state *s, int64_t step, uint64_t salt, int32_t rank,
                    const char *path)
{
    for (size_t i = 0; i < s->count; i++) {
        for (size_t at = 0; at < s->parts[i].bytes; at++) {
            if (*byte_of(&s->parts[i], at) == expected_byte(seed_of(step, salt, rank, i), at))
                continue;
            fprintf(stderr, "%s: shard %d, tensor %s: byte %zu is wrong\n", path, rank,
                    s->parts[i].name, at);
            abort();
        }
    }
}

/* ------------------------------------------------------------------------------------------ */

struct trainer_pending {
    ckpt *c;
    struct state state;
    int staged, done;
    bool staged_first;
    ckpt_error result;
    struct trainer_saved saved;
};

static void on_staged(void *ctx)
{
    struct trainer_pending *p = ctx;
    assert(p->done == 0);
    p->staged++;
    /* The buffers are ours again: whatever happens to them must not reach the disk. */
    for (size_t i = 0; i < p->state.count; i++)
        memset(p->state.parts[i].memory, 0xee, p->state.parts[i].bytes);
}

static void on_saved(void *ctx, const ckpt_saved *saved, const ckpt_error *result)
{
    struct trainer_pending *p = ctx;
    assert(p->done == 0);
    p->done = 1;
    p->result = *result;
    p->saved.staged_first = p->staged == 1;
    assert((saved != NULL) == (result->code == CKPT_OK));
    if (saved != NULL) {
        p->saved.sequence = saved->sequence;
        snprintf(p->saved.path, sizeof p->saved.path, "%s", saved->path);
    }
}

static void wait_for(ckpt *c, const int *flag)
{
    for (int waited = 0; *flag == 0; waited += 1000) {
        if (waited >= WAIT_MS) {
            fprintf(stderr, "no callback within a minute\n");
            abort();
        }
        ckpt_wait(c, 1000);
    }
}

static int put_all(ckpt_save *s, struct state *state, int64_t step, uint64_t salt, ckpt_error *err)
{
    char note[64];
    int rc = CKPT_OK;
    for (size_t i = 0; i < state->count && rc == CKPT_OK; i++)
        rc = ckpt_save_put(s, &state->parts[i].t, err);
    if (rc == CKPT_OK)
        rc = ckpt_save_alias(s, "tied", "large", err);
    int n = snprintf(note, sizeof note, "%" PRId64 " %" PRIu64, step, salt);
    if (rc == CKPT_OK)
        rc = ckpt_save_note(s, note, (size_t)n, err);
    return rc;
}

struct trainer_pending *trainer_start(ckpt *c, int32_t rank, int64_t step, uint64_t salt,
                                      ckpt_error *err)
{
    struct trainer_pending *p = calloc(1, sizeof *p);
    assert(p != NULL);
    p->c = c;
    build(&p->state);
    fill(&p->state, step, salt, rank);
    ckpt_save *s;
    int rc = ckpt_save_begin(&s, c, step, err);
    if (rc == CKPT_OK) {
        rc = put_all(s, &p->state, step, salt, err);
        if (rc != CKPT_OK)
            ckpt_save_abort(s, "put failed");
    }
    if (rc == CKPT_OK)
        rc = ckpt_save_commit(s, on_staged, on_saved, p, err);
    if (rc == CKPT_OK)
        return p;
    drop(&p->state);
    free(p);
    return NULL;
}

int trainer_finish(struct trainer_pending *p, struct trainer_saved *ret, ckpt_error *err)
{
    wait_for(p->c, &p->done);
    int rc = p->result.code;
    if (ret != NULL)
        *ret = p->saved;
    if (rc != CKPT_OK && err != NULL)
        *err = p->result;
    drop(&p->state);
    free(p);
    return rc;
}

int trainer_save(ckpt *c, int32_t rank, int64_t step, uint64_t salt, struct trainer_saved *ret,
                 ckpt_error *err)
{
    ckpt_error own = {0};
    struct trainer_pending *p = trainer_start(c, rank, step, salt, &own);
    int rc = p != NULL ? trainer_finish(p, ret, &own) : own.code;
    if (err != NULL)
        *err = own;
    return rc;
}

/* ------------------------------------------------------------------------------------------ */

struct opening {
    int done;
    ckpt_load *load;
    ckpt_error result;
};

static void on_opened(void *ctx, ckpt_load *load, const ckpt_error *result)
{
    struct opening *o = ctx;
    o->done = 1;
    o->load = load;
    o->result = *result;
}

static void on_loaded(void *ctx, const ckpt_error *result)
{
    struct opening *o = ctx;
    o->done = 1;
    o->result = *result;
}

static int load_shard(ckpt *c, ckpt_load *load, int32_t shard, int64_t step, uint64_t *salt,
                      ckpt_error *err)
{
    struct state state;
    int64_t noted_step;
    const void *note;
    size_t len;
    char text[64] = "";
    assert(ckpt_load_note(load, shard, &note, &len) == CKPT_OK && len < sizeof text);
    memcpy(text, note, len);
    assert(sscanf(text, "%" SCNd64 " %" SCNu64, &noted_step, salt) == 2 && noted_step == step);
    build(&state);
    assert(ckpt_load_count(load, shard) == (int64_t)state.count + 1);
    int rc = CKPT_OK;
    for (size_t i = 0; i < state.count && rc == CKPT_OK; i++)
        rc = ckpt_load_get(load, shard, &state.parts[i].t, err);
    struct opening reading = {0};
    if (rc == CKPT_OK)
        rc = ckpt_load_start(load, on_loaded, &reading, err);
    if (rc == CKPT_OK) {
        wait_for(c, &reading.done);
        rc = reading.result.code;
        if (err != NULL)
            *err = reading.result;
    }
    if (rc == CKPT_OK)
        compare(&state, step, *salt, shard, ckpt_load_info(load)->path);
    drop(&state);
    return rc;
}

int trainer_load(ckpt *c, const ckpt_load_options *opt, struct trainer_loaded *ret, ckpt_error *err)
{
    ckpt_load_options newest;
    ckpt_load_options_init(&newest, sizeof newest);
    struct opening opening = {0};
    int rc = ckpt_load_open(c, opt != NULL ? opt : &newest, on_opened, &opening, err);
    if (rc != CKPT_OK)
        return rc;
    wait_for(c, &opening.done);
    if (opening.load == NULL) {
        if (err != NULL)
            *err = opening.result;
        return opening.result.code;
    }
    const ckpt_info *info = ckpt_load_info(opening.load);
    struct trainer_loaded got = {.step = info->step,
                                 .sequence = info->sequence,
                                 .generation = info->generation,
                                 .world_size = info->world_size,
                                 .skipped = info->skipped};
    snprintf(got.path, sizeof got.path, "%s", info->path);
    memcpy(got.digest, info->digest, 16);
    memcpy(got.parent, info->parent, 16);
    for (int32_t shard = 0; shard < info->world_size && rc == CKPT_OK; shard++) {
        uint64_t salt;
        rc = load_shard(c, opening.load, shard, info->step, &salt, err);
        assert(rc != CKPT_OK || shard == 0 || salt == got.salt);
        got.salt = salt;
    }
    assert(ckpt_load_close(opening.load) == CKPT_OK);
    if (rc == CKPT_OK && ret != NULL)
        *ret = got;
    return rc;
}
