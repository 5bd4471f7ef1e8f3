/*
 * test_commit.c: COMMIT survives the way to bytes and back; files of version 1 are read for ever;
 * everything else is refused with the field and the reason. test_index.c has the index.
 */
#include "formats.h"
#include "manifests.h"
#include "runner.h"

#include <stdlib.h>
#include <string.h>

static struct ckpt__env env;
static ckpt_error err;

static void set_up(void)
{
    ckpt__env_init(&env, NULL);
    memset(&err, 0, sizeof err);
}

/* What tests/fixtures/ckpt/v1 holds; never change it, add another. */
static struct ckpt__commit sample_commit(void)
{
    struct ckpt__commit c = {.step = 1000, .sequence = 7, .generation = 3, .world_size = 4};
    strcpy(c.run_id, "run \xe2\x82\xac 17");
    c.attempt = manifests_digest(0x10);
    c.parent = manifests_digest(0x40);
    c.index_digests = ckpt__alloc_array(&env, 4, sizeof *c.index_digests);
    for (uint8_t i = 0; i < 4; i++)
        c.index_digests[i] = manifests_digest((uint8_t)(0x80 + 16 * i));
    c.saved_unix_ms = INT64_C(1700000000123);
    return c;
}

static void encode_sample(uint8_t **bytes, size_t *len)
{
    struct ckpt__commit c = sample_commit();
    ck_assert_int_eq(ckpt__commit_encode(&c, &env, bytes, len, &err), CKPT_OK);
    ckpt__commit_free(&c, &env);
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
        c.index_digests[world - 1] = manifests_digest(1);
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

START_TEST(files_of_version_1_are_read_for_ever)
{
    static uint8_t file[65536];
    uint8_t *bytes;
    size_t len;
    struct ckpt__commit c = sample_commit();
    struct ckpt__commit d;
    ck_assert_int_eq(ckpt__commit_encode(&c, &env, &bytes, &len, &err), CKPT_OK);
    size_t n = manifests_golden("COMMIT", bytes, len, file, sizeof file);
    ck_assert_msg(ckpt__commit_decode(&d, &env, file, n, &err) == CKPT_OK, "%s", err.text);
    assert_same_commit(&c, &d);
    ckpt__free(&env, bytes);
    ckpt__commit_free(&c, &env);
    ckpt__commit_free(&d, &env);
}
END_TEST

START_TEST(no_altered_byte_and_no_other_length_passes)
{
    uint8_t *bytes;
    size_t len;
    encode_sample(&bytes, &len);
    manifests_expect_no_other(CKPT__FRAME_COMMIT, bytes, len);
    ckpt__free(&env, bytes);
}
END_TEST

START_TEST(a_good_frame_around_nonsense)
{
    ck_assert_int_eq(manifests_decode_payload(CKPT__FRAME_COMMIT, "", 0, &err), CKPT_EUNREADABLE);
    ck_assert_int_eq(manifests_decode_payload(CKPT__FRAME_COMMIT, "\x08", 1, &err),
                     CKPT_EUNREADABLE);
}
END_TEST

START_TEST(small_input_cannot_take_much_memory)
{
    uint8_t empty_digest = 10 << 3 | 2;
    ck_assert_int_eq(manifests_decode_repeated(CKPT__FRAME_COMMIT, empty_digest, &err),
                     CKPT_EUNREADABLE);
}
END_TEST

static Ckpt__V1__Commit *plain_commit(void)
{
    uint8_t *bytes;
    size_t len;
    encode_sample(&bytes, &len);
    Ckpt__V1__Commit *m = ckpt__v1__commit__unpack(NULL, len - CKPT__FRAME_HEAD_BYTES,
                                                   bytes + CKPT__FRAME_HEAD_BYTES);
    ckpt__free(&env, bytes);
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

#define CHECK_FAULT(change, result, why)                                                           \
    {                                                                                              \
        Ckpt__V1__Commit *m = plain_commit();                                                      \
        char *run_id = m->run_id;                                                                  \
        (void)(change);                                                                            \
        int rc = manifests_decode_message(CKPT__FRAME_COMMIT, &m->base, &err);                     \
        ck_assert_msg(rc == CKPT_##result && strstr(err.text, why) != NULL, "%s: %d \"%s\"",       \
                      #change, rc, err.text);                                                      \
        m->run_id = run_id;                                                                        \
        ckpt__v1__commit__free_unpacked(m, NULL);                                                  \
    }

START_TEST(each_wrong_field_of_a_commit_is_named)
{
    memset(too_long_run_id, 'r', sizeof too_long_run_id - 1);
    COMMIT_FAULTS(CHECK_FAULT)
}
END_TEST

START_TEST(unknown_fields_are_ignored)
{
    Ckpt__V1__Commit *m = plain_commit();
    size_t len = protobuf_c_message_get_packed_size(&m->base);
    uint8_t *payload = malloc(len + 8);
    protobuf_c_message_pack(&m->base, payload);
    memcpy(payload + len, "\xfa\x06\x05later", 8); /* field 111, bytes */
    ck_assert_msg(manifests_decode_payload(CKPT__FRAME_COMMIT, payload, len + 8, &err) == CKPT_OK,
                  "%s", err.text);
    free(payload);
    ckpt__v1__commit__free_unpacked(m, NULL);
}
END_TEST

static uint8_t *sample;
static size_t sample_len;

static int decode_and_encode(const ckpt_allocator *a)
{
    struct ckpt__env failing;
    ckpt__env_init(&failing, a);
    struct ckpt__commit d;
    uint8_t *again = NULL;
    size_t again_len = 0;
    int rc = ckpt__commit_decode(&d, &failing, sample, sample_len, &err);
    if (rc == CKPT_OK)
        rc = ckpt__commit_encode(&d, &failing, &again, &again_len, &err);
    if (rc == CKPT_OK)
        ck_assert_mem_eq(sample, again, sample_len);
    ckpt__free(&failing, again);
    ckpt__commit_free(&d, &failing);
    return rc;
}

START_TEST(every_failing_allocation_is_survived)
{
    encode_sample(&sample, &sample_len);
    ck_assert_int_gt(formats_fail_each_allocation(decode_and_encode), 12);
    ckpt__free(&env, sample);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("commit");
    TCase *tc = tcase_create("commit");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, the_smallest_and_the_largest_commit_come_back);
    tcase_add_test(tc, a_run_id_must_be_text);
    tcase_add_test(tc, digests_are_xxh3_in_canonical_order);
    tcase_add_test(tc, files_of_version_1_are_read_for_ever);
    tcase_add_test(tc, no_altered_byte_and_no_other_length_passes);
    tcase_add_test(tc, a_good_frame_around_nonsense);
    tcase_add_test(tc, small_input_cannot_take_much_memory);
    tcase_add_test(tc, each_wrong_field_of_a_commit_is_named);
    tcase_add_test(tc, unknown_fields_are_ignored);
    tcase_add_test(tc, every_failing_allocation_is_survived);
    suite_add_tcase(s, tc);
    return s;
}
