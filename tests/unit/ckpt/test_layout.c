/* test_layout.c: what goes into a shard, in which order, and that any split reads the same image.
 */
#include "format/layout.h"
#include "formats.h"
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ckpt__env env;
static struct ckpt__layout layout;
static ckpt_error err;

static void set_up(void)
{
    ckpt__env_init(&env, NULL);
    ckpt__layout_init(&layout, &env);
    memset(&err, 0, sizeof err);
}

static void tear_down(void)
{
    ckpt__layout_free(&layout);
}

static void add(const char *name, uint32_t dtype, int32_t ndim, const int64_t *shape, void *data)
{
    ckpt_tensor t = formats_tensor(name, dtype, ndim, shape, data);
    ck_assert_msg(ckpt__layout_add(&layout, &t, &err) == CKPT_OK, "%s", err.text);
}

static void refuse(const ckpt_tensor *t, const char *why)
{
    memset(&err, 0, sizeof err);
    ck_assert_int_eq(ckpt__layout_add(&layout, t, &err), CKPT_EINVAL);
    ck_assert_int_eq(err.code, CKPT_EINVAL);
    ck_assert_msg(strstr(err.text, why) != NULL, "\"%s\" lacks \"%s\"", err.text, why);
    ck_assert_uint_eq(layout.count, 0);
}

START_TEST(largest_items_come_first_and_order_of_put_is_kept)
{
    static uint8_t data[64];
    const int64_t three[] = {3};
    const int64_t one[] = {1};
    add("b1", CKPT_U8, 1, three, data);
    add("f1", CKPT_F32, 1, three, data);
    add("c1", CKPT_C128, 1, one, data);
    add("h1", CKPT_BF16, 1, three, data);
    add("f2", CKPT_I32, 0, NULL, data);
    add("d1", CKPT_F64, 1, three, data);
    add("b2", CKPT_BOOL, 1, three, data);
    add("c2", CKPT_C64, 1, three, data);
    ck_assert_int_eq(ckpt__layout_build(&layout, &err), CKPT_OK);
    const char *order[] = {"c1", "d1", "c2", "f1", "f2", "h1", "b1", "b2"};
    uint64_t at = layout.data_offset;
    ck_assert_uint_eq(at % CKPT__DATA_ALIGN, 0);
    ck_assert_uint_eq(layout.count, 8);
    for (size_t i = 0; i < layout.count; i++) {
        const struct ckpt__entry *e = &layout.entries[i];
        ck_assert_str_eq(e->name, order[i]);
        ck_assert_uint_eq(e->begin, at);
        ck_assert_uint_eq(e->begin % ckpt_dtype_size(e->dtype), 0);
        ck_assert_ptr_eq(ckpt__layout_find(&layout, order[i]), e);
        at += e->bytes;
    }
    ck_assert_uint_eq(layout.file_bytes, at);
}
END_TEST

START_TEST(an_empty_layout_is_a_header)
{
    ck_assert_int_eq(ckpt__layout_build(&layout, &err), CKPT_OK);
    ck_assert_uint_eq(layout.file_bytes, CKPT__DATA_ALIGN);
    ck_assert_ptr_null(ckpt__layout_find(&layout, "x"));
    uint8_t image[CKPT__DATA_ALIGN];
    ckpt__layout_read(&layout, 0, image, sizeof image);
    ck_assert_mem_eq(image + 8, "{\"__metadata__\":{\"format\":\"pt\"}}  ", 34);
    ckpt__layout_read(&layout, sizeof image, image, 0);
}
END_TEST

