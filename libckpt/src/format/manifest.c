/*
 * manifest.c: index and COMMIT records <-> structs; the only file that sees protobuf-c. What
 * decodes has passed every rule of format version 1, so the rest of the library relies on it
 * without looking again. Knows nothing of files; the caller puts the path in front of the messages.
 */
#include "format/manifest.h"

#include "bytes.h"
#include "ckpt.pb-c.h"
#include "format/frame.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define KNOWN_FEATURES UINT64_C(0)
#define ATTEMPT_BYTES sizeof(struct ckpt__digest)

/* ------------------------------------------------------------------------------------------ */
/* Memory for protobuf-c                                                                        */

/* Two bytes of hostile input can become a hundred bytes of structs, so unpacking has a budget:
 * above what any record that we write needs (about 17 bytes for each byte of the tightest ones;
 * less than 1 GiB for as many tensors and aliases as there can be), far below what such input would
 * take. */
#define BUDGET_FACTOR 24u
#define BUDGET_FLOOR (1u << 20)
#define BUDGET_CEILING (1u << 30)

struct budget {
    const struct ckpt__env *env;
    size_t left;
    bool over;
    bool no_memory;
};

static void *budget_alloc(void *ctx, size_t len)
{
    struct budget *b = ctx;
    if (len > b->left) {
        b->over = true;
        return NULL;
    }
    void *p = ckpt__alloc(b->env, len);
    if (p == NULL)
        b->no_memory = true;
    else
        b->left -= len;
    return p;
}

static void budget_free(void *ctx, void *p)
{
    struct budget *b = ctx;
    ckpt__free(b->env, p);
}

static struct budget budget_for(const struct ckpt__env *env, size_t len)
{
    size_t structs = len < BUDGET_CEILING / BUDGET_FACTOR ? len * BUDGET_FACTOR : BUDGET_CEILING;
    return (struct budget){.env = env, .left = BUDGET_FLOOR + 2 * len + structs};
}

static ProtobufCAllocator allocator_of(struct budget *b)
{
    return (ProtobufCAllocator){budget_alloc, budget_free, b};
}

/* Opens the frame and unpacks it; NULL with *rc set on failure. */
static void *unpack(enum ckpt__frame_kind kind, const ProtobufCMessageDescriptor *type,
                    const struct ckpt__env *env, const uint8_t *bytes, size_t len, int *rc,
                    ckpt_error *err)
{
    const uint8_t *payload;
    size_t payload_len;
    *rc = ckpt__frame_open(kind, bytes, len, &payload, &payload_len, err);
    if (*rc != CKPT_OK)
        return NULL;
    struct budget budget = budget_for(env, payload_len);
    ProtobufCAllocator allocator = allocator_of(&budget);
    void *message = protobuf_c_message_unpack(type, &allocator, payload_len, payload);
    if (message != NULL)
        return message;
    const char *name = ckpt__frame_name(kind);
    if (budget.no_memory)
        *rc = ckpt__fail(err, CKPT_ENOMEM, "out of memory for an %s of %zu bytes", name, len);
    else if (budget.over)
        *rc =
            ckpt__fail(err, CKPT_EUNREADABLE,
                       "the %s of %zu bytes unpacks to far more than one that we wrote", name, len);
    else
        *rc = ckpt__fail(err, CKPT_EUNREADABLE, "the %s is no valid protobuf record", name);
    return NULL;
}

static void release(void *message, const struct ckpt__env *env)
{
    struct budget budget = budget_for(env, 0);
    ProtobufCAllocator allocator = allocator_of(&budget);
    protobuf_c_message_free_unpacked(message, &allocator);
}

