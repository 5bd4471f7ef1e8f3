/*
 * test_manifest.c: index and COMMIT survive the way to bytes and back; files of version 1 are read
 * for ever; everything else is refused with the field and the reason.
 */
#include "alloc_fault.h"
#include "ckpt.pb-c.h"
#include "format/frame.h"
#include "format/manifest.h"
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES SOURCE_DIR "/tests/fixtures/ckpt/v1/"

static struct ckpt__env env;
static ckpt_error err;

static void set_up(void)
{
    ckpt__env_init(&env, NULL);
    memset(&err, 0, sizeof err);
}

/* ------------------------------------------------------------------------------------------ */
/* Samples                                                                                      */

static void add(struct ckpt__layout *l, const char *name, uint32_t dtype, int32_t ndim,
                const int64_t *shape, const int64_t *global, const int64_t *offset)
{
    static uint8_t data[1 << 18];
    ckpt_tensor t;
    ckpt_tensor_init(&t, sizeof t);
    t.name = name;
    t.dtype = dtype;
    t.ndim = ndim;
    t.shape = shape;
    t.global_shape = global;
    t.offset = offset;
    t.data = data;
    ck_assert_msg(ckpt__layout_add(l, &t, &err) == CKPT_OK, "%s", err.text);
}

static struct ckpt__digest digest(uint8_t first)
{
    struct ckpt__digest d;
    for (unsigned i = 0; i < sizeof d.b; i++)
        d.b[i] = (uint8_t)(first + i);
    return d;
}

/* What tests/fixtures/ckpt/v1 holds; never change it, add another. */
static void sample_index(struct ckpt__index *x)
{
    const int64_t shape[] = {128, 200};
    const int64_t global[] = {512, 200};
    const int64_t offset[] = {256, 0};
    const int64_t empty[] = {0, 3};
    const int64_t two[] = {2};
    ckpt__index_init(x, &env);
    add(&x->layout, "model.weight", CKPT_F32, 2, shape, global, offset);
    add(&x->layout,
        "model.b\xc3\xaf"
        "as",
        CKPT_BF16, 1, shape, NULL, NULL);
    add(&x->layout, "rng", CKPT_C128, 1, two, NULL, NULL);
    add(&x->layout, "empty", CKPT_F8_E4M3FNUZ, 2, empty, NULL, NULL);
    add(&x->layout, "step", CKPT_I64, 0, NULL, NULL, NULL);
    ck_assert_int_eq(ckpt__layout_alias(&x->layout, "head.weight", "model.weight", &err), CKPT_OK);
    ck_assert_int_eq(ckpt__layout_build(&x->layout, &err), CKPT_OK);
    x->attempt = digest(0x10);
    x->step = 1000;
    x->rank = 2;
    x->world_size = 4;
    x->leaf_count = 2;
    x->leaves = ckpt__alloc_array(&env, 2, sizeof *x->leaves);
    x->leaves[0] = 0x01020304;
    x->leaves[1] = 0xfffefdfc;
    x->note = (uint8_t *)ckpt__strdup(&env, "{\"epoch\":3}");
    x->note_bytes = 11;
    x->staged_ns = 1000001;
    x->written_ns = 20000002;
    x->synced_ns = 300000003;
}

static struct ckpt__commit sample_commit(void)
{
    struct ckpt__commit c = {.step = 1000, .sequence = 7, .generation = 3, .world_size = 4};
    strcpy(c.run_id, "run \xe2\x82\xac 17");
    c.attempt = digest(0x10);
    c.parent = digest(0x40);
    c.index_digests = ckpt__alloc_array(&env, 4, sizeof *c.index_digests);
    for (uint8_t i = 0; i < 4; i++)
        c.index_digests[i] = digest((uint8_t)(0x80 + 16 * i));
    c.saved_unix_ms = INT64_C(1700000000123);
    return c;
}

static bool same_values(const int64_t *a, const int64_t *b, int32_t n)
{
    return (a == NULL) == (b == NULL) && (a == NULL || memcmp(a, b, (size_t)n * sizeof *a) == 0);
}

