/*
 * test_ranks.c: saves and loads of several ranks over one root: they commit together or not at all,
 * and all learn which rank failed and why. Each rank is a handle with its own thread; the group is
 * a shared directory.
 */
#include "runner.h"

#include "disk.h"
#include "trainer.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_RANKS 4

static struct disk disk;
static ckpt *ranks[MAX_RANKS];
static int world;
static char root[300], board[300];

static void setup(void)
{
    disk_init(&disk);
    trainer_set_bytes(100u << 10); /* ranks start one after the other: filling must be quick */
    snprintf(root, sizeof root, "%s/root", disk.dir);
    snprintf(board, sizeof board, "%s/group", disk.dir);
}

static void teardown(void)
{
    for (int r = 0; r < MAX_RANKS; r++) {
        ckpt_close(ranks[r]);
        ranks[r] = NULL;
    }
    disk_free(&disk);
}

static ckpt *open_rank(int r, int world_size, int timeout_ms, uint64_t generation)
{
    ckpt_error err = {0};
    ckpt_group group;
    int rc = ckpt_group_dir(&group, board, r, world_size, &err);
    ck_assert_msg(rc == CKPT_OK, "%s", err.text);
    ckpt_options opt;
    ckpt_options_init(&opt, sizeof opt);
    opt.root = root;
    opt.allocator = &disk.env.allocator;
    opt.block_bytes = 1u << 20;
    opt.staging_bytes = 2u << 20;
    opt.engine = r % 2 ? CKPT_ENGINE_SYNC : CKPT_ENGINE_AUTO;
    opt.group = &group;
    opt.timeout_ms = timeout_ms;
    opt.generation = generation;
    rc = ckpt_open(&ranks[r], &opt, &err);
    ck_assert_msg(rc == CKPT_OK, "%s", err.text);
    return ranks[r];
}

static void open_world(int n, int timeout_ms)
{
    world = n;
    for (int r = 0; r < n; r++)
        open_rank(r, n, timeout_ms, 0);
}

static int save_codes[MAX_RANKS];
static ckpt_error save_errors[MAX_RANKS];

/* Every rank saves `step`, or with step < 0 only those whose bit is set in `who`. */
static void save_some(int64_t step, uint64_t salt, unsigned who)
{
    struct trainer_pending *p[MAX_RANKS] = {0};
    for (int r = 0; r < world; r++) {
        if (who & 1u << r)
            p[r] = trainer_start(ranks[r], r, step, salt, NULL);
    }
    for (int r = 0; r < world; r++) {
        memset(&save_errors[r], 0, sizeof save_errors[r]);
        save_codes[r] = p[r] != NULL ? trainer_finish(p[r], NULL, &save_errors[r]) : 1;
    }
}

static void save_all(int64_t step, uint64_t salt)
{
    save_some(step, salt, 0xf);
    for (int r = 0; r < world; r++)
        ck_assert_msg(save_codes[r] == CKPT_OK, "rank %d: %s", r, save_errors[r].text);
}

/* What a process that is alone finds. */
static int load_alone(struct trainer_loaded *got, ckpt_error *err)
{
    ckpt_options opt;
    ckpt *c;
    ckpt_options_init(&opt, sizeof opt);
    opt.root = root;
    ck_assert_int_eq(ckpt_open(&c, &opt, err), CKPT_OK);
    int rc = trainer_load(c, NULL, got, err);
    ckpt_close(c);
    return rc;
}

static int count_entries(const char *prefix)
{
    DIR *d = opendir(root);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    closedir(d);
    return n;
}

START_TEST(all_commit_together)
{
    struct trainer_loaded got;
    open_world(_i, 10000);
    for (int k = 0; k < 3; k++)
        save_all(10 + k, 1);
    ckpt_error err = {0};
    ck_assert_msg(load_alone(&got, &err) == CKPT_OK, "%s", err.text);
    ck_assert_int_eq(got.step, 12);
    ck_assert_int_eq(got.world_size, _i);
    ck_assert_int_eq(count_entries(".s"), 0);
}
END_TEST

struct parallel_load {
    int done;
    ckpt_load *load;
    ckpt_error result;
};

