/*
 * test_index.c: a rank's index survives the way to bytes and back; files of version 1 are read for
 * ever; everything else is refused with the field and the reason. test_commit.c has COMMIT.
 */
#include "formats.h"
#include "manifests.h"
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ckpt__env env;
static ckpt_error err;

static void set_up(void)
{
    ckpt__env_init(&env, NULL);
    memset(&err, 0, sizeof err);
}

static void add(struct ckpt__layout *l, const char *name, uint32_t dtype, int32_t ndim,
                const int64_t *shape, const int64_t *global, const int64_t *offset)
{
    static uint8_t data[1 << 18];
    ckpt_tensor t = formats_tensor(name, dtype, ndim, shape, data);
    t.global_shape = global;
    t.offset = offset;
    ck_assert_msg(ckpt__layout_add(l, &t, &err) == CKPT_OK, "%s", err.text);
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
    x->attempt = manifests_digest(0x10);
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

static void encode_sample(uint8_t **bytes, size_t *len)
{
    struct ckpt__index x;
    sample_index(&x);
    ck_assert_int_eq(ckpt__index_encode(&x, bytes, len, &err), CKPT_OK);
    ckpt__index_free(&x);
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
    size_t n = manifests_golden("shard-00002-of-00004.index", bytes, len, file, sizeof file);
    ck_assert_msg(ckpt__index_decode(&y, file, n, &err) == CKPT_OK, "%s", err.text);
    assert_same_index(&x, &y);
    ckpt__free(&env, bytes);
    ckpt__index_free(&x);
    ckpt__index_free(&y);
}
END_TEST

START_TEST(no_altered_byte_and_no_other_length_passes)
{
    uint8_t *bytes;
    size_t len;
    encode_sample(&bytes, &len);
    manifests_expect_no_other(CKPT__FRAME_INDEX, bytes, len);
    ckpt__free(&env, bytes);
}
END_TEST

START_TEST(a_good_frame_around_nonsense)
{
    ck_assert_int_eq(manifests_decode_payload(CKPT__FRAME_INDEX, "", 0, &err), CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "format_version is missing"));
    ck_assert_int_eq(manifests_decode_payload(CKPT__FRAME_INDEX, "\xff\xff", 2, &err),
                     CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "protobuf"));
}
END_TEST

START_TEST(small_input_cannot_take_much_memory)
{
    /* An empty tensor, and a field that nobody knows. */
    static const uint8_t tags[] = {11 << 3 | 2, 15 << 3};
    for (size_t i = 0; i < sizeof tags; i++) {
        ck_assert_int_eq(manifests_decode_repeated(CKPT__FRAME_INDEX, tags[i], &err),
                         CKPT_EUNREADABLE);
        ck_assert_ptr_nonnull(strstr(err.text, "unpacks to far more"));
    }
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
    ck_assert_msg(manifests_decode(CKPT__FRAME_INDEX, bytes, len, &err) == CKPT_OK, "%s", err.text);
    ckpt__free(&env, bytes);
    ckpt__index_free(&x);
}
END_TEST

static Ckpt__V1__Index *plain_index(void)
{
    uint8_t *bytes;
    size_t len;
    encode_sample(&bytes, &len);
    Ckpt__V1__Index *m =
        ckpt__v1__index__unpack(NULL, len - CKPT__FRAME_HEAD_BYTES, bytes + CKPT__FRAME_HEAD_BYTES);
    ckpt__free(&env, bytes);
    return m;
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

#define CHECK_FAULT(change, result, why)                                                           \
    {                                                                                              \
        Ckpt__V1__Index *m = plain_index();                                                        \
        size_t tensors = m->n_tensors, shape = m->tensors[2]->n_shape;                             \
        size_t offset = m->tensors[2]->n_offset;                                                   \
        (void)(change);                                                                            \
        int rc = manifests_decode_message(CKPT__FRAME_INDEX, &m->base, &err);                      \
        ck_assert_msg(rc == CKPT_##result && strstr(err.text, why) != NULL, "%s: %d \"%s\"",       \
                      #change, rc, err.text);                                                      \
        m->n_tensors = tensors;                                                                    \
        m->tensors[2]->n_shape = shape;                                                            \
        m->tensors[2]->n_offset = offset;                                                          \
        ckpt__v1__index__free_unpacked(m, NULL);                                                   \
    }

START_TEST(each_wrong_field_of_an_index_is_named){INDEX_FAULTS(CHECK_FAULT)} END_TEST

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
    ck_assert_int_eq(manifests_decode_message(CKPT__FRAME_INDEX, &m->base, &err), CKPT_OK);
    both[0] = &second; /* its target now comes later */
    both[1] = was[0];
    ck_assert_int_eq(manifests_decode_message(CKPT__FRAME_INDEX, &m->base, &err), CKPT_EUNREADABLE);
    m->aliases = was;
    m->n_aliases = 1;
    ckpt__v1__index__free_unpacked(m, NULL);
}
END_TEST

static uint8_t *sample;
static size_t sample_len;

static int decode_and_encode(const ckpt_allocator *a)
{
    struct ckpt__env failing;
    ckpt__env_init(&failing, a);
    struct ckpt__index y;
    ckpt__index_init(&y, &failing);
    uint8_t *again = NULL;
    size_t again_len = 0;
    int rc = ckpt__index_decode(&y, sample, sample_len, &err);
    if (rc == CKPT_OK)
        rc = ckpt__index_encode(&y, &again, &again_len, &err);
    if (rc == CKPT_OK)
        ck_assert_mem_eq(sample, again, sample_len);
    ckpt__free(&failing, again);
    ckpt__index_free(&y);
    return rc;
}

START_TEST(every_failing_allocation_is_survived)
{
    encode_sample(&sample, &sample_len);
    ck_assert_int_gt(formats_fail_each_allocation(decode_and_encode), 60);
    ckpt__free(&env, sample);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("index");
    TCase *tc = tcase_create("index");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, an_index_comes_back_as_it_was);
    tcase_add_test(tc, files_of_version_1_are_read_for_ever);
    tcase_add_test(tc, no_altered_byte_and_no_other_length_passes);
    tcase_add_test(tc, a_good_frame_around_nonsense);
    tcase_add_test(tc, small_input_cannot_take_much_memory);
    tcase_add_test(tc, many_tiny_tensors_are_not_taken_for_an_attack);
    tcase_add_test(tc, each_wrong_field_of_an_index_is_named);
    tcase_add_test(tc, an_alias_of_an_alias_is_resolved);
    tcase_add_test(tc, every_failing_allocation_is_survived);
    suite_add_tcase(s, tc);
    return s;
}
