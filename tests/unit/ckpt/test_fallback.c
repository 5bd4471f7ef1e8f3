/*
 * test_fallback.c: whole saves and loads where the kernel refuses the fast way: io_uring by a
 * system call filter or by a memlock limit of nothing, O_DIRECT by the file system. The bytes are
 * those of the fast way, and one log line says what was refused. Refusals cannot be taken back, so
 * each case runs in a child.
 */
#include "runner.h"

#include "disk.h"
#include "trainer.h"

#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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
    if (level <= CKPT_LOG_INFO)
        d->env.log(d->env.log_ctx, level, line);
}

static ckpt *open_root(const char *root)
{
    ckpt_options opt;
    ckpt_error err = {0};
    ckpt *c = NULL;
    ckpt_options_init(&opt, sizeof opt);
    opt.root = root;
    opt.block_bytes = 1u << 20;
    opt.staging_bytes = 2u << 20;
    opt.log = keep;
    opt.log_ctx = &disk;
    if (ckpt_open(&c, &opt, &err) != CKPT_OK)
        fprintf(stderr, "%s\n", err.text);
    return c;
}

/* Saves step 1 below root and loads it; returns the shard's bytes, NULL on failure. */
static uint8_t *save_and_load(const char *root, size_t *len, char engine[16])
{
    struct trainer_saved saved;
    ckpt_error err = {0};
    char path[600];
    ckpt *c = open_root(root);
    if (c == NULL)
        return NULL;
    snprintf(engine, 16, "%s", ckpt_engine_name(c));
    int rc = trainer_save(c, 0, 1, 1, &saved, &err);
    if (rc == CKPT_OK)
        rc = trainer_load(c, NULL, NULL, &err);
    ckpt_close(c);
    if (rc != CKPT_OK) {
        fprintf(stderr, "%s\n", err.text);
        return NULL;
    }
    snprintf(path, sizeof path, "%s/shard-00000-of-00001.safetensors", saved.path);
    return disk_read(path, len);
}

static void refuse_call(int call)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL || seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 0) != 0 ||
        seccomp_load(filter) != 0)
        _exit(10);
    seccomp_release(filter);
}

static void limit_memlock(rlim_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        _exit(10);
    if (setgid(65534) != 0 || setuid(65534) != 0) /* root would not be limited */
        _exit(10);
}

/* Runs in a child: after refuse, the same bytes as before, and `lines` log lines with `part`. */
static void check_child(void (*refuse)(void), const char *root, const uint8_t *expected,
                        size_t expected_len, const char *part, size_t lines)
{
    pid_t child = fork();
    if (child == 0) {
        size_t len;
        char engine[16];
        refuse();
        disk.line_count = 0;
        uint8_t *bytes = save_and_load(root, &len, engine);
        if (bytes == NULL || len != expected_len || memcmp(bytes, expected, len) != 0)
            _exit(1);
        free(bytes);
        for (size_t i = 0; i < disk.line_count; i++)
            printf("# %s: %s\n", engine, disk.lines[i]);
        fflush(stdout);
        _exit(disk.line_count == lines && disk_lines_with(&disk, part) == lines ? 0 : 2);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(status == 0, "child: %x", (unsigned)status);
}

static void refuse_setup(void)
{
    refuse_call(SCMP_SYS(io_uring_setup));
}

static void refuse_enter(void)
{
    refuse_call(SCMP_SYS(io_uring_enter));
}

static void refuse_register(void)
{
    refuse_call(SCMP_SYS(io_uring_register));
}

static void small_memlock(void)
{
    limit_memlock(512u << 10); /* enough for a ring, not for the staging memory */
}

static void no_memlock(void)
{
    limit_memlock(0);
}

static void refuse_nothing(void)
{
}

START_TEST(the_same_bytes)
{
    size_t len;
    char engine[16], root[300];
    snprintf(root, sizeof root, "%s/fast", disk.dir);
    uint8_t *expected = save_and_load(root, &len, engine);
    ck_assert_ptr_nonnull(expected);
    if (strcmp(engine, "io_uring") == 0) {
        snprintf(root, sizeof root, "%s/setup", disk.dir);
        check_child(refuse_setup, root, expected, len, "io_uring", 1);
        snprintf(root, sizeof root, "%s/enter", disk.dir);
        check_child(refuse_enter, root, expected, len, "io_uring", 1);
        snprintf(root, sizeof root, "%s/register", disk.dir);
        check_child(refuse_register, root, expected, len, "io_uring", 1);
        if (geteuid() == 0) {
            snprintf(root, sizeof root, "%s/memlock", disk.dir);
            ck_assert_int_eq(chmod(disk.dir, 0777), 0);
            check_child(small_memlock, root, expected, len, "registered", 1);
            snprintf(root, sizeof root, "%s/none", disk.dir);
            check_child(no_memlock, root, expected, len, "io_uring", 1);
        }
    } else {
        printf("# skipped: io_uring is refused on this machine anyway, engine %s\n", engine);
    }
    free(expected);
}
END_TEST

START_TEST(no_direct_io)
{
    size_t len;
    char engine[16], root[300];
    snprintf(root, sizeof root, "%s-fast", disk.dir);
    uint8_t *expected = save_and_load(root, &len, engine);
    ck_assert_ptr_nonnull(expected);
    char command[400];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    ck_assert_int_eq(system(command), 0);
    if (disk_mount(&disk, "ramfs")) {
        /* Two files meet the refusal: the one that is written, and the same one when it is read. */
        check_child(refuse_nothing, disk.dir, expected, len, "direct I/O refused", 2);
    }
    free(expected);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("fallback");
    TCase *t = tcase_create("fallback");
    tcase_set_timeout(t, 100);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_same_bytes);
    tcase_add_test(t, no_direct_io);
    suite_add_tcase(s, t);
    return s;
}