/* Packs and seals. */
static int pack(enum ckpt__frame_kind kind, const ProtobufCMessage *message,
                const struct ckpt__env *env, uint8_t **ret, size_t *ret_len, ckpt_error *err)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    const char *name = ckpt__frame_name(kind);
    if (len > ckpt__frame_max(kind))
        return ckpt__fail(err, CKPT_EINVAL,
                          "the %s would have %zu bytes, at most %zu are possible: split the state "
                          "over more ranks or saves",
                          name, len, ckpt__frame_max(kind));
    uint8_t *frame = ckpt__alloc(env, CKPT__FRAME_HEAD_BYTES + len);
    if (frame == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "out of memory for an %s of %zu bytes", name, len);
    protobuf_c_message_pack(message, frame + CKPT__FRAME_HEAD_BYTES);
    ckpt__frame_seal(kind, frame, len);
    *ret = frame;
    *ret_len = CKPT__FRAME_HEAD_BYTES + len;
    return CKPT_OK;
}

/* ------------------------------------------------------------------------------------------ */
/* What both records have                                                                       */

static int check_format(uint32_t version, uint64_t features, ckpt_error *err)
{
    if (version == 0)
        return ckpt__fail(err, CKPT_EUNREADABLE, "format_version is missing");
    if (version > CKPT__FORMAT_VERSION)
        return ckpt__fail(err, CKPT_ENOTSUP,
                          "format_version is %u, this library reads up to %u: use a newer one",
                          version, CKPT__FORMAT_VERSION);
    uint64_t unknown = features & ~KNOWN_FEATURES;
    if (unknown == 0)
        return CKPT_OK;
    char bits[160];
    size_t used = 0;
    for (unsigned i = 0; i < 64 && used + 8 < sizeof bits; i++) {
        if ((unknown >> i & 1) != 0)
            used += (size_t)snprintf(bits + used, sizeof bits - used, used > 0 ? ", %u" : "%u", i);
    }
    return ckpt__fail(err, CKPT_ENOTSUP,
                      "required_features has bits that this library lacks: %s; use a newer one",
                      bits);
}

static int check_step_and_world(int64_t step, uint32_t world_size, ckpt_error *err)
{
    if (step < 0)
        return ckpt__fail(err, CKPT_EUNREADABLE, "step is negative (%lld)", (long long)step);
    if (world_size == 0 || world_size > CKPT__MAX_WORLD)
        return ckpt__fail(err, CKPT_EUNREADABLE, "world_size is %u, 1 to %d are possible",
                          world_size, CKPT__MAX_WORLD);
    return CKPT_OK;
}

static int read_digest(const ProtobufCBinaryData *b, const char *what, struct ckpt__digest *ret,
                       ckpt_error *err)
{
    if (b->len != sizeof ret->b)
        return ckpt__fail(err, CKPT_EUNREADABLE, "%s has %zu bytes, not %zu", what, b->len,
                          sizeof ret->b);
    memcpy(ret->b, b->data, sizeof ret->b);
    return CKPT_OK;
}

/* protobuf-c has no const in its messages; packing only reads. */
static ProtobufCBinaryData borrow(const void *bytes, size_t len)
{
    return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)(uintptr_t)bytes};
}

static bool is_zero(const struct ckpt__digest *d)
{
    static const struct ckpt__digest zero;
    return memcmp(d->b, zero.b, sizeof zero.b) == 0;
}

/* ------------------------------------------------------------------------------------------ */
/* Index                                                                                        */

void ckpt__index_init(struct ckpt__index *x, const struct ckpt__env *env)
{
    *x = (struct ckpt__index){0};
    ckpt__layout_init(&x->layout, env);
}

void ckpt__index_free(struct ckpt__index *x)
{
    const struct ckpt__env *env = x->layout.env;
    ckpt__layout_free(&x->layout);
    ckpt__free(env, x->leaves);
    ckpt__free(env, x->note);
    ckpt__index_init(x, env);
}

static uint64_t leaves_of(uint64_t file_bytes)
{
    return file_bytes / CKPT__LEAF_BYTES + (file_bytes % CKPT__LEAF_BYTES != 0);
}

/* Everything that the message points to and the index does not own. */
struct index_parts {
    Ckpt__V1__Tensor *tensors;
    Ckpt__V1__Tensor **tensor_list;
    Ckpt__V1__Alias *aliases;
    Ckpt__V1__Alias **alias_list;
    uint8_t *leaves;
};