/* Tensors of every kind, the image put together by hand from their dense bytes. */
START_TEST(any_split_reads_the_same_image)
{
    uint8_t data[600];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 37 + i / 256);
    const int64_t matrix[] = {5, 7};
    const int64_t transposed[] = {7, 5};
    const int64_t strides[] = {4, 28};
    const int64_t none[] = {0, 9};
    add("matrix", CKPT_F32, 2, matrix, data);
    add("none", CKPT_F32, 2, none, NULL);
    add("scalar", CKPT_F64, 0, NULL, data + 3);
    ckpt_tensor t = formats_tensor("transposed", CKPT_F32, 2, transposed, data);
    t.strides_bytes = strides;
    ck_assert_int_eq(ckpt__layout_add(&layout, &t, &err), CKPT_OK);
    add("tail", CKPT_U8, 1, matrix, data + 50);
    ck_assert_int_eq(ckpt__layout_build(&layout, &err), CKPT_OK);

    uint8_t *want = malloc(layout.file_bytes);
    uint8_t *got = malloc(layout.file_bytes);
    memcpy(want, layout.head, layout.data_offset);
    uint8_t *w = want + layout.data_offset;
    memcpy(w, data + 3, 8);
    memcpy(w + 8, data, 140);
    for (size_t row = 0; row < 7; row++) {
        for (size_t column = 0; column < 5; column++)
            memcpy(w + 148 + 4 * (5 * row + column), data + 4 * row + 28 * column, 4);
    }
    memcpy(w + 288, data + 50, 5);
    ck_assert_uint_eq(layout.file_bytes, layout.data_offset + 293);

    for (size_t step = 1; step <= layout.file_bytes; step += step < 40 ? 1 : 977) {
        memset(got, 0, layout.file_bytes);
        for (size_t off = 0; off < layout.file_bytes; off += step) {
            size_t left = layout.file_bytes - off;
            ckpt__layout_read(&layout, off, got + off, left < step ? left : step);
        }
        ck_assert_int_eq(memcmp(got, want, layout.file_bytes), 0);
    }
    for (size_t off = layout.data_offset - 9; off < layout.file_bytes; off++) {
        for (size_t len = 0; len <= layout.file_bytes - off; len++) {
            ckpt__layout_read(&layout, off, got, len);
            ck_assert_int_eq(memcmp(got, want + off, len), 0);
        }
    }
    free(want);
    free(got);
}
END_TEST

START_TEST(bad_names_are_refused)
{
    static char longest[CKPT_MAX_NAME_BYTES + 2];
    memset(longest, 'n', sizeof longest - 1);
    const struct {
        const char *name;
        const char *why;
    } cases[] = {
        {NULL, "empty name"},          {"", "empty name"},    {longest, "longer than 4096 bytes"},
        {"__metadata__", "reserved"},  {"\x80", "UTF-8"},     {"a\xc3", "UTF-8"},
        {"\xc0\x80", "UTF-8"},         /* NUL, too long */
        {"\xc1\xbf", "UTF-8"},         /* too long */
        {"\xe0\x9f\xbf", "UTF-8"},     /* too long */
        {"\xed\xa0\x80", "UTF-8"},     /* surrogate */
        {"\xf0\x8f\xbf\xbf", "UTF-8"}, /* too long */
        {"\xf4\x90\x80\x80", "UTF-8"}, /* beyond U+10FFFF */
        {"\xf5\x80\x80\x80", "UTF-8"}, {"\xe2\x82", "UTF-8"}, {"\xff", "UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ckpt_tensor t = formats_tensor(cases[i].name, CKPT_U8, 0, NULL, &env);
        refuse(&t, cases[i].why);
    }
    longest[CKPT_MAX_NAME_BYTES] = '\0';
    add(longest, CKPT_U8, 0, NULL, &env);
    add("\xf4\x8f\xbf\xbf \xed\x9f\xbf \xe2\x82\xac \xc2\x80 \n\x7f", CKPT_U8, 0, NULL, &env);
}
END_TEST

START_TEST(bad_descriptions_are_refused)
{
    static int64_t ones[CKPT_MAX_DIMS + 1];
    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++)
        ones[i] = 1;
    const int64_t negative[] = {2, -3};
    const int64_t huge[] = {INT64_C(1) << 31, INT64_C(1) << 31};
    const int64_t empty_but_huge[] = {0, INT64_C(1) << 62, INT64_C(1) << 62};
    const int64_t two[] = {2, 2};
    const int64_t strides[] = {INT64_MAX, 1};
    const int64_t lowest[] = {INT64_MIN / 2, 1};
    const int64_t four[] = {4, 4};
    const int64_t three[] = {3, 0};
    const int64_t below[] = {-1, 0};
    const int64_t far[] = {INT64_MAX, 0};

    ckpt_tensor t = formats_tensor("t", CKPT_F64, 2, two, &env);
    t.size = sizeof t - 1;
    refuse(&t, "ckpt_tensor_init");
    struct {
        ckpt_tensor known;
        uint64_t later; /* a field of a newer release */
    } newer = {formats_tensor("newer", CKPT_F64, 2, two, &env), 1};
    newer.known.size = sizeof newer;
    refuse(&newer.known, "does not know");
    t = formats_tensor("t", 0, 0, NULL, &env);
    refuse(&t, "unknown dtype 0");
    t = formats_tensor("t", CKPT_C128 + 1, 0, NULL, &env);
    refuse(&t, "unknown dtype 21");
    t = formats_tensor("t", CKPT_U8, -1, two, &env);
    refuse(&t, "-1 dimensions");
    t = formats_tensor("t", CKPT_U8, CKPT_MAX_DIMS + 1, ones, &env);
    refuse(&t, "33 dimensions");
    t = formats_tensor("t", CKPT_U8, 1, NULL, &env);
    refuse(&t, "shape is missing");
    t = formats_tensor("t\n", CKPT_U8, 2, negative, &env);
    refuse(&t, "tensor \"t?\": shape[1] is negative (-3)");
    t = formats_tensor("t", CKPT_F64, 2, huge, &env);
    refuse(&t, "shape is too large");
    t = formats_tensor("t", CKPT_U8, 3, empty_but_huge, &env);
    refuse(&t, "shape is too large");
    t = formats_tensor("t", CKPT_U8, 2, two, NULL);
    refuse(&t, "no data");
    t = formats_tensor("t", CKPT_U8, 2, two, &env);
    t.strides_bytes = strides;
    refuse(&t, "strides_bytes[0] is too large");
    t.strides_bytes = lowest;
    refuse(&t, "strides_bytes[0] is too large");
    t = formats_tensor("t", CKPT_U8, 2, two, &env);
    t.global_shape = ones;
    refuse(&t, "does not fit");
    t.global_shape = four;
    t.offset = three;
    refuse(&t, "dimension 0 does not fit into the global shape (offset 3, size 2, global size 4)");
    t.offset = below;
    refuse(&t, "does not fit");
    t.offset = far;
    refuse(&t, "does not fit");
    t.global_shape = negative;
    refuse(&t, "global_shape[1] is negative");
    t.global_shape = huge;
    t.dtype = CKPT_F64;
    refuse(&t, "global_shape is too large");
    t = formats_tensor("t", CKPT_U8, CKPT_MAX_DIMS, ones, &env);
    ck_assert_int_eq(ckpt__layout_add(&layout, &t, NULL), CKPT_OK);
    ck_assert_int_eq(ckpt__layout_add(&layout, &t, NULL), CKPT_EINVAL);
}
END_TEST

