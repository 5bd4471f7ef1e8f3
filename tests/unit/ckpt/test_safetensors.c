/*
 * test_safetensors.c: our header is spelled as every reader wants it, foreign files are read, and
 * each rule of the format is enforced with a message that says what is wrong.
 */
#include "alloc_fault.h"
#include "format/layout.h"
#include "formats.h"
#include "runner.h"

#include <jansson.h>
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

/* `data_bytes` follow the header. */
static int parse(const char *json, size_t len, uint64_t data_bytes)
{
    ckpt__layout_free(&layout);
    memset(&err, 0, sizeof err);
    uint8_t *exact = malloc(len + 1); /* so that a sanitizer sees one byte too far */
    uint8_t *text = exact + 1;
    memcpy(text, json, len);
    int rc = ckpt__layout_parse(&layout, text, len, 8 + len + data_bytes, &err);
    free(exact);
    ck_assert_int_eq(err.code, rc);
    if (rc != CKPT_OK)
        ck_assert_uint_eq(layout.count + (layout.names != NULL), 0); /* left empty */
    return rc;
}

static void add(const char *name, uint32_t dtype, int32_t ndim, const int64_t *shape)
{
    static uint8_t data[256];
    ckpt_tensor t = formats_tensor(name, dtype, ndim, shape, data);
    ck_assert_int_eq(ckpt__layout_add(&layout, &t, &err), CKPT_OK);
}

START_TEST(our_header_is_spelled_so)
{
    const int64_t shape[] = {2, 3};
    const int64_t empty[] = {0, 3};
    add("b", CKPT_BF16, 2, shape);
    add("c128", CKPT_C128, 0, NULL);
    add("fnuz", CKPT_F8_E4M3FNUZ, 1, shape);
    add("q\"\\\n\x1f/\x7f\xe2\x82\xac", CKPT_F32, 2, empty);
    ck_assert_int_eq(ckpt__layout_build(&layout, &err), CKPT_OK);
    const char *want =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"c128\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]},"
        "\"q\\\"\\\\\\u000a\\u001f/\x7f\xe2\x82\xac\":{\"dtype\":\"F32\",\"shape\":[0,3],"
        "\"data_offsets\":[16,16]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[16,28]},"
        "\"fnuz\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[28,30]}}";
    ck_assert_uint_eq(layout.data_offset, 4096);
    ck_assert_mem_eq(layout.head, "\xf8\x0f\0\0\0\0\0\0", 8);
    ck_assert_mem_eq(layout.head + 8, want, strlen(want));
    for (size_t i = 8 + strlen(want); i < layout.data_offset; i++)
        ck_assert_uint_eq(layout.head[i], ' ');
}
END_TEST

START_TEST(what_we_write_we_read)
{
    static const struct {
        const char *name;
        uint32_t dtype;
        const char *file_dtype;
    } all[] = {
#define ROW(name, value, item_size_bytes, safetensors_name) {#name, value, safetensors_name},
        CKPT_DTYPES(ROW)
#undef ROW
    };
    const int64_t shape[] = {3, 2};
    size_t n = sizeof all / sizeof all[0];
    for (size_t i = 0; i < n; i++)
        add(all[i].name, all[i].dtype, 2, shape);
    ck_assert_int_eq(ckpt__layout_build(&layout, &err), CKPT_OK);
    struct ckpt__layout read;
    ckpt__layout_init(&read, &env);
    ck_assert_int_eq(
        ckpt__layout_parse(&read, layout.head + 8, layout.data_offset - 8, layout.file_bytes, &err),
        CKPT_OK);
    ck_assert_uint_eq(read.count, n);
    for (size_t i = 0; i < n; i++) {
        const struct ckpt__entry *e = ckpt__layout_find(&read, all[i].name);
        const struct ckpt__entry *ours = ckpt__layout_find(&layout, all[i].name);
        bool widened = all[i].dtype != CKPT_U8 && strcmp(all[i].file_dtype, "U8") == 0;
        ck_assert_uint_eq(e->dtype, widened ? CKPT_U8 : all[i].dtype);
        ck_assert_int_eq(e->ndim, widened ? 3 : 2);
        ck_assert_uint_eq(e->begin, ours->begin);
        ck_assert_uint_eq(e->bytes, ours->bytes);
    }
    ckpt__layout_free(&read);
}
END_TEST