static void opened(void *ctx, ckpt_load *load, const ckpt_error *result)
{
    struct parallel_load *p = ctx;
    p->done = 1;
    p->load = load;
    p->result = *result;
}

/* Opens on all ranks at once. */
static void open_loads(struct parallel_load *loads)
{
    ckpt_load_options opt;
    ckpt_load_options_init(&opt, sizeof opt);
    for (int r = 0; r < world; r++) {
        loads[r] = (struct parallel_load){0};
        ck_assert_int_eq(ckpt_load_open(ranks[r], &opt, opened, &loads[r], NULL), CKPT_OK);
    }
    for (int r = 0; r < world; r++) {
        while (!loads[r].done)
            ck_assert_int_gt(ckpt_wait(ranks[r], 20000), 0);
    }
}

START_TEST(all_load_the_same)
{
    struct parallel_load loads[MAX_RANKS];
    open_world(3, 10000);
    open_loads(loads);
    for (int r = 0; r < world; r++)
        ck_assert_int_eq(loads[r].result.code, CKPT_ENONE);
    for (int k = 0; k < 3; k++)
        save_all(10 + k, 1);
    char path[400];
    snprintf(path, sizeof path, "%s/step-00000000000000012.00003/shard-00001-of-00003.safetensors",
             root);
    ck_assert_int_eq(truncate(path, 100), 0);
    open_loads(loads);
    for (int r = 0; r < world; r++) {
        ck_assert_msg(loads[r].result.code == CKPT_OK, "%s", loads[r].result.text);
        ck_assert_int_eq(ckpt_load_info(loads[r].load)->step, 11);
        ck_assert_int_eq(ckpt_load_info(loads[r].load)->skipped, 1);
        ck_assert_int_eq(ckpt_load_close(loads[r].load), CKPT_OK);
    }
}
END_TEST

START_TEST(a_missing_rank_is_named)
{
    struct trainer_loaded got;
    open_world(4, 4000);
    save_all(1, 1);
    save_some(2, 1, 0xb); /* rank 2 does not come */
    for (int r = 0; r < world; r++) {
        if (r == 2)
            continue;
        ck_assert_int_eq(save_codes[r], CKPT_ETIMEDOUT);
        ck_assert_msg(strstr(save_errors[r].text, "rank 2") != NULL, "%s", save_errors[r].text);
    }
    ck_assert_int_eq(load_alone(&got, NULL), CKPT_OK);
    ck_assert_int_eq(got.step, 1);
    ck_assert_int_eq(count_entries(".s"), 0);
    save_some(2, 1, 0x4); /* it comes late, and learns that the others have given up */
    ck_assert_int_eq(save_codes[2], CKPT_ETIMEDOUT);
    save_all(3, 1);
    ck_assert_int_eq(load_alone(&got, NULL), CKPT_OK);
    ck_assert_int_eq(got.step, 3);
}
END_TEST

START_TEST(steps_that_differ_are_refused)
{
    open_world(2, 2000);
    struct trainer_pending *a = trainer_start(ranks[0], 0, 5, 1, NULL);
    struct trainer_pending *b = trainer_start(ranks[1], 1, 6, 1, NULL);
    ckpt_error err = {0};
    ck_assert_int_eq(trainer_finish(a, NULL, &err), CKPT_EMISMATCH);
    ck_assert_msg(strstr(err.text, "step 6") != NULL, "%s", err.text);
    ck_assert_int_eq(trainer_finish(b, NULL, &err), CKPT_EMISMATCH);
    save_all(7, 1);
}
END_TEST

START_TEST(abort_is_told_at_once)
{
    open_world(3, 30000);
    save_all(1, 1);
    struct trainer_pending *p[3] = {trainer_start(ranks[0], 0, 2, 1, NULL), NULL,
                                    trainer_start(ranks[2], 2, 2, 1, NULL)};
    ckpt_save *s;
    ck_assert_int_eq(ckpt_save_begin(&s, ranks[1], 2, NULL), CKPT_OK);
    ckpt_save_abort(s, "loss is not a number");
    for (int r = 0; r < 3; r += 2) {
        ckpt_error err = {0};
        ck_assert_int_eq(trainer_finish(p[r], NULL, &err), CKPT_EPEER);
        ck_assert_msg(strstr(err.text, "rank 1") != NULL, "%s", err.text);
        ck_assert_msg(strstr(err.text, "loss is not a number") != NULL, "%s", err.text);
    }
    save_all(3, 1);
}
END_TEST