START_TEST(all_tensors_together_stay_below_the_largest_file)
{
    const int64_t large[] = {INT64_MAX / 4};
    add("a", CKPT_U8, 1, large, &env);
    add("b", CKPT_U8, 1, large, &env);
    ckpt_tensor t = formats_tensor("c", CKPT_U8, 1, large, &env);
    ck_assert_int_eq(ckpt__layout_add(&layout, &t, &err), CKPT_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "larger than a file"));
    ck_assert_int_eq(ckpt__layout_build(&layout, &err), CKPT_OK);
    ck_assert_uint_lt(layout.file_bytes, INT64_MAX);
}
END_TEST

START_TEST(names_are_unique_and_aliases_lead_to_tensors)
{
    uint8_t byte = 7;
    add("weight", CKPT_F32, 0, NULL, &env);
    add("first", CKPT_U8, 0, NULL, &byte);
    add("wide", CKPT_F64, 0, NULL, &env);
    ck_assert_int_eq(ckpt__layout_alias(&layout, "tied", "weight", &err), CKPT_OK);
    ck_assert_int_eq(ckpt__layout_alias(&layout, "tied again", "tied", &err), CKPT_OK);
    ck_assert_str_eq(layout.aliases[1].target, "weight");

    ckpt_tensor t = formats_tensor("tied", CKPT_U8, 0, NULL, &byte);
    ck_assert_int_eq(ckpt__layout_add(&layout, &t, &err), CKPT_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "\"tied\" is there twice"));
    ck_assert_int_eq(ckpt__layout_alias(&layout, "first", "weight", &err), CKPT_EINVAL);
    ck_assert_int_eq(ckpt__layout_alias(&layout, "tied", "first", &err), CKPT_EINVAL);
    ck_assert_int_eq(ckpt__layout_alias(&layout, "x", "nowhere", &err), CKPT_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "\"nowhere\" is not there"));
    ck_assert_int_eq(ckpt__layout_alias(&layout, "x", NULL, &err), CKPT_EINVAL);
    ck_assert_int_eq(ckpt__layout_alias(&layout, "x", "x", &err), CKPT_EINVAL);
    ck_assert_int_eq(ckpt__layout_alias(&layout, "__metadata__", "first", &err), CKPT_EINVAL);
    ck_assert_uint_eq(layout.alias_count, 2);
    ck_assert_uint_eq(layout.count, 3);

    ck_assert_int_eq(ckpt__layout_build(&layout, &err), CKPT_OK);
    ck_assert_str_eq(ckpt__layout_find(&layout, "tied")->name, "weight");
    ck_assert_str_eq(ckpt__layout_find(&layout, "tied again")->name, "weight");
    ck_assert_str_eq(ckpt__layout_find(&layout, "first")->name, "first");
    ck_assert_ptr_null(ckpt__layout_find(&layout, "firs"));
    ck_assert_ptr_null(ckpt__layout_find(&layout, "first "));
}
END_TEST

