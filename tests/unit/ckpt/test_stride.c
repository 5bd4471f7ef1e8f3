/*
 * test_stride.c: gather and scatter against a reference that computes every byte's address from its
 * full index, for all windows of small tensors and random ones of larger tensors.
 */
#include "format/layout.h"
#include "runner.h"

#include <stdlib.h>
#include <string.h>

#define ROOM 131072

static uint8_t memory[ROOM];
static uint8_t before[ROOM];
static uint8_t *from, *to; /* what a tensor can touch, and a little around it */

/* Small fixed generator, so that a failure repeats. */
static uint32_t random_state = 12345;
static uint32_t next_random(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)random_state * below) >> 32);
}

static uint8_t *address_of(const struct ckpt__entry *e, uint64_t byte)
{
    uint64_t item = ckpt_dtype_size(e->dtype);
    uint64_t element = byte / item;
    int64_t at = (int64_t)(byte % item);
    for (int32_t i = e->ndim - 1; i >= 0; i--) {
        at += (int64_t)(element % (uint64_t)e->shape[i]) * e->strides_bytes[i];
        element /= (uint64_t)e->shape[i];
    }
    return e->data + at;
}

static void check_gather(const struct ckpt__entry *e, uint64_t off, size_t len)
{
    static uint8_t dense[ROOM];
    memset(dense, 0xee, len + 1);
    ckpt__gather(e, off, dense, len);
    size_t good = 0;
    while (good < len && dense[good] == *address_of(e, off + good))
        good++;
    ck_assert_msg(good == len, "offset %llu length %zu byte %zu", (unsigned long long)off, len,
                  good);
    ck_assert_uint_eq(dense[len], 0xee);
}

/* Memory must not overlap itself. */
static void check_scatter(const struct ckpt__entry *e, uint64_t off, size_t len)
{
    static uint8_t dense[ROOM];
    for (size_t i = 0; i < len; i++)
        dense[i] = (uint8_t) ~*address_of(e, off + i);
    memcpy(before, from, (size_t)(to - from));
    ckpt__scatter(e, off, dense, len);
    size_t good = 0;
    for (; good < len && *address_of(e, off + good) == dense[good]; good++)
        *address_of(e, off + good) = (uint8_t)~dense[good];
    ck_assert_msg(good == len, "offset %llu length %zu byte %zu", (unsigned long long)off, len,
                  good);
    ck_assert_int_eq(memcmp(from, before, (size_t)(to - from)), 0); /* nothing else was touched */
}

static struct ckpt__entry entry(uint32_t dtype, int32_t ndim, int64_t *shape, int64_t *strides)
{
    struct ckpt__entry e = {.dtype = dtype, .ndim = ndim, .shape = shape};
    e.strides_bytes = strides;
    e.data = memory + ROOM / 2;
    e.bytes = ckpt_dtype_size(dtype);
    from = e.data;
    to = e.data + e.bytes;
    for (int32_t i = 0; i < ndim; i++) {
        int64_t reach = strides != NULL ? shape[i] * strides[i] : 0;
        e.bytes *= (uint64_t)shape[i];
        *(reach < 0 ? &from : &to) += reach;
    }
    from = from < memory + 64 ? memory : from - 64;
    to = to > memory + ROOM - 64 ? memory + ROOM : to + 64;
    return e;
}

static void check_all_windows(const struct ckpt__entry *e, bool overlaps)
{
    for (uint64_t off = 0; off <= e->bytes; off++) {
        for (size_t len = 0; len <= e->bytes - off; len++) {
            check_gather(e, off, len);
            if (!overlaps && (off + len) % 7 == 0)
                check_scatter(e, off, len);
        }
    }
}

static void fill(void)
{
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = (uint8_t)(i * 31 + (i >> 8) * 7);
}

START_TEST(every_window_of_small_tensors)
{
    struct {
        uint32_t dtype;
        int32_t ndim;
        int64_t shape[4];
        int64_t strides[4];
        bool overlaps;
    } cases[] = {
        {CKPT_F32, 0, {0}, {0}, false},
        {CKPT_C128, 0, {0}, {0}, false},
        {CKPT_F32, 1, {9}, {4}, false},
        {CKPT_F32, 1, {9}, {-4}, false},
        {CKPT_F32, 1, {9}, {12}, false},
        {CKPT_F32, 1, {9}, {0}, true},
        {CKPT_F32, 1, {9}, {3}, true},
        {CKPT_F32, 2, {3, 4}, {16, 4}, false},        /* dense, said in strides */
        {CKPT_F32, 2, {4, 3}, {4, 16}, false},        /* transposed */
        {CKPT_F64, 2, {3, 4}, {40, 8}, false},        /* columns cut off */
        {CKPT_I16, 2, {3, 4}, {-8, -2}, false},       /* reversed as a whole */
        {CKPT_U8, 2, {5, 6}, {6, -1}, false},         /* each row reversed */
        {CKPT_U8, 3, {2, 3, 4}, {1, 2, 6}, false},    /* Fortran order */
        {CKPT_BF16, 3, {2, 3, 4}, {8, 16, 2}, false}, /* first two swapped */
        {CKPT_F32, 3, {2, 3, 2}, {0, 8, 4}, true},    /* broadcast */
        {CKPT_F32, 3, {2, 3, 2}, {24, 0, 4}, true},
        {CKPT_F32, 4, {1, 3, 1, 2}, {999, 8, -77, 4}, false}, /* strides of size 1 mean nothing */
        {CKPT_C128, 2, {2, 2}, {16, 32}, false},
        {CKPT_C64, 2, {2, 3}, {8, 16}, false},
    };
    fill();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ckpt__entry e =
            entry(cases[i].dtype, cases[i].ndim, cases[i].shape, cases[i].strides);
        check_all_windows(&e, cases[i].overlaps);
    }
}
END_TEST