static int alloc_parts(struct index_parts *p, const struct ckpt__index *x)
{
    const struct ckpt__layout *l = &x->layout;
    p->tensors = ckpt__alloc_array(l->env, l->count, sizeof *p->tensors);
    p->tensor_list = ckpt__alloc_array(l->env, l->count, sizeof *p->tensor_list);
    p->aliases = ckpt__alloc_array(l->env, l->alias_count, sizeof *p->aliases);
    p->alias_list = ckpt__alloc_array(l->env, l->alias_count, sizeof *p->alias_list);
    p->leaves = ckpt__alloc_array(l->env, x->leaf_count, 4);
    bool all = p->tensors != NULL && p->tensor_list != NULL && p->aliases != NULL &&
               p->alias_list != NULL && p->leaves != NULL;
    return all ? CKPT_OK : CKPT_ENOMEM;
}

static void free_parts(struct index_parts *p, const struct ckpt__env *env)
{
    ckpt__free(env, p->tensors);
    ckpt__free(env, p->tensor_list);
    ckpt__free(env, p->aliases);
    ckpt__free(env, p->alias_list);
    ckpt__free(env, p->leaves);
}

static void fill_tensor(Ckpt__V1__Tensor *m, const struct ckpt__entry *e)
{
    size_t n = (size_t)e->ndim;
    *m = (Ckpt__V1__Tensor)CKPT__V1__TENSOR__INIT;
    m->name = e->name;
    m->dtype = (Ckpt__V1__Dtype)e->dtype;
    m->shape = e->shape;
    m->n_shape = n;
    m->global_shape = e->global_shape;
    m->n_global_shape = e->global_shape != NULL ? n : 0;
    m->offset = e->offset;
    m->n_offset = e->offset != NULL ? n : 0;
    m->begin = e->begin;
    m->end = e->begin + e->bytes;
}

static void fill_parts(struct index_parts *p, const struct ckpt__index *x)
{
    const struct ckpt__layout *l = &x->layout;
    for (size_t i = 0; i < l->count; i++) {
        fill_tensor(&p->tensors[i], &l->entries[i]);
        p->tensor_list[i] = &p->tensors[i];
    }
    for (size_t i = 0; i < l->alias_count; i++) {
        p->aliases[i] = (Ckpt__V1__Alias)CKPT__V1__ALIAS__INIT;
        p->aliases[i].name = l->aliases[i].name;
        p->aliases[i].target = l->aliases[i].target;
        p->alias_list[i] = &p->aliases[i];
    }
    for (uint64_t i = 0; i < x->leaf_count; i++)
        bytes_put_u32(p->leaves + 4 * i, x->leaves[i]);
}

int ckpt__index_encode(const struct ckpt__index *x, uint8_t **ret, size_t *len, ckpt_error *err)
{
    const struct ckpt__layout *l = &x->layout;
    assert(x->step >= 0 && x->rank >= 0 && x->rank < x->world_size);
    assert(x->world_size <= CKPT__MAX_WORLD && x->note_bytes <= CKPT__MAX_NOTE_BYTES);
    assert(l->data_offset > 0 && x->leaf_count == leaves_of(l->file_bytes));
    struct index_parts parts = {0};
    int rc;
    if (alloc_parts(&parts, x) != CKPT_OK) {
        rc = ckpt__fail(err, CKPT_ENOMEM, "out of memory for the index of %zu tensors", l->count);
        goto free_parts;
    }
    fill_parts(&parts, x);
    Ckpt__V1__Phases phases = CKPT__V1__PHASES__INIT;
    phases.staged_ns = x->staged_ns;
    phases.written_ns = x->written_ns;
    phases.synced_ns = x->synced_ns;
    Ckpt__V1__Index m = CKPT__V1__INDEX__INIT;
    m.format_version = CKPT__FORMAT_VERSION;
    m.attempt = borrow(x->attempt.b, sizeof x->attempt.b);
    m.step = x->step;
    m.rank = (uint32_t)x->rank;
    m.world_size = (uint32_t)x->world_size;
    m.file_bytes = l->file_bytes;
    m.data_offset = l->data_offset;
    m.leaf_bytes = CKPT__LEAF_BYTES;
    m.leaf_crc32c = borrow(parts.leaves, 4 * x->leaf_count);
    m.n_tensors = l->count;
    m.tensors = parts.tensor_list;
    m.n_aliases = l->alias_count;
    m.aliases = parts.alias_list;
    m.note = borrow(x->note, x->note_bytes);
    m.phases = &phases;
    rc = pack(CKPT__FRAME_INDEX, &m.base, l->env, ret, len, err);
free_parts:
    free_parts(&parts, l->env);
    return rc;
}