START_TEST(a_description_is_copied_and_made_canonical)
{
    int64_t shape[] = {2, 3};
    int64_t global[] = {2, 3};
    int64_t offset[] = {0, 0};
    int64_t strides[] = {24, 8};
    char name[] = "whole";
    ckpt_tensor t = formats_tensor(name, CKPT_F64, 2, shape, &env);
    t.global_shape = global;
    t.offset = offset;
    t.strides_bytes = strides;
    ck_assert_int_eq(ckpt__layout_add(&layout, &t, &err), CKPT_OK);
    t.name = "part";
    global[1] = 9;
    offset[1] = 4;
    strides[0] = -24;
    ck_assert_int_eq(ckpt__layout_add(&layout, &t, &err), CKPT_OK);
    memset(name, 'X', sizeof name - 1);
    memset(shape, 0xff, sizeof shape);
    memset(global, 0xff, sizeof global);
    memset(offset, 0xff, sizeof offset);
    memset(strides, 0xff, sizeof strides);

    const struct ckpt__entry *whole = ckpt__layout_find(&layout, "whole");
    ck_assert_ptr_nonnull(whole);
    ck_assert_ptr_null(whole->global_shape);
    ck_assert_ptr_null(whole->offset);
    ck_assert_ptr_null(whole->strides_bytes);
    ck_assert_int_eq(whole->shape[1], 3);
    const struct ckpt__entry *part = ckpt__layout_find(&layout, "part");
    ck_assert_int_eq(part->shape[0], 2);
    ck_assert_int_eq(part->global_shape[1], 9);
    ck_assert_int_eq(part->offset[1], 4);
    ck_assert_int_eq(part->strides_bytes[0], -24);
    ck_assert_uint_eq(part->bytes, 48);
}
END_TEST

START_TEST(twenty_thousand_names_are_found_again)
{
    char name[32];
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "layer.%d", i);
        add(name, i % 2 == 0 ? CKPT_U8 : CKPT_F16, 0, NULL, &env);
    }
    ck_assert_int_eq(ckpt__layout_build(&layout, &err), CKPT_OK);
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "layer.%d", i);
        const struct ckpt__entry *e = ckpt__layout_find(&layout, name);
        ck_assert_ptr_nonnull(e);
        ck_assert_str_eq(e->name, name);
        ck_assert_int_eq(e->dtype == CKPT_U8, i % 2 == 0);
    }
}
END_TEST

/* A control character takes six bytes of JSON, so names of one MiB in all make a large header. */
START_TEST(a_header_that_readers_refuse_is_not_built)
{
    char name[CKPT_MAX_NAME_BYTES + 1];
    memset(name, 1, sizeof name - 1);
    for (int i = 0; i < 4080; i++) {
        snprintf(name + CKPT_MAX_NAME_BYTES - 8, 9, "%08d", i);
        add(name, CKPT_U8, 0, NULL, &env);
    }
    ck_assert_int_eq(ckpt__layout_build(&layout, &err), CKPT_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "split the state"));
    ck_assert_ptr_null(layout.head);
}
END_TEST

