/*
 * test_engine.c: the contract of engine.h, every case against both engines.
 */
#include "disk.h"
#include "runner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct ckpt__engine_class *const classes[] = {&ckpt__engine_sync, &ckpt__engine_uring};
#define ENGINES 2

/* Sanitizers look at every byte that a system call may read; the sync engine's 1 GiB is too much.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static struct disk disk;
static struct ckpt__engine *engine;
static int done_count;

/* False where this machine has no such engine. */
static bool open_engine(int i, uint32_t depth, void *pool, size_t pool_bytes)
{
    struct ckpt__engine_config config = {
        .env = &disk.env, .queue_depth = depth, .pool = pool, .pool_bytes = pool_bytes};
    engine = disk_engine(classes[i], &config);
    return engine != NULL;
}

static void close_engine(void)
{
    engine->cls->close(engine);
    engine = NULL;
}

static void setup(void)
{
    disk_init(&disk);
    engine = NULL;
    done_count = 0;
}

static void teardown(void)
{
    if (engine != NULL)
        engine->cls->close(engine);
    disk_free(&disk);
}

static void count_done(struct ckpt__io *io)
{
    (void)io;
    done_count++;
}

static void submit(struct ckpt__io *io)
{
    if (io->done == NULL)
        io->done = count_done;
    engine->cls->submit(engine, io);
}

static int64_t run(struct ckpt__io io)
{
    int before = done_count;
    io.result = INT64_MIN;
    submit(&io);
    ck_assert_int_eq(done_count, before); /* done never runs inside submit */
    disk_wait(engine, &done_count, before + 1);
    return io.result;
}

static int open_file(const char *path, int flags)
{
    int64_t fd =
        run((struct ckpt__io){.op = CKPT__OPEN, .path = path, .flags = flags, .mode = 0644});
    ck_assert_msg(fd >= 0, "open %s: %s", path, strerror((int)-fd));
    return (int)fd;
}

static void close_file(int fd)
{
    ck_assert_int_eq(run((struct ckpt__io){.op = CKPT__CLOSE, .fd = fd}), 0);
}