static int read_tensor(struct ckpt__layout *l, const Ckpt__V1__Tensor *m, ckpt_error *err)
{
    if (m->n_shape > CKPT_MAX_DIMS)
        return ckpt__fail(err, CKPT_EUNREADABLE, "tensor \"%s\" has %zu dimensions, at most %d",
                          ckpt__show_name(m->name).text, m->n_shape, CKPT_MAX_DIMS);
    if ((m->n_global_shape != 0 && m->n_global_shape != m->n_shape) ||
        (m->n_offset != 0 && m->n_offset != m->n_shape))
        return ckpt__fail(err, CKPT_EUNREADABLE,
                          "tensor \"%s\": shape, global_shape and offset have %zu, %zu and %zu "
                          "dimensions",
                          ckpt__show_name(m->name).text, m->n_shape, m->n_global_shape,
                          m->n_offset);
    ckpt_tensor t;
    ckpt_tensor_init(&t, sizeof t);
    t.name = m->name;
    t.dtype = (uint32_t)m->dtype;
    t.ndim = (int32_t)m->n_shape;
    t.shape = m->shape;
    t.global_shape = m->n_global_shape != 0 ? m->global_shape : NULL;
    t.offset = m->n_offset != 0 ? m->offset : NULL;
    int rc = ckpt__layout_append(l, &t, err);
    if (rc != CKPT_OK)
        return rc;
    struct ckpt__entry *e = &l->entries[l->count - 1];
    if (m->end < m->begin || m->end - m->begin != e->bytes)
        return ckpt__fail(err, CKPT_EUNREADABLE,
                          "tensor \"%s\": begin %llu and end %llu, but dtype and shape need %llu "
                          "bytes",
                          ckpt__show_name(m->name).text, (unsigned long long)m->begin,
                          (unsigned long long)m->end, (unsigned long long)e->bytes);
    e->begin = m->begin;
    return CKPT_OK;
}

static int read_layout(struct ckpt__layout *l, const Ckpt__V1__Index *m, ckpt_error *err)
{
    if (m->data_offset == 0 || m->data_offset % CKPT__DATA_ALIGN != 0 ||
        m->data_offset > CKPT__MAX_HEADER_BYTES + 8)
        return ckpt__fail(err, CKPT_EUNREADABLE,
                          "data_offset is %llu, not a multiple of %u within the largest header",
                          (unsigned long long)m->data_offset, CKPT__DATA_ALIGN);
    for (size_t i = 0; i < m->n_tensors; i++) {
        int rc = read_tensor(l, m->tensors[i], err);
        if (rc != CKPT_OK)
            return rc;
    }
    for (size_t i = 0; i < m->n_aliases; i++) {
        int rc = ckpt__layout_alias(l, m->aliases[i]->name, m->aliases[i]->target, err);
        if (rc != CKPT_OK)
            return rc;
    }
    return ckpt__layout_settle(l, m->data_offset, m->file_bytes, err);
}

