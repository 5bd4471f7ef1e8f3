/*
 * test_borrowed.c: a server on the caller's loop: no thread of ours, callbacks from uv_run, and a
 * loop that can be closed afterwards.
 */
#include "net.h"
#include "runner.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

static uv_loop_t loop;
static int loop_mark; /* loop.data must stay the caller's */
static int fds_before;
static struct net_log server_log;

static void setup(void)
{
    fds_before = net_count_fds();
    memset(&server_log, 0, sizeof server_log);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    loop.data = &loop_mark;
}

static void teardown(void)
{
    ck_assert_ptr_eq(loop.data, &loop_mark);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(net_count_fds(), fds_before);
    net_expect_threads(0);
}

static rdzv_server *open_server(void)
{
    rdzv_server_options opt = net_options();
    opt.loop = &loop;
    opt.log = net_log_line;
    opt.log_ctx = &server_log;
    rdzv_server *s = NULL;
    rdzv_error err = {0};
    ck_assert_msg(rdzv_server_open(&s, &opt, &err) == RDZV_OK, "%s", err.text);
    return s;
}

static void close_and_run(rdzv_server *s)
{
    int closed = 0;
    rdzv_server_close(s, net_count_call, &closed);
    ck_assert_int_eq(closed, 0); /* only from uv_run */
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(closed, 1);
}

START_TEST(close_leaves_nothing_on_the_loop)
{
    rdzv_server *s = open_server();
    net_expect_threads(0);
    ck_assert_int_eq(rdzv_server_fd(s), RDZV_ENOTSUP);
    ck_assert_int_eq(rdzv_server_dispatch(s), RDZV_ENOTSUP);
    ck_assert_int_eq(rdzv_server_wait(s, 0), RDZV_ENOTSUP);
    close_and_run(s);
}
END_TEST

static void *replay_client(void *arg)
{
    uint16_t port = *(uint16_t *)arg;
    struct wire asked = WIRE_INIT;
    struct wire told = WIRE_INIT;
    struct wire got = WIRE_INIT;
    wire_load(&asked, "2.13.0", "client_to_server");
    wire_load(&told, "2.13.0", "server_to_client");
    int fd = net_connect(port);
    for (size_t at = 0; at < asked.len; at++)
        ck_assert_int_eq(send(fd, asked.data + at, 1, MSG_NOSIGNAL), 1);
    shutdown(fd, SHUT_WR);
    net_read_all(fd, &got);
    wire_sort_list(&got);
    wire_sort_list(&told);
    int equal = got.len == told.len && memcmp(got.data, told.data, told.len) == 0;
    close(fd);
    wire_free(&asked);
    wire_free(&told);
    wire_free(&got);
    return equal ? arg : NULL;
}

START_TEST(replay_while_the_caller_runs_the_loop)
{
    rdzv_server *s = open_server();
    uint16_t port = net_port(s);
    pthread_t client;
    ck_assert_int_eq(pthread_create(&client, NULL, replay_client, &port), 0);
    void *result = NULL;
    while (pthread_tryjoin_np(client, &result) != 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_ptr_eq(result, &port);
    close_and_run(s);
}
END_TEST

START_TEST(close_with_clients_in_every_state)
{
    rdzv_server *s = open_server();
    struct wire w = WIRE_INIT;
    int fd[3];
    for (int i = 0; i < 3; i++)
        fd[i] = net_connect(net_port(s));
    wire_hello(&w);
    wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "never");
    net_send(fd[1], &w);
    wire_hello(&w);
    wire_add(&w, "bsi", RDZV__OP_SET, "half", 1000LL);
    net_send(fd[2], &w);
    rdzv_server_stats st = {.size = sizeof st};
    for (int i = 0; i < 1000 && (st.waiting != 1 || st.connections != 3); i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        ck_assert_int_eq(rdzv_server_get_stats(s, &st), RDZV_OK);
        usleep(1000);
    }
    ck_assert_uint_eq(st.waiting, 1);
    close_and_run(s);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    wire_free(&w);
}
END_TEST

static int closed_count;
static rdzv_server *draining;

static void close_when_drained(void *ctx)
{
    net_count_call(ctx);
    rdzv_server_close(draining, net_count_call, &closed_count);
}

START_TEST(drained_may_close)
{
    int drained = 0;
    closed_count = 0;
    draining = open_server();
    ck_assert_int_eq(rdzv_server_drain(draining, 0, close_when_drained, &drained), RDZV_OK);
    ck_assert_int_eq(drained, 0);
    ck_assert_int_eq(rdzv_server_drain(draining, 0, NULL, NULL), RDZV_EBUSY);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(drained, 1);
    ck_assert_int_eq(closed_count, 1);
}
END_TEST

START_TEST(drain_ends_with_the_last_client)
{
    int drained = 0;
    closed_count = 0;
    draining = open_server();
    int fd = net_connect(net_port(draining));
    for (int i = 0; i < 10; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(rdzv_server_drain(draining, -1, close_when_drained, &drained), RDZV_OK);
    for (int i = 0; i < 10; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(drained, 0);
    close(fd);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(drained, 1);
    ck_assert_int_eq(closed_count, 1);
}
END_TEST

START_TEST(log_lines_come_from_uv_run)
{
    rdzv_server *s = open_server();
    ck_assert_int_eq(server_log.lines, 0);
    struct wire w = WIRE_INIT;
    int fd = net_connect(net_port(s));
    wire_add(&w, "x", "junk");
    net_send(fd, &w);
    for (int i = 0; i < 1000 && server_log.lines == 0; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    ck_assert_int_eq(server_log.lines, 1);
    close(fd);
    close_and_run(s);
    wire_free(&w);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("borrowed");
    TCase *t = tcase_create("borrowed loop");
    tcase_set_timeout(t, 30);
    tcase_add_unchecked_fixture(t, net_warm_up, NULL);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, close_leaves_nothing_on_the_loop);
    tcase_add_test(t, replay_while_the_caller_runs_the_loop);
    tcase_add_test(t, close_with_clients_in_every_state);
    tcase_add_test(t, drained_may_close);
    tcase_add_test(t, drain_ends_with_the_last_client);
    tcase_add_test(t, log_lines_come_from_uv_run);
    suite_add_tcase(s, t);
    return s;
}