START_TEST(every_op_does_what_it_says)
{
    if (!open_engine(_i, 8, NULL, 0))
        return;
    const char *dir = disk_path(disk.dir, "sub"), *a = disk_path(dir, "a"),
               *b = disk_path(dir, "b");
    ck_assert_int_eq(run((struct ckpt__io){.op = CKPT__MKDIR, .path = dir, .mode = 0755}), 0);
    struct stat st;
    int fd = open_file(a, O_CREAT | O_EXCL | O_RDWR);
    ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    ck_assert_int_eq(run((struct ckpt__io){.op = CKPT__FALLOCATE, .fd = fd, .len = 100000}), 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(st.st_size, 100000);
    ck_assert_int_ge(st.st_blocks * 512, 100000);
    char text[] = "what is written is read", back[64] = {0};
    ck_assert_int_eq(
        run((struct ckpt__io){
            .op = CKPT__WRITE, .fd = fd, .buf = text, .len = sizeof text, .off = 5000}),
        sizeof text);
    ck_assert_int_eq(run((struct ckpt__io){.op = CKPT__FDATASYNC, .fd = fd}), 0);
    ck_assert_int_eq(run((struct ckpt__io){.op = CKPT__FSYNC, .fd = fd}), 0);
    ck_assert_int_eq(run((struct ckpt__io){.op = CKPT__TRUNCATE, .fd = fd, .len = 5010}), 0);
    ck_assert_int_eq(run((struct ckpt__io){
                         .op = CKPT__READ, .fd = fd, .buf = back, .len = sizeof back, .off = 5000}),
                     10);
    ck_assert_mem_eq(back, text, 10);
    ck_assert_int_eq(
        run((struct ckpt__io){.op = CKPT__READ, .fd = fd, .buf = back, .len = 9, .off = 6000}), 0);
    close_file(fd);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    ck_assert_int_eq(run((struct ckpt__io){.op = CKPT__RENAME, .path = a, .path2 = b}), 0);
    ck_assert_int_eq(access(a, F_OK), -1);
    ck_assert_int_eq(stat(b, &st), 0);
    ck_assert_int_eq(st.st_size, 5010);
    ck_assert_int_eq(run((struct ckpt__io){.op = CKPT__UNLINK, .path = b}), 0);
    ck_assert_int_eq(run((struct ckpt__io){.op = CKPT__RMDIR, .path = dir}), 0);
    ck_assert_int_eq(access(dir, F_OK), -1);
}
END_TEST

START_TEST(failures_are_the_kernel_s)
{
    if (!open_engine(_i, 4, NULL, 0))
        return;
    const char *none = disk_path(disk.dir, "none/x");
    char byte = 0;
    struct {
        struct ckpt__io io;
        int want;
    } cases[] = {
        {{.op = CKPT__OPEN, .path = none, .flags = O_RDONLY}, ENOENT},
        {{.op = CKPT__OPEN, .path = disk.dir, .flags = O_WRONLY}, EISDIR},
        {{.op = CKPT__CLOSE, .fd = 9999}, EBADF},
        {{.op = CKPT__FALLOCATE, .fd = 9999, .len = 1}, EBADF},
        {{.op = CKPT__TRUNCATE, .fd = 9999}, EBADF},
        {{.op = CKPT__WRITE, .fd = 9999, .buf = &byte, .len = 1}, EBADF},
        {{.op = CKPT__READ, .fd = 9999, .buf = &byte, .len = 1}, EBADF},
        {{.op = CKPT__FDATASYNC, .fd = 9999}, EBADF},
        {{.op = CKPT__FSYNC, .fd = 9999}, EBADF},
        {{.op = CKPT__MKDIR, .path = disk.dir, .mode = 0755}, EEXIST},
        {{.op = CKPT__MKDIR, .path = none, .mode = 0755}, ENOENT},
        {{.op = CKPT__RENAME, .path = none, .path2 = disk.dir}, ENOENT},
        {{.op = CKPT__UNLINK, .path = none}, ENOENT},
        {{.op = CKPT__UNLINK, .path = disk.dir}, EISDIR},
        {{.op = CKPT__RMDIR, .path = none}, ENOENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t n = run(cases[i].io);
        ck_assert_msg(n == -cases[i].want, "case %zu, %s: %lld", i, ckpt__op_name(cases[i].io.op),
                      (long long)n);
    }
}
END_TEST

START_TEST(a_transfer_is_cut_to_what_the_kernel_counts)
{
    if (!open_engine(_i, 4, NULL, 0))
        return;
    int fd = open_file("/dev/null", O_WRONLY);
    size_t len = (size_t)5 << 30;
    void *space = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert(space != MAP_FAILED); /* /dev/null does not look at it */
    ck_assert_int_eq(run((struct ckpt__io){.op = CKPT__WRITE, .fd = fd, .buf = space, .len = len}),
                     CKPT__MAX_TRANSFER_BYTES);
    munmap(space, len);
    close_file(fd);
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* Many at once                                                                                 */

#define MANY 1000

static int seen[MANY];

static void mark_seen(struct ckpt__io *io)
{
    seen[(uintptr_t)io->ctx]++;
    done_count++;
}

static void make_writes(struct ckpt__io *ios, int fd, uint32_t *words)
{
    memset(seen, 0, sizeof seen);
    for (uintptr_t i = 0; i < MANY; i++) {
        words[i] = (uint32_t)(i * 7919);
        ios[i] = (struct ckpt__io){.op = CKPT__WRITE,
                                   .fd = fd,
                                   .buf = &words[i],
                                   .len = 4,
                                   .off = i * 4,
                                   .done = mark_seen,
                                   .ctx = (void *)i};
    }
}

static void check_all_seen_once(void)
{
    for (int i = 0; i < MANY; i++)
        ck_assert_msg(seen[i] == 1, "io %d called done %d times", i, seen[i]);
}

START_TEST(more_ios_than_the_queue_is_deep)
{
    static struct ckpt__io ios[MANY];
    static uint32_t words[MANY];
    if (!open_engine(_i, 3, NULL, 0))
        return;
    const char *path = disk_path(disk.dir, "many");
    int fd = open_file(path, O_CREAT | O_RDWR);
    make_writes(ios, fd, words);
    done_count = 0;
    for (int i = 0; i < MANY; i++)
        submit(&ios[i]);
    disk_wait(engine, &done_count, MANY);
    check_all_seen_once();
    close_file(fd);
    size_t len;
    uint8_t *bytes = disk_read(path, &len);
    ck_assert_uint_eq(len, sizeof words);
    ck_assert_mem_eq(bytes, words, len);
    free(bytes);
}
END_TEST

static void submit_again(struct ckpt__io *io)
{
    ck_assert_int_eq(io->result, 4);
    io->off += 4;
    if (++done_count < MANY)
        engine->cls->submit(engine, io);
}

START_TEST(done_may_submit_the_same_io)
{
    if (!open_engine(_i, 2, NULL, 0))
        return;
    int fd = open_file(disk_path(disk.dir, "again"), O_CREAT | O_RDWR);
    char text[4] = "abc";
    struct ckpt__io io = {.op = CKPT__WRITE, .fd = fd, .buf = text, .len = 4, .done = submit_again};
    done_count = 0;
    submit(&io);
    disk_wait(engine, &done_count, MANY);
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(st.st_size, MANY * 4);
    close_file(fd);
}
END_TEST

static bool readable(void)
{
    struct pollfd p = {.fd = engine->cls->fd(engine), .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

START_TEST(the_descriptor_is_readable_when_there_is_something)
{
    if (!open_engine(_i, 4, NULL, 0))
        return;
    int fd = engine->cls->fd(engine);
    ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    ck_assert_int_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    ck_assert(!readable());
    ck_assert_int_eq(engine->cls->reap(engine), 0);
    run((struct ckpt__io){.op = CKPT__MKDIR, .path = disk.dir, .mode = 0});
    engine->cls->reap(engine);
    ck_assert(!readable());
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* Cancel and close                                                                             */

static int cancelled, completed;

static void count_outcome(struct ckpt__io *io)
{
    mark_seen(io);
    if (io->result == -ECANCELED)
        cancelled++;
    else
        completed++;
}

/* Opens of a pipe without a writer keep an engine busy for as long as the test likes. */
START_TEST(cancel_ends_what_has_not_started)
{
    static struct ckpt__io ios[MANY];
    static uint32_t words[MANY];
    if (!open_engine(_i, 2, NULL, 0))
        return;
    int fd = open_file(disk_path(disk.dir, "cancel"), O_CREAT | O_RDWR);
    const char *pipe_path = disk_path(disk.dir, "pipe");
    ck_assert_int_eq(mkfifo(pipe_path, 0644), 0);
    done_count = cancelled = completed = 0;
    struct ckpt__io busy[2];
    for (int i = 0; i < 2; i++) {
        busy[i] = (struct ckpt__io){.op = CKPT__OPEN, .path = pipe_path, .flags = O_RDONLY};
        submit(&busy[i]);
    }
    make_writes(ios, fd, words);
    for (int i = 0; i < MANY; i++) {
        ios[i].done = count_outcome;
        submit(&ios[i]);
    }
    struct ckpt__io close_io = {.op = CKPT__CLOSE, .fd = fd};
    submit(&close_io);
    engine->cls->cancel(engine);
    ck_assert_int_eq(done_count, 0); /* done runs from reap */
    int writer = open(pipe_path, O_RDWR | O_CLOEXEC);
    disk_wait(engine, &done_count, MANY + 3);
    check_all_seen_once();
    ck_assert_int_eq(cancelled, MANY);
    ck_assert_int_eq(close_io.result, 0);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    for (int i = 0; i < 2; i++)
        ck_assert(busy[i].result == -ECANCELED || close((int)busy[i].result) == 0);
    close(writer);
    /* and the engine goes on */
    ck_assert_int_eq(run((struct ckpt__io){.op = CKPT__RMDIR, .path = "/"}), -EBUSY);
}
END_TEST

static struct ckpt__io tail;

static void submit_tail(struct ckpt__io *io)
{
    mark_seen(io);
    if (done_count == MANY)
        submit(&tail);
}

START_TEST(close_runs_every_done)
{
    static struct ckpt__io ios[MANY];
    static uint32_t words[MANY];
    int fds = disk_open_fds();
    if (!open_engine(_i, 4, NULL, 0))
        return;
    int fd = open_file(disk_path(disk.dir, "close"), O_CREAT | O_RDWR);
    make_writes(ios, fd, words);
    done_count = 0;
    for (int i = 0; i < MANY; i++) {
        ios[i].done = submit_tail;
        submit(&ios[i]);
    }
    tail = (struct ckpt__io){.op = CKPT__CLOSE, .fd = fd, .result = INT64_MIN};
    close_engine();
    ck_assert_int_eq(done_count, MANY + 1);
    check_all_seen_once();
    ck_assert_int_eq(tail.result, 0); /* what done submits during close is done too */
    ck_assert_int_eq(disk_open_fds(), fds);
}
END_TEST

START_TEST(open_and_close_leak_nothing)
{
    int fds = disk_open_fds();
    for (int i = 0; i < 20; i++) {
        if (!open_engine(_i, 64, NULL, 0))
            break;
        close_engine();
    }
    ck_assert_int_eq(disk_open_fds(), fds);
    ck_assert_uint_eq(disk.allocations, disk.frees);
}
END_TEST

/* ------------------------------------------------------------------------------------------ */
/* Registered memory, fork, threads                                                             */

static void write_from(int fd, uint8_t *buf, size_t len)
{
    static uint8_t back[1 << 16];
    disk_fill(buf, len, (unsigned)len);
    ck_assert_int_eq(
        run((struct ckpt__io){.op = CKPT__WRITE, .fd = fd, .buf = buf, .len = len, .off = 0}),
        (int64_t)len);
    ck_assert_int_eq(pread(fd, back, len, 0), (ssize_t)len);
    ck_assert_mem_eq(back, buf, len);
    memset(buf, 0, len);
    ck_assert_int_eq(
        run((struct ckpt__io){.op = CKPT__READ, .fd = fd, .buf = buf, .len = len, .off = 0}),
        (int64_t)len);
    ck_assert_mem_eq(back, buf, len);
}

START_TEST(buffers_in_and_out_of_the_pool)
{
    size_t bytes = 1 << 18;
    uint8_t *memory = aligned_alloc(1 << 21, 1 << 21);
    ck_assert_ptr_nonnull(memory);
    uint8_t *pool = memory + 65536; /* so that a buffer can begin before it and end behind it */
    if (!open_engine(_i, 4, pool, bytes))
        return;
    int fd = open_file(disk_path(disk.dir, "pool"), O_CREAT | O_RDWR);
    write_from(fd, pool, 4096);
    write_from(fd, pool + 100, 1000);
    write_from(fd, pool + bytes - 4096, 4096);
    write_from(fd, pool + bytes - 4096, 8192);
    write_from(fd, pool - 4096, 8192);
    write_from(fd, pool + bytes, 4096);
    write_from(fd, memory, 4096);
    if (disk.line_count > 0) /* the bytes are right, but not by registered buffers */
        printf("skip: %s\n", disk.lines[0]);
    close_file(fd);
    close_engine();
    free(memory);
}
END_TEST

/* Memory that is pinned for the ring, in KiB. */
static long pinned(void)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "VmPin:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    fclose(f);
    return kib;
}

START_TEST(a_forked_child_that_calls_nothing_does_no_harm)
{
    long pinned_before = pinned();
    uint8_t *pool = aligned_alloc(4096, 1 << 16);
    if (!open_engine(_i, 4, pool, 1 << 16))
        return;
    int fd = open_file(disk_path(disk.dir, "fork"), O_CREAT | O_RDWR);
    struct ckpt__io io = {.op = CKPT__WRITE, .fd = fd, .buf = pool, .len = 4096};
    disk_fill(pool, 4096, 1);
    int before = done_count;
    submit(&io);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        alarm(60); /* should the parent fail before it ends us */
        pause();
        _exit(0);
    }
    disk_wait(engine, &done_count, before + 1);
    ck_assert_int_eq(io.result, 4096);
    write_from(fd, pool, 4096); /* after the fork the ring and we see the same pages */
    close_file(fd);
    close_engine(); /* while the child holds its copies of the descriptors */
    ck_assert_int_eq(pinned(), pinned_before);
    free(pool);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

/* The line of /proc/self/task/N/status that begins with key, for the thread called name. */
static bool thread_status(const char *name, const char *key, char *line, size_t cap)
{
    DIR *tasks = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(tasks);
    bool found = false;
    for (struct dirent *d; !found && (d = readdir(tasks)) != NULL;) {
        char path[300];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", d->d_name);
        FILE *f = fopen(path, "re");
        if (f == NULL)
            continue;
        bool here = false;
        while (!found && fgets(line, (int)cap, f) != NULL) {
            if (strncmp(line, "Name:\t", 6) == 0)
                here = strncmp(line + 6, name, strlen(name)) == 0;
            found = here && strncmp(line, key, strlen(key)) == 0;
        }
        fclose(f);
    }
    closedir(tasks);
    return found;
}

START_TEST(the_worker_is_named_and_takes_no_signals)
{
    char line[256];
    if (!open_engine(0, 1, NULL, 0))
        return;
    run((struct ckpt__io){.op = CKPT__MKDIR, .path = disk.dir, .mode = 0}); /* it runs by now */
    ck_assert(thread_status("ckpt-io", "SigBlk:", line, sizeof line));
    unsigned long long mask = strtoull(line + 7, NULL, 16);
    unsigned long long want = 0;
    for (int sig = 1; sig <= 64; sig++)
        if (sig != SIGKILL && sig != SIGSTOP && (sig < 32 || sig > 33)) /* 32, 33 are libc's */
            want |= 1ull << (sig - 1);
    ck_assert_msg((mask & want) == want, "blocked %llx", mask);
    close_engine();
    ck_assert(!thread_status("ckpt-io", "SigBlk:", line, sizeof line));
}
END_TEST

START_TEST(choosing_an_engine)
{
    struct ckpt__engine_config config = {.env = &disk.env, .queue_depth = 4};
    ckpt_error err;
    bool ring = open_engine(1, 4, NULL, 0);
    if (ring)
        close_engine();
    for (uint32_t kind = 0; kind <= CKPT_ENGINE_SYNC; kind++) {
        int rc = ckpt__engine_open(&engine, kind, &config, &err);
        ck_assert_int_eq(rc, ring || kind != CKPT_ENGINE_URING ? CKPT_OK : CKPT_ENOTSUP);
        if (rc != CKPT_OK)
            continue;
        ck_assert_str_eq(engine->cls->name, ring && kind != CKPT_ENGINE_SYNC ? "io_uring" : "sync");
        close_engine();
    }
    ck_assert_int_eq(ckpt__engine_open(&engine, 3, &config, &err), CKPT_EINVAL);
    ck_assert_int_eq(err.code, CKPT_EINVAL);
    ck_assert_ptr_null(engine);
}
END_TEST

static void *no_memory(void *ctx, size_t len, size_t align)
{
    (void)ctx;
    (void)len;
    (void)align;
    return NULL;
}

START_TEST(no_memory_is_said)
{
    struct ckpt__env poor = disk.env;
    poor.allocator.alloc = no_memory;
    struct ckpt__engine_config config = {.env = &poor, .queue_depth = 4};
    int fds = disk_open_fds();
    for (uint32_t kind = 0; kind <= CKPT_ENGINE_SYNC; kind++) {
        ckpt_error err;
        ck_assert_int_eq(ckpt__engine_open(&engine, kind, &config, &err), CKPT_ENOMEM);
        ck_assert_int_eq(err.code, CKPT_ENOMEM);
    }
    ck_assert_int_eq(disk_open_fds(), fds);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("engine");
    TCase *both = tcase_create("both engines");
    tcase_add_checked_fixture(both, setup, teardown);
    tcase_set_timeout(both, 60);
    tcase_add_loop_test(both, every_op_does_what_it_says, 0, ENGINES);
    tcase_add_loop_test(both, failures_are_the_kernel_s, 0, ENGINES);
    tcase_add_loop_test(both, a_transfer_is_cut_to_what_the_kernel_counts, SANITIZED, ENGINES);
    tcase_add_loop_test(both, more_ios_than_the_queue_is_deep, 0, ENGINES);
    tcase_add_loop_test(both, done_may_submit_the_same_io, 0, ENGINES);
    tcase_add_loop_test(both, the_descriptor_is_readable_when_there_is_something, 0, ENGINES);
    tcase_add_loop_test(both, cancel_ends_what_has_not_started, 0, ENGINES);
    tcase_add_loop_test(both, close_runs_every_done, 0, ENGINES);
    tcase_add_loop_test(both, open_and_close_leak_nothing, 0, ENGINES);
    tcase_add_loop_test(both, buffers_in_and_out_of_the_pool, 0, ENGINES);
    tcase_add_loop_test(both, a_forked_child_that_calls_nothing_does_no_harm, 0, ENGINES);
    suite_add_tcase(s, both);
    TCase *one = tcase_create("choice");
    tcase_add_checked_fixture(one, setup, teardown);
    tcase_add_test(one, the_worker_is_named_and_takes_no_signals);
    tcase_add_test(one, choosing_an_engine);
    tcase_add_test(one, no_memory_is_said);
    suite_add_tcase(s, one);
    return s;
}
