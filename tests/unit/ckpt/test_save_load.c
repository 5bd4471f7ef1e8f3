/*
 * test_save_load.c: saves and loads of one rank through the public API, with both engines and both
 * ways to drive a handle.
 */
#include "runner.h"

#include "disk.h"
#include "trainer.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct disk disk;

static void setup(void)
{
    disk_init(&disk);
}

static void teardown(void)
{
    disk_free(&disk);
}

static void keep(void *ctx, int level, const char *line)
{
    struct disk *d = ctx;
    d->env.log(d->env.log_ctx, level, line);
}

/* way: bit 0 = engine_sync, bit 1 = driven by the caller */
static ckpt_options options(int way)
{
    ckpt_options opt;
    ckpt_options_init(&opt, sizeof opt);
    opt.root = disk.dir;
    opt.allocator = &disk.env.allocator;
    opt.block_bytes = 1u << 20;
    opt.staging_bytes = 2u << 20;
    opt.engine = way & 1 ? CKPT_ENGINE_SYNC : CKPT_ENGINE_AUTO;
    opt.drive = way & 2 ? CKPT_DRIVE_CALLER : CKPT_DRIVE_THREAD;
    opt.log = keep;
    opt.log_ctx = &disk;
    return opt;
}

static ckpt *open_way(int way)
{
    ckpt_options opt = options(way);
    ckpt *c = NULL;
    ckpt_error err = {0};
    int rc = ckpt_open(&c, &opt, &err);
    ck_assert_msg(rc == CKPT_OK, "%s", err.text);
    return c;
}

static void save(ckpt *c, int64_t step, uint64_t salt, struct trainer_saved *ret)
{
    ckpt_error err = {0};
    int rc = trainer_save(c, 0, step, salt, ret, &err);
    ck_assert_msg(rc == CKPT_OK, "%s", err.text);
}

static struct trainer_loaded load(ckpt *c)
{
    struct trainer_loaded got = {0};
    ckpt_error err = {0};
    int rc = trainer_load(c, NULL, &got, &err);
    ck_assert_msg(rc == CKPT_OK, "%s", err.text);
    return got;
}

/* A path of the newest shard, index or COMMIT of a directory. */
static const char *inside(const char *dir, const char *name)
{
    return disk_path(dir, name);
}

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    ck_assert_ptr_nonnull(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    int byte = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(byte ^ 0x40, f);
    fclose(f);
}

static int hidden_entries(void)
{
    DIR *d = opendir(disk.dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] == '.' && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

START_TEST(round_trip)
{
    struct trainer_saved saved;
    ckpt *c = open_way(_i);
    save(c, 7, 1, &saved);
    ck_assert(saved.staged_first);
    ck_assert_uint_eq(saved.sequence, 1);
    ck_assert_ptr_nonnull(strstr(saved.path, "step-00000000000000007.00001"));
    struct trainer_loaded got = load(c);
    ck_assert_int_eq(got.step, 7);
    ck_assert_uint_eq(got.salt, 1);
    ck_assert_int_eq(got.world_size, 1);
    ckpt_close(c);
    ck_assert_int_eq(hidden_entries(), 0);
    c = open_way(_i ^ 3);
    ck_assert_int_eq(load(c).step, 7);
    ckpt_close(c);
}
END_TEST

START_TEST(none_and_unreadable_differ)
{
    ckpt_error err = {0};
    ckpt *c = open_way(_i);
    ck_assert_int_eq(trainer_load(c, NULL, NULL, &err), CKPT_ENONE);
    ck_assert_ptr_nonnull(strstr(err.text, disk.dir));
    struct trainer_saved saved;
    save(c, 1, 1, &saved);
    flip(inside(saved.path, "COMMIT"), 30);
    ck_assert_int_eq(trainer_load(c, NULL, NULL, &err), CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "COMMIT"));
    ckpt_close(c);
}
END_TEST

