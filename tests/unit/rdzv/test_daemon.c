/*
 * test_daemon.c: what the limits on rdzvd's command line do, seen by clients and in its log, and
 * which signals count; rdzvd.sh has how it ends, and its descriptors.
 */
#include "daemon.h"
#include "net.h"
#include "runner.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct wire w;
static struct wire got;

static void teardown(void)
{
    daemon_teardown();
    wire_free(&w);
    wire_free(&got);
}

START_TEST(values_are_checked_and_the_message_says_what_is_accepted)
{
    static const char *const size[] = {
        "job-max-store-bytes", "job-max-buffer-bytes", "max-store-bytes", "max-buffer-bytes",
        "max-unread-bytes",    "max-request-bytes",    "max-value-bytes", NULL};
    static const char *const count[] = {"max-connections", "max-keys", "job-max-connections",
                                        "job-max-keys", NULL};
    static const char *const seconds[] = {"request-timeout", "drain-timeout", "forget-after", NULL};
    static const char *const bad_size[] = {
        "0",  "0G",  "",   "K",   "-1",   "4KB",      "4k",
        " 4", "4.5", "1T", "4 M", "0x10", "1048577G", "18446744073709551616",
        NULL};
    static const char *const bad_count[] = {"0", "", "-1", "1K", "many", "1073741825", NULL};
    static const char *const bad_seconds[] = {"", "-1", "1.5", "1s", "1000001", NULL};
    static const struct {
        const char *const *flag;
        const char *const *value;
        const char *accepted;
    } rows[] = {
        {size, bad_size, "a size such as 65536 or 512M"},
        {count, bad_count, "1 to 1073741824"},
        {seconds, bad_seconds, "whole seconds, 0 to 1000000"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (const char *const *f = rows[r].flag; *f != NULL; f++) {
            for (const char *const *v = rows[r].value; *v != NULL; v++) {
                char flag[64];
                char want[96];
                snprintf(flag, sizeof flag, "--%s", *f);
                ck_assert_msg(DAEMON_RUN(flag, *v) == 2, "%s %s", flag, *v);
                snprintf(want, sizeof want, "%s wants ", flag);
                ck_assert_msg(strstr(daemon_log(), want) != NULL, "%s", daemon_log());
                ck_assert_msg(strstr(daemon_log(), rows[r].accepted) != NULL, "%s", daemon_log());
                snprintf(want, sizeof want, "not \"%s\"", *v);
                ck_assert_msg(strstr(daemon_log(), want) != NULL, "%s", daemon_log());
                ck_assert_str_eq(daemon_out(), "");
            }
        }
    }
}
END_TEST

START_TEST(nothing_is_printed_for_a_line_that_is_wrong)
{
    static const char *const print[] = {"--help", "--version", "-h"};
    static const char *const wrong[] = {"extra", "-hV", "--no-such", "--max-keys=0", "--listen"};
    for (size_t p = 0; p < sizeof print / sizeof print[0]; p++) {
        ck_assert_int_eq(DAEMON_RUN(print[p]), 0);
        for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
            ck_assert_msg(DAEMON_RUN(print[p], wrong[i]) == 2, "%s %s", print[p], wrong[i]);
            ck_assert_str_eq(daemon_out(), "");
            ck_assert_ptr_nonnull(strstr(daemon_log(), "see rdzvd --help"));
            ck_assert_int_eq(DAEMON_RUN(wrong[i], print[p]), 2);
        }
    }
}
END_TEST

/* As nohup has SIGHUP, and a script the SIGINT of its background. */
START_TEST(signals_that_were_ignored_do_not_end_it)
{
    static const int ignored[] = {SIGINT, SIGHUP, SIGTERM};
    void (*was[3])(int);
    for (int i = 0; i < 3; i++)
        was[i] = signal(ignored[i], SIG_IGN);
    DAEMON_START("--log-level", "info");
    for (int i = 0; i < 3; i++)
        signal(ignored[i], was[i]);
    int fd = net_greet(daemon_port(NULL));
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(kill(daemon_pid(), ignored[i % 2]), 0);
        net_expect_served(fd);
    }
    close(fd);
    close(net_greet(daemon_port(NULL))); /* it takes new clients, too */
    daemon_stop();
    ck_assert_msg(strstr(daemon_log(), "Terminated: no new clients") != NULL, "%s", daemon_log());
}
END_TEST

START_TEST(signals_that_were_not_end_it)
{
    static const int signals[] = {SIGINT, SIGHUP, SIGTERM};
    void (*was)(int) = signal(signals[_i], SIG_DFL); /* whoever runs the tests may ignore it */
    DAEMON_START("--log-level", "info");
    signal(signals[_i], was);
    int fd = net_greet(daemon_port(NULL));
    ck_assert_int_eq(kill(daemon_pid(), signals[_i]), 0);
    daemon_expect_log("no new clients");
    net_expect_served(fd);
    close(fd);
    ck_assert_int_eq(daemon_end(), 0);
}
END_TEST

