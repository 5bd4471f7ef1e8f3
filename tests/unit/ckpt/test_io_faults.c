/*
 * test_io_faults.c: io.h over an engine that breaks. Faults of the disk that no file system here
 * would show on demand: short transfers, late and reordered completions, O_DIRECT that is refused
 * after the open, errors at every single io.
 */
#include "blocks.h"
#include "engine_fake.h"
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct disk disk;
static struct blocks blocks;
static struct ckpt__engine *engine;
static const char *path;

static void setup(void)
{
    disk_init(&disk);
    engine = fake_open(&disk.env, 4);
    blocks_init(&blocks, &disk, engine);
    path = disk_path(disk.dir, "file");
}

/* A fresh fake, as rules cannot be taken back. */
static void another_engine(void)
{
    fake_close(engine);
    engine = fake_open(&disk.env, 4);
    blocks.on.engine = engine;
    disk.line_count = 0;
    unlink(path);
    path = disk_path(disk.dir, "file");
}

static void teardown(void)
{
    fake_close(engine);
    blocks_free(&blocks);
    disk_free(&disk);
}

/* Writes and reads under the rule; all is well in the end. */
static void round_trip(struct fake_rule rule)
{
    fake_add_rule(engine, &rule);
    ck_assert_int_eq(blocks_write_file(&blocks, path), 0);
    blocks_check_file(&blocks, path);
    ck_assert_int_eq(blocks_read_file(&blocks, path), 0);
    ck_assert_uint_gt(rule.fired, 0);
    another_engine();
}

/* ------------------------------------------------------------------------------------------ */
/* Short                                                                                        */

static const uint64_t short_lengths[] = {1, 100, 4096, 5000, 12288, 65535};
#define LENGTHS 6

START_TEST(a_short_transfer_goes_on)
{
    static const int ops[] = {CKPT__WRITE, CKPT__READ};
    for (size_t op = 0; op < 2; op++)
        for (uint64_t nth = 0; nth < BLOCKS; nth++)
            round_trip((struct fake_rule){
                .op = ops[op], .nth = nth, .action = FAKE_SHORT, .len = short_lengths[_i]});
}
END_TEST

START_TEST(transfers_that_are_all_short)
{
    uint64_t len = short_lengths[_i] < 100 ? 100 : short_lengths[_i];
    round_trip(
        (struct fake_rule){.op = CKPT__WRITE, .forever = true, .action = FAKE_SHORT, .len = len});
    round_trip(
        (struct fake_rule){.op = CKPT__READ, .forever = true, .action = FAKE_SHORT, .len = len});
}
END_TEST

/* One that never comes to an aligned byte would turn for ever; the page cache takes bytes. */
START_TEST(a_direct_write_that_stops_between_blocks)
{
    struct fake_rule rule = {
        .op = CKPT__WRITE, .direct = true, .forever = true, .action = FAKE_SHORT, .len = 100};
    fake_add_rule(engine, &rule);
    ck_assert_int_eq(blocks_write_file(&blocks, path), 0);
    blocks_check_file(&blocks, path);
    ck_assert(!blocks.was_direct);
    ck_assert_uint_eq(disk_lines_with(&disk, "direct I/O refused by write of "), 1);
    ck_assert_uint_eq(disk_lines_with(&disk, "it stops between blocks; writing through"), 1);
}
END_TEST

