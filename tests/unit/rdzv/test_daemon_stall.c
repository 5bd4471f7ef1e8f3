/*
 * test_daemon_stall.c: rdzvd stands still for a while, as on a machine that was suspended. What its
 * clients did meanwhile counts as done in time.
 */
#include "daemon.h"
#include "net.h"
#include "runner.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT "3" /* seconds */
enum { LIMIT_MS = 3000 };

static struct wire w;
static struct wire got;

static void teardown(void)
{
    daemon_teardown();
    wire_free(&w);
    wire_free(&got);
}

static void stop(void)
{
    siginfo_t info;
    ck_assert_int_eq(kill(daemon_pid(), SIGSTOP), 0);
    ck_assert_int_eq(waitid(P_PID, (id_t)daemon_pid(), &info, WSTOPPED), 0);
}

/* When every limit is over. */
static void go_on(void)
{
    usleep((LIMIT_MS + 500) * 1000);
    ck_assert_int_eq(kill(daemon_pid(), SIGCONT), 0);
}

static void ask_for_keys(int fd)
{
    wire_hello(&w);
    wire_add(&w, "b", RDZV__OP_GETNUMKEYS);
    net_send(fd, &w);
}

START_TEST(what_came_meanwhile_came_in_time)
{
    DAEMON_START("--request-timeout", LIMIT, "--forget-after", LIMIT, "--job", "a=127.0.0.1:0");
    int fd = net_greet(daemon_port("a"));
    net_set(fd, "k", 10);
    close(fd);
    int half[2];
    for (int i = 0; i < 2; i++) {
        half[i] = net_greet(daemon_port(NULL));
        wire_add(&w, "b", RDZV__OP_PING);
        net_send(half[i], &w);
    }
    int other = net_greet(daemon_port(NULL)); /* so the server has seen the halves */
    stop();
    wire_add(&w, "u", 7u);
    net_send(half[0], &w);
    fd = net_connect(daemon_port("a"));
    ask_for_keys(fd);
    go_on();
    net_read(half[0], &got, 4);
    wire_expect(&got, "u", 7u);
    net_expect_end(half[1]); /* but this one did not finish */
    net_read(fd, &got, 8);
    wire_expect(&got, "i", 1LL);
    daemon_expect_log("did not finish it within request_timeout_ms");
    ck_assert_msg(strstr(daemon_log(), "forgot") == NULL, "%s", daemon_log());
    net_expect_served(other);
    close(half[0]);
    close(fd);
    close(other);
    daemon_expect_log("job \"a\": forgot 1 keys");
    daemon_stop();
}
END_TEST

START_TEST(who_left_meanwhile_is_not_connected_when_a_drain_ends)
{
    DAEMON_START("--drain-timeout", LIMIT);
    int fd = net_greet(daemon_port(NULL));
    ck_assert_int_eq(kill(daemon_pid(), SIGTERM), 0);
    daemon_expect_log("no new clients");
    net_expect_served(fd);
    stop();
    close(fd);
    go_on();
    ck_assert_int_eq(daemon_end(), 0);
    ck_assert_msg(strstr(daemon_log(), "drained: the last client has left") != NULL, "%s",
                  daemon_log());
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("daemon_stall");
    TCase *t = tcase_create("daemon_stall");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, what_came_meanwhile_came_in_time);
    tcase_add_test(t, who_left_meanwhile_is_not_connected_when_a_drain_ends);
    suite_add_tcase(s, t);
    return s;
}