static void assert_same_index(const struct ckpt__index *a, const struct ckpt__index *b)
{
    ck_assert_mem_eq(a->attempt.b, b->attempt.b, 16);
    ck_assert_int_eq(a->step, b->step);
    ck_assert_int_eq(a->rank, b->rank);
    ck_assert_int_eq(a->world_size, b->world_size);
    ck_assert_uint_eq(a->leaf_count, b->leaf_count);
    ck_assert_mem_eq(a->leaves, b->leaves, 4 * a->leaf_count);
    ck_assert_uint_eq(a->note_bytes, b->note_bytes);
    ck_assert_mem_eq(a->note, b->note, a->note_bytes);
    ck_assert_uint_eq(a->staged_ns, b->staged_ns);
    ck_assert_uint_eq(a->written_ns, b->written_ns);
    ck_assert_uint_eq(a->synced_ns, b->synced_ns);
    ck_assert_uint_eq(a->layout.data_offset, b->layout.data_offset);
    ck_assert_uint_eq(a->layout.file_bytes, b->layout.file_bytes);
    ck_assert_uint_eq(a->layout.count, b->layout.count);
    for (size_t i = 0; i < a->layout.count; i++) {
        const struct ckpt__entry *x = &a->layout.entries[i];
        const struct ckpt__entry *y = &b->layout.entries[i];
        ck_assert_str_eq(x->name, y->name);
        ck_assert_uint_eq(x->dtype, y->dtype);
        ck_assert_int_eq(x->ndim, y->ndim);
        ck_assert(same_values(x->shape, y->shape, x->ndim));
        ck_assert(same_values(x->global_shape, y->global_shape, x->ndim));
        ck_assert(same_values(x->offset, y->offset, x->ndim));
        ck_assert_uint_eq(x->begin, y->begin);
        ck_assert_uint_eq(x->bytes, y->bytes);
    }
    ck_assert_uint_eq(a->layout.alias_count, b->layout.alias_count);
    for (size_t i = 0; i < a->layout.alias_count; i++) {
        ck_assert_str_eq(a->layout.aliases[i].name, b->layout.aliases[i].name);
        ck_assert_str_eq(a->layout.aliases[i].target, b->layout.aliases[i].target);
    }
}

static void assert_same_commit(const struct ckpt__commit *a, const struct ckpt__commit *b)
{
    ck_assert_int_eq(a->step, b->step);
    ck_assert_uint_eq(a->sequence, b->sequence);
    ck_assert_uint_eq(a->generation, b->generation);
    ck_assert_str_eq(a->run_id, b->run_id);
    ck_assert_mem_eq(a->attempt.b, b->attempt.b, 16);
    ck_assert_mem_eq(a->parent.b, b->parent.b, 16);
    ck_assert_int_eq(a->world_size, b->world_size);
    ck_assert_mem_eq(a->index_digests, b->index_digests, 16 * (size_t)a->world_size);
    ck_assert_int_eq(a->saved_unix_ms, b->saved_unix_ms);
}

/* ------------------------------------------------------------------------------------------ */
/* There and back                                                                               */

START_TEST(an_index_comes_back_as_it_was)
{
    struct ckpt__index x;
    struct ckpt__index y;
    uint8_t *bytes;
    uint8_t *again;
    size_t len;
    size_t again_len;
    sample_index(&x);
    ck_assert_int_eq(ckpt__index_encode(&x, &bytes, &len, &err), CKPT_OK);
    ckpt__index_init(&y, &env);
    ck_assert_msg(ckpt__index_decode(&y, bytes, len, &err) == CKPT_OK, "%s", err.text);
    assert_same_index(&x, &y);
    ck_assert_str_eq(ckpt__layout_find(&y.layout, "head.weight")->name, "model.weight");
    ck_assert_int_eq(ckpt__index_encode(&y, &again, &again_len, &err), CKPT_OK);
    ck_assert_uint_eq(len, again_len);
    ck_assert_mem_eq(bytes, again, len);
    ckpt__free(&env, bytes);
    ckpt__free(&env, again);
    ckpt__index_free(&x);
    ckpt__index_free(&y);
}
END_TEST