START_TEST(any_altered_or_cut_file_is_noticed)
{
    static const char *const names[] = {"COMMIT", "shard-00000-of-00001.index",
                                        "shard-00000-of-00001.safetensors"};
    ckpt *c = open_way(_i);
    for (int n = 0; n < 3; n++) {
        for (int k = 0; k < 8; k++) {
            struct trainer_saved saved;
            ckpt_error err = {0};
            save(c, 100 + k, 1, &saved);
            const char *path = inside(saved.path, names[n]);
            struct stat st;
            ck_assert_int_eq(stat(path, &st), 0);
            if (k < 4)
                flip(path, k == 3 ? st.st_size - 1 : (long)(st.st_size / 4 * k));
            else if (k == 7)
                ck_assert_int_eq(unlink(path), 0);
            else
                ck_assert_int_eq(truncate(path, k == 4   ? st.st_size - 1
                                                : k == 5 ? st.st_size / 2
                                                         : 0),
                                 0);
            ckpt_load_options only;
            ckpt_load_options_init(&only, sizeof only);
            only.step = 100 + k;
            int rc = trainer_load(c, &only, NULL, &err);
            ck_assert_msg(rc == CKPT_EUNREADABLE, "%s case %d: %d %s", names[n], k, rc, err.text);
            ck_assert_msg(strstr(err.text, names[n]) != NULL, "%s", err.text);
            char command[600];
            snprintf(command, sizeof command, "rm -r '%s'", saved.path);
            ck_assert_int_eq(system(command), 0);
        }
    }
    ckpt_close(c);
}
END_TEST

START_TEST(newest_is_by_sequence_not_by_step)
{
    struct trainer_saved first, second;
    ckpt *c = open_way(_i);
    save(c, 1000, 1, NULL);
    save(c, 2000, 1, NULL);
    /* Go back to 1000, train on: 1100 is newer than the abandoned 2000. */
    ckpt_load_options old;
    ckpt_load_options_init(&old, sizeof old);
    old.step = 1000;
    struct trainer_loaded at_1000, got;
    ck_assert_int_eq(trainer_load(c, &old, &at_1000, NULL), CKPT_OK);
    save(c, 1100, 2, NULL);
    got = load(c);
    ck_assert_int_eq(got.step, 1100);
    ck_assert_mem_eq(got.parent, at_1000.digest, 16);
    old.step = 1050;
    ck_assert_int_eq(trainer_load(c, &old, NULL, NULL), CKPT_ENOENT); /* others are there */
    /* The same step again, after its first copy was made unreadable. */
    save(c, 1200, 3, &first);
    flip(inside(first.path, "shard-00000-of-00001.index"), 60);
    got = load(c);
    ck_assert_int_eq(got.step, 1100);
    ck_assert_int_eq(got.skipped, 1);
    save(c, 1200, 4, &second);
    ck_assert_uint_eq(second.sequence, first.sequence + 1);
    got = load(c);
    ck_assert_int_eq(got.step, 1200);
    ck_assert_uint_eq(got.salt, 4);
    ckpt_close(c);
    /* A higher generation wins over a higher sequence, and fences a lower one. */
    ckpt_options opt = options(_i);
    ckpt_error err = {0};
    opt.generation = 5;
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_OK);
    save(c, 1300, 5, NULL);
    ckpt_close(c);
    opt.generation = 4;
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_OK);
    ck_assert_int_eq(trainer_save(c, 0, 1400, 6, NULL, &err), CKPT_EFENCED);
    ck_assert_int_eq(load(c).step, 1300);
    ckpt_close(c);
}
END_TEST

START_TEST(bad_roots)
{
    ckpt *c;
    ckpt_error err = {0};
    char file[300];
    snprintf(file, sizeof file, "%s/file", disk.dir);
    close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
    ckpt_options opt = options(_i);
    opt.root = file;
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, file));
    snprintf(file, sizeof file, "%s/no/such/parent", disk.dir);
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, file));
    ck_assert_ptr_nonnull(strstr(err.text, "is its file system mounted?"));
    opt.root = "/proc/no-such-thing"; /* ENOENT, too, but the parent is there */
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "makes no directories"));
    opt.root = "";
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_EINVAL);
    opt = options(_i);
    opt.block_bytes = 1000;
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_EINVAL);
    opt = options(_i);
    opt.size = 8;
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_EINVAL);
    opt.size = SIZE_MAX / 2;
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "ckpt_options_init"));
}
END_TEST

