/*
 * test_pool.c: blocks are apart, aligned, touched, returned; no memory leaks when there is none.
 */
#include "disk/pool.h"
#include "disk.h"
#include "runner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK ((size_t)192 << 10) /* not a divisor of 2 MiB */

static struct disk disk;
static struct ckpt__pool pool;

static void setup(void)
{
    disk_init(&disk);
    memset(&pool, 0, sizeof pool);
}

static void teardown(void)
{
    ckpt__pool_free(&pool);
    disk_free(&disk);
}

static void init(uint32_t count)
{
    ckpt_error err = {0};
    ck_assert_msg(ckpt__pool_init(&pool, &disk.env, count, BLOCK, &err) == CKPT_OK, "%s", err.text);
}

START_TEST(blocks_are_apart_and_aligned)
{
    enum { COUNT = 25 };
    uint8_t *blocks[COUNT];
    init(COUNT);
    ck_assert_uint_eq((uintptr_t)pool.base % (2u << 20), 0);
    ck_assert_uint_eq(pool.bytes % (2u << 20), 0);
    ck_assert_uint_ge(pool.bytes, COUNT * BLOCK);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            ck_assert_uint_eq(pool.available, (uint32_t)(COUNT - i));
            blocks[i] = ckpt__pool_get(&pool);
            ck_assert_ptr_nonnull(blocks[i]);
            ck_assert_uint_eq((uintptr_t)blocks[i] % (64u << 10), 0);
            memset(blocks[i], i + 1, BLOCK);
        }
        ck_assert_ptr_null(ckpt__pool_get(&pool));
        for (int i = 0; i < COUNT; i++) {
            ck_assert(blocks[i] >= pool.base && blocks[i] + BLOCK <= pool.base + pool.bytes);
            for (size_t at = 0; at < BLOCK; at += 4096)
                ck_assert_uint_eq(blocks[i][at], (unsigned)i + 1); /* nobody else wrote there */
        }
        for (int i = 0; i < COUNT; i++)
            ckpt__pool_put(&pool, blocks[(i * 7) % COUNT]); /* in another order */
        ck_assert_uint_eq(pool.available, COUNT);
    }
}
END_TEST

START_TEST(the_last_one_back_is_the_first_out)
{
    init(3);
    void *a = ckpt__pool_get(&pool), *b = ckpt__pool_get(&pool);
    ckpt__pool_put(&pool, a);
    ck_assert_ptr_eq(ckpt__pool_get(&pool), a);
    ckpt__pool_put(&pool, b);
    ckpt__pool_put(&pool, a);
}
END_TEST

START_TEST(every_page_is_there_at_once)
{
    init(20);
    size_t pages = pool.bytes / (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *resident = malloc(pages);
    ck_assert_int_eq(mincore(pool.base, pool.bytes, resident), 0);
    for (size_t i = 0; i < pages; i++)
        ck_assert_msg((resident[i] & 1) != 0, "page %zu", i);
    free(resident);
}
END_TEST

START_TEST(a_forked_child_has_no_copy)
{
    init(4);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        unsigned char there;
        _exit(mincore(pool.base, 4096, &there) == -1 ? 0 : 1); /* ENOMEM: nothing mapped */
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(sizes_that_make_no_sense)
{
    static const struct {
        uint32_t count;
        size_t block;
    } cases[] = {{0, BLOCK},
                 {1, 0},
                 {1, 4096},
                 {1, BLOCK + 1},
                 {UINT32_MAX, SIZE_MAX & ~(size_t)0xffff},
                 {1, SIZE_MAX & ~(size_t)0xffff}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ckpt_error err = {0};
        int rc = ckpt__pool_init(&pool, &disk.env, cases[i].count, cases[i].block, &err);
        ck_assert_msg(rc == CKPT_EINVAL, "case %zu: %d", i, rc);
        ck_assert_int_eq(err.code, CKPT_EINVAL);
    }
    ck_assert_uint_eq(disk.allocations, 0);
}
END_TEST

static int allocations_left;

static void *fail_in_time(void *ctx, size_t len, size_t align)
{
    (void)ctx;
    void *p = NULL;
    if (allocations_left-- <= 0 || posix_memalign(&p, align, len) != 0)
        return NULL;
    return p;
}

static void just_free(void *ctx, void *p)
{
    (void)ctx;
    free(p);
}

START_TEST(no_memory_leaves_nothing)
{
    static struct ckpt__env poor; /* the pool keeps it until teardown */
    poor = disk.env;
    poor.allocator = (ckpt_allocator){fail_in_time, just_free, NULL};
    int n = 0, rc;
    do {
        ckpt_error err = {0};
        allocations_left = n++;
        rc = ckpt__pool_init(&pool, &poor, 2, BLOCK, &err);
        ck_assert(rc == CKPT_OK || (rc == CKPT_ENOMEM && err.code == CKPT_ENOMEM));
        ck_assert(rc == CKPT_OK || pool.base == NULL);
    } while (rc != CKPT_OK);
    ck_assert_int_eq(n, 4); /* it failed at each of three allocations */
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("pool");
    TCase *t = tcase_create("pool");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, blocks_are_apart_and_aligned);
    tcase_add_test(t, the_last_one_back_is_the_first_out);
    tcase_add_test(t, every_page_is_there_at_once);
    tcase_add_test(t, a_forked_child_has_no_copy);
    tcase_add_test(t, sizes_that_make_no_sense);
    tcase_add_test(t, no_memory_leaves_nothing);
    suite_add_tcase(s, t);
    return s;
}
