/*
 * test_borrowed.c: a server on the caller's loop: no thread of ours, callbacks from uv_run, and a
 * loop that can be closed afterwards.
 */
#include "clock.h"
#include "net.h"
#include "runner.h"

#include <linux/sockios.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
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

static rdzv_server *open_with(rdzv_server_options opt)
{
    opt.loop = &loop;
    return net_open(&opt, &server_log);
}

static rdzv_server *open_server(void)
{
    return open_with(net_options());
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

/* ---- the caller keeps the loop's thread busy: nobody suffers for what he could not do ---- */

enum { LIMIT_MS = 300, BUSY_MS = 2 * LIMIT_MS };

static struct wire w;
static struct wire got;

static void setup_busy(void)
{
    setup();
    w = (struct wire)WIRE_INIT;
    got = (struct wire)WIRE_INIT;
}

static void teardown_busy(void)
{
    wire_free(&w);
    wire_free(&got);
    teardown();
}

static void run_for(int turns)
{
    for (int i = 0; i < turns; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
}

/* Runs the loop until it is so. */
#define RUN_UNTIL(so)                                                                              \
    do {                                                                                           \
        for (int turns = 0; !(so) && turns < 10000; turns++)                                       \
            run_for(1);                                                                            \
        ck_assert_msg((so), "%s; logged:\n%s", #so, server_log.text);                              \
    } while (0)

static void run_and_read(int fd, size_t len)
{
    RUN_UNTIL(net_heard(fd, 0));
    net_read(fd, &got, len);
}

/* A client whose PING lacks its last byte, and the server knows. */
static int begin_ping(rdzv_server *s)
{
    uint64_t buffered = NET_STAT(s, buffer_bytes);
    int fd = net_connect(net_port(s));
    wire_hello(&w);
    wire_add(&w, "bu", RDZV__OP_PING, 7u);
    w.len--;
    net_send(fd, &w);
    RUN_UNTIL(NET_STAT(s, buffer_bytes) > buffered);
    return fd;
}

static void end_ping(int fd)
{
    wire_add(&w, "b", 0);
    net_send(fd, &w);
}

static rdzv_server *open_impatient(void)
{
    rdzv_server_options opt = net_options();
    opt.request_timeout_ms = LIMIT_MS;
    opt.forget_after_ms = LIMIT_MS;
    return open_with(opt);
}

START_TEST(a_request_that_is_whole_by_now_is_answered)
{
    rdzv_server *s = open_impatient();
    int fd = begin_ping(s);
    end_ping(fd);
    usleep(BUSY_MS * 1000);
    run_and_read(fd, 4);
    wire_expect(&got, "u", 7u);
    close(fd);
    close_and_run(s);
}
END_TEST

/* More clients than are judged in one turn. */
START_TEST(a_request_that_is_not_is_ended)
{
    enum { CLIENTS = 300 };
    rdzv_server *s = open_impatient();
    int fd[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = net_connect(net_port(s));
        wire_hello(&w);
        wire_add(&w, "b", RDZV__OP_PING);
        net_send(fd[i], &w);
    }
    RUN_UNTIL(NET_STAT(s, connections) == CLIENTS);
    run_for(5);
    usleep(BUSY_MS * 1000);
    RUN_UNTIL(NET_STAT(s, refused) == CLIENTS);
    for (int i = 0; i < CLIENTS; i++)
        net_expect_end(fd[i]);
    ck_assert_ptr_nonnull(strstr(server_log.text, "did not finish it within request_timeout_ms"));
    close_and_run(s);
}
END_TEST

static void *stream_values(void *arg)
{
    int fd = *(int *)arg;
    for (int i = 0; i < 64; i++)
        net_set(fd, "big", 1 << 20);
    return arg;
}

/* Sends w but for its beginning. Returns whether all of it is in the server's socket. */
static int fill_socket(int fd, size_t begun)
{
    int left = 1;
    net_send_some(fd, w.data + begun, w.len - begun);
    for (int i = 0; left > 0 && i < 200; i++) {
        ck_assert_int_eq(ioctl(fd, SIOCOUTQ, &left), 0);
        usleep(1000);
    }
    return left == 0;
}

/* It takes the server more than one turn to read it. */
START_TEST(a_long_request_that_is_whole_by_now_is_answered)
{
    enum { BEGUN = 100 };
    rdzv_server *s = open_impatient();
    int fd = net_connect(net_port(s));
    wire_hello(&w);
    net_send(fd, &w);
    pthread_t client; /* makes the kernel grow the server's socket */
    ck_assert_int_eq(pthread_create(&client, NULL, stream_values, &fd), 0);
    while (pthread_tryjoin_np(client, NULL) != 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    wire_add(&w, "bs", RDZV__OP_SET, "long");
    wire_fill(&w, 'v', 2 << 20);
    wire_add(&w, "bu", RDZV__OP_PING, 7u);
    net_send_some(fd, w.data, BEGUN);
    RUN_UNTIL(NET_STAT(s, buffer_bytes) > 0);
    if (fill_socket(fd, BEGUN)) {
        usleep(BUSY_MS * 1000);
        run_and_read(fd, 4);
        wire_expect(&got, "u", 7u);
    } else {
        puts("long request not tried: a socket of this system does not hold it");
    }
    close(fd);
    close_and_run(s);
}
END_TEST

/* Another handle of the caller's takes long, and then it is the server's turn: the time of the loop
 * is old. */
static void on_other(uv_poll_t *other, int status, int events)
{
    (void)status;
    (void)events;
    uv_poll_stop(other);
    usleep(BUSY_MS * 1000);
}

START_TEST(a_request_has_its_time_from_when_it_was_seen)
{
    int pipe_fd[2];
    uv_poll_t other;
    rdzv_server *s = open_impatient();
    int fd = net_connect(net_port(s));
    RUN_UNTIL(NET_STAT(s, connections) == 1);
    ck_assert_int_eq(pipe(pipe_fd), 0);
    ck_assert_int_eq(uv_poll_init(&loop, &other, pipe_fd[0]), 0);
    ck_assert_int_eq(uv_poll_start(&other, UV_READABLE, on_other), 0);
    run_for(1);
    ck_assert_int_eq(write(pipe_fd[1], "", 1), 1);
    wire_hello(&w);
    wire_add(&w, "b", RDZV__OP_PING);
    net_send(fd, &w);
    uint64_t before_ms = clock_ms();
    RUN_UNTIL(NET_STAT(s, refused) == 1);
    ck_assert_uint_ge(clock_ms() - before_ms, BUSY_MS + LIMIT_MS);
    net_expect_end(fd);
    uv_close((uv_handle_t *)&other, NULL);
    close_and_run(s);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
}
END_TEST

static void leave_key(rdzv_server *s)
{
    int fd = net_connect(net_port(s));
    wire_hello(&w);
    wire_add(&w, "bss", RDZV__OP_SET, "k", "v");
    net_send(fd, &w);
    RUN_UNTIL(NET_STAT(s, keys) == 1);
    close(fd);
    RUN_UNTIL(NET_STAT(s, connections) == 0);
}

START_TEST(a_client_that_has_come_by_now_finds_the_keys)
{
    rdzv_server *s = open_impatient();
    leave_key(s);
    int fd = net_connect(net_port(s)); /* the system takes it */
    wire_hello(&w);
    wire_add(&w, "b", RDZV__OP_GETNUMKEYS);
    net_send(fd, &w);
    usleep(BUSY_MS * 1000);
    run_and_read(fd, 8);
    wire_expect(&got, "i", 1LL);
    close(fd);
    RUN_UNTIL(NET_STAT(s, keys) == 0);
    close_and_run(s);
}
END_TEST

/* A probe of the port, which has come and gone, does not keep them. */
START_TEST(without_a_client_the_keys_are_forgotten)
{
    rdzv_server *s = open_impatient();
    leave_key(s);
    close(net_connect(net_port(s)));
    usleep(BUSY_MS * 1000);
    uint64_t before_ms = clock_ms();
    RUN_UNTIL(NET_STAT(s, keys) == 0);
    ck_assert_uint_lt(clock_ms() - before_ms, LIMIT_MS);
    close_and_run(s);
}
END_TEST

START_TEST(a_client_that_has_left_by_now_does_not_count_as_connected)
{
    int drained = 0;
    rdzv_server *s = open_server();
    int fd = net_connect(net_port(s));
    RUN_UNTIL(NET_STAT(s, connections) == 1);
    ck_assert_int_eq(rdzv_server_drain(s, LIMIT_MS, net_count_call, &drained), RDZV_OK);
    run_for(1);
    ck_assert_int_eq(drained, 0);
    close(fd);
    usleep(BUSY_MS * 1000);
    RUN_UNTIL(drained == 1);
    ck_assert_ptr_nonnull(strstr(server_log.text, "drained: the last client has left"));
    ck_assert_ptr_null(strstr(server_log.text, "still connected"));
    close_and_run(s);
}
END_TEST

START_TEST(a_drain_has_its_time_from_the_call_on)
{
    int drained = 0;
    rdzv_server *s = open_server();
    int fd = net_connect(net_port(s));
    RUN_UNTIL(NET_STAT(s, connections) == 1);
    usleep(BUSY_MS * 1000); /* the loop has not seen that */
    uint64_t before_ms = clock_ms();
    ck_assert_int_eq(rdzv_server_drain(s, LIMIT_MS, net_count_call, &drained), RDZV_OK);
    RUN_UNTIL(drained == 1);
    ck_assert_uint_ge(clock_ms() - before_ms, LIMIT_MS);
    close(fd);
    close_and_run(s);
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
    t = tcase_create("busy loop");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup_busy, teardown_busy);
    tcase_add_test(t, a_request_that_is_whole_by_now_is_answered);
    tcase_add_test(t, a_request_that_is_not_is_ended);
    tcase_add_test(t, a_long_request_that_is_whole_by_now_is_answered);
    tcase_add_test(t, a_request_has_its_time_from_when_it_was_seen);
    tcase_add_test(t, a_client_that_has_come_by_now_finds_the_keys);
    tcase_add_test(t, without_a_client_the_keys_are_forgotten);
    tcase_add_test(t, a_client_that_has_left_by_now_does_not_count_as_connected);
    tcase_add_test(t, a_drain_has_its_time_from_the_call_on);
    suite_add_tcase(s, t);
    return s;
}