/* Names that are not ours, and things that are not what their name says, are left alone. */
START_TEST(what_is_not_ours_stays)
{
    char path[400], other[400], kept[500];
    static const char *const names[] = {".sequence-18446744073709551615", ".sequence-7",
                                        "step-00000000000000099.18446744073709551615", "step-99.1",
                                        "step-x.00001"};
    ckpt *c = open_way(_i);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", disk.dir, names[i]);
        ck_assert_int_eq(mkdir(path, 0777), 0);
    }
    snprintf(other, sizeof other, "%s/other", disk.dir);
    snprintf(kept, sizeof kept, "%s/file", other);
    ck_assert_int_eq(mkdir(other, 0777), 0);
    close(open(kept, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
    snprintf(path, sizeof path, "%s/.staging-%032d", disk.dir, 7);
    ck_assert_int_eq(symlink(other, path), 0);
    struct trainer_saved saved;
    for (uint64_t n = 1; n < 4; n++) {
        save(c, (int64_t)n, 1, &saved);
        ck_assert_uint_eq(saved.sequence, n);
        ck_assert_int_eq(load(c).step, (int64_t)n);
    }
    ck_assert_int_eq(access(kept, F_OK), 0);
    ckpt_close(c);
}
END_TEST

START_TEST(a_fence_behind_a_damaged_one)
{
    ckpt_options opt = options(_i);
    ckpt_error err = {0};
    ckpt *c;
    struct trainer_saved saved;
    opt.generation = 5;
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_OK);
    save(c, 1, 1, NULL);
    save(c, 2, 1, &saved);
    ckpt_close(c);
    flip(inside(saved.path, "COMMIT"), 30);
    opt.generation = 3;
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_OK);
    ck_assert_int_eq(trainer_save(c, 0, 3, 1, NULL, &err), CKPT_EFENCED);
    ckpt_close(c);
}
END_TEST

START_TEST(a_root_that_vanishes_or_is_relative)
{
    char command[400], here[300];
    ckpt_options opt = options(_i);
    ckpt_error err = {0};
    ckpt *c;
    ck_assert_ptr_nonnull(getcwd(here, sizeof here));
    ck_assert_int_eq(chdir(disk.dir), 0);
    opt.root = "relative";
    ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_OK);
    ck_assert_int_eq(mkdir("elsewhere", 0777), 0);
    ck_assert_int_eq(mkdir("elsewhere/relative", 0777), 0);
    ck_assert_int_eq(chdir("elsewhere"), 0);
    save(c, 1, 1, NULL);
    ck_assert_int_eq(rmdir("relative"), 0); /* nothing went there */
    ck_assert_int_eq(chdir(here), 0);
    snprintf(command, sizeof command, "rm -r '%s/relative'", disk.dir);
    ck_assert_int_eq(system(command), 0);
    /* Not "no checkpoint", which would say: begin at step 0. */
    ck_assert_int_eq(trainer_load(c, NULL, NULL, &err), CKPT_EIO);
    ck_assert_msg(strstr(err.text, "is gone") != NULL, "%s", err.text);
    ck_assert_int_eq(trainer_save(c, 0, 2, 1, NULL, &err), CKPT_EIO);
    ckpt_close(c);
}
END_TEST

static void count_close(void *ctx)
{
    ++*(int *)ctx;
}

START_TEST(a_failed_open_closes_the_group)
{
    ckpt *c;
    ckpt_error err;
    ckpt_allocator half = disk.env.allocator;
    half.free = NULL;
    for (int bad = 0; bad < 5; bad++) {
        int closed = 0;
        ckpt_group group;
        ck_assert_int_eq(ckpt_group_dir(&group, disk.dir, 0, 1, &err), CKPT_OK);
        group.close(group.ctx);
        group.ctx = &closed;
        group.close = count_close;
        ckpt_options opt = options(_i);
        opt.group = &group;
        if (bad == 0)
            opt.queue_depth = 0;
        else if (bad == 1)
            opt.root = "/no/such/parent/root";
        else if (bad == 2)
            opt.allocator = &half;
        else if (bad == 3)
            group.cancel = NULL;
        else
            group.size = sizeof group - 1; /* where its close is, is not known */
        ck_assert_int_eq(ckpt_open(&c, &opt, &err), CKPT_EINVAL);
        ck_assert_int_eq(closed, bad < 4);
    }
}
END_TEST

