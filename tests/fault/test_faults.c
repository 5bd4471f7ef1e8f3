/*
 * test_faults.c: a save with every single io of it failing in turn, or every allocation. After each
 * round: the right kind of answer, exactly one callback (trainer.c asserts it), the earlier
 * checkpoint or a complete newer one loads bit for bit, the same handle saves again, and nothing of
 * the failed attempt is left.
 */
#include "runner.h"

#include "alloc_fault.h"
#include "disk.h"
#include "engine_fake.h"
#include "handle.h"
#include "trainer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct disk disk;

static void setup(void)
{
    disk_init(&disk);
    trainer_set_bytes(600u << 10);
}

static void teardown(void)
{
    disk_free(&disk);
}

static ckpt_options options(void)
{
    ckpt_options opt;
    ckpt_options_init(&opt, sizeof opt);
    opt.root = disk.dir;
    opt.allocator = &disk.env.allocator;
    opt.block_bytes = 256u << 10;
    opt.staging_bytes = 1u << 20;
    opt.drive = CKPT_DRIVE_CALLER;
    return opt;
}

static struct ckpt__engine *make_fake(void *ctx, const struct ckpt__env *env, uint32_t queue_depth)
{
    struct ckpt__engine *e = fake_open(env, queue_depth);
    *(struct ckpt__engine **)ctx = e;
    return e;
}

static ckpt *open_fake(struct ckpt__engine **fake)
{
    ckpt_options opt = options();
    ckpt_error err = {0};
    ckpt *c = NULL;
    ck_assert_msg(ckpt__open(&c, &opt, make_fake, fake, &err) == CKPT_OK, "%s", err.text);
    return c;
}

static void save_ok(ckpt *c, int64_t step)
{
    ckpt_error err = {0};
    int rc = trainer_save(c, 0, step, 1, NULL, &err);
    ck_assert_msg(rc == CKPT_OK, "%s", err.text);
}

/* Newest step, read by a handle that has no faults. */
static int64_t newest(void)
{
    ckpt_options opt = options();
    ckpt_error err = {0};
    struct trainer_loaded got = {0};
    ckpt *c;
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_OK);
    ck_assert_msg(trainer_load(c, NULL, &got, &err) == CKPT_OK, "%s", err.text);
    ckpt_close(c);
    return got.step;
}