START_TEST(the_smallest_and_the_largest_commit_come_back)
{
    for (int32_t world = 1; world <= CKPT__MAX_WORLD; world += CKPT__MAX_WORLD - 1) {
        struct ckpt__commit c = {.step = INT64_MAX, .sequence = UINT64_MAX, .world_size = world};
        struct ckpt__commit d;
        uint8_t *bytes;
        size_t len;
        memset(c.run_id, world == 1 ? 0 : 'r', CKPT__MAX_RUN_ID_BYTES);
        c.saved_unix_ms = INT64_MIN;
        c.index_digests = ckpt__alloc_zero(&env, 16 * (size_t)world);
        c.index_digests[world - 1] = digest(1);
        ck_assert_int_eq(ckpt__commit_encode(&c, &env, &bytes, &len, &err), CKPT_OK);
        ck_assert_uint_lt(len, CKPT__MAX_COMMIT_BYTES);
        ck_assert_msg(ckpt__commit_decode(&d, &env, bytes, len, &err) == CKPT_OK, "%s", err.text);
        assert_same_commit(&c, &d);
        ckpt__free(&env, bytes);
        ckpt__commit_free(&c, &env);
        ckpt__commit_free(&d, &env);
    }
}
END_TEST

START_TEST(a_run_id_must_be_text)
{
    struct ckpt__commit c = sample_commit();
    uint8_t *bytes;
    size_t len;
    strcpy(c.run_id, "run \xff");
    ck_assert_int_eq(ckpt__commit_encode(&c, &env, &bytes, &len, &err), CKPT_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "run id \"run ?\" is not valid UTF-8"));
    ckpt__commit_free(&c, &env);
}
END_TEST

START_TEST(digests_are_xxh3_in_canonical_order)
{
    const uint8_t of_nothing[] = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
                                  0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};
    struct ckpt__digest d = ckpt__digest_of("", 0);
    ck_assert_mem_eq(d.b, of_nothing, 16);
    struct ckpt__digest e = ckpt__digest_of("x", 1);
    ck_assert_mem_ne(d.b, e.b, 16);
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* Files of version 1                                                                           */

/* With CKPT_WRITE_FIXTURES set, writes what is not there; never replaces. */
static size_t golden(const char *path, const uint8_t *now, size_t now_len, uint8_t *buf, size_t cap)
{
    FILE *f = getenv("CKPT_WRITE_FIXTURES") != NULL ? fopen(path, "wbx") : NULL;
    if (f != NULL) {
        ck_assert_uint_eq(fwrite(now, 1, now_len, f), now_len);
        ck_assert_int_eq(fclose(f), 0);
    }
    f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s is missing", path);
    size_t len = fread(buf, 1, cap, f);
    fclose(f);
    return len;
}