START_TEST(help_has_every_limit)
{
    ck_assert_int_eq(DAEMON_RUN("--help"), 0);
    static const char *const flags[] = {"--max-connections N",      "--max-store-bytes SIZE",
                                        "--max-buffer-bytes SIZE",  "--max-unread-bytes SIZE",
                                        "--max-request-bytes SIZE", "--max-value-bytes SIZE",
                                        "--request-timeout SECONDS"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        ck_assert_msg(strstr(daemon_out(), flags[i]) != NULL, "%s", flags[i]);
}
END_TEST

START_TEST(defaults_may_be_given)
{
    DAEMON_START("--max-connections", "1048576", "--max-keys", "1073741824", "--max-store-bytes",
                 "4G", "--max-buffer-bytes", "4G", "--max-unread-bytes", "256M",
                 "--max-request-bytes", "256M", "--max-value-bytes", "8M", "--request-timeout",
                 "60", "--forget-after", "0", "--drain-timeout", "10", "--log-level", "info");
    daemon_stop();
}
END_TEST

START_TEST(a_client_too_many)
{
    DAEMON_START("--max-connections", "2");
    int fd[2] = {net_greet(daemon_port(NULL)), net_greet(daemon_port(NULL))};
    int late = net_connect(daemon_port(NULL));
    net_read_all(late, &got);
    ck_assert_uint_eq(got.len, 0);
    close(late);
    daemon_expect_log("2 are connected, which is max_connections");
    for (int i = 0; i < 2; i++) {
        net_expect_served(fd[i]);
        close(fd[i]);
    }
    daemon_stop();
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
    DAEMON_START(b->flag, b->value);
    int other = net_greet(daemon_port(NULL));
    int fd = net_greet(daemon_port(NULL));
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
    daemon_expect_log(b->said);
    net_expect_served(other);
    close(other);
    daemon_stop();
}
END_TEST

START_TEST(without_the_flag_nobody_is_closed)
{
    DAEMON_START("--request-timeout", "0");
    for (size_t i = 0; i < sizeof bites / sizeof bites[0]; i++) {
        int fd = net_greet(daemon_port(NULL));
        bites[i].ask();
        net_send(fd, &w);
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};
        ck_assert_msg(poll(&p, 1, 50) == 0, "%s", bites[i].flag);
        close(fd);
    }
    daemon_stop();
    ck_assert_msg(strstr(daemon_log(), "closed client") == NULL, "%s", daemon_log());
}
END_TEST

START_TEST(limits_that_do_not_go_together_are_said_at_the_start)
{
    DAEMON_START("--max-value-bytes", "1G");
    daemon_stop();
    ck_assert_ptr_nonnull(strstr(daemon_log(), "longer than --max-request-bytes (268435456)"));
    ck_assert_ptr_nonnull(strstr(daemon_log(), "longer than --max-unread-bytes (268435456)"));
    DAEMON_START("--max-value-bytes", "1G", "--max-request-bytes", "2G", "--max-unread-bytes",
                 "2G");
    daemon_stop();
    ck_assert_msg(strstr(daemon_log(), " warn ") == NULL, "%s", daemon_log());
}
END_TEST

/* The address that the server sees. */
static const char *own_address(int fd)
{
    static char text[32];
    struct sockaddr_in addr = {.sin_port = 0};
    socklen_t len = sizeof addr;
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    snprintf(text, sizeof text, "127.0.0.1:%u", ntohs(addr.sin_port));
    return text;
}

static void expect_told(const char *job, const char *address, const char *what)
{
    char want[160];
    snprintf(want, sizeof want, "debug %sclient %s %s", job, address, what);
    daemon_expect_log(want);
}

START_TEST(at_level_debug_clients_come_and_leave)
{
    DAEMON_START("--log-level", "debug", "--drain-timeout", "0", "--job", "a=127.0.0.1:0");
    int fd = net_greet(daemon_port(NULL));
    char address[32];
    snprintf(address, sizeof address, "%s", own_address(fd));
    expect_told("", address, "connected, 1 are");
    close(fd);
    expect_told("", address, "left after 2 requests: it has closed the connection");

    fd = net_greet(daemon_port("a"));
    snprintf(address, sizeof address, "%s", own_address(fd));
    expect_told("job \"a\": ", address, "connected, 1 are");
    net_expect_served(fd);
    struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
    expect_told("job \"a\": ", address, "left after 3 requests: ");

    fd = net_connect(daemon_port(NULL));
    snprintf(address, sizeof address, "%s", own_address(fd));
    wire_add(&w, "x", "GET / HTTP/1.1\r\n\r\n");
    net_send(fd, &w);
    net_read_all(fd, &got);
    close(fd);
    expect_told("", address, "left after 0 requests: its first bytes are not");

    fd = net_greet(daemon_port("a"));
    snprintf(address, sizeof address, "%s", own_address(fd));
    daemon_stop();
    close(fd);
    expect_told("job \"a\": ", address, "left after 2 requests: the server closes");
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("daemon");
    TCase *t = tcase_create("daemon");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, values_are_checked_and_the_message_says_what_is_accepted);
    tcase_add_test(t, nothing_is_printed_for_a_line_that_is_wrong);
    tcase_add_test(t, signals_that_were_ignored_do_not_end_it);
    tcase_add_loop_test(t, signals_that_were_not_end_it, 0, 3);
    tcase_add_test(t, help_has_every_limit);
    tcase_add_test(t, defaults_may_be_given);
    tcase_add_test(t, a_client_too_many);
    tcase_add_loop_test(t, a_limit_closes_who_goes_beyond_it, 0,
                        (int)(sizeof bites / sizeof bites[0]));
    tcase_add_test(t, without_the_flag_nobody_is_closed);
    tcase_add_test(t, at_level_debug_clients_come_and_leave);
    tcase_add_test(t, limits_that_do_not_go_together_are_said_at_the_start);
    suite_add_tcase(s, t);
    return s;
}