/* tests/fixtures/safetensors/make.py wrote it: item sizes descending, bytes counting up from 0. */
START_TEST(a_file_of_the_safetensors_package)
{
    static uint8_t file[16384];
    FILE *f = fopen(SOURCE_DIR "/tests/fixtures/safetensors/foreign.safetensors", "rb");
    ck_assert_ptr_nonnull(f);
    size_t len = fread(file, 1, sizeof file, f);
    fclose(f);
    size_t json_len = (size_t)file[0] | (size_t)file[1] << 8;
    ck_assert_msg(ckpt__layout_parse(&layout, file + 8, json_len, len, &err) == CKPT_OK, "%s",
                  err.text);
    static const struct {
        const char *name;
        uint32_t dtype;
    } known[] = {
        {"bool", CKPT_BOOL},
        {"uint8", CKPT_U8},
        {"int8", CKPT_I8},
        {"uint16", CKPT_U16},
        {"int16", CKPT_I16},
        {"uint32", CKPT_U32},
        {"int32", CKPT_I32},
        {"uint64", CKPT_U64},
        {"int64", CKPT_I64},
        {"float8_e4m3fn", CKPT_F8_E4M3},
        {"float8_e5m2", CKPT_F8_E5M2},
        {"float8_e8m0fnu", CKPT_F8_E8M0},
        {"float8_e4m3fnuz", CKPT_F8_E4M3FNUZ},
        {"float8_e5m2fnuz", CKPT_F8_E5M2FNUZ},
        {"float16", CKPT_F16},
        {"bfloat16", CKPT_BF16},
        {"float32", CKPT_F32},
        {"float64", CKPT_F64},
        {"complex64", CKPT_C64},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const struct ckpt__entry *e = ckpt__layout_find(&layout, known[i].name);
        ck_assert_msg(e != NULL, "%s is missing", known[i].name);
        ck_assert_uint_eq(e->dtype, known[i].dtype);
        ck_assert_int_eq(e->ndim, 2);
        ck_assert_int_eq(e->shape[0], 2);
        ck_assert_int_eq(e->shape[1], 3);
        ck_assert_uint_eq(file[e->begin + 1], 1);
        ck_assert_uint_eq(file[e->begin + e->bytes - 1], e->dtype == CKPT_BOOL ? 1 : e->bytes - 1);
    }
    ck_assert_uint_eq(ckpt__layout_find(&layout, "empty")->bytes, 0);
    ck_assert_int_eq(ckpt__layout_find(&layout, "scalar")->ndim, 0);
    const struct ckpt__entry *odd =
        ckpt__layout_find(&layout, "na\xc3\xafve \"\\\n\xe2\x82\xac\xf0\x9f\x98\x80");
    ck_assert_ptr_nonnull(odd);
    ck_assert_uint_eq(file[odd->begin + 8], 2);
    ck_assert_uint_eq(layout.count, 22);
}
END_TEST

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end \
    "]}"