static int read_leaves(struct ckpt__index *x, const Ckpt__V1__Index *m, ckpt_error *err)
{
    uint64_t count = leaves_of(m->file_bytes);
    if (m->leaf_bytes != CKPT__LEAF_BYTES)
        return ckpt__fail(err, CKPT_EUNREADABLE, "leaf_bytes is %u, version 1 has %u",
                          m->leaf_bytes, CKPT__LEAF_BYTES);
    if (m->leaf_crc32c.len % 4 != 0 || m->leaf_crc32c.len / 4 != count)
        return ckpt__fail(
            err, CKPT_EUNREADABLE, "leaf_crc32c has %zu bytes, a file of %llu bytes needs %llu",
            m->leaf_crc32c.len, (unsigned long long)m->file_bytes, (unsigned long long)count * 4);
    x->leaves = ckpt__alloc_array(x->layout.env, count, sizeof *x->leaves);
    if (x->leaves == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "out of memory for the checksums of an index");
    x->leaf_count = count;
    for (uint64_t i = 0; i < count; i++)
        x->leaves[i] = bytes_get_u32(m->leaf_crc32c.data + 4 * i);
    return CKPT_OK;
}

static int read_note(struct ckpt__index *x, const ProtobufCBinaryData *note, ckpt_error *err)
{
    if (note->len > CKPT__MAX_NOTE_BYTES)
        return ckpt__fail(err, CKPT_EUNREADABLE, "note has %zu bytes, at most %u are possible",
                          note->len, CKPT__MAX_NOTE_BYTES);
    if (note->len == 0)
        return CKPT_OK;
    x->note = ckpt__alloc(x->layout.env, note->len);
    if (x->note == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "out of memory for a note of %zu bytes", note->len);
    memcpy(x->note, note->data, note->len);
    x->note_bytes = note->len;
    return CKPT_OK;
}

static int read_index(struct ckpt__index *x, const Ckpt__V1__Index *m, ckpt_error *err)
{
    int rc = check_format(m->format_version, m->required_features, err);
    if (rc == CKPT_OK)
        rc = check_step_and_world(m->step, m->world_size, err);
    if (rc == CKPT_OK && m->rank >= m->world_size)
        rc = ckpt__fail(err, CKPT_EUNREADABLE, "rank is %u, world_size is %u", m->rank,
                        m->world_size);
    if (rc == CKPT_OK)
        rc = read_digest(&m->attempt, "attempt", &x->attempt, err);
    if (rc == CKPT_OK)
        rc = read_layout(&x->layout, m, err);
    if (rc == CKPT_OK)
        rc = read_leaves(x, m, err);
    if (rc == CKPT_OK)
        rc = read_note(x, &m->note, err);
    x->step = m->step;
    x->rank = (int32_t)m->rank;
    x->world_size = (int32_t)m->world_size;
    if (m->phases != NULL) {
        x->staged_ns = m->phases->staged_ns;
        x->written_ns = m->phases->written_ns;
        x->synced_ns = m->phases->synced_ns;
    }
    return rc;
}

int ckpt__index_decode(struct ckpt__index *x, const uint8_t *bytes, size_t len, ckpt_error *err)
{
    const struct ckpt__env *env = x->layout.env;
    int rc;
    Ckpt__V1__Index *m =
        unpack(CKPT__FRAME_INDEX, &ckpt__v1__index__descriptor, env, bytes, len, &rc, err);
    if (m == NULL)
        return rc;
    rc = read_index(x, m, err);
    release(m, env);
    if (rc != CKPT_OK)
        ckpt__index_free(x);
    return ckpt__unreadable(rc, err);
}

/* ------------------------------------------------------------------------------------------ */
/* COMMIT                                                                                       */

void ckpt__commit_free(struct ckpt__commit *c, const struct ckpt__env *env)
{
    ckpt__free(env, c->index_digests);
    *c = (struct ckpt__commit){0};
}