START_TEST(names_are_shown_on_one_line)
{
    ck_assert_str_eq(ckpt__show_name("plain.weight").text, "plain.weight");
    ck_assert_str_eq(ckpt__show_name("a\nb\x7f\xff\xc3\xa9").text, "a?b??\xc3\xa9");
    char longer[200];
    memset(longer, 'x', sizeof longer);
    longer[62] = '\xc3'; /* a character that would be cut in two */
    longer[63] = '\xa9';
    longer[199] = '\0';
    struct ckpt__shown s = ckpt__show_name(longer);
    ck_assert_uint_lt(strlen(s.text), sizeof s.text);
    ck_assert(ckpt__utf8_valid(s.text, strlen(s.text)));
    ck_assert_str_eq(s.text + strlen(s.text) - 3, "...");
}
END_TEST

START_TEST(a_text_that_is_cut_stays_utf8)
{
    char longer[300];
    for (size_t pad = 0; pad < 4; pad++) {
        memset(longer, 'x', sizeof longer);
        for (size_t i = pad; i + 4 < sizeof longer; i += 4)
            memcpy(longer + i, "\xf0\x9f\x98\x80", 4);
        longer[sizeof longer - 1] = '\0';
        ckpt__fail(&err, CKPT_EINVAL, "%s", longer);
        ck_assert(ckpt__utf8_valid(err.text, strlen(err.text)));
        ck_assert_uint_ge(strlen(err.text), sizeof err.text - 4);
        ckpt__fail_sys(&err, 2, "%s", longer);
        ck_assert(ckpt__utf8_valid(err.text, strlen(err.text)));
    }
    ckpt__fail(&err, CKPT_EINVAL, "%s", "short \xc3\xa9");
    ck_assert_str_eq(err.text, "short \xc3\xa9");
}
END_TEST

static int scenario(const ckpt_allocator *a)
{
    static uint8_t data[64];
    const int64_t shape[] = {2, 2};
    const int64_t global[] = {4, 4};
    const int64_t strides[] = {4, 8};
    struct ckpt__env failing;
    struct ckpt__layout l;
    ckpt__env_init(&failing, a);
    ckpt__layout_init(&l, &failing);
    int rc = CKPT_OK;
    char name[16];
    for (int i = 0; i < 400 && rc == CKPT_OK; i++) { /* enough for the hash table to grow */
        snprintf(name, sizeof name, "t%d", i);
        ckpt_tensor t = formats_tensor(name, CKPT_F32, 2, shape, data);
        t.global_shape = i % 2 != 0 ? global : NULL;
        t.strides_bytes = i % 3 != 0 ? strides : NULL;
        rc = ckpt__layout_add(&l, &t, &err);
    }
    if (rc == CKPT_OK)
        rc = ckpt__layout_alias(&l, "alias", "t7", &err);
    if (rc == CKPT_OK)
        rc = ckpt__layout_build(&l, &err);
    if (rc == CKPT_OK)
        ck_assert_ptr_nonnull(ckpt__layout_find(&l, "alias"));
    if (rc != CKPT_OK)
        ck_assert_int_eq(err.code, rc);
    /* What was accepted before is still there and found. */
    for (size_t i = 0; i < l.count; i++)
        ck_assert_ptr_eq(ckpt__layout_find(&l, l.entries[i].name), &l.entries[i]);
    ckpt__layout_free(&l);
    return rc;
}

START_TEST(every_failing_allocation_is_survived)
{
    ck_assert_int_gt(formats_fail_each_allocation(scenario), 2000);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("layout");
    TCase *tc = tcase_create("layout");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, largest_items_come_first_and_order_of_put_is_kept);
    tcase_add_test(tc, an_empty_layout_is_a_header);
    tcase_add_test(tc, any_split_reads_the_same_image);
    tcase_add_test(tc, bad_names_are_refused);
    tcase_add_test(tc, bad_descriptions_are_refused);
    tcase_add_test(tc, all_tensors_together_stay_below_the_largest_file);
    tcase_add_test(tc, names_are_unique_and_aliases_lead_to_tensors);
    tcase_add_test(tc, a_description_is_copied_and_made_canonical);
    tcase_add_test(tc, twenty_thousand_names_are_found_again);
    tcase_add_test(tc, a_header_that_readers_refuse_is_not_built);
    tcase_add_test(tc, names_are_shown_on_one_line);
    tcase_add_test(tc, a_text_that_is_cut_stays_utf8);
    tcase_add_test(tc, every_failing_allocation_is_survived);
    suite_add_tcase(s, tc);
    return s;
}