START_TEST(files_of_version_1_are_read_for_ever)
{
    static uint8_t file[65536];
    uint8_t *bytes;
    size_t len;
    struct ckpt__index x;
    struct ckpt__index y;
    sample_index(&x);
    ckpt__index_init(&y, &env);
    ck_assert_int_eq(ckpt__index_encode(&x, &bytes, &len, &err), CKPT_OK);
    size_t n = golden(FIXTURES "shard-00002-of-00004.index", bytes, len, file, sizeof file);
    ck_assert_msg(ckpt__index_decode(&y, file, n, &err) == CKPT_OK, "%s", err.text);
    assert_same_index(&x, &y);
    ckpt__free(&env, bytes);
    ckpt__index_free(&x);
    ckpt__index_free(&y);

    struct ckpt__commit c = sample_commit();
    struct ckpt__commit d;
    ck_assert_int_eq(ckpt__commit_encode(&c, &env, &bytes, &len, &err), CKPT_OK);
    n = golden(FIXTURES "COMMIT", bytes, len, file, sizeof file);
    ck_assert_msg(ckpt__commit_decode(&d, &env, file, n, &err) == CKPT_OK, "%s", err.text);
    assert_same_commit(&c, &d);
    ckpt__free(&env, bytes);
    ckpt__commit_free(&c, &env);
    ckpt__commit_free(&d, &env);
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* Frames                                                                                       */

static int decode_index(const uint8_t *bytes, size_t len)
{
    struct ckpt__index x;
    ckpt__index_init(&x, &env);
    memset(&err, 0, sizeof err);
    uint8_t *exact = malloc(len + 1);
    memcpy(exact + 1, bytes, len);
    int rc = ckpt__index_decode(&x, exact + 1, len, &err);
    free(exact);
    ck_assert_int_eq(err.code, rc);
    if (rc != CKPT_OK)
        ck_assert(x.leaves == NULL && x.note == NULL && x.layout.count == 0);
    ckpt__index_free(&x);
    return rc;
}

static int decode_commit(const uint8_t *bytes, size_t len)
{
    struct ckpt__commit c;
    memset(&err, 0, sizeof err);
    int rc = ckpt__commit_decode(&c, &env, bytes, len, &err);
    ck_assert_int_eq(err.code, rc);
    if (rc != CKPT_OK)
        ck_assert_ptr_null(c.index_digests);
    ckpt__commit_free(&c, &env);
    return rc;
}

START_TEST(no_altered_byte_and_no_other_length_passes)
{
    struct ckpt__index x;
    struct ckpt__commit c = sample_commit();
    uint8_t *bytes[2];
    size_t len[2];
    sample_index(&x);
    ck_assert_int_eq(ckpt__index_encode(&x, &bytes[0], &len[0], &err), CKPT_OK);
    ck_assert_int_eq(ckpt__commit_encode(&c, &env, &bytes[1], &len[1], &err), CKPT_OK);
    for (int k = 0; k < 2; k++) {
        int (*decode)(const uint8_t *, size_t) = k == 0 ? decode_index : decode_commit;
        int (*other)(const uint8_t *, size_t) = k == 0 ? decode_commit : decode_index;
        uint8_t *longer = malloc(len[k] + 1);
        memcpy(longer, bytes[k], len[k]);
        longer[len[k]] = 0;
        ck_assert_int_eq(decode(longer, len[k]), CKPT_OK);
        ck_assert_int_eq(other(longer, len[k]), CKPT_EUNREADABLE);
        ck_assert_ptr_nonnull(strstr(err.text, "does not start with"));
        ck_assert_int_eq(decode(longer, len[k] + 1), CKPT_EUNREADABLE);
        for (size_t n = 0; n < len[k]; n++)
            ck_assert_int_eq(decode(longer, n), CKPT_EUNREADABLE);
        for (size_t bit = 0; bit < 8 * len[k]; bit++) {
            longer[bit / 8] ^= (uint8_t)(1 << bit % 8);
            ck_assert_int_eq(decode(longer, len[k]), CKPT_EUNREADABLE);
            longer[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        memset(longer + 8, 0xff, 4);
        ck_assert_int_eq(decode(longer, len[k]), CKPT_EUNREADABLE);
        ck_assert_ptr_nonnull(strstr(err.text, "claims 4294967295 bytes"));
        free(longer);
        ckpt__free(&env, bytes[k]);
    }
    ckpt__index_free(&x);
    ckpt__commit_free(&c, &env);
}
END_TEST

/* Seals any payload, so that the checks behind the checksum are met. */
static int decode_payload(enum ckpt__frame_kind kind, const void *payload, size_t len)
{
    uint8_t *frame = malloc(CKPT__FRAME_HEAD_BYTES + len);
    memcpy(frame + CKPT__FRAME_HEAD_BYTES, payload, len);
    ckpt__frame_seal(kind, frame, len);
    int rc = kind == CKPT__FRAME_INDEX ? decode_index(frame, CKPT__FRAME_HEAD_BYTES + len)
                                       : decode_commit(frame, CKPT__FRAME_HEAD_BYTES + len);
    free(frame);
    return rc;
}

START_TEST(a_good_frame_around_nonsense)
{
    ck_assert_int_eq(decode_payload(CKPT__FRAME_INDEX, "", 0), CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "format_version is missing"));
    ck_assert_int_eq(decode_payload(CKPT__FRAME_COMMIT, "", 0), CKPT_EUNREADABLE);
    ck_assert_int_eq(decode_payload(CKPT__FRAME_INDEX, "\xff\xff", 2), CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "protobuf"));
    ck_assert_int_eq(decode_payload(CKPT__FRAME_COMMIT, "\x08", 1), CKPT_EUNREADABLE);
}
END_TEST

/* Two bytes of an empty tensor, or of a field that nobody knows, become a hundred in memory. */
START_TEST(small_input_cannot_take_much_memory)
{
    size_t len = 8u << 20;
    uint8_t *payload = malloc(len);
    for (size_t i = 0; i < len; i += 2) {
        payload[i] = 11 << 3 | 2;
        payload[i + 1] = 0;
    }
    ck_assert_int_eq(decode_payload(CKPT__FRAME_INDEX, payload, len), CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "unpacks to far more"));
    for (size_t i = 0; i < len; i += 2)
        payload[i] = 15 << 3;
    ck_assert_int_eq(decode_payload(CKPT__FRAME_INDEX, payload, len), CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "unpacks to far more"));
    for (size_t i = 0; i < len; i += 2)
        payload[i] = 10 << 3 | 2;
    ck_assert_int_eq(decode_payload(CKPT__FRAME_COMMIT, payload, len), CKPT_EUNREADABLE);
    free(payload);
}
END_TEST