/* An empty claim does not count: nothing tells who made it, so it stays until it expires. */
static int hidden_entries(void)
{
    DIR *d = opendir(disk.dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat st;
        if (e->d_name[0] != '.' || strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        ck_assert_int_eq(fstatat(dirfd(d), e->d_name, &st, 0), 0);
        n += !S_ISREG(st.st_mode) || st.st_size > 0;
    }
    closedir(d);
    return n;
}

static void fail_each_io(int op, int sys_errno, bool forever, int expected)
{
    struct ckpt__engine *fake;
    ckpt *c = open_fake(&fake);
    save_ok(c, 1);
    ckpt_close(c);
    int fired = 1;
    for (uint64_t n = 0; fired; n++) {
        struct fake_rule rule = {
            .op = op, .nth = n, .forever = forever, .action = FAKE_FAIL, .sys_errno = sys_errno};
        ckpt_error err = {0};
        int64_t before = newest();
        c = open_fake(&fake);
        fake_add_rule(fake, &rule);
        int rc = trainer_save(c, 0, before + 1, 1, NULL, &err);
        fired = rule.fired > 0;
        ck_assert_msg(rc == CKPT_OK || rc == expected, "io %d: %d %s", (int)n, rc, err.text);
        ck_assert_msg(rc == CKPT_OK || err.text[0] != '\0', "io %d: no text", (int)n);
        ck_assert(fired || rc == CKPT_OK);
        int64_t after = newest();
        ck_assert(after == before + 1 || (after == before && rc != CKPT_OK));
        rule.nth = UINT64_MAX; /* the disk is well again */
        rule.forever = false;
        save_ok(c, after + 1);
        ck_assert_int_eq(newest(), after + 1);
        ckpt_close(c);
        ck_assert_int_eq(hidden_entries(), 0);
    }
}

START_TEST(io_errors)
{
    fail_each_io(FAKE_ANY_OP, EIO, false, CKPT_EIO);
}
END_TEST

START_TEST(io_errors_that_stay)
{
    fail_each_io(FAKE_ANY_OP, EIO, true, CKPT_EIO);
}
END_TEST

START_TEST(no_space)
{
    fail_each_io(FAKE_ANY_OP, ENOSPC, false, CKPT_ENOSPC);
}
END_TEST

START_TEST(interrupted)
{
    static const int ops[] = {CKPT__WRITE, CKPT__OPEN, CKPT__FALLOCATE, CKPT__FSYNC};
    fail_each_io(ops[_i / 2], _i % 2 ? EAGAIN : EINTR, false, CKPT_OK);
}
END_TEST

START_TEST(short_writes_and_any_order)
{
    struct ckpt__engine *fake;
    for (uint64_t n = 0; n < 8; n++) {
        struct fake_rule rule = {
            .op = CKPT__WRITE, .nth = n, .action = FAKE_SHORT, .len = n * 5000 + 1};
        struct fake_rule late = {.op = CKPT__WRITE, .nth = n / 2, .action = FAKE_DELAY, .reaps = 7};
        ckpt *c = open_fake(&fake);
        fake_add_rule(fake, &rule);
        fake_add_rule(fake, &late);
        if (n % 2)
            fake_reverse(fake);
        save_ok(c, (int64_t)n + 1);
        ck_assert_int_eq(newest(), (int64_t)n + 1);
        ckpt_close(c);
    }
}
END_TEST

START_TEST(reading_fails)
{
    struct ckpt__engine *fake;
    ckpt *c = open_fake(&fake);
    save_ok(c, 1);
    ckpt_close(c);
    int fired = 1;
    for (uint64_t n = 0; fired; n++) {
        struct fake_rule rule = {
            .op = FAKE_ANY_OP, .nth = n, .action = FAKE_FAIL, .sys_errno = EIO};
        ckpt_error err = {0};
        c = open_fake(&fake);
        fake_add_rule(fake, &rule);
        int rc = trainer_load(c, NULL, NULL, &err);
        fired = rule.fired > 0;
        ck_assert_msg(rc == CKPT_OK || rc == CKPT_EUNREADABLE, "io %d: %d %s", (int)n, rc,
                      err.text);
        rule.nth = UINT64_MAX;
        ck_assert_int_eq(trainer_load(c, NULL, NULL, &err), CKPT_OK);
        ckpt_close(c);
    }
}
END_TEST

/* With the failing allocator: opens, saves step 2, loads. */
static int save_and_load(const ckpt_allocator *a, ckpt_error *err)
{
    ckpt_options opt = options();
    ckpt *c;
    opt.allocator = a;
    int rc = ckpt_open(&c, &opt, err);
    if (rc != CKPT_OK)
        return rc;
    rc = trainer_save(c, 0, 2, 1, NULL, err);
    int loaded = trainer_load(c, NULL, NULL, rc == CKPT_OK ? err : NULL);
    ckpt_close(c);
    return rc != CKPT_OK ? rc : loaded;
}

START_TEST(out_of_memory)
{
    struct alloc_fault fault = ALLOC_FAULT_INIT;
    trainer_set_bytes(1000);
    while (alloc_fault_next(&fault)) {
        ckpt_error err = {0};
        ckpt_options opt = options();
        ckpt *c;
        ck_assert_int_eq(ckpt_open(&c, &opt, NULL), CKPT_OK);
        save_ok(c, 1);
        ckpt_allocator a = {alloc_fault_alloc, alloc_fault_free, &fault};
        int rc = save_and_load(&a, &err);
        ck_assert_msg(rc == CKPT_OK || rc == CKPT_ENOMEM, "round %ld: %d %s", fault.round, rc,
                      err.text);
        ck_assert(alloc_fault_fired(&fault) || rc == CKPT_OK);
        ck_assert_int_ge(newest(), 1);
        ck_assert_int_eq(hidden_entries(), 0);
        ckpt_close(c);
        disk_free(&disk); /* a fresh root: old checkpoints would make every round longer */
        disk_init(&disk);
    }
}
END_TEST

/* O_DIRECT that is taken at open and refused by the nth transfer: the same bytes, one line. */
START_TEST(direct_io_refused_late)
{
    size_t len, expected_len;
    char path[600];
    struct trainer_saved saved;
    struct ckpt__engine *fake;
    ckpt *c = open_fake(&fake);
    ck_assert_int_eq(trainer_save(c, 0, 1, 1, &saved, NULL), CKPT_OK);
    snprintf(path, sizeof path, "%s/shard-00000-of-00001.safetensors", saved.path);
    uint8_t *expected = disk_read(path, &expected_len);
    ckpt_close(c);
    for (uint64_t n = 0; n < 3; n++) {
        struct fake_rule rule = {.op = CKPT__WRITE,
                                 .direct = true,
                                 .nth = n,
                                 .forever = true,
                                 .action = FAKE_FAIL,
                                 .sys_errno = EINVAL};
        ckpt_options opt = options();
        ckpt_error err = {0};
        opt.log = disk.env.log;
        opt.log_ctx = disk.env.log_ctx;
        disk.line_count = 0;
        ck_assert_int_eq(ckpt__open(&c, &opt, make_fake, &fake, &err), CKPT_OK);
        fake_add_rule(fake, &rule);
        int rc = trainer_save(c, 0, 1, 1, &saved, &err);
        ck_assert_msg(rc == CKPT_OK, "%s", err.text);
        ckpt_close(c);
        ck_assert_uint_gt(rule.fired, 0);
        ck_assert_uint_eq(disk_lines_with(&disk, "direct I/O refused"), 1);
        snprintf(path, sizeof path, "%s/shard-00000-of-00001.safetensors", saved.path);
        uint8_t *bytes = disk_read(path, &len);
        ck_assert_uint_eq(len, expected_len);
        ck_assert_mem_eq(bytes, expected, len);
        free(bytes);
        newest();
    }
    free(expected);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("faults");
    TCase *t = tcase_create("faults");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, io_errors);
    tcase_add_test(t, io_errors_that_stay);
    tcase_add_test(t, no_space);
    tcase_add_loop_test(t, interrupted, 0, 8);
    tcase_add_test(t, short_writes_and_any_order);
    tcase_add_test(t, reading_fails);
    tcase_add_test(t, out_of_memory);
    tcase_add_test(t, direct_io_refused_late);
    suite_add_tcase(s, t);
    return s;
}
