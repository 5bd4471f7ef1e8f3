/*
 * test_daemon.c: what the flags of rdzvd do, seen by clients and in its log. The program that is
 * installed runs as a process of its own; rdzvd.sh has its signals and descriptors.
 */
#include "net.h"
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PATIENCE_MS = 10000, STEP_MS = 20 };

struct stream {
    int fd;
    size_t len;
    char text[32768];
};

static struct daemon {
    pid_t pid; /* 0 = none runs */
    struct stream out;
    struct stream log;
    uint16_t port;
} d;

#define RUN(...) run((const char *const[]){RDZVD, __VA_ARGS__, NULL})
#define START(...) start((const char *const[]){RDZVD, "--listen", "127.0.0.1:0", __VA_ARGS__, NULL})

static struct wire w;
static struct wire got;

/* Takes what is there, or comes within the time. Returns 0 at the end. */
static int stream_read(struct stream *s, int timeout_ms)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    if (poll(&p, 1, timeout_ms) <= 0)
        return 1;
    ck_assert_uint_lt(s->len, sizeof s->text - 1);
    ssize_t n = read(s->fd, s->text + s->len, sizeof s->text - 1 - s->len);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    s->len += (size_t)n;
    s->text[s->len] = '\0';
    return 1;
}

static void stream_expect(struct stream *s, const char *text)
{
    for (int waited = 0; strstr(s->text, text) == NULL; waited += STEP_MS) {
        int more = stream_read(s, STEP_MS);
        ck_assert_msg(strstr(s->text, text) != NULL || (more && waited < PATIENCE_MS),
                      "\"%s\" did not come, but:\n%s%s", text, d.out.text, d.log.text);
    }
}

static void spawn(const char *const *argv)
{
    int out[2];
    int log[2];
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(log, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, log[1], STDERR_FILENO);
    int error = posix_spawn(&d.pid, argv[0], &actions, NULL, (char **)(uintptr_t)argv, environ);
    ck_assert_msg(error == 0, "%s: %s", argv[0], strerror(error));
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(log[1]);
    d.out.fd = out[0];
    d.log.fd = log[0];
}