START_TEST(full_disk_keeps_the_previous_one)
{
    if (!disk_mount(&disk, "tmpfs"))
        return;
    ckpt *c = open_way(_i);
    save(c, 1, 1, NULL);
    char command[400];
    snprintf(command, sizeof command, "mount -o remount,size=5m '%s'", disk.dir);
    ck_assert_int_eq(system(command), 0);
    ckpt_error err = {0};
    ck_assert_int_eq(trainer_save(c, 0, 2, 1, NULL, &err), CKPT_ENOSPC);
    ck_assert_msg(strstr(err.text, disk.dir) != NULL, "%s", err.text);
    ck_assert_int_eq(hidden_entries(), 0);
    ck_assert_int_eq(load(c).step, 1);
    snprintf(command, sizeof command, "mount -o remount,size=50m '%s'", disk.dir);
    ck_assert_int_eq(system(command), 0);
    save(c, 3, 1, NULL);
    ck_assert_int_eq(load(c).step, 3);
    ckpt_close(c);
}
END_TEST

START_TEST(read_only_file_system)
{
    if (!disk_mount(&disk, "tmpfs"))
        return;
    ckpt *c = open_way(_i);
    save(c, 1, 1, NULL);
    char command[400];
    snprintf(command, sizeof command, "mount -o remount,ro '%s'", disk.dir);
    ck_assert_int_eq(system(command), 0);
    ckpt_error err = {0};
    ck_assert_int_eq(trainer_save(c, 0, 2, 1, NULL, &err), CKPT_EACCES);
    ck_assert_msg(strstr(err.text, disk.dir) != NULL, "%s", err.text);
    ck_assert_int_eq(load(c).step, 1);
    ckpt_close(c);
}
END_TEST

static int called;

static void count_staged(void *ctx)
{
    (void)ctx;
    called++;
}

static void count_saved(void *ctx, const ckpt_saved *saved, const ckpt_error *result)
{
    ckpt *c = *(ckpt **)ctx;
    (void)saved;
    called += 10;
    ck_assert_int_eq(result->code, CKPT_OK);
    ck_assert_int_eq(ckpt_dispatch(c), CKPT_EBUSY); /* callbacks may not */
    ck_assert_int_eq(ckpt_wait(c, 0), CKPT_EBUSY);
    ckpt_close(c); /* nor this: nothing happens */
}