int ckpt__commit_encode(const struct ckpt__commit *c, const struct ckpt__env *env, uint8_t **ret,
                        size_t *len, ckpt_error *err)
{
    assert(c->step >= 0 && c->world_size > 0 && c->world_size <= CKPT__MAX_WORLD);
    size_t world = (size_t)c->world_size;
    if (!ckpt__utf8_valid(c->run_id, strlen(c->run_id)))
        return ckpt__fail(err, CKPT_EINVAL, "run id \"%s\" is not valid UTF-8",
                          ckpt__show_name(c->run_id).text);
    ProtobufCBinaryData *digests = ckpt__alloc_array(env, world, sizeof *digests);
    if (digests == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "out of memory for a COMMIT of %zu ranks", world);
    for (size_t i = 0; i < world; i++)
        digests[i] = borrow(c->index_digests[i].b, sizeof c->index_digests[i].b);
    Ckpt__V1__Commit m = CKPT__V1__COMMIT__INIT;
    m.format_version = CKPT__FORMAT_VERSION;
    m.step = c->step;
    m.sequence = c->sequence;
    m.generation = c->generation;
    m.run_id = (char *)(uintptr_t)c->run_id;
    m.attempt = borrow(c->attempt.b, sizeof c->attempt.b);
    m.parent = borrow(c->parent.b, is_zero(&c->parent) ? 0 : sizeof c->parent.b);
    m.world_size = (uint32_t)c->world_size;
    m.n_index_digest = world;
    m.index_digest = digests;
    m.saved_unix_ms = c->saved_unix_ms;
    int rc = pack(CKPT__FRAME_COMMIT, &m.base, env, ret, len, err);
    ckpt__free(env, digests);
    return rc;
}

static int read_run_id(struct ckpt__commit *c, const char *run_id, ckpt_error *err)
{
    size_t len = strnlen(run_id, CKPT__MAX_RUN_ID_BYTES + 1);
    if (len > CKPT__MAX_RUN_ID_BYTES)
        return ckpt__fail(err, CKPT_EUNREADABLE, "run_id is longer than %d bytes",
                          CKPT__MAX_RUN_ID_BYTES);
    if (!ckpt__utf8_valid(run_id, len))
        return ckpt__fail(err, CKPT_EUNREADABLE, "run_id is not valid UTF-8");
    memcpy(c->run_id, run_id, len + 1);
    return CKPT_OK;
}

static int read_digests(struct ckpt__commit *c, const struct ckpt__env *env,
                        const Ckpt__V1__Commit *m, ckpt_error *err)
{
    if (m->n_index_digest != m->world_size)
        return ckpt__fail(err, CKPT_EUNREADABLE, "index_digest has %zu entries, world_size is %u",
                          m->n_index_digest, m->world_size);
    c->index_digests = ckpt__alloc_array(env, m->n_index_digest, sizeof *c->index_digests);
    if (c->index_digests == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "out of memory for a COMMIT of %u ranks",
                          m->world_size);
    for (size_t i = 0; i < m->n_index_digest; i++) {
        int rc = read_digest(&m->index_digest[i], "an index_digest", &c->index_digests[i], err);
        if (rc != CKPT_OK)
            return rc;
    }
    return CKPT_OK;
}

static int read_commit(struct ckpt__commit *c, const struct ckpt__env *env,
                       const Ckpt__V1__Commit *m, ckpt_error *err)
{
    int rc = check_format(m->format_version, m->required_features, err);
    if (rc == CKPT_OK)
        rc = check_step_and_world(m->step, m->world_size, err);
    if (rc == CKPT_OK)
        rc = read_digest(&m->attempt, "attempt", &c->attempt, err);
    if (rc == CKPT_OK && m->parent.len != 0)
        rc = read_digest(&m->parent, "parent", &c->parent, err);
    if (rc == CKPT_OK)
        rc = read_run_id(c, m->run_id, err);
    if (rc == CKPT_OK)
        rc = read_digests(c, env, m, err);
    c->step = m->step;
    c->sequence = m->sequence;
    c->generation = m->generation;
    c->world_size = (int32_t)m->world_size;
    c->saved_unix_ms = m->saved_unix_ms;
    return rc;
}

int ckpt__commit_decode(struct ckpt__commit *c, const struct ckpt__env *env, const uint8_t *bytes,
                        size_t len, ckpt_error *err)
{
    int rc;
    *c = (struct ckpt__commit){0};
    Ckpt__V1__Commit *m =
        unpack(CKPT__FRAME_COMMIT, &ckpt__v1__commit__descriptor, env, bytes, len, &rc, err);
    if (m == NULL)
        return rc;
    rc = read_commit(c, env, m, err);
    release(m, env);
    if (rc != CKPT_OK)
        ckpt__commit_free(c, env);
    return rc;
}