/* The tightest honest index there is must fit into the budget. */
START_TEST(many_tiny_tensors_are_not_taken_for_an_attack)
{
    struct ckpt__index x;
    ckpt__index_init(&x, &env);
    char name[8];
    for (unsigned i = 0; i < 200000; i++) {
        snprintf(name, sizeof name, "%x", i);
        add(&x.layout, name, CKPT_U8, 0, NULL, NULL, NULL);
    }
    ck_assert_int_eq(ckpt__layout_build(&x.layout, &err), CKPT_OK);
    x.world_size = 1;
    x.leaf_count = (x.layout.file_bytes + CKPT__LEAF_BYTES - 1) / CKPT__LEAF_BYTES;
    x.leaves = ckpt__alloc_zero(&env, 4 * x.leaf_count);
    uint8_t *bytes;
    size_t len;
    ck_assert_int_eq(ckpt__index_encode(&x, &bytes, &len, &err), CKPT_OK);
    ck_assert_msg(decode_index(bytes, len) == CKPT_OK, "%s", err.text);
    ckpt__free(&env, bytes);
    ckpt__index_free(&x);
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* One wrong field each                                                                         */

static Ckpt__V1__Index *plain_index(void)
{
    struct ckpt__index x;
    uint8_t *bytes;
    size_t len;
    sample_index(&x);
    ck_assert_int_eq(ckpt__index_encode(&x, &bytes, &len, &err), CKPT_OK);
    Ckpt__V1__Index *m =
        ckpt__v1__index__unpack(NULL, len - CKPT__FRAME_HEAD_BYTES, bytes + CKPT__FRAME_HEAD_BYTES);
    ckpt__free(&env, bytes);
    ckpt__index_free(&x);
    return m;
}

static int decode_message(enum ckpt__frame_kind kind, const ProtobufCMessage *m)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    uint8_t *payload = malloc(len);
    protobuf_c_message_pack(m, payload);
    int rc = decode_payload(kind, payload, len);
    free(payload);
    return rc;
}