/* Reads all that it says; returns its exit code. */
static int end(void)
{
    int status = 0;
    while (stream_read(&d.log, -1))
        ;
    while (stream_read(&d.out, -1))
        ;
    ck_assert_int_eq(waitpid(d.pid, &status, 0), d.pid);
    d.pid = 0;
    ck_assert_msg(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void forget(void)
{
    if (d.pid > 0) {
        kill(d.pid, SIGKILL);
        waitpid(d.pid, NULL, 0);
    }
    if (d.out.fd >= 0) {
        close(d.out.fd);
        close(d.log.fd);
    }
    d = (struct daemon){.out = {.fd = -1}, .log = {.fd = -1}};
}

/* Runs rdzvd to its end. */
static int run(const char *const *argv)
{
    forget();
    spawn(argv);
    return end();
}

/* Starts rdzvd and waits until it serves. */
static void start(const char *const *argv)
{
    forget();
    spawn(argv);
    stream_expect(&d.out, "\n");
    const char *colon = strrchr(d.out.text, ':');
    ck_assert_msg(strncmp(d.out.text, "rdzvd ready on ", 15) == 0 && colon != NULL, "%s",
                  d.out.text);
    d.port = (uint16_t)strtoul(colon + 1, NULL, 10);
}

static void stop(void)
{
    ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
    ck_assert_msg(end() == 0, "%s", d.log.text);
}

static void setup(void)
{
    d = (struct daemon){.out = {.fd = -1}, .log = {.fd = -1}};
}

static void teardown(void)
{
    forget();
    wire_free(&w);
    wire_free(&got);
}

static int greeted(uint16_t port)
{
    int fd = net_connect(port);
    wire_hello(&w);
    wire_add(&w, "bu", RDZV__OP_PING, 7u);
    net_send(fd, &w);
    net_read(fd, &got, 4);
    wire_expect(&got, "u", 7u);
    return fd;
}

static void expect_served(int fd)
{
    wire_add(&w, "bu", RDZV__OP_PING, 8u);
    net_send(fd, &w);
    net_read(fd, &got, 4);
    wire_expect(&got, "u", 8u);
}

START_TEST(values_are_checked_and_the_message_says_what_is_accepted)
{
    static const char *const size[] = {"max-store-bytes",   "max-buffer-bytes", "max-unread-bytes",
                                       "max-request-bytes", "max-value-bytes",  NULL};
    static const char *const count[] = {"max-connections", NULL};
    static const char *const seconds[] = {"request-timeout", "drain-timeout", NULL};
    static const char *const bad_size[] = {
        "0",  "0G",  "",   "K",   "-1",   "4KB",      "4k",
        " 4", "4.5", "1T", "4 M", "0x10", "1048577G", "18446744073709551616",
        NULL};
    static const char *const bad_count[] = {"0", "", "-1", "1K", "many", "1000000001", NULL};
    static const char *const bad_seconds[] = {"", "-1", "1.5", "1s", "1000001", NULL};
    static const struct {
        const char *const *flag;
        const char *const *value;
        const char *accepted;
    } rows[] = {
        {size, bad_size, "a size such as 65536 or 512M"},
        {count, bad_count, "1 to 1000000000"},
        {seconds, bad_seconds, "whole seconds, 0 to 1000000"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (const char *const *f = rows[r].flag; *f != NULL; f++) {
            for (const char *const *v = rows[r].value; *v != NULL; v++) {
                char flag[64];
                char want[96];
                snprintf(flag, sizeof flag, "--%s", *f);
                ck_assert_msg(RUN(flag, *v) == 2, "%s %s", flag, *v);
                snprintf(want, sizeof want, "%s wants ", flag);
                ck_assert_msg(strstr(d.log.text, want) != NULL, "%s", d.log.text);
                ck_assert_msg(strstr(d.log.text, rows[r].accepted) != NULL, "%s", d.log.text);
                snprintf(want, sizeof want, "not \"%s\"", *v);
                ck_assert_msg(strstr(d.log.text, want) != NULL, "%s", d.log.text);
                ck_assert_uint_eq(d.out.len, 0);
            }
        }
    }
}
END_TEST

START_TEST(help_has_every_limit)
{
    ck_assert_int_eq(RUN("--help"), 0);
    static const char *const flags[] = {"--max-connections N",      "--max-store-bytes SIZE",
                                        "--max-buffer-bytes SIZE",  "--max-unread-bytes SIZE",
                                        "--max-request-bytes SIZE", "--max-value-bytes SIZE",
                                        "--request-timeout SECONDS"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        ck_assert_msg(strstr(d.out.text, flags[i]) != NULL, "%s", flags[i]);
}
END_TEST

START_TEST(a_client_too_many)
{
    START("--max-connections", "2");
    int fd[2] = {greeted(d.port), greeted(d.port)};
    int late = net_connect(d.port);
    net_read_all(late, &got);
    ck_assert_uint_eq(got.len, 0);
    close(late);
    stream_expect(&d.log, "2 are connected, which is max_connections");
    for (int i = 0; i < 2; i++) {
        expect_served(fd[i]);
        close(fd[i]);
    }
    stop();
}
END_TEST

/* A request that goes beyond one limit, and is served or waited for by default. */
static void ask_value(void)
{
    wire_add(&w, "bs", RDZV__OP_SET, "k");
    wire_fill(&w, 'v', 5000);
}

static void ask_twice(void)
{
    ask_value();
    wire_add(&w, "bs", RDZV__OP_GET, "k");
}

static void ask_half(void)
{
    wire_add(&w, "bsi", RDZV__OP_SET, "k", 1000000LL);
    struct wire part = WIRE_INIT;
    wire_fill(&part, 'v', 300000);
    wire_bytes(&w, part.data, part.len);
    wire_free(&part);
}

static const struct bite {
    const char *flag;
    const char *value;
    void (*ask)(void);
    const char *said;
} bites[] = {
    {"--max-store-bytes", "4K", ask_value, "the store holds max_store_bytes"},
    {"--max-buffer-bytes", "100000", ask_half, "of all clients are max_buffer_bytes"},
    {"--max-unread-bytes", "4999", ask_twice, "max_unread_bytes are waiting for it"},
    {"--max-request-bytes", "4K", ask_value, "its request is longer than max_request_bytes"},
    {"--max-value-bytes", "4999", ask_value, "a value longer than max_value_bytes"},
    {"--request-timeout", "1", ask_half, "did not finish it within request_timeout_ms"},
};

START_TEST(a_limit_closes_who_goes_beyond_it)
{
    const struct bite *b = &bites[_i];
    START(b->flag, b->value);
    int other = greeted(d.port);
    int fd = greeted(d.port);
    b->ask();
    size_t at = 0; /* it may close before the last byte */
    while (at < w.len) {
        ssize_t n = send(fd, w.data + at, w.len - at, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    w.len = 0;
    net_read_all(fd, &got);
    got.len = 0;
    close(fd);
    stream_expect(&d.log, b->said);
    expect_served(other);
    close(other);
    stop();
}
END_TEST

START_TEST(without_the_flag_nobody_is_closed)
{
    START("--request-timeout", "0");
    for (size_t i = 0; i < sizeof bites / sizeof bites[0]; i++) {
        int fd = greeted(d.port);
        bites[i].ask();
        net_send(fd, &w);
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};
        ck_assert_msg(poll(&p, 1, 50) == 0, "%s", bites[i].flag);
        close(fd);
    }
    stop();
    ck_assert_msg(strstr(d.log.text, "closed client") == NULL, "%s", d.log.text);
}
END_TEST

START_TEST(limits_that_do_not_go_together_are_said_at_the_start)
{
    START("--max-value-bytes", "1G");
    stop();
    ck_assert_ptr_nonnull(strstr(d.log.text, "longer than --max-request-bytes (268435456)"));
    ck_assert_ptr_nonnull(strstr(d.log.text, "longer than --max-unread-bytes (268435456)"));
    START("--max-value-bytes", "1G", "--max-request-bytes", "2G", "--max-unread-bytes", "2G");
    stop();
    ck_assert_msg(strstr(d.log.text, " warn ") == NULL, "%s", d.log.text);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("daemon");
    TCase *t = tcase_create("daemon");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, values_are_checked_and_the_message_says_what_is_accepted);
    tcase_add_test(t, help_has_every_limit);
    tcase_add_test(t, a_client_too_many);
    tcase_add_loop_test(t, a_limit_closes_who_goes_beyond_it, 0,
                        (int)(sizeof bites / sizeof bites[0]));
    tcase_add_test(t, without_the_flag_nobody_is_closed);
    tcase_add_test(t, limits_that_do_not_go_together_are_said_at_the_start);
    suite_add_tcase(s, t);
    return s;
}
