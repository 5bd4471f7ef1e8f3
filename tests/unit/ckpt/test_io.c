/*
 * test_io.c: io.h over both real engines, on the build's file system, on tmpfs and on ramfs.
 */
#include "blocks.h"
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const struct ckpt__engine_class *cls;
    const char *mount; /* NULL: the directory as it is */
} places[] = {
    {&ckpt__engine_sync, NULL},     {&ckpt__engine_uring, NULL},   {&ckpt__engine_sync, "tmpfs"},
    {&ckpt__engine_uring, "tmpfs"}, {&ckpt__engine_sync, "ramfs"}, {&ckpt__engine_uring, "ramfs"},
};
#define PLACES 6

static struct disk disk;
static struct blocks blocks;
static struct ckpt__engine *engine;

static void setup(void)
{
    disk_init(&disk);
    engine = NULL;
}

static void teardown(void)
{
    if (engine != NULL) {
        engine->cls->close(engine);
        blocks_free(&blocks);
    }
    disk_free(&disk);
}

/* False where the place cannot be made; the reason is printed. */
static bool at_place(int i)
{
    if (places[i].mount != NULL && !disk_mount(&disk, places[i].mount))
        return false;
    struct ckpt__pool *pool = &blocks.pool;
    blocks_init(&blocks, &disk, NULL);
    struct ckpt__engine_config config = {
        .env = &disk.env, .queue_depth = 4, .pool = pool->base, .pool_bytes = pool->bytes};
    engine = disk_engine(places[i].cls, &config);
    if (engine == NULL)
        blocks_free(&blocks);
    blocks.on.engine = engine;
    return engine != NULL;
}

/* ramfs never takes O_DIRECT, tmpfs from Linux 6.6 on; the build's file system as it may. */
static bool takes_direct(int i)
{
    const char *path = disk_path(disk.dir, "probe");
    int fd = open(path, O_CREAT | O_WRONLY | O_DIRECT | O_CLOEXEC, 0600);
    ck_assert(fd >= 0 || errno == EINVAL);
    ck_assert(fd < 0 || places[i].mount == NULL || strcmp(places[i].mount, "ramfs") != 0);
    if (fd >= 0)
        close(fd);
    ck_assert_int_eq(unlink(path), 0); /* a refused open leaves it, too */
    return fd >= 0;
}

START_TEST(a_file_of_blocks_comes_back)
{
    if (!at_place(_i))
        return;
    int fds = disk_open_fds();
    const char *path = disk_path(disk.dir, "file");
    mode_t mask = umask(022);
    ck_assert_int_eq(blocks_write_file(&blocks, path), 0);
    umask(mask);
    blocks_check_file(&blocks, path);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0644);
    ck_assert_int_eq(blocks_read_file(&blocks, path), 0);
    ck_assert_int_eq(disk_open_fds(), fds);
}
END_TEST

START_TEST(a_refused_open_is_said_once_per_file)
{
    if (!at_place(_i))
        return;
    bool direct = takes_direct(_i);
    const char *path = disk_path(disk.dir, "file");
    ck_assert_int_eq(blocks_write_file(&blocks, path), 0);
    ck_assert(blocks.was_direct == direct);
    ck_assert_int_eq(blocks_read_file(&blocks, path), 0);
    ck_assert(blocks.was_direct == direct);
    char line[600];
    snprintf(line, sizeof line,
             "1 direct I/O refused by open of %s: Invalid argument; writing through the page cache",
             path);
    line[299] = '\0'; /* as the fixture keeps them */
    ck_assert_uint_eq(disk_lines_with(&disk, line), direct ? 0 : 1);
    ck_assert_uint_eq(disk_lines_with(&disk, "; reading through the page cache"), direct ? 0 : 1);
    ck_assert_uint_eq(disk_lines_with(&disk, "direct I/O refused"), direct ? 0 : 2);
}
END_TEST