START_TEST(an_empty_tensor_has_one_empty_window)
{
    int64_t shape[] = {3, 0, 2};
    int64_t strides[] = {5, -7, 11};
    uint8_t byte = 9;
    struct ckpt__entry e = entry(CKPT_F32, 3, shape, strides);
    e.data = NULL;
    ckpt__gather(&e, 0, &byte, 0);
    ckpt__scatter(&e, 0, &byte, 0);
    e.strides_bytes = NULL;
    ckpt__gather(&e, 0, &byte, 0);
    ck_assert_uint_eq(byte, 9);
}
END_TEST

START_TEST(no_strides_means_dense)
{
    int64_t shape[] = {7, 11};
    struct ckpt__entry e = entry(CKPT_F32, 2, shape, NULL);
    uint8_t dense[308];
    fill();
    ckpt__gather(&e, 5, dense, 300);
    ck_assert_mem_eq(dense, e.data + 5, 300);
    memset(dense, 1, sizeof dense);
    ckpt__scatter(&e, 3, dense, 301);
    ck_assert_mem_eq(e.data + 3, dense, 301);
    ck_assert_uint_ne(e.data[304], 1);
    ck_assert_uint_ne(e.data[2], 1);
}
END_TEST

/* A permuted, sliced, flipped view into a buffer: no two elements overlap. */
static struct ckpt__entry random_view(int64_t *shape, int64_t *strides)
{
    static const uint32_t dtypes[] = {CKPT_U8, CKPT_F16, CKPT_F32, CKPT_F64, CKPT_C128};
    uint32_t dtype = dtypes[next_random(5)];
    int32_t ndim = (int32_t)next_random(6);
    int32_t order[6];
    int64_t span = (int64_t)ckpt_dtype_size(dtype);
    for (int32_t i = 0; i < ndim; i++)
        order[i] = i;
    for (int32_t i = ndim - 1; i > 0; i--) {
        int32_t k = (int32_t)next_random((uint32_t)i + 1);
        int32_t was = order[i];
        order[i] = order[k];
        order[k] = was;
    }
    for (int32_t i = 0; i < ndim; i++) {
        shape[order[i]] = 1 + (int64_t)next_random(5);
        span *= 1 + next_random(8) / 7;
        strides[order[i]] = next_random(3) == 0 ? -span : span;
        span *= shape[order[i]];
    }
    struct ckpt__entry e = entry(dtype, ndim, shape, strides);
    if (span > ROOM / 2)
        e.data = NULL; /* does not fit */
    return e;
}

START_TEST(random_views)
{
    int64_t shape[6] = {0};
    int64_t strides[6] = {0};
    fill();
    for (int i = 0; i < 1500; i++) {
        struct ckpt__entry e = random_view(shape, strides);
        if (e.data == NULL)
            continue;
        for (int k = 0; k < 8; k++) {
            uint64_t off = next_random((uint32_t)e.bytes + 1);
            size_t len = next_random((uint32_t)(e.bytes - off) + 1);
            check_gather(&e, off, len);
            check_scatter(&e, off, len);
        }
        check_gather(&e, 0, e.bytes);
    }
}
END_TEST

/* Large enough for several tiles in both directions, and for pieces of them. */
START_TEST(planes_that_are_copied_in_tiles)
{
    const uint32_t dtypes[] = {CKPT_U8, CKPT_F16, CKPT_F32, CKPT_F64, CKPT_C128};
    fill();
    for (size_t i = 0; i < 5; i++) {
        int64_t item = (int64_t)ckpt_dtype_size(dtypes[i]);
        int64_t side = 64 / item;
        int64_t rows = 2 * side + 3;
        int64_t columns = 2 * side + 1;
        int64_t shape[] = {2, rows, columns};
        int64_t layouts[][3] = {
            {rows * columns * item, item, rows * item},   /* each plane transposed */
            {rows * columns * item, -item, -rows * item}, /* and turned round */
            {item, 2 * item, 2 * rows * item},            /* all dimensions reversed */
            {rows * item, item, 2 * rows * item},         /* the outer one in the middle */
        };
        for (size_t k = 0; k < 4; k++) {
            struct ckpt__entry e = entry(dtypes[i], 3, shape, layouts[k]);
            check_gather(&e, 0, e.bytes);
            check_scatter(&e, 0, e.bytes);
            for (int n = 0; n < 40; n++) {
                uint64_t off = next_random((uint32_t)e.bytes + 1);
                size_t len = next_random((uint32_t)(e.bytes - off) + 1);
                check_gather(&e, off, len);
                check_scatter(&e, off, len);
            }
        }
        /* Three items together: a piece that is no power of two (and too large from 8 bytes on). */
        int64_t triples[] = {rows, columns, 3};
        int64_t strides[] = {3 * item, 3 * rows * item, item};
        if (3 * rows * columns * item < ROOM / 2) {
            struct ckpt__entry e = entry(dtypes[i], 3, triples, strides);
            check_gather(&e, 1, e.bytes - 2);
            check_scatter(&e, 1, e.bytes - 2);
        }
    }
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("stride");
    TCase *tc = tcase_create("stride");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, every_window_of_small_tensors);
    tcase_add_test(tc, an_empty_tensor_has_one_empty_window);
    tcase_add_test(tc, no_strides_means_dense);
    tcase_add_test(tc, random_views);
    tcase_add_test(tc, planes_that_are_copied_in_tiles);
    suite_add_tcase(s, tc);
    return s;
}