START_TEST(what_the_format_allows)
{
    const struct {
        const char *json;
        uint64_t data_bytes;
        size_t count;
    } cases[] = {
        {"{}", 0, 0},
        {"{}   \n\t\r ", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{ \"__metadata__\" : { \"a\" : \"b\" , \"c\" : \"\" } }", 0, 0},
        {"{" T("a", "U8", "2", "0", "2") "}", 2, 1},
        {"{" T("a", "U8", "2", "0", "2") ",\"__metadata__\":{\"x\":\"y\"}}", 2, 1},
        {"{" T("late", "U8", "2", "4", "6") "," T("early", "F32", "", "0", "4") "}", 6, 2},
        {"{" T("z", "F32", "0", "4", "4") "," T("a", "F32", "1", "0", "4") "}", 4, 2},
        {"{" T("z", "F32", "0", "0", "0") "," T("y", "F32", "0,7", "0", "0") "}", 0, 2},
        {"{\"a\":{\"data_offsets\":[0,1],\"extra\":{\"x\":[1]},\"shape\":[],\"dtype\":\"I8\"}}", 1,
         1},
        {"{" T("\\u00e9\\ud83d\\ude00", "U8", "", "0", "1") "}", 1, 1},
        {"{" T("c", "C64", "1", "0", "8") "}", 8, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int rc = parse(cases[i].json, strlen(cases[i].json), cases[i].data_bytes);
        ck_assert_msg(rc == CKPT_OK, "%s: %s", cases[i].json, err.text);
        ck_assert_uint_eq(layout.count, cases[i].count);
        ck_assert_uint_eq(layout.data_offset, 8 + strlen(cases[i].json));
        ck_assert_uint_eq(layout.file_bytes, layout.data_offset + cases[i].data_bytes);
    }
    const char *unsorted =
        "{" T("late", "U8", "2", "4", "6") "," T("early", "F32", "", "0", "4") "}";
    ck_assert_int_eq(parse(unsorted, strlen(unsorted), 6), CKPT_OK);
    ck_assert_str_eq(layout.entries[0].name, "early");
    ck_assert_uint_eq(layout.entries[1].begin, 8 + strlen(unsorted) + 4);
    ck_assert_str_eq(ckpt__layout_find(&layout, "late")->name, "late");
}
END_TEST

static const struct {
    const char *json;
    uint64_t data_bytes;
    int code;
    const char *why;
} forbidden[] = {
    {"", 0, CKPT_EUNREADABLE, "'{' expected"},
    {" {}", 0, CKPT_EUNREADABLE, "'{' expected"},
    {"[]", 0, CKPT_EUNREADABLE, "'{' expected"},
    {"{", 0, CKPT_EUNREADABLE, "byte 1"},
    {"{}x", 0, CKPT_EUNREADABLE, "follows the closing"},
    {"{}{}", 0, CKPT_EUNREADABLE, "follows the closing"},
    {"{1:2}", 0, CKPT_EUNREADABLE, "name in quotes"},
    {"{\"a\"}", 0, CKPT_EUNREADABLE, "':' expected"},
    {"{\"a\":1}", 0, CKPT_EUNREADABLE, "is no object"},
    {"{\"a\":[]}", 0, CKPT_EUNREADABLE, "is no object"},
    {"{\"a\":null}", 0, CKPT_EUNREADABLE, "is no object"},
    {"{\"a\":{}}", 0, CKPT_EUNREADABLE, "dtype is missing"},
    {"{" T("a", "U8", "", "0", "1") ",}", 1, CKPT_EUNREADABLE, "byte"},
    {"{" T("a", "U8", "", "0", "1") " " T("b", "U8", "", "1", "2") "}", 2, CKPT_EUNREADABLE,
     "',' or '}' expected"},
    {"{" T("a\xff", "U8", "", "0", "1") "}", 1, CKPT_EUNREADABLE, "decode byte 0xff"},
    {"{" T("\\ud800", "U8", "", "0", "1") "}", 1, CKPT_EUNREADABLE, "Unicode"},
    {"{" T("a\\u0000b", "U8", "", "0", "1") "}", 1, CKPT_EUNREADABLE, "\\u0000"},
    {"{" T("", "U8", "", "0", "1") "}", 1, CKPT_EUNREADABLE, "empty name"},
    {"{" T("a", "U8", "", "0", "1") "," T("a", "U8", "", "1", "2") "}", 2, CKPT_EUNREADABLE,
     "\"a\" is there twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, CKPT_EUNREADABLE, "is there twice"},
    {"{\"__metadata__\":[]}", 0, CKPT_EUNREADABLE, "'{' expected"},
    {"{\"__metadata__\":{\"a\":1}}", 0, CKPT_EUNREADABLE, "must be strings"},
    {"{\"__metadata__\":{\"a\":{}}}", 0, CKPT_EUNREADABLE, "must be strings"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     CKPT_EUNREADABLE, "duplicate"},
    {"{\"a\":{\"dtype\":7,\"shape\":[],\"data_offsets\":[0,1]}}", 1, CKPT_EUNREADABLE,
     "dtype is missing"},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, CKPT_EUNREADABLE, "shape is missing"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":7,\"data_offsets\":[0,1]}}", 1, CKPT_EUNREADABLE,
     "shape is missing"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, CKPT_EUNREADABLE, "data_offsets is missing"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0]}}", 1, CKPT_EUNREADABLE,
     "data_offsets is missing or malformed"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1,1]}}", 1, CKPT_EUNREADABLE,
     "data_offsets is missing or malformed"},
    {"{" T("a", "U9", "", "0", "1") "}", 1, CKPT_EUNREADABLE, "dtype U9, which is not known"},
    {"{" T("a", "u8", "", "0", "1") "}", 1, CKPT_EUNREADABLE, "not known"},
    {"{" T("a", "C128", "", "0", "16") "}", 16, CKPT_EUNREADABLE, "not known"},
    {"{" T("a", "F4", "2", "0", "1") "}", 1, CKPT_ENOTSUP, "\"a\" has dtype F4"},
    {"{" T("a", "F6_E2M3", "4", "0", "3") "}", 3, CKPT_ENOTSUP, "F6_E2M3"},
    {"{" T("a", "F6_E3M2", "4", "0", "3") "}", 3, CKPT_ENOTSUP, "F6_E3M2"},
    {"{" T("a", "U8", "-1", "0", "1") "}", 1, CKPT_EUNREADABLE, "shape[0] is not a whole"},
    {"{" T("a", "U8", "1.0", "0", "1") "}", 1, CKPT_EUNREADABLE, "shape[0] is not a whole"},
    {"{" T("a", "U8", "1e0", "0", "1") "}", 1, CKPT_EUNREADABLE, "shape[0] is not a whole"},
    {"{" T("a", "U8", "\"1\"", "0", "1") "}", 1, CKPT_EUNREADABLE, "shape[0] is not a whole"},
    {"{" T("a", "U8", "9223372036854775808", "0", "1") "}", 1, CKPT_EUNREADABLE, "too big"},
    {"{" T("a", "U8", "9223372036854775807", "0", "9223372036854775807") "}", 1, CKPT_EUNREADABLE,
     "too large"},
    {"{" T("a", "F64", "4294967296,4294967296", "0", "0") "}", 0, CKPT_EUNREADABLE, "too large"},
    {"{" T("a", "U8", "0,4294967296,4294967296", "0", "0") "}", 0, CKPT_EUNREADABLE, "too large"},
    {"{" T("a", "U8", "1", "0", "9223372036854775807") "}", 1, CKPT_EUNREADABLE,
     "dtype and shape need 1 bytes"},
    {"{" T("a", "U8", "1", "9223372036854775806", "9223372036854775807") "}", 1, CKPT_EUNREADABLE,
     "starts at byte 9223372036854775903"},
    {"{" T("a", "U8", "1", "1", "0") "}", 1, CKPT_EUNREADABLE, "data_offsets 1 to 0"},
    {"{" T("a", "F32", "2", "0", "4") "}", 4, CKPT_EUNREADABLE, "need 8 bytes"},
    {"{" T("a", "U8", "1", "1", "2") "}", 2, CKPT_EUNREADABLE, "starts at byte"},
    {"{" T("a", "U8", "2", "0", "2") "," T("b", "U8", "2", "1", "3") "}", 3, CKPT_EUNREADABLE,
     "\"b\" starts at byte"},
    {"{" T("a", "U8", "2", "0", "2") "," T("b", "U8", "2", "3", "5") "}", 5, CKPT_EUNREADABLE,
     "\"b\" starts at byte"},
    {"{" T("a", "U8", "2", "0", "2") "," T("b", "U8", "2", "0", "2") "}", 2, CKPT_EUNREADABLE,
     "starts at byte"},
    {"{" T("a", "F32", "0", "2", "2") "," T("b", "U8", "4", "0", "4") "}", 4, CKPT_EUNREADABLE,
     "starts at byte"},
    {"{" T("a", "U8", "2", "0", "2") "}", 1, CKPT_EUNREADABLE, "cut short"},
    {"{" T("a", "U8", "2", "0", "2") "}", 3, CKPT_EUNREADABLE, "something follows"},
    {"{}", 1, CKPT_EUNREADABLE, "something follows"},
};

