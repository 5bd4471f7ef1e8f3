/*
 * test_client_hooks.c: what the program around a client may do to it: stand still, and call it from
 * its log hook.
 */
#include "clock.h"
#include "one.h"
#include "runner.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The answer lies in the socket when the deadlines are over: it counts. */
START_TEST(what_came_while_we_stood_still)
{
    struct outcome o = {0};
    one_start(_i % ONE_WAYS);
    int owed = _i / ONE_WAYS; /* the server's time to answer, or the call's own deadline */
    rdzv_client_options opt = one_options(net_port(the.server));
    if (owed)
        opt.reply_timeout_ms = 200;
    one_open(&opt);
    rdzv_client_flush(the.client, -1, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_OK);
    for (int round = 0; round < 2; round++) {
        rdzv_client_add(the.client, one_text("n"), 1, owed ? -1 : 200, one_on_reply, &o, NULL);
        if (the.drive == RDZV_DRIVE_LOOP)
            uv_run(&the.loop, UV_RUN_NOWAIT);
        else
            rdzv_client_dispatch(the.client);
        usleep(500000);
        one_until(&o);
        ck_assert_int_eq(o.number, round + 1);
        one_ends(&o, RDZV_OK);
    }
    one_finish();
}
END_TEST

/* The same in the handshake. */
START_TEST(a_connection_that_came_while_we_stood_still)
{
    struct outcome o = {0};
    one_start(RDZV_DRIVE_LOOP);
    rdzv_client_options opt = one_options(net_port(the.server));
    opt.connect_timeout_ms = 200;
    opt.hello_timeout_ms = 200;
    one_open(&opt);
    rdzv_client_flush(the.client, -1, one_on_reply, &o, NULL);
    uv_run(&the.loop, UV_RUN_NOWAIT); /* connects, and sends the handshake */
    usleep(500000);
    one_ends(&o, RDZV_OK);
    one_finish();
}
END_TEST

static int lines;
static int in_hook;

static void close_it(void *ctx, int level, const char *line)
{
    (void)level;
    ck_assert_int_lt(++in_hook, 3);
    lines++;
    if (the.client != NULL && strstr(line, ctx) != NULL)
        rdzv_client_close(the.client, NULL, NULL);
    in_hook--;
}

START_TEST(a_log_hook_that_closes_is_told_once)
{
    struct outcome o = {0};
    one_start(_i);
    the.client = NULL;
    rdzv_client_options opt = one_options(net_port(the.server));
    opt.log = close_it;
    opt.log_ctx = "";
    lines = 0;
    in_hook = 0;
    one_open(&opt);
    rdzv_client_add(the.client, one_text("n"), 1, -1, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_OK);
    for (int i = 0; i < 20; i++)
        rdzv_client_dispatch(the.client);
    ck_assert_int_eq(lines, 2); /* connected; and that close was ignored */
    one_finish();
}
END_TEST

/* Proves to be a store, and closes; then keeps the next connection, and is silent. */
static void *hello_and_close(void *arg)
{
    int *listener = arg;
    char hello[10];
    int fd = accept(*listener, NULL, NULL);
    if (recv(fd, hello, sizeof hello, MSG_WAITALL) == (ssize_t)sizeof hello)
        (void)!send(fd, hello + 6, 4, MSG_NOSIGNAL);
    close(fd);
    fd = accept(*listener, NULL, NULL);
    if (fd >= 0)
        (void)!recv(fd, hello, 1, 0);
    close(fd);
    return NULL;
}

/* Is a store until it has answered one ADD; then resets the connection. */
static void *answer_and_reset(void *arg)
{
    char asked[512];
    char answer[12] = {0};
    int fd = accept(*(int *)arg, NULL, NULL);
    if (recv(fd, asked, 52, MSG_WAITALL) == 52) { /* the handshake: a PING, a GET of nothing */
        memcpy(answer, asked + 6, 4);
        (void)!send(fd, answer, sizeof answer, MSG_NOSIGNAL);
        (void)!recv(fd, asked, sizeof asked, 0);
        usleep(100000);
        memset(answer, 7, 8);
        (void)!send(fd, answer, 8, MSG_NOSIGNAL);
    }
    struct linger reset = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    return NULL;
}

static void count_closed(void *ctx)
{
    ++*(int *)ctx;
    uv_stop(&the.loop);
}

static int closed;

static void close_at_care(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    if (strstr(line, "asked with care") != NULL)
        rdzv_client_close(the.client, count_closed, &closed);
}

/* A thread that takes connections of *listener. Returns the port. */
static uint16_t start_peer(pthread_t *thread, int *listener, void *(*run)(void *))
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    *listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(*listener, (struct sockaddr *)&addr, len), 0);
    ck_assert_int_eq(listen(*listener, 4), 0);
    getsockname(*listener, (struct sockaddr *)&addr, &len);
    ck_assert_int_eq(pthread_create(thread, NULL, run, listener), 0);
    return ntohs(addr.sin_port);
}

/* Both come at once: the answer counts, and the rest is not waited for. */
START_TEST(an_answer_and_a_reset)
{
    struct outcome added = {0};
    struct outcome waits = {0};
    pthread_t thread;
    int fd;
    one_start(_i);
    rdzv_client_options opt = one_options(start_peer(&thread, &fd, answer_and_reset));
    opt.timeout_ms = 15000;
    one_open(&opt);
    uint64_t begun = clock_ms();
    rdzv_client_add(the.client, one_text("n"), 1, -1, one_on_reply, &added, NULL);
    rdzv_client_get(the.client, one_text("never"), -1, one_on_reply, &waits, NULL);
    for (int i = 0; i < 50; i++) { /* connects, and sends both */
        if (the.drive == RDZV_DRIVE_LOOP)
            uv_run(&the.loop, UV_RUN_NOWAIT);
        else
            rdzv_client_dispatch(the.client);
        usleep(1000);
    }
    usleep(300000);
    one_until(&waits);
    ck_assert_uint_lt(clock_ms() - begun, 10000);
    ck_assert_int_eq(added.code, RDZV_OK);
    ck_assert_int_eq(added.number, 0x0707070707070707);
    one_ends(&waits, RDZV_ECONN);
    pthread_join(thread, NULL);
    close(fd);
    one_finish();
}
END_TEST

START_TEST(a_log_hook_closes_in_the_handshake)
{
    struct outcome o = {0};
    pthread_t thread;
    int fd;
    the.drive = RDZV_DRIVE_LOOP;
    rdzv_client_options opt = one_options(start_peer(&thread, &fd, hello_and_close));
    opt.log = close_at_care;
    closed = 0;
    one_open(&opt);
    rdzv_client_get(the.client, one_text("a"), -1, one_on_reply, &o, NULL);
    uint64_t end = clock_ms() + 5000;
    while (!closed && clock_ms() < end) {
        uv_run(&the.loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    ck_assert_int_eq(closed, 1);
    ck_assert_int_eq(o.code, RDZV_ECANCELED);
    shutdown(fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(fd);
    ck_assert_int_eq(uv_loop_close(&the.loop), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("client hooks");
    TCase *t = tcase_create("client hooks");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, what_came_while_we_stood_still, 0, ONE_WAYS * 2);
    tcase_add_test(t, a_connection_that_came_while_we_stood_still);
    tcase_add_loop_test(t, a_log_hook_that_closes_is_told_once, 0, 2);
    tcase_add_loop_test(t, an_answer_and_a_reset, 0, ONE_WAYS);
    tcase_add_test(t, a_log_hook_closes_in_the_handshake);
    suite_add_tcase(s, t);
    return s;
}