/* m->tensors: rng, step, model.weight, model.bïas, empty. */
#define INDEX_FAULTS(X)                                                                            \
    X(m->format_version = 0, EUNREADABLE, "format_version is missing")                             \
    X(m->format_version = 2, ENOTSUP, "format_version is 2, this library reads up to 1")           \
    X(m->required_features = 1, ENOTSUP, "lacks: 0;")                                              \
    X(m->required_features = 9 | UINT64_C(1) << 63, ENOTSUP, "lacks: 0, 3, 63;")                   \
    X(m->required_features = UINT64_MAX, ENOTSUP, "lacks: 0, 1, 2")                                \
    X(m->attempt.len = 15, EUNREADABLE, "attempt has 15 bytes, not 16")                            \
    X(m->attempt.len = 0, EUNREADABLE, "attempt has 0 bytes")                                      \
    X(m->step = -1, EUNREADABLE, "step is negative (-1)")                                          \
    X(m->rank = 4, EUNREADABLE, "rank is 4, world_size is 4")                                      \
    X(m->rank = UINT32_MAX, EUNREADABLE, "rank is 4294967295")                                     \
    X(m->world_size = 0, EUNREADABLE, "world_size is 0")                                           \
    X(m->world_size = 65537, EUNREADABLE, "world_size is 65537, 1 to 65536")                       \
    X(m->file_bytes++, EUNREADABLE, "something follows")                                           \
    X(m->file_bytes--, EUNREADABLE, "cut short")                                                   \
    X(m->file_bytes = UINT64_MAX, EUNREADABLE, "something follows")                                \
    X(m->data_offset = 0, EUNREADABLE, "data_offset is 0")                                         \
    X(m->data_offset = 4097, EUNREADABLE, "data_offset is 4097")                                   \
    X(m->data_offset = 8192, EUNREADABLE, "starts at byte 4096")                                   \
    X(m->data_offset = UINT64_C(1) << 40, EUNREADABLE, "data_offset is 1099511627776")             \
    X(m->leaf_bytes = 0, EUNREADABLE, "leaf_bytes is 0")                                           \
    X(m->leaf_bytes = 131072, EUNREADABLE, "leaf_bytes is 131072, version 1 has 65536")            \
    X(m->leaf_crc32c.len = 4, EUNREADABLE, "leaf_crc32c has 4 bytes")                              \
    X(m->leaf_crc32c.len = 7, EUNREADABLE, "leaf_crc32c has 7 bytes")                              \
    X(m->leaf_crc32c.len = 0, EUNREADABLE, "leaf_crc32c has 0 bytes")                              \
    X(m->tensors[0]->name[0] = 0, EUNREADABLE, "empty name")                                       \
    X(m->tensors[0]->name[0] = (char)0xff, EUNREADABLE, "UTF-8")                                   \
    X(strcpy(m->tensors[3]->name, "rng"), EUNREADABLE, "\"rng\" is there twice")                   \
    X(m->tensors[0]->dtype = 0, EUNREADABLE, "unknown dtype 0")                                    \
    X(m->tensors[0]->dtype = 21, EUNREADABLE, "unknown dtype 21")                                  \
    X(m->tensors[0]->dtype = (Ckpt__V1__Dtype)-1, EUNREADABLE, "unknown dtype 4294967295")         \
    X(m->tensors[2]->dtype = (Ckpt__V1__Dtype)CKPT_F64, EUNREADABLE, "dtype and shape need")       \
    X(m->tensors[2]->shape[0]++, EUNREADABLE, "dtype and shape need")                              \
    X(m->tensors[2]->shape[0] = -1, EUNREADABLE, "shape[0] is negative")                           \
    X(m->tensors[2]->shape[0] = INT64_MAX, EUNREADABLE, "too large")                               \
    X(m->tensors[2]->n_shape = 1, EUNREADABLE, "have 1, 2 and 2 dimensions")                       \
    X(m->tensors[2]->n_offset = 1, EUNREADABLE, "have 2, 2 and 1 dimensions")                      \
    X(m->tensors[2]->offset[0] = 500, EUNREADABLE, "does not fit into the global shape")           \
    X(m->tensors[2]->offset[0] = INT64_MIN, EUNREADABLE, "does not fit")                           \
    X(m->tensors[2]->global_shape[1] = 199, EUNREADABLE, "does not fit")                           \
    X(m->tensors[2]->begin++, EUNREADABLE, "dtype and shape need")                                 \
    X(m->tensors[2]->end = 0, EUNREADABLE, "dtype and shape need")                                 \
    X((m->tensors[2]->begin += 8, m->tensors[2]->end += 8), EUNREADABLE, "starts at byte")         \
    X((m->tensors[2]->begin -= 8, m->tensors[2]->end -= 8), EUNREADABLE, "starts at byte")         \
    X((m->tensors[0]->begin = UINT64_MAX - 31, m->tensors[0]->end = UINT64_MAX), EUNREADABLE,      \
      "dtype and shape need")                                                                      \
    X((m->tensors[0]->begin = UINT64_MAX - 32, m->tensors[0]->end = UINT64_MAX), EUNREADABLE,      \
      "starts at byte")                                                                            \
    X(m->n_tensors -= 2, EUNREADABLE, "the tensors end at byte")                                   \
    X(m->aliases[0]->target[0] = 'X', EUNREADABLE, "is not there")                                 \
    X(m->aliases[0]->name[0] = 0, EUNREADABLE, "empty name")                                       \
    X(strcpy(m->aliases[0]->name, "rng"), EUNREADABLE, "\"rng\" is there twice")