START_TEST(a_write_of_nothing_is_an_error)
{
    struct fake_rule rule = {.op = CKPT__WRITE, .nth = 2, .action = FAKE_SHORT, .len = 0};
    fake_add_rule(engine, &rule);
    ck_assert_int_eq(blocks_write_file(&blocks, path), -EIO);
    ck_assert_int_eq(blocks.error.code, CKPT_EIO);
    ck_assert_int_eq(blocks.error.sys_errno, EIO);
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* Busy, interrupted, late, out of order                                                        */

START_TEST(interrupted_and_busy_are_tried_again)
{
    static const int errnos[] = {EINTR, EAGAIN};
    static const int ops[] = {CKPT__OPEN,  CKPT__FALLOCATE, CKPT__TRUNCATE,
                              CKPT__WRITE, CKPT__READ,      CKPT__FDATASYNC};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        for (uint64_t nth = 0; nth < (i == 3 || i == 4 ? BLOCKS : 1); nth++)
            round_trip((struct fake_rule){
                .op = ops[i], .nth = nth, .action = FAKE_FAIL, .sys_errno = errnos[_i]});
    /* what close says of a signal is not the end of anything: the descriptor is gone */
    round_trip((struct fake_rule){
        .op = CKPT__CLOSE, .forever = true, .action = FAKE_FAIL, .sys_errno = EINTR});
}
END_TEST

START_TEST(but_not_for_ever)
{
    struct fake_rule rule = {
        .op = CKPT__WRITE, .forever = true, .action = FAKE_FAIL, .sys_errno = EAGAIN};
    fake_add_rule(engine, &rule);
    ck_assert_int_eq(blocks_write_file(&blocks, path), -EAGAIN);
    ck_assert_uint_gt(rule.fired, 100);
    ck_assert_uint_eq(disk_lines_with(&disk, "write of "), BLOCKS); /* one line each, at debug */
    ck_assert_uint_eq(disk_lines_with(&disk, "3 write of "), BLOCKS);
}
END_TEST

START_TEST(late_and_out_of_order)
{
    round_trip((struct fake_rule){
        .op = FAKE_ANY_OP, .nth = 3, .forever = true, .action = FAKE_DELAY, .reaps = 5});
    fake_reverse(engine);
    round_trip((struct fake_rule){.op = CKPT__WRITE, .nth = 1, .action = FAKE_DELAY, .reaps = 9});
    fake_reverse(engine);
    round_trip((struct fake_rule){
        .op = CKPT__WRITE, .nth = 1, .forever = true, .action = FAKE_SHORT, .len = 40000});
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* Direct I/O refused                                                                           */

static const int refusals[] = {EINVAL, EOPNOTSUPP, EPERM};
#define REFUSALS 3

static bool direct_here(void)
{
    ck_assert_int_eq(blocks_write_file(&blocks, path), 0);
    bool direct = blocks.was_direct;
    if (!direct)
        printf("skip: no O_DIRECT in %s\n", disk.dir);
    another_engine();
    return direct;
}

START_TEST(a_direct_write_refused_later)
{
    if (!direct_here())
        return;
    for (uint64_t k = 0; k < BLOCKS; k++)
        for (int forever = 0; forever < 2; forever++) {
            struct fake_rule rule = {.op = CKPT__WRITE,
                                     .direct = true,
                                     .nth = k,
                                     .forever = forever != 0,
                                     .action = FAKE_FAIL,
                                     .sys_errno = refusals[_i]};
            fake_add_rule(engine, &rule);
            ck_assert_int_eq(blocks_write_file(&blocks, path), 0);
            blocks_check_file(&blocks, path);
            ck_assert(!blocks.was_direct);
            ck_assert_uint_ge(rule.fired, 1);
            ck_assert_uint_eq(disk.line_count, 1);
            ck_assert_uint_eq(disk_lines_with(&disk, "1 direct I/O refused by write of "), 1);
            ck_assert_uint_eq(disk_lines_with(&disk, "; writing through the page cache"), 1);
            another_engine();
        }
}
END_TEST

START_TEST(a_direct_read_refused_later)
{
    if (!direct_here())
        return;
    for (uint64_t k = 0; k < BLOCKS; k++) {
        struct fake_rule rule = {.op = CKPT__READ,
                                 .direct = true,
                                 .nth = k,
                                 .forever = true,
                                 .action = FAKE_FAIL,
                                 .sys_errno = refusals[_i]};
        fake_add_rule(engine, &rule);
        ck_assert_int_eq(blocks_write_file(&blocks, path), 0);
        ck_assert_int_eq(blocks_read_file(&blocks, path), 0);
        ck_assert_uint_eq(disk.line_count, 1);
        ck_assert_uint_eq(disk_lines_with(&disk, "1 direct I/O refused by read of "), 1);
        ck_assert_uint_eq(disk_lines_with(&disk, "; reading through the page cache"), 1);
        another_engine();
    }
}
END_TEST

START_TEST(a_direct_open_refused)
{
    struct fake_rule rule = {.op = CKPT__OPEN,
                             .direct = true,
                             .forever = true,
                             .action = FAKE_FAIL,
                             .sys_errno = refusals[_i]};
    fake_add_rule(engine, &rule);
    ck_assert_int_eq(blocks_write_file(&blocks, path), 0);
    blocks_check_file(&blocks, path);
    ck_assert_uint_eq(disk.line_count, 1);
    ck_assert_int_eq(blocks_read_file(&blocks, path), 0);
    ck_assert_uint_eq(disk.line_count, 2);
    ck_assert_uint_eq(disk_lines_with(&disk, "1 direct I/O refused by open of "), 2);
}
END_TEST

/* A second open that drops O_EXCL must not take over what somebody else has put there. */
START_TEST(a_refused_open_takes_no_other_file)
{
    struct fake_rule rule = {.op = CKPT__OPEN,
                             .direct = true,
                             .forever = true,
                             .action = FAKE_FAIL,
                             .sys_errno = EINVAL};
    const char *other = disk_path(disk.dir, "other");
    ck_assert_int_eq(blocks_write_file(&blocks, other), 0);
    fake_add_rule(engine, &rule);
    int fds = disk_open_fds();
    ck_assert_int_eq(link(other, path), 0);
    ck_assert_int_eq(blocks_write_file(&blocks, path), -EEXIST);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink(other, path), 0);
    ck_assert_int_eq(blocks_write_file(&blocks, path), -ELOOP);
    blocks_check_file(&blocks, other);
    ck_assert_int_eq(disk_open_fds(), fds);
}
END_TEST

START_TEST(a_file_system_without_fallocate)
{
    struct fake_rule rule = {
        .op = CKPT__FALLOCATE, .action = FAKE_FAIL, .sys_errno = _i == 0 ? EOPNOTSUPP : ENOSYS};
    fake_add_rule(engine, &rule);
    ck_assert_int_eq(blocks_write_file(&blocks, path), 0);
    blocks_check_file(&blocks, path);
    ck_assert_uint_eq(disk_lines_with(&disk, "3 fallocate of "), 1);
}
END_TEST

static void sync_dir(struct blocks *b, void *arg)
{
    ckpt__sync_dir(&b->on, arg, &b->reqs[0]);
}

START_TEST(a_file_system_without_directory_sync)
{
    struct fake_rule einval = {.op = CKPT__FSYNC, .action = FAKE_FAIL, .sys_errno = EINVAL};
    struct fake_rule eio = {.op = CKPT__FSYNC, .nth = 1, .action = FAKE_FAIL, .sys_errno = EIO};
    fake_add_rule(engine, &einval);
    fake_add_rule(engine, &eio);
    ck_assert_int_eq(blocks_run(&blocks, sync_dir, disk.dir), 0);
    ck_assert_uint_eq(disk_lines_with(&disk, "1 fsync of directory "), 1);
    ck_assert_int_eq(blocks_run(&blocks, sync_dir, disk.dir), -EIO);
    ck_assert_uint_eq(disk.line_count, 1);
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* Every io fails once, then for ever                                                           */

static void write_note(struct blocks *b, void *arg)
{
    ckpt__write_whole(&b->on, arg, 0644, b->content, 5000, &b->reqs[0]);
}

static void read_note(struct blocks *b, void *arg)
{
    ckpt__read_whole(&b->on, arg, 5000, &b->reqs[0]);
}

/* Stops at the first failure, as a save does. */
static int64_t all_operations(void)
{
    char *note = strdup(disk_path(disk.dir, "note"));
    unlink(note);
    int64_t n = blocks_write_file(&blocks, path);
    if (n == 0)
        n = blocks_read_file(&blocks, path);
    if (n == 0)
        n = blocks_run(&blocks, write_note, note);
    if (n >= 0)
        n = blocks_run(&blocks, read_note, note);
    if (n >= 0) {
        ck_assert(memcmp(blocks.reqs[0].buf, blocks.content, 5000) == 0);
        ckpt__free(&disk.env, blocks.reqs[0].buf);
        n = blocks_run(&blocks, sync_dir, disk.dir);
    }
    free(note);
    return n;
}

START_TEST(each_io_fails)
{
    static const int errnos[] = {EIO, ENOSPC};
    static const int codes[] = {CKPT_EIO, CKPT_ENOSPC};
    int fds = disk_open_fds();
    uint64_t n = 0;
    for (;; n++) {
        struct fake_rule rule = {.op = FAKE_ANY_OP,
                                 .nth = n / 2,
                                 .forever = n % 2 != 0,
                                 .action = FAKE_FAIL,
                                 .sys_errno = errnos[_i]};
        fake_add_rule(engine, &rule);
        int64_t result = all_operations();
        if (rule.fired == 0) {
            ck_assert_int_eq(result, 0);
            another_engine();
            break;
        }
        if (result == 0) {
            another_engine();
            continue;
        }
        ck_assert_int_eq(result, -errnos[_i]);
        ck_assert_int_eq(blocks.error.code, codes[_i]);
        ck_assert_int_eq(blocks.error.sys_errno, errnos[_i]);
        ck_assert_ptr_nonnull(strstr(blocks.error.text, disk.dir));
        ck_assert_int_eq(disk_open_fds(), fds);
        another_engine();
    }
    ck_assert_uint_gt(n / 2, 20);                        /* ios of one pass */
    ck_assert_uint_eq(disk.allocations, disk.frees + 4); /* the pool and the engine */
}
END_TEST

START_TEST(an_error_says_what_where_and_why)
{
    struct fake_rule rule = {.op = CKPT__WRITE, .nth = 3, .action = FAKE_SHORT, .len = 8192};
    struct fake_rule full = {
        .op = CKPT__WRITE, .nth = BLOCKS, .action = FAKE_FAIL, .sys_errno = ENOSPC};
    fake_add_rule(engine, &rule);
    fake_add_rule(engine, &full);
    ck_assert_int_eq(blocks_write_file(&blocks, path), -ENOSPC);
    char text[1200];
    snprintf(text, sizeof text, "write %s at byte %zu: No space left on device", path,
             3 * BLOCK_BYTES + 8192);
    ck_assert_str_eq(blocks.error.text, text);
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* Cancel                                                                                       */

static void count_done(struct ckpt__req *r)
{
    (*(int *)r->ctx)++;
}

enum { CHAINS = 40 };
static struct ckpt__req chains[CHAINS];
static char chain_paths[CHAINS][600];

static void start_chains(int *done)
{
    for (int i = 0; i < CHAINS; i++) {
        snprintf(chain_paths[i], sizeof chain_paths[i], "%s/%d", disk.dir, i);
        chains[i] = (struct ckpt__req){.done = count_done, .ctx = done};
        ckpt__write_whole(&blocks.on, chain_paths[i], 0644, blocks.content, 5000, &chains[i]);
    }
}

START_TEST(a_cancelled_chain_closes_what_it_opened)
{
    int fds = disk_open_fds(), done = 0;
    start_chains(&done);
    for (int i = 0; i < _i; i++) /* at several stages of the chains */
        engine->cls->reap(engine);
    engine->cls->cancel(engine);
    disk_wait(engine, &done, CHAINS);
    for (int i = 0; i < CHAINS; i++)
        ck_assert(chains[i].result == -ECANCELED || chains[i].result == 5000);
    ck_assert_int_eq(disk_open_fds(), fds);
}
END_TEST

static void note_done(struct ckpt__io *io)
{
    *(int *)io->ctx = 1;
}

/* The open of a pipe without a writer keeps the engine busy until we open the other end. */
START_TEST(a_chain_cancelled_before_it_began)
{
    const char *pipe_path = disk_path(disk.dir, "pipe");
    int done = 0, opened = 0;
    ck_assert_int_eq(mkfifo(pipe_path, 0644), 0);
    struct ckpt__io busy = {.op = CKPT__OPEN, .path = pipe_path, .done = note_done, .ctx = &opened};
    engine->cls->submit(engine, &busy);
    start_chains(&done);
    engine->cls->cancel(engine);
    int writer = open(pipe_path, O_RDWR | O_CLOEXEC);
    disk_wait(engine, &done, CHAINS);
    disk_wait(engine, &opened, 1);
    for (int i = 0; i < CHAINS; i++)
        ck_assert_int_eq(chains[i].result, -ECANCELED);
    ck_assert(busy.result == -ECANCELED || close((int)busy.result) == 0);
    close(writer);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("io faults");
    TCase *t = tcase_create("faults");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_short_transfer_goes_on, 0, LENGTHS);
    tcase_add_loop_test(t, transfers_that_are_all_short, 0, LENGTHS);
    tcase_add_test(t, a_direct_write_that_stops_between_blocks);
    tcase_add_test(t, a_write_of_nothing_is_an_error);
    tcase_add_loop_test(t, interrupted_and_busy_are_tried_again, 0, 2);
    tcase_add_test(t, but_not_for_ever);
    tcase_add_test(t, late_and_out_of_order);
    tcase_add_loop_test(t, a_direct_write_refused_later, 0, REFUSALS);
    tcase_add_loop_test(t, a_direct_read_refused_later, 0, REFUSALS);
    tcase_add_loop_test(t, a_direct_open_refused, 0, REFUSALS);
    tcase_add_test(t, a_refused_open_takes_no_other_file);
    tcase_add_loop_test(t, a_file_system_without_fallocate, 0, 2);
    tcase_add_test(t, a_file_system_without_directory_sync);
    tcase_add_loop_test(t, each_io_fails, 0, 2);
    tcase_add_test(t, an_error_says_what_where_and_why);
    tcase_add_loop_test(t, a_cancelled_chain_closes_what_it_opened, 0, 8);
    tcase_add_test(t, a_chain_cancelled_before_it_began);
    suite_add_tcase(s, t);
    return s;
}