START_TEST(what_the_format_forbids)
{
    for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++) {
        int rc = parse(forbidden[i].json, strlen(forbidden[i].json), forbidden[i].data_bytes);
        ck_assert_msg(rc == forbidden[i].code, "%s: %d %s", forbidden[i].json, rc, err.text);
        ck_assert_msg(strstr(err.text, forbidden[i].why) != NULL, "%s: \"%s\" lacks \"%s\"",
                      forbidden[i].json, err.text, forbidden[i].why);
    }
}
END_TEST

START_TEST(no_prefix_of_a_header_is_a_header)
{
    const char *json = "{\"__metadata__\":{\"format\":\"pt\"}," T(
        "a", "F32", "2,3", "0", "24") "," T("b\\u00e9", "U8", "", "24", "25") "}";
    size_t len = strlen(json);
    ck_assert_int_eq(parse(json, len, 25), CKPT_OK);
    for (size_t n = 0; n < len; n++)
        ck_assert_int_eq(parse(json, n, 25), CKPT_EUNREADABLE);
}
END_TEST

/* `count` times `piece`, between `first` and `last`. */
static int parse_repeated(const char *first, const char *piece, size_t count, const char *last,
                          uint64_t data_bytes)
{
    size_t n = strlen(piece);
    size_t len = strlen(first) + count * n + strlen(last);
    char *json = malloc(len + 1);
    char *at = json + sprintf(json, "%s", first);
    for (size_t i = 0; i < count; i++, at += n)
        memcpy(at, piece, n);
    sprintf(at, "%s", last);
    int rc = parse(json, len, data_bytes);
    free(json);
    return rc;
}