START_TEST(each_wrong_field_of_an_index_is_named){
#define CHECK_FAULT(change, result, why)                                                           \
    {                                                                                              \
        Ckpt__V1__Index *m = plain_index();                                                        \
        size_t tensors = m->n_tensors, shape = m->tensors[2]->n_shape;                             \
        size_t offset = m->tensors[2]->n_offset;                                                   \
        (void)(change);                                                                            \
        int rc = decode_message(CKPT__FRAME_INDEX, &m->base);                                      \
        ck_assert_msg(rc == CKPT_##result && strstr(err.text, why) != NULL, "%s: %d \"%s\"",       \
                      #change, rc, err.text);                                                      \
        m->n_tensors = tensors;                                                                    \
        m->tensors[2]->n_shape = shape;                                                            \
        m->tensors[2]->n_offset = offset;                                                          \
        ckpt__v1__index__free_unpacked(m, NULL);                                                   \
    }
    INDEX_FAULTS(CHECK_FAULT)
#undef CHECK_FAULT
} END_TEST

    START_TEST(an_alias_of_an_alias_is_resolved)
{
    Ckpt__V1__Index *m = plain_index();
    Ckpt__V1__Alias second = CKPT__V1__ALIAS__INIT;
    char name[] = "second";
    char target[] = "head.weight";
    Ckpt__V1__Alias *both[] = {m->aliases[0], &second};
    Ckpt__V1__Alias **was = m->aliases;
    second.name = name;
    second.target = target;
    m->aliases = both;
    m->n_aliases = 2;
    ck_assert_int_eq(decode_message(CKPT__FRAME_INDEX, &m->base), CKPT_OK);
    both[0] = &second; /* its target now comes later */
    both[1] = was[0];
    ck_assert_int_eq(decode_message(CKPT__FRAME_INDEX, &m->base), CKPT_EUNREADABLE);
    m->aliases = was;
    m->n_aliases = 1;
    ckpt__v1__index__free_unpacked(m, NULL);
}
END_TEST

static Ckpt__V1__Commit *plain_commit(void)
{
    struct ckpt__commit c = sample_commit();
    uint8_t *bytes;
    size_t len;
    ck_assert_int_eq(ckpt__commit_encode(&c, &env, &bytes, &len, &err), CKPT_OK);
    Ckpt__V1__Commit *m = ckpt__v1__commit__unpack(NULL, len - CKPT__FRAME_HEAD_BYTES,
                                                   bytes + CKPT__FRAME_HEAD_BYTES);
    ckpt__free(&env, bytes);
    ckpt__commit_free(&c, &env);
    return m;
}

static char too_long_run_id[CKPT__MAX_RUN_ID_BYTES + 2];

#define COMMIT_FAULTS(X)                                                                           \
    X(m->format_version = 0, EUNREADABLE, "format_version is missing")                             \
    X(m->format_version = UINT32_MAX, ENOTSUP, "format_version is 4294967295")                     \
    X(m->required_features = UINT64_C(1) << 40, ENOTSUP, "lacks: 40;")                             \
    X(m->step = INT64_MIN, EUNREADABLE, "step is negative")                                        \
    X(m->attempt.len = 15, EUNREADABLE, "attempt has 15 bytes")                                    \
    X(m->parent.len = 1, EUNREADABLE, "parent has 1 bytes")                                        \
    X(m->world_size = 0, EUNREADABLE, "world_size is 0")                                           \
    X(m->world_size = 3, EUNREADABLE, "index_digest has 4 entries, world_size is 3")               \
    X(m->world_size = 5, EUNREADABLE, "index_digest has 4 entries, world_size is 5")               \
    X(m->world_size = UINT32_MAX, EUNREADABLE, "world_size is 4294967295")                         \
    X(m->index_digest[3].len = 0, EUNREADABLE, "an index_digest has 0 bytes")                      \
    X(m->run_id[0] = (char)0xff, EUNREADABLE, "run_id is not valid UTF-8")                         \
    X(m->run_id = too_long_run_id, EUNREADABLE, "run_id is longer than 256 bytes")

START_TEST(each_wrong_field_of_a_commit_is_named)
{
    memset(too_long_run_id, 'r', sizeof too_long_run_id - 1);
#define CHECK_FAULT(change, result, why)                                                           \
    {                                                                                              \
        Ckpt__V1__Commit *m = plain_commit();                                                      \
        char *run_id = m->run_id;                                                                  \
        (void)(change);                                                                            \
        int rc = decode_message(CKPT__FRAME_COMMIT, &m->base);                                     \
        ck_assert_msg(rc == CKPT_##result && strstr(err.text, why) != NULL, "%s: %d \"%s\"",       \
                      #change, rc, err.text);                                                      \
        m->run_id = run_id;                                                                        \
        ckpt__v1__commit__free_unpacked(m, NULL);                                                  \
    }
    COMMIT_FAULTS(CHECK_FAULT)
#undef CHECK_FAULT
}
END_TEST

START_TEST(unknown_fields_are_ignored)
{
    Ckpt__V1__Commit *m = plain_commit();
    size_t len = protobuf_c_message_get_packed_size(&m->base);
    uint8_t *payload = malloc(len + 8);
    protobuf_c_message_pack(&m->base, payload);
    memcpy(payload + len, "\xfa\x06\x05later", 8); /* field 111, bytes */
    ck_assert_msg(decode_payload(CKPT__FRAME_COMMIT, payload, len + 8) == CKPT_OK, "%s", err.text);
    free(payload);
    ckpt__v1__commit__free_unpacked(m, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* Faults                                                                                       */

START_TEST(every_failing_allocation_of_an_index_is_survived)
{
    struct ckpt__index x;
    uint8_t *bytes;
    size_t len;
    sample_index(&x);
    ck_assert_int_eq(ckpt__index_encode(&x, &bytes, &len, &err), CKPT_OK);
    struct alloc_fault fault = ALLOC_FAULT_INIT;
    while (alloc_fault_next(&fault)) {
        const ckpt_allocator a = {alloc_fault_alloc, alloc_fault_free, &fault};
        struct ckpt__env failing;
        ckpt__env_init(&failing, &a);
        struct ckpt__index y;
        ckpt__index_init(&y, &failing);
        uint8_t *again = NULL;
        size_t again_len = 0;
        int rc = ckpt__index_decode(&y, bytes, len, &err);
        if (rc == CKPT_OK)
            rc = ckpt__index_encode(&y, &again, &again_len, &err);
        ck_assert_int_eq(rc, alloc_fault_fired(&fault) ? CKPT_ENOMEM : CKPT_OK);
        if (rc == CKPT_OK)
            ck_assert_mem_eq(bytes, again, len);
        ckpt__free(&failing, again);
        ckpt__index_free(&y);
    }
    ck_assert_int_gt(fault.round, 60);
    ckpt__free(&env, bytes);
    ckpt__index_free(&x);
}
END_TEST

START_TEST(every_failing_allocation_of_a_commit_is_survived)
{
    struct ckpt__commit c = sample_commit();
    uint8_t *bytes;
    size_t len;
    ck_assert_int_eq(ckpt__commit_encode(&c, &env, &bytes, &len, &err), CKPT_OK);
    struct alloc_fault fault = ALLOC_FAULT_INIT;
    while (alloc_fault_next(&fault)) {
        const ckpt_allocator a = {alloc_fault_alloc, alloc_fault_free, &fault};
        struct ckpt__env failing;
        ckpt__env_init(&failing, &a);
        struct ckpt__commit d;
        uint8_t *again = NULL;
        size_t again_len = 0;
        int rc = ckpt__commit_decode(&d, &failing, bytes, len, &err);
        if (rc == CKPT_OK)
            rc = ckpt__commit_encode(&d, &failing, &again, &again_len, &err);
        ck_assert_int_eq(rc, alloc_fault_fired(&fault) ? CKPT_ENOMEM : CKPT_OK);
        if (rc == CKPT_OK)
            ck_assert_mem_eq(bytes, again, len);
        ckpt__free(&failing, again);
        ckpt__commit_free(&d, &failing);
    }
    ck_assert_int_gt(fault.round, 12);
    ckpt__free(&env, bytes);
    ckpt__commit_free(&c, &env);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("manifest");
    TCase *tc = tcase_create("manifest");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, an_index_comes_back_as_it_was);
    tcase_add_test(tc, the_smallest_and_the_largest_commit_come_back);
    tcase_add_test(tc, a_run_id_must_be_text);
    tcase_add_test(tc, digests_are_xxh3_in_canonical_order);
    tcase_add_test(tc, files_of_version_1_are_read_for_ever);
    tcase_add_test(tc, no_altered_byte_and_no_other_length_passes);
    tcase_add_test(tc, a_good_frame_around_nonsense);
    tcase_add_test(tc, small_input_cannot_take_much_memory);
    tcase_add_test(tc, many_tiny_tensors_are_not_taken_for_an_attack);
    tcase_add_test(tc, each_wrong_field_of_an_index_is_named);
    tcase_add_test(tc, an_alias_of_an_alias_is_resolved);
    tcase_add_test(tc, each_wrong_field_of_a_commit_is_named);
    tcase_add_test(tc, unknown_fields_are_ignored);
    tcase_add_test(tc, every_failing_allocation_of_an_index_is_survived);
    tcase_add_test(tc, every_failing_allocation_of_a_commit_is_survived);
    suite_add_tcase(s, tc);
    return s;
}