START_TEST(a_file_that_is_there_is_not_touched)
{
    if (!at_place(_i))
        return;
    const char *path = disk_path(disk.dir, "file");
    ck_assert_int_eq(blocks_write_file(&blocks, path), 0);
    int fds = disk_open_fds();
    disk_fill(blocks.content, 100, 99); /* other bytes */
    ck_assert_int_eq(blocks_write_file(&blocks, path), -EEXIST);
    ck_assert_int_eq(blocks.error.code, CKPT_EBUSY);
    ck_assert_int_eq(blocks.error.sys_errno, EEXIST);
    ck_assert_int_eq(disk_open_fds(), fds);
    disk_fill(blocks.content, FILE_BYTES, 11);
    blocks_check_file(&blocks, path);
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* Small files and names                                                                        */

struct whole {
    const char *path, *to;
    const void *buf;
    uint64_t len;
};

static void write_whole(struct blocks *b, void *arg)
{
    const struct whole *w = arg;
    ckpt__write_whole(&b->on, w->path, 0644, w->buf, w->len, &b->reqs[0]);
}

static void read_whole(struct blocks *b, void *arg)
{
    const struct whole *w = arg;
    ckpt__read_whole(&b->on, w->path, w->len, &b->reqs[0]);
}

START_TEST(small_files_whole)
{
    static const uint64_t sizes[] = {0, 1, 511, 4096, 100001};
    if (!at_place(_i))
        return;
    int fds = disk_open_fds();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct whole w = {
            .path = disk_path(disk.dir, "whole"), .buf = blocks.content + 1, .len = sizes[i]};
        int64_t len = (int64_t)w.len;
        ck_assert_int_eq(blocks_run(&blocks, write_whole, &w), len);
        ck_assert_int_eq(blocks_run(&blocks, write_whole, &w), -EEXIST);
        ck_assert_int_eq(blocks_run(&blocks, read_whole, &w), len);
        struct ckpt__req *r = &blocks.reqs[0];
        ck_assert_ptr_nonnull(r->buf);
        ck_assert(memcmp(r->buf, blocks.content + 1, w.len) == 0);
        ckpt__free(&disk.env, r->buf);
        if (w.len > 0) {
            w.len--;
            ck_assert_int_eq(blocks_run(&blocks, read_whole, &w), -EFBIG);
            ck_assert_ptr_null(r->buf);
        }
        ck_assert_int_eq(unlink(w.path), 0);
    }
    ck_assert_int_eq(disk_open_fds(), fds);
}
END_TEST

static void open_for_blocks(struct blocks *b, void *arg)
{
    const struct whole *w = arg;
    ckpt__file_open(&b->file, &b->on, w->path, &b->reqs[0]);
}