START_TEST(callbacks_only_in_dispatch)
{
    ckpt *c = open_way(_i);
    ckpt_save *s, *other;
    ckpt_error err;
    called = 0;
    ck_assert_int_eq(ckpt_save_begin(&s, c, 1, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_save_begin(&other, c, 2, &err), CKPT_EBUSY);
    ck_assert_int_eq(ckpt_save_commit(s, count_staged, count_saved, &c, NULL), CKPT_OK);
    ck_assert_int_eq(ckpt_save_begin(&other, c, 2, &err), CKPT_EBUSY);
    if (!(_i & 2))
        usleep(200000); /* its own thread is long done, and has called nobody */
    ck_assert_int_eq(called, 0);
    while (called < 11)
        ck_assert_int_ge(ckpt_wait(c, 5000), 1);
    ck_assert_int_eq(called, 11);
    ck_assert_int_eq(ckpt_save_begin(&other, c, 2, &err), CKPT_OK);
    ckpt_save_abort(other, NULL);
    ck_assert_int_eq(ckpt_save_begin(&other, c, 3, &err), CKPT_OK);
    ckpt_close(c); /* frees what was begun */
}
END_TEST

static ckpt_error close_result;

static void keep_result(void *ctx, const ckpt_saved *saved, const ckpt_error *result)
{
    (void)ctx;
    (void)saved;
    called += 10;
    close_result = *result;
}

START_TEST(close_ends_a_save)
{
    /* Either it was far enough to finish, or it is cancelled and leaves nothing. */
    for (int wait_us = 0; wait_us < 20000; wait_us += 1000) {
        ckpt *c = open_way(_i);
        ckpt_save *s;
        called = 0;
        static uint8_t bytes[8u << 20];
        int64_t shape[1] = {sizeof bytes};
        ckpt_tensor t;
        ckpt_tensor_init(&t, sizeof t);
        t.name = "bytes";
        t.dtype = CKPT_U8;
        t.ndim = 1;
        t.shape = shape;
        t.data = bytes;
        ck_assert_int_eq(ckpt_save_begin(&s, c, wait_us, NULL), CKPT_OK);
        ck_assert_int_eq(ckpt_save_put(s, &t, NULL), CKPT_OK);
        ck_assert_int_eq(ckpt_save_commit(s, count_staged, keep_result, NULL, NULL), CKPT_OK);
        usleep((unsigned)wait_us);
        ckpt_close(c);
        ck_assert_int_eq(called, 11);
        ck_assert(close_result.code == CKPT_OK || close_result.code == CKPT_ECANCELED);
        ck_assert_int_eq(hidden_entries(), 0);
    }
}
END_TEST

static void keep_opened(void *ctx, ckpt_load *load, const ckpt_error *result)
{
    (void)load;
    *(ckpt_error *)ctx = *result;
}

/* However far it was, its memory is given back. */
START_TEST(close_ends_a_load)
{
    ckpt *c = open_way(_i);
    save(c, 1, 1, NULL);
    ckpt_close(c);
    for (int turns = 0; turns < 12; turns++) {
        ckpt_error result = {.code = 1};
        c = open_way(_i);
        ckpt_load_options newest;
        ckpt_load_options_init(&newest, sizeof newest);
        ck_assert_int_eq(ckpt_load_open(c, &newest, keep_opened, &result, NULL), CKPT_OK);
        for (int i = 0; i < turns; i++) {
            struct pollfd p = {.fd = ckpt_fd(c), .events = POLLIN};
            poll(&p, 1, 20);
            ckpt_dispatch(c);
        }
        ckpt_close(c);
        ck_assert(result.code == CKPT_OK || result.code == CKPT_ECANCELED);
        ck_assert_uint_eq(disk.allocations, disk.frees);
    }
}
END_TEST

START_TEST(not_in_a_child)
{
    ckpt *c = open_way(_i);
    pid_t child = fork();
    if (child == 0) {
        ckpt_save *s;
        int ok = ckpt_save_begin(&s, c, 1, NULL) == CKPT_ESTATE &&
                 ckpt_dispatch(c) == CKPT_ESTATE && ckpt_wait(c, 0) == CKPT_ESTATE &&
                 ckpt_fd(c) == CKPT_ESTATE;
        ckpt_close(c);
        _exit(ok ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    save(c, 1, 1, NULL);
    ckpt_close(c);
}
END_TEST

START_TEST(leaves_nothing_behind)
{
    int fds = disk_open_fds();
    for (int i = 0; i < 5; i++) {
        ckpt *c = open_way(_i);
        save(c, i, 1, NULL);
        load(c);
        ckpt_close(c);
    }
    ck_assert_int_eq(disk_open_fds(), fds);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("save_load");
    TCase *t = tcase_create("ways");
    tcase_set_timeout(t, 100);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, round_trip, 0, 4);
    tcase_add_loop_test(t, none_and_unreadable_differ, 0, 4);
    tcase_add_loop_test(t, any_altered_or_cut_file_is_noticed, 0, 4);
    tcase_add_loop_test(t, newest_is_by_sequence_not_by_step, 0, 4);
    tcase_add_loop_test(t, bad_roots, 0, 4);
    tcase_add_loop_test(t, what_is_not_ours_stays, 0, 4);
    tcase_add_loop_test(t, a_fence_behind_a_damaged_one, 0, 4);
    tcase_add_loop_test(t, a_root_that_vanishes_or_is_relative, 0, 4);
    tcase_add_loop_test(t, a_failed_open_closes_the_group, 0, 4);
    tcase_add_loop_test(t, full_disk_keeps_the_previous_one, 0, 4);
    tcase_add_loop_test(t, read_only_file_system, 0, 4);
    tcase_add_loop_test(t, callbacks_only_in_dispatch, 0, 4);
    tcase_add_loop_test(t, close_ends_a_save, 0, 4);
    tcase_add_loop_test(t, close_ends_a_load, 0, 4);
    tcase_add_loop_test(t, not_in_a_child, 0, 4);
    tcase_add_loop_test(t, leaves_nothing_behind, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