START_TEST(hostile_sizes)
{
    ck_assert_int_eq(parse_repeated("{\"a\":", "[", 60000, "", 0), CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "depth"));
    ck_assert_int_eq(parse_repeated("{\"a\":", "{\"a\":", 10000, "", 0), CKPT_EUNREADABLE);
    ck_assert_int_eq(parse_repeated("{\"__metadata__\":", "{\"a\":", 10000, "", 0),
                     CKPT_EUNREADABLE);
    ck_assert_int_eq(parse_repeated("{\"a\":[", "0,", 5000000, "0]}", 0), CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "far too long"));
    ck_assert_int_eq(parse_repeated("{\"", "n", 5000000, "\":1}", 0), CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "far too long"));
    ck_assert_int_eq(parse_repeated("{\"", "n", 5000,
                                    "\":{\"dtype\":\"U8\",\"shape\":[],"
                                    "\"data_offsets\":[0,1]}}",
                                    1),
                     CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "longer than 4096"));
    ck_assert_int_eq(parse_repeated("{\"", "\\u0001", 4096,
                                    "\":{\"dtype\":\"U8\",\"shape\":[],"
                                    "\"data_offsets\":[0,1]}}",
                                    1),
                     CKPT_OK);
    ck_assert_int_eq(parse_repeated("{\"a\":{\"dtype\":\"U8\",\"shape\":[1", ",1", 32,
                                    "],\"data_offsets\":[0,1]}}", 1),
                     CKPT_ENOTSUP);
    ck_assert_ptr_nonnull(strstr(err.text, "33 dimensions"));
    ck_assert_int_eq(parse_repeated("{\"a\":{\"dtype\":\"U8\",\"shape\":[1", ",1", 31,
                                    "],\"data_offsets\":[0,1]}}", 1),
                     CKPT_OK);
    /* Notes of other programs may be long. */
    ck_assert_int_eq(parse_repeated("{\"__metadata__\":{\"a\":\"", "x", 1000000, "\"}}", 0),
                     CKPT_OK);
    ck_assert_int_eq(ckpt__layout_parse(&layout, (const uint8_t *)"{}", CKPT__MAX_HEADER_BYTES + 1,
                                        UINT64_MAX, &err),
                     CKPT_EUNREADABLE);
}
END_TEST

static const char FAULT_JSON[] = "{\"__metadata__\":{\"format\":\"pt\",\"\\u00e9\":\"x\"}," T(
    "late", "F32", "2,3", "8", "32") "," T("early", "F64", "", "0", "8") "}";

static int parse_with(const ckpt_allocator *a)
{
    struct ckpt__env failing;
    ckpt__env_init(&failing, a);
    struct ckpt__layout l;
    ckpt__layout_init(&l, &failing);
    int rc = ckpt__layout_parse(&l, (const uint8_t *)FAULT_JSON, strlen(FAULT_JSON),
                                8 + strlen(FAULT_JSON) + 32, &err);
    ckpt__layout_free(&l);
    return rc;
}

START_TEST(every_failing_allocation_is_survived)
{
    ck_assert_int_gt(formats_fail_each_allocation(parse_with), 16);
}
END_TEST

static struct alloc_fault *json_fault;

static void *json_alloc(size_t len)
{
    return alloc_fault_alloc(json_fault, len, 16);
}

static void json_release(void *p)
{
    alloc_fault_free(json_fault, p);
}

/* jansson takes memory from libc and does not always tell "none left" from "not JSON"; so the code
 * may be either, but nothing may leak or pass for a header. */
START_TEST(every_failing_allocation_of_jansson_is_survived)
{
    struct alloc_fault fault = ALLOC_FAULT_INIT;
    json_fault = &fault;
    json_object_seed(1); /* or the first object would do so, once */
    while (alloc_fault_next(&fault)) {
        json_set_alloc_funcs(json_alloc, json_release);
        int rc = parse_with(NULL);
        json_set_alloc_funcs(malloc, free);
        if (alloc_fault_fired(&fault))
            ck_assert(rc == CKPT_ENOMEM || rc == CKPT_EUNREADABLE);
        else
            ck_assert_int_eq(rc, CKPT_OK);
    }
    ck_assert_int_gt(fault.round, 60);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("safetensors");
    TCase *tc = tcase_create("safetensors");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, our_header_is_spelled_so);
    tcase_add_test(tc, what_we_write_we_read);
    tcase_add_test(tc, a_file_of_the_safetensors_package);
    tcase_add_test(tc, what_the_format_allows);
    tcase_add_test(tc, what_the_format_forbids);
    tcase_add_test(tc, no_prefix_of_a_header_is_a_header);
    tcase_add_test(tc, hostile_sizes);
    tcase_add_test(tc, every_failing_allocation_is_survived);
    tcase_add_test(tc, every_failing_allocation_of_jansson_is_survived);
    suite_add_tcase(s, tc);
    return s;
}
