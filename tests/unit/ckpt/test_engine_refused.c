/*
 * test_engine_refused.c: kernels and containers that refuse io_uring, or a part of it. A refusal is
 * a system call filter or a limit, so each case lives in a forked child that reports by exit code.
 */
#include "disk.h"
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL_BYTES (1u << 20)
#define REGISTER_BUFFERS 0 /* operations of io_uring_register */
#define REGISTER_EVENTFD 4
#define REGISTER_PROBE 8

#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static struct disk disk;
static struct ckpt__engine_config config;
static uint8_t *pool;

static void setup(void)
{
    disk_init(&disk);
    pool = aligned_alloc(4096, POOL_BYTES);
    ck_assert_ptr_nonnull(pool);
    config = (struct ckpt__engine_config){
        .env = &disk.env, .queue_depth = 64, .pool = pool, .pool_bytes = POOL_BYTES};
}

static void teardown(void)
{
    free(pool);
    disk_free(&disk);
}

static void in_child(void (*body)(void))
{
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        alarm(30);
        body();
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status %x",
                  (unsigned)status);
}

/* ------------------------------------------------------------------------------------------ */
/* In the child                                                                                 */

static int done_count;

static void count_done(struct ckpt__io *io)
{
    (void)io;
    done_count++;
}

static int64_t run(struct ckpt__engine *e, struct ckpt__io io)
{
    int before = done_count;
    io.done = count_done;
    e->cls->submit(e, &io);
    disk_wait(e, &done_count, before + 1);
    return io.result;
}

#define BLOCKS 16
#define BLOCK (POOL_BYTES / BLOCKS)

/* The bytes are right whatever was refused. */
static void write_and_check(struct ckpt__engine *e)
{
    static struct ckpt__io ios[BLOCKS];
    const char *path = disk_path(disk.dir, "file");
    int fd =
        (int)run(e, (struct ckpt__io){
                        .op = CKPT__OPEN, .path = path, .flags = O_CREAT | O_WRONLY, .mode = 0644});
    EXPECT(fd >= 0);
    EXPECT(run(e, (struct ckpt__io){.op = CKPT__FALLOCATE, .fd = fd, .len = POOL_BYTES}) == 0);
    disk_fill(pool, POOL_BYTES, 3);
    int before = done_count;
    for (int i = 0; i < BLOCKS; i++) {
        uint64_t at = (uint64_t)i * BLOCK;
        ios[i] = (struct ckpt__io){.op = CKPT__WRITE,
                                   .fd = fd,
                                   .buf = pool + at,
                                   .len = BLOCK,
                                   .off = at,
                                   .done = count_done};
        e->cls->submit(e, &ios[i]);
    }
    disk_wait(e, &done_count, before + BLOCKS);
    for (int i = 0; i < BLOCKS; i++)
        EXPECT(ios[i].result == BLOCK);
    EXPECT(run(e, (struct ckpt__io){.op = CKPT__TRUNCATE, .fd = fd, .len = POOL_BYTES - 7}) == 0);
    EXPECT(run(e, (struct ckpt__io){.op = CKPT__FDATASYNC, .fd = fd}) == 0);
    EXPECT(run(e, (struct ckpt__io){.op = CKPT__CLOSE, .fd = fd}) == 0);
    size_t len;
    uint8_t *bytes = disk_read(path, &len);
    EXPECT(len == POOL_BYTES - 7);
    EXPECT(memcmp(bytes, pool, len) == 0);
    free(bytes);
}

static void deny(int call, int sys_errno, unsigned arg_count, struct scmp_arg_cmp arg)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    EXPECT(filter != NULL);
    int rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)sys_errno), call, arg_count, arg);
    EXPECT(rc == 0);
    EXPECT(seccomp_load(filter) == 0);
    seccomp_release(filter);
}

static const struct scmp_arg_cmp any = {.arg = 0};

/* Opens with AUTO; what has to come of it is one line with `line`, and an engine called `name`. */
static struct ckpt__engine *open_auto(const char *name, const char *line)
{
    struct ckpt__engine *e;
    ckpt_error err;
    EXPECT(ckpt__engine_open(&e, CKPT_ENGINE_AUTO, &config, &err) == CKPT_OK);
    EXPECT(strcmp(e->cls->name, name) == 0);
    if (disk.line_count != 1 || strstr(disk.lines[0], line) == NULL)
        fprintf(stderr, "%zu lines: %s\n", disk.line_count, disk.lines[0]);
    EXPECT(disk.line_count == 1 && disk_lines_with(&disk, line) == 1);
    return e;
}

static void use_and_close(struct ckpt__engine *e)
{
    size_t lines = disk.line_count;
    write_and_check(e);
    e->cls->close(e);
    EXPECT(disk.line_count == lines);
    EXPECT(disk.allocations == disk.frees);
}

static void falls_to_sync(const char *line)
{
    int fds = disk_open_fds();
    use_and_close(open_auto("sync", line));
    struct ckpt__engine *e;
    ckpt_error err;
    EXPECT(ckpt__engine_open(&e, CKPT_ENGINE_URING, &config, &err) == CKPT_ENOTSUP);
    EXPECT(err.code == CKPT_ENOTSUP && err.sys_errno != 0);
    EXPECT(strncmp(err.text, "io_uring refused by ", 20) == 0);
    EXPECT(disk_open_fds() == fds);
    EXPECT(disk.allocations == disk.frees);
}