START_TEST(what_is_no_regular_file_is_not_read)
{
    if (!at_place(_i))
        return;
    int fds = disk_open_fds();
    const char *pipe_path = disk_path(disk.dir, "pipe");
    ck_assert_int_eq(mkfifo(pipe_path, 0644), 0);
    const struct {
        const char *path;
        int want;
        const char *text;
    } cases[] = {{pipe_path, EINVAL, "Invalid argument"},
                 {disk.dir, EISDIR, "Is a directory"},
                 {disk_path(disk.dir, "none"), ENOENT, "No such file or directory"},
                 {disk_path(pipe_path, "x"), ENOTDIR, "Not a directory"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct whole w = {.path = cases[i].path, .len = 1000};
        memset(&blocks.error, 0, sizeof blocks.error);
        ck_assert_int_eq(blocks_run(&blocks, read_whole, &w), -cases[i].want);
        ck_assert_ptr_null(blocks.reqs[0].buf);
        char text[600];
        snprintf(text, sizeof text, "open %s: %s", cases[i].path, cases[i].text);
        ck_assert_str_eq(blocks.error.text, text);
        ck_assert_int_eq(blocks_run(&blocks, open_for_blocks, &w), -cases[i].want);
    }
    ck_assert_int_eq(disk_open_fds(), fds);
}
END_TEST

static void make_dir(struct blocks *b, void *arg)
{
    ckpt__mkdir(&b->on, ((struct whole *)arg)->path, 0755, &b->reqs[0]);
}

static void rename_it(struct blocks *b, void *arg)
{
    const struct whole *w = arg;
    ckpt__rename(&b->on, w->path, w->to, &b->reqs[0]);
}

static void sync_dir(struct blocks *b, void *arg)
{
    ckpt__sync_dir(&b->on, ((struct whole *)arg)->path, &b->reqs[0]);
}

static void unlink_it(struct blocks *b, void *arg)
{
    ckpt__unlink(&b->on, ((struct whole *)arg)->path, &b->reqs[0]);
}

static void remove_dir(struct blocks *b, void *arg)
{
    ckpt__rmdir(&b->on, ((struct whole *)arg)->path, &b->reqs[0]);
}

START_TEST(names)
{
    if (!at_place(_i))
        return;
    int fds = disk_open_fds();
    size_t lines = disk.line_count;
    struct whole d = {.path = disk_path(disk.dir, "d"), .to = disk_path(disk.dir, "e")};
    struct whole e = {.path = d.to, .to = disk_path(disk.dir, "no/where")};
    struct whole f = {.path = disk_path(e.path, "f"), .buf = "text", .len = 4};
    ck_assert_int_eq(blocks_run(&blocks, make_dir, &d), 0);
    ck_assert_int_eq(blocks_run(&blocks, make_dir, &d), -EEXIST);
    ck_assert_int_eq(blocks_run(&blocks, sync_dir, &d), 0);
    ck_assert_int_eq(blocks_run(&blocks, rename_it, &d), 0);
    ck_assert_int_eq(blocks_run(&blocks, sync_dir, &d), -ENOENT);
    ck_assert_int_eq(blocks_run(&blocks, write_whole, &f), 4);
    ck_assert_int_eq(blocks_run(&blocks, sync_dir, &f), -ENOTDIR);
    ck_assert_int_eq(blocks_run(&blocks, remove_dir, &e), -ENOTEMPTY);
    memset(&blocks.error, 0, sizeof blocks.error);
    ck_assert_int_eq(blocks_run(&blocks, rename_it, &e), -ENOENT);
    char text[1200];
    snprintf(text, sizeof text, "rename %s to %s: No such file or directory", e.path, e.to);
    ck_assert(strncmp(blocks.error.text, text, sizeof blocks.error.text - 1) == 0);
    ck_assert_int_eq(blocks_run(&blocks, unlink_it, &f), 0);
    ck_assert_int_eq(blocks_run(&blocks, unlink_it, &f), -ENOENT);
    ck_assert_int_eq(blocks_run(&blocks, remove_dir, &e), 0);
    ck_assert_int_eq(disk_open_fds(), fds);
    ck_assert_uint_eq(disk.line_count, lines);
}
END_TEST

/* A file that lost its tail after it was opened ends early, and says where. */
static void read_one(struct blocks *b, void *buf)
{
    ckpt__file_read(&b->file, buf, 2 * BLOCK_BYTES, 0, &b->reqs[0]);
}

static void close_blocks(struct blocks *b, void *arg)
{
    (void)arg;
    ckpt__file_close(&b->file, &b->reqs[0]);
}

START_TEST(a_read_that_meets_the_end_says_how_far_it_came)
{
    static const off_t cuts[] = {0, 100, 4096, 5000, BLOCK_BYTES, BLOCK_BYTES + 777};
    if (!at_place(_i))
        return;
    const char *path = disk_path(disk.dir, "file");
    uint8_t *buf = aligned_alloc(65536, 2 * BLOCK_BYTES);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        struct whole w = {.path = path};
        ck_assert_int_eq(blocks_write_file(&blocks, path), 0);
        ck_assert_int_eq(blocks_run(&blocks, open_for_blocks, &w), 0);
        ck_assert_int_eq(truncate(path, cuts[i]), 0);
        ck_assert_int_eq(blocks_run(&blocks, read_one, buf), cuts[i]);
        ck_assert(memcmp(buf, blocks.content, (size_t)cuts[i]) == 0);
        ck_assert_int_eq(blocks_run(&blocks, close_blocks, NULL), 0);
        ck_assert_int_eq(unlink(path), 0);
    }
    free(buf);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("io");
    TCase *t = tcase_create("io");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_file_of_blocks_comes_back, 0, PLACES);
    tcase_add_loop_test(t, a_refused_open_is_said_once_per_file, 0, PLACES);
    tcase_add_loop_test(t, a_file_that_is_there_is_not_touched, 0, PLACES);
    tcase_add_loop_test(t, small_files_whole, 0, PLACES);
    tcase_add_loop_test(t, what_is_no_regular_file_is_not_read, 0, PLACES);
    tcase_add_loop_test(t, names, 0, PLACES);
    tcase_add_loop_test(t, a_read_that_meets_the_end_says_how_far_it_came, 0, PLACES);
    suite_add_tcase(s, t);
    return s;
}