static void loaded(void *ctx, const ckpt_error *result)
{
    struct parallel_load *p = ctx;
    p->done = 1;
    p->result = *result;
}

/* Rank 1 cannot use what was opened: the others, who have started, learn it at once. */
START_TEST(a_load_that_is_given_up)
{
    static const int32_t codes[] = {CKPT_ECANCELED, CKPT_EUNREADABLE};
    static const int32_t seen[] = {CKPT_EPEER, CKPT_EUNREADABLE};
    struct parallel_load loads[MAX_RANKS] = {0};
    open_world(3, 30000);
    save_all(1, 1);
    open_loads(loads);
    ckpt_load_abort(loads[1].load, codes[_i], "the model has another shape");
    for (int r = 0; r < 3; r += 2) {
        loads[r].done = 0;
        ck_assert_int_eq(ckpt_load_start(loads[r].load, loaded, &loads[r], NULL), CKPT_OK);
    }
    for (int r = 0; r < 3; r += 2) {
        while (!loads[r].done)
            ck_assert_int_gt(ckpt_wait(ranks[r], 10000), 0);
        ck_assert_int_eq(loads[r].result.code, seen[_i]);
        ck_assert_msg(strstr(loads[r].result.text, "rank 1") != NULL &&
                          strstr(loads[r].result.text, "another shape") != NULL,
                      "%s", loads[r].result.text);
        ck_assert_int_eq(ckpt_load_close(loads[r].load), CKPT_OK);
    }
    save_all(2, 1);
}
END_TEST

START_TEST(one_full_disk_fails_all)
{
    struct trainer_loaded got;
    if (!disk_mount(&disk, "tmpfs"))
        return;
    trainer_set_bytes(3u << 20);
    open_world(3, 20000);
    save_all(1, 1);
    char command[400];
    snprintf(command, sizeof command, "mount -o remount,size=14m '%s'", disk.dir);
    ck_assert_int_eq(system(command), 0);
    save_some(2, 1, 0xf);
    for (int r = 0; r < world; r++) {
        ck_assert_msg(save_codes[r] == CKPT_ENOSPC, "rank %d: %d %s", r, save_codes[r],
                      save_errors[r].text);
        ck_assert_msg(strstr(save_errors[r].text, "shard-") != NULL, "%s", save_errors[r].text);
    }
    ck_assert_int_eq(count_entries(".s"), 0);
    ck_assert_int_eq(load_alone(&got, NULL), CKPT_OK);
    ck_assert_int_eq(got.step, 1);
}
END_TEST

/* A claim of sequence 5 for `step`, by this process or by one of its pid that started later. */
static void write_claim(const char *path, int64_t step, int later)
{
    char boot[64], ns[64] = "";
    unsigned long long start = 0;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    ck_assert_int_eq(fscanf(f, "%63s", boot), 1);
    fclose(f);
    ck_assert_int_gt(readlink("/proc/self/ns/pid", ns, sizeof ns - 1), 0);
    f = fopen("/proc/self/stat", "r");
    ck_assert_int_eq(fscanf(f,
                            "%*d (%*[^)]) %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                            "%*s %*s %*s %*s %*s %*s %llu",
                            &start),
                     1);
    fclose(f);
    f = fopen(path, "w");
    fprintf(f,
            "attempt 00000000000000000000000000000001\nstep %" PRId64
            "\ngeneration 0\nboot_id %s\npid_ns %s\npid %ld\nstart_time %llu\nhost here\n",
            step, boot, ns, (long)getpid(), start + (later ? 1 : 0));
    fclose(f);
}