static void setup_eperm(void)
{
    deny(SCMP_SYS(io_uring_setup), EPERM, 0, any);
    falls_to_sync("io_uring refused by io_uring_setup: Operation not permitted; using system calls "
                  "on a worker thread");
}

static void setup_enosys(void)
{
    deny(SCMP_SYS(io_uring_setup), ENOSYS, 0, any);
    falls_to_sync("io_uring refused by io_uring_setup: Function not implemented; using");
}

static void setup_enomem(void)
{
    deny(SCMP_SYS(io_uring_setup), ENOMEM, 0, any);
    falls_to_sync("io_uring refused by io_uring_setup: Cannot allocate memory; using");
}

static void setup_enomem_above_4(void)
{
    deny(SCMP_SYS(io_uring_setup), ENOMEM, 1, SCMP_A0_64(SCMP_CMP_GT, 4, 0));
    struct ckpt__engine *e;
    EXPECT(ckpt__engine_open(&e, CKPT_ENGINE_AUTO, &config, NULL) == CKPT_OK);
    EXPECT(strcmp(e->cls->name, "io_uring") == 0);
    EXPECT(disk_lines_with(&disk, "io_uring refused") == 0);
    use_and_close(e);
}

static void probe_einval(void)
{
    deny(SCMP_SYS(io_uring_register), EINVAL, 1, SCMP_A1_64(SCMP_CMP_EQ, REGISTER_PROBE, 0));
    falls_to_sync("io_uring refused by its probe of opcodes");
}

static void eventfd_eperm(void)
{
    deny(SCMP_SYS(io_uring_register), EPERM, 1, SCMP_A1_64(SCMP_CMP_EQ, REGISTER_EVENTFD, 0));
    falls_to_sync("io_uring refused by io_uring_register of an eventfd: Operation not permitted");
}

static void buffers_eperm(void)
{
    deny(SCMP_SYS(io_uring_register), EPERM, 1, SCMP_A1_64(SCMP_CMP_EQ, REGISTER_BUFFERS, 0));
    use_and_close(open_auto("io_uring", "registered buffers refused by io_uring_register of 1024 "
                                        "KiB"));
}

static void drop_ipc_lock(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    EXPECT(syscall(SYS_capget, &head, data) == 0);
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    EXPECT(syscall(SYS_capset, &head, data) == 0);
}

/* Without the privilege to lock memory the pool does not fit the limit. */
static void tiny_memlock(void)
{
    struct rlimit tiny = {4096, 4096};
    EXPECT(setrlimit(RLIMIT_MEMLOCK, &tiny) == 0);
    drop_ipc_lock();
    struct ckpt__engine *e;
    EXPECT(ckpt__engine_open(&e, CKPT_ENGINE_AUTO, &config, NULL) == CKPT_OK);
    /* kernels before 5.12 charge the ring as well, and then it is the other engine */
    bool ring = strcmp(e->cls->name, "io_uring") == 0;
    EXPECT(disk.line_count == 1);
    EXPECT(disk_lines_with(&disk, ring ? "memlock limit 4 KiB): Cannot allocate memory; writing "
                                         "without them"
                                       : "io_uring refused by io_uring_setup") == 1);
    use_and_close(e);
}

/* A sandbox that closes after open. What is in flight and what comes later both end well. */
static void enter_denied_later(int sys_errno, const char *line)
{
    struct ckpt__engine *e;
    EXPECT(ckpt__engine_open(&e, CKPT_ENGINE_AUTO, &config, NULL) == CKPT_OK);
    EXPECT(strcmp(e->cls->name, "io_uring") == 0);
    size_t lines = disk.line_count; /* registered buffers may be refused on this machine */
    deny(SCMP_SYS(io_uring_enter), sys_errno, 0, any);
    write_and_check(e);
    EXPECT(disk.line_count == lines + 1 && disk_lines_with(&disk, line) == 1);
    use_and_close(e);
}

static void enter_eperm(void)
{
    enter_denied_later(EPERM, "io_uring refused by io_uring_enter: Operation not permitted; using "
                              "plain system calls");
}

static void enter_eagain_for_ever(void)
{
    enter_denied_later(EAGAIN, "io_uring refused by io_uring_enter: Resource temporarily "
                               "unavailable; using plain system calls");
}

static void (*const bodies[])(void) = {
    setup_eperm,   setup_enosys,  setup_enomem, setup_enomem_above_4, probe_einval,
    eventfd_eperm, buffers_eperm, tiny_memlock, enter_eperm,          enter_eagain_for_ever,
};

START_TEST(the_same_bytes_and_one_line)
{
    /* what is refused here anyway cannot be refused in a chosen way */
    struct ckpt__engine_config small = {.env = &disk.env, .queue_depth = 64};
    struct ckpt__engine *ring = disk_engine(&ckpt__engine_uring, &small);
    if (ring == NULL)
        return;
    ring->cls->close(ring);
    in_child(bodies[_i]);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("engine refused");
    TCase *t = tcase_create("refused");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, the_same_bytes_and_one_line, 0, sizeof bodies / sizeof bodies[0]);
    suite_add_tcase(s, t);
    return s;
}
