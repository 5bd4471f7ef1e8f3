/*
 * test_descriptors.c: few descriptors are left when a process opens its first handle. It opens, or
 * fails with a reason and gives everything back; the process lives on either way. Each try is a
 * process of its own, because what libuv sets up once is part of it.
 */
#include "alloc_fault.h"
#include "rdzv_client.h"
#include "runner.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT = 256, MOST = 20 };
enum { SERVER = 0, CLIENT_THREAD, CLIENT_CALLER, KINDS }; /* a client of drive kind - 1 */

static void on_log(void *ctx, int level, const char *line)
{
    (void)level;
    (void)line;
    ++*(int *)ctx;
}

static int open_server(const rdzv_allocator *a, rdzv_error *err)
{
    int lines = 0;
    rdzv_server *s;
    rdzv_server_options opt;
    rdzv_server_options_init(&opt, sizeof opt);
    opt.port = 0;
    opt.allocator = a;
    opt.log = on_log;
    opt.log_ctx = &lines;
    int code = rdzv_server_open(&s, &opt, err);
    if (code == RDZV_OK)
        rdzv_server_close(s, NULL, NULL);
    return code;
}

static void on_reply(void *ctx, const rdzv_reply *reply, const rdzv_error *result)
{
    (void)reply;
    *(rdzv_error *)ctx = *result;
}

/* Driven by the caller it needs a loop only to look a name up, and says so in the call's result. */
static int open_client(uint32_t drive, const rdzv_allocator *a, rdzv_error *err)
{
    int lines = 0;
    rdzv_client *c;
    rdzv_client_options opt;
    rdzv_client_options_init(&opt, sizeof opt);
    opt.drive = drive;
    opt.host = "nobody.invalid";
    opt.connect_timeout_ms = 30;
    opt.allocator = a;
    opt.log = on_log;
    opt.log_ctx = &lines;
    int code = rdzv_client_open(&c, &opt, err);
    if (code != RDZV_OK)
        return code;
    rdzv_client_get(c, (rdzv_bytes){"a", 1}, -1, on_reply, err, NULL);
    while (err->code == RDZV_OK && rdzv_client_wait(c, 5000) >= 0)
        ;
    rdzv_client_close(c, NULL, NULL);
    return err->code == RDZV_ETIMEDOUT ? RDZV_OK : err->code;
}

/* Uses all descriptors up but so many. */
static void leave(int count)
{
    int held[LIMIT];
    int n = 0;
    struct rlimit r = {LIMIT, LIMIT};
    setrlimit(RLIMIT_NOFILE, &r);
    while (n < LIMIT && (held[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    while (n > 0 && count-- > 0)
        close(held[--n]);
}

/* Exit status: 0 = it opened, 1 = it failed as it should. */
static int try(int kind, int left)
{
    struct alloc_fault count = {.round = 1 << 30}; /* never comes: it only counts */
    rdzv_allocator a = {alloc_fault_alloc, alloc_fault_free, &count};
    rdzv_error err = {0};
    leave(left);
    int code = kind == SERVER ? open_server(&a, &err) : open_client((uint32_t)kind - 1, &a, &err);
    if (atomic_load(&count.live) != 0)
        return 2;
    if (code == RDZV_OK)
        return 0;
    return code == RDZV_EIO && err.text[0] != '\0' ? 1 : 3;
}

START_TEST(few_descriptors_are_left)
{
    int opened = 0;
    for (int left = 0; left < MOST; left++) {
        pid_t child = fork();
        if (child == 0)
            _exit(try(_i, left));
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFEXITED(status), "%d left: signal %d", left, WTERMSIG(status));
        ck_assert_msg(WEXITSTATUS(status) < 2, "%d left: %d", left, WEXITSTATUS(status));
        opened += WEXITSTATUS(status) == 0;
    }
    ck_assert_int_gt(opened, 0);
    ck_assert_int_lt(opened, MOST + (_i == CLIENT_CALLER));
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("descriptors");
    TCase *t = tcase_create("descriptors");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, few_descriptors_are_left, 0, KINDS);
    suite_add_tcase(s, t);
    return s;
}