START_TEST(a_second_writer_of_the_step)
{
    struct trainer_loaded got;
    ckpt_error err = {0};
    char claim[400], staging[400];
    snprintf(claim, sizeof claim, "%s/.sequence-00005", root);
    snprintf(staging, sizeof staging, "%s/.staging-00000000000000000000000000000001", root);
    ckpt *c = open_rank(0, 1, 5000, 0);
    write_claim(claim, 9, 0);
    ck_assert_int_eq(trainer_save(c, 0, 9, 1, NULL, &err), CKPT_EBUSY);
    ck_assert_msg(strstr(err.text, "step 9") != NULL && strstr(err.text, root) != NULL, "%s",
                  err.text);
    /* Another step may be saved meanwhile, under a later sequence. */
    ck_assert_int_eq(trainer_save(c, 0, 10, 1, NULL, &err), CKPT_OK);
    ck_assert_int_eq(load_alone(&got, NULL), CKPT_OK);
    ck_assert_uint_eq(got.sequence, 6);
    ck_assert_int_eq(access(claim, F_OK), 0);
    /* The same claim of a process that is gone is removed, with what it staged. */
    write_claim(claim, 11, 1);
    ck_assert_int_eq(mkdir(staging, 0777), 0);
    ck_assert_int_eq(trainer_save(c, 0, 11, 1, NULL, &err), CKPT_OK);
    ck_assert_int_ne(access(claim, F_OK), 0);
    ck_assert_int_ne(access(staging, F_OK), 0);
}
END_TEST

/* Two writers at once, neither knows of the other: every sequence number is given out once. Numbers
 * may be left out where one writer saw the other's claim, at most one for each save of the other.
 */
START_TEST(two_writers_never_share_a_sequence)
{
    enum { SAVES = 40, NUMBERS = 4 * SAVES + 1 };
    bool seen[NUMBERS] = {false};
    trainer_set_bytes(1000);
    for (int w = 0; w < 2; w++) {
        ckpt_options opt;
        ckpt_options_init(&opt, sizeof opt);
        opt.root = root;
        opt.block_bytes = 64u << 10;
        opt.staging_bytes = 128u << 10;
        ck_assert_int_eq(ckpt_open(&ranks[w], &opt, NULL), CKPT_OK);
    }
    for (int k = 0; k < SAVES; k++) {
        struct trainer_pending *p[2];
        for (int w = 0; w < 2; w++)
            p[w] = trainer_start(ranks[w], 0, 1000 * (w + 1) + k, 1, NULL);
        for (int w = 0; w < 2; w++) {
            struct trainer_saved saved;
            ckpt_error err = {0};
            int rc = trainer_finish(p[w], &saved, &err);
            ck_assert_msg(rc == CKPT_OK, "%s", err.text);
            ck_assert_uint_lt(saved.sequence, NUMBERS);
            ck_assert(!seen[saved.sequence]);
            seen[saved.sequence] = true;
        }
    }
}
END_TEST

START_TEST(a_fifo_on_the_board_hurts_nobody)
{
    char path[400];
    ck_assert_int_eq(mkdir(board, 0777), 0);
    snprintf(path, sizeof path, "%s/rank-1", board);
    ck_assert_int_eq(mkfifo(path, 0666), 0);
    world = 1;
    open_rank(0, 2, 300, 0);
    save_some(1, 1, 0x1);
    ck_assert_int_eq(save_codes[0], CKPT_ETIMEDOUT);
}
END_TEST

START_TEST(generations_that_differ_are_refused)
{
    world = 2;
    open_rank(0, 2, 2000, 3);
    open_rank(1, 2, 2000, 4);
    save_some(1, 1, 0x3);
    ck_assert_int_eq(save_codes[0], CKPT_EMISMATCH);
    ck_assert_int_eq(save_codes[1], CKPT_EMISMATCH);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("ranks");
    TCase *t = tcase_create("ranks");
    tcase_set_timeout(t, 100);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, all_commit_together, 1, MAX_RANKS + 1);
    tcase_add_test(t, all_load_the_same);
    tcase_add_test(t, a_missing_rank_is_named);
    tcase_add_test(t, steps_that_differ_are_refused);
    tcase_add_test(t, abort_is_told_at_once);
    tcase_add_loop_test(t, a_load_that_is_given_up, 0, 2);
    tcase_add_test(t, one_full_disk_fails_all);
    tcase_add_test(t, a_second_writer_of_the_step);
    tcase_add_test(t, two_writers_never_share_a_sequence);
    tcase_add_test(t, a_fifo_on_the_board_hurts_nobody);
    tcase_add_test(t, generations_that_differ_are_refused);
    suite_add_tcase(s, t);
    return s;
}
