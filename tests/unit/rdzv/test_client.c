/*
 * test_client.c: the client's calls over real sockets, driven in each of the three ways.
 */
#include "alloc_fault.h"
#include "one.h"
#include "runner.h"

#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(every_call)
{
    struct outcome o = {0};
    rdzv_bytes keys[] = {one_text("a"), one_text("b")};
    rdzv_bytes values[] = {one_text("A"), one_text("B")};
    one_start(_i);
    rdzv_client_options opt = one_options(net_port(the.server));
    one_open(&opt);
    ck_assert_int_gt(rdzv_client_set(the.client, keys[0], values[1], -1, one_on_reply, &o, NULL),
                     0);
    one_ends(&o, RDZV_OK);
    rdzv_client_get(the.client, keys[0], -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_str_eq(o.value, "B");
    one_ends(&o, RDZV_OK);
    rdzv_client_append(the.client, keys[0], one_text("C"), -1, NULL, NULL, NULL);
    rdzv_client_compare_set(the.client, keys[0], one_text("BC"), values[0], -1, one_on_reply, &o,
                            NULL);
    one_until(&o);
    ck_assert_str_eq(o.value, "A");
    one_ends(&o, RDZV_OK);
    rdzv_client_add(the.client, one_text("n"), -7, -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_int_eq(o.number, -7);
    one_ends(&o, RDZV_OK);
    rdzv_client_multi_set(the.client, keys, values, 2, -1, NULL, NULL, NULL);
    rdzv_client_multi_get(the.client, keys, 2, -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_uint_eq(o.count, 2);
    one_ends(&o, RDZV_OK);
    rdzv_client_check(the.client, keys, 2, -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_int_eq(o.number, 1);
    one_ends(&o, RDZV_OK);
    rdzv_client_wait_keys(the.client, keys, 2, -1, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_OK);
    rdzv_client_delete_key(the.client, keys[1], -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_int_eq(o.number, 1);
    one_ends(&o, RDZV_OK);
    rdzv_client_num_keys(the.client, -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_int_eq(o.number, 2);
    one_ends(&o, RDZV_OK);
    rdzv_client_list_keys(the.client, -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_uint_eq(o.count, 2);
    one_ends(&o, RDZV_OK);
    rdzv_client_queue_push(the.client, one_text("q"), one_text("e"), -1, NULL, NULL, NULL);
    rdzv_client_queue_len(the.client, one_text("q"), -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_int_eq(o.number, 1);
    one_ends(&o, RDZV_OK);
    rdzv_client_queue_pop(the.client, one_text("q"), -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_str_eq(o.value, "e");
    one_ends(&o, RDZV_OK);
    rdzv_client_barrier(the.client, one_text("bar"), 1, -1, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_OK);
    rdzv_client_flush(the.client, -1, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_OK);
    rdzv_client_get(the.client, one_text("none"), RDZV_NO_WAIT, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_ENOENT);
    rdzv_client_get(the.client, one_text("none"), 50, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_ETIMEDOUT);
    one_finish();
}
END_TEST

START_TEST(a_batch_a_wait_and_a_cancel)
{
    enum { MANY = 500 };
    static struct outcome many[MANY];
    struct outcome waits = {0};
    struct outcome o = {0};
    memset(many, 0, sizeof many);
    one_start(_i);
    rdzv_client_options opt = one_options(net_port(the.server));
    one_open(&opt);
    int64_t call = rdzv_client_get(the.client, one_text("late"), -1, one_on_reply, &waits, NULL);
    for (int i = 0; i < MANY; i++)
        rdzv_client_add(the.client, one_text("n"), 1, -1, one_on_reply, &many[i], NULL);
    one_until(&many[MANY - 1]);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(many[i].number, i + 1);
    ck_assert_int_eq(waits.calls, 0);
    ck_assert_int_eq(rdzv_client_cancel(the.client, call), RDZV_OK);
    one_ends(&waits, RDZV_ECANCELED);
    ck_assert_int_eq(rdzv_client_cancel(the.client, call), RDZV_OK); /* it is over */
    ck_assert_int_eq(rdzv_client_cancel(the.client, call + 10000), RDZV_EINVAL);

    rdzv_client_get(the.client, one_text("late"), -1, one_on_reply, &waits, NULL);
    rdzv_client_flush(the.client, -1, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_OK);
    int fd = net_connect(net_port(the.server));
    struct wire w = WIRE_INIT;
    wire_hello(&w);
    wire_add(&w, "bss", RDZV__OP_SET, "/late", "now");
    net_send(fd, &w);
    one_until(&waits);
    ck_assert_str_eq(waits.value, "now");
    close(fd);
    wire_free(&w);

    waits = (struct outcome){0}; /* what is open ends with close */
    rdzv_client_get(the.client, one_text("never"), -1, one_on_reply, &waits, NULL);
    one_finish();
    ck_assert_int_eq(waits.calls, 1);
    ck_assert_int_eq(waits.code, RDZV_ECANCELED);
}
END_TEST

START_TEST(a_lost_server_ends_every_call)
{
    struct outcome waits = {0};
    struct outcome o = {0};
    one_start(_i);
    rdzv_client_options opt = one_options(net_port(the.server));
    one_open(&opt);
    rdzv_client_flush(the.client, -1, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_OK);
    rdzv_client_get(the.client, one_text("late"), -1, one_on_reply, &waits, NULL);
    rdzv_client_barrier(the.client, one_text("bar"), 9, -1, one_on_reply, &o, NULL);
    rdzv_server_close(the.server, NULL, NULL);
    one_until(&waits);
    ck_assert_ptr_nonnull(strstr(waits.text, "lost"));
    one_ends(&waits, RDZV_ECONN);
    one_ends(&o, RDZV_ECONN);
    rdzv_client_set(the.client, one_text("a"), one_text("b"), -1, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_ECONN);
    rdzv_server_options again = net_options();
    ck_assert_int_eq(rdzv_server_open(&the.server, &again, NULL), RDZV_OK);
    one_finish();
}
END_TEST

static const char *const bad_hosts[] = {"",          "[]",  "[127.0.0.1]",
                                        "[nowhere]", "::g", "fe80::1%no-such-interface"};

START_TEST(bad_arguments)
{
    rdzv_error err;
    rdzv_client *c = NULL;
    the.drive = RDZV_DRIVE_CALLER;
    for (size_t i = 0; i < sizeof bad_hosts / sizeof bad_hosts[0]; i++) {
        rdzv_client_options opt = one_options(ONE_NO_PORT);
        opt.host = bad_hosts[i];
        ck_assert_msg(rdzv_client_open(&c, &opt, &err) == RDZV_EINVAL, "%s", bad_hosts[i]);
    }
    rdzv_client_options opt = one_options(0);
    ck_assert_int_eq(rdzv_client_open(&c, &opt, &err), RDZV_EINVAL);
    opt = one_options(ONE_NO_PORT);
    opt.host = "[fe80::1%lo]"; /* a scope that is there */
    ck_assert_int_eq(rdzv_client_open(&c, &opt, &err), RDZV_OK);
    rdzv_client_close(c, NULL, NULL);
    c = NULL;
    opt = one_options(ONE_NO_PORT);
    opt.loop = &the.loop;
    ck_assert_int_eq(rdzv_client_open(&c, &opt, &err), RDZV_EINVAL);
    opt = one_options(ONE_NO_PORT);
    opt.reply_timeout_ms = 0;
    ck_assert_int_eq(rdzv_client_open(&c, &opt, &err), RDZV_EINVAL);
    opt = one_options(ONE_NO_PORT);
    ck_assert_int_eq(rdzv_client_open(NULL, &opt, &err), RDZV_EINVAL);
    ck_assert_int_eq(rdzv_client_open(&c, NULL, &err), RDZV_EINVAL);
    ck_assert_ptr_null(c);
    ck_assert_int_eq(rdzv_client_get(NULL, one_text("a"), -1, NULL, NULL, &err), RDZV_EINVAL);
    ck_assert_int_eq(rdzv_client_wait(NULL, 0), RDZV_EINVAL);
    rdzv_client_close(NULL, NULL, NULL);

    opt.max_pending_bytes = 100;
    ck_assert_int_eq(rdzv_client_open(&c, &opt, &err), RDZV_OK);
    ck_assert_int_eq(rdzv_client_get(c, one_text("a"), -2, NULL, NULL, &err), RDZV_EINVAL);
    ck_assert_int_gt(rdzv_client_get(c, one_text("a"), -1, NULL, NULL, &err), 0);
    static char big[100];
    ck_assert_int_eq(
        rdzv_client_set(c, one_text("a"), (rdzv_bytes){big, 100}, -1, NULL, NULL, &err),
        RDZV_ELIMIT);
    pid_t child = fork();
    if (child == 0) {
        int bad = rdzv_client_get(c, one_text("a"), -1, NULL, NULL, NULL) != RDZV_ESTATE ||
                  rdzv_client_dispatch(c) != RDZV_ESTATE;
        rdzv_client_close(c, NULL, NULL);
        _exit(bad);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    rdzv_client_close(c, NULL, NULL);
}
END_TEST

static void on_reply_again(void *ctx, const rdzv_reply *reply, const rdzv_error *result)
{
    struct outcome *o = ctx;
    if (result->code == RDZV_OK && reply->number < 5) {
        ck_assert_int_gt(rdzv_client_add(the.client, one_text("n"), 1, -1, on_reply_again, o, NULL),
                         0);
        if (the.drive != RDZV_DRIVE_LOOP) {
            ck_assert_int_eq(rdzv_client_wait(the.client, 0), RDZV_EBUSY);
            rdzv_client_close(the.client, NULL, NULL); /* ignored */
        }
        return;
    }
    one_on_reply(ctx, reply, result);
}

/* A client that has failed keeps no loop awake, and still takes calls and a close. */
START_TEST(a_failed_client_has_no_timer)
{
    struct outcome o = {0};
    one_start(RDZV_DRIVE_LOOP);
    rdzv_client_options opt = one_options(net_port(the.server));
    one_open(&opt);
    rdzv_client_get(the.client, one_text("late"), 300000, one_on_reply, &o, NULL);
    rdzv_client_flush(the.client, -1, NULL, NULL, NULL);
    while (NET_STAT(the.server, waiting) == 0)
        uv_run(&the.loop, UV_RUN_NOWAIT);
    rdzv_server_close(the.server, NULL, NULL);
    one_ends(&o, RDZV_ECONN);
    uv_run(&the.loop, UV_RUN_NOWAIT); /* the socket's handle goes */
    ck_assert_int_eq(uv_loop_alive(&the.loop), 0);
    rdzv_client_get(the.client, one_text("late"), 300000, one_on_reply, &o, NULL);
    ck_assert_int_ne(uv_loop_alive(&the.loop), 0);
    one_ends(&o, RDZV_ECONN);
    ck_assert_int_eq(uv_loop_alive(&the.loop), 0);
    rdzv_server_options again = net_options();
    ck_assert_int_eq(rdzv_server_open(&the.server, &again, NULL), RDZV_OK);
    one_finish();
}
END_TEST

/* The descriptor of one neither, driven by the caller. */
START_TEST(a_failed_client_is_not_ready)
{
    struct outcome o = {0};
    one_start(RDZV_DRIVE_CALLER);
    rdzv_client_options opt = one_options(ONE_NO_PORT);
    opt.connect_timeout_ms = 100;
    one_open(&opt);
    struct pollfd p = {.fd = rdzv_client_fd(the.client), .events = POLLIN};
    rdzv_client_get(the.client, one_text("a"), 300, one_on_reply, &o, NULL);
    while (o.calls == 0) {
        ck_assert_int_eq(poll(&p, 1, 10000), 1);
        ck_assert_int_ge(rdzv_client_dispatch(the.client), 0);
    }
    one_ends(&o, RDZV_ETIMEDOUT);
    ck_assert_int_eq(poll(&p, 1, 600), 0);
    one_finish();
}
END_TEST

/* Callbacks submit; the descriptor alone tells when to dispatch. */
START_TEST(callbacks_submit_and_the_descriptor_tells)
{
    struct outcome o = {0};
    one_start(_i);
    rdzv_client_options opt = one_options(net_port(the.server));
    one_open(&opt);
    rdzv_client_add(the.client, one_text("n"), 1, -1, on_reply_again, &o, NULL);
    if (the.drive == RDZV_DRIVE_LOOP) {
        ck_assert_int_eq(rdzv_client_fd(the.client), RDZV_ENOTSUP);
        ck_assert_int_eq(rdzv_client_wait(the.client, 0), RDZV_ENOTSUP);
    }
    while (o.calls == 0 && the.drive != RDZV_DRIVE_LOOP) {
        struct pollfd p = {.fd = rdzv_client_fd(the.client), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 10000), 1);
        ck_assert_int_ge(rdzv_client_dispatch(the.client), 0);
    }
    one_until(&o);
    ck_assert_int_eq(o.number, 5);
    one_ends(&o, RDZV_OK);
    rdzv_client_get(the.client, one_text("none"), 80, one_on_reply, &o,
                    NULL); /* a deadline is told, too */
    while (o.calls == 0 && the.drive != RDZV_DRIVE_LOOP) {
        struct pollfd p = {.fd = rdzv_client_fd(the.client), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 10000), 1);
        ck_assert_int_ge(rdzv_client_dispatch(the.client), 0);
    }
    one_ends(&o, RDZV_ETIMEDOUT);
    one_finish();
}
END_TEST

/* Larger than every buffer on the way. */
START_TEST(large_values)
{
    static char big[4 << 20];
    struct outcome o = {0};
    memset(big, 'b', sizeof big);
    one_start(_i);
    rdzv_client_options opt = one_options(net_port(the.server));
    one_open(&opt);
    for (int i = 0; i < 4; i++)
        rdzv_client_append(the.client, one_text("big"), (rdzv_bytes){big, sizeof big}, -1, NULL,
                           NULL, NULL);
    rdzv_client_get(the.client, one_text("big"), -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_uint_eq(strlen(o.value), sizeof o.value - 1);
    one_ends(&o, RDZV_OK);
    one_finish();
}
END_TEST

START_TEST(out_of_memory)
{
    struct alloc_fault fault = ALLOC_FAULT_INIT;
    one_start(_i);
    while (alloc_fault_next(&fault)) {
        rdzv_allocator a = {alloc_fault_alloc, alloc_fault_free, &fault};
        rdzv_client_options opt = one_options(net_port(the.server));
        struct outcome o = {0};
        opt.allocator = &a;
        opt.connect_timeout_ms = 400;
        if (the.drive == RDZV_DRIVE_LOOP)
            ck_assert_int_eq(uv_loop_init(&the.loop), 0);
        int code = rdzv_client_open(&the.client, &opt, NULL);
        if (code == RDZV_OK) {
            if (rdzv_client_add(the.client, one_text("n"), 1, -1, one_on_reply, &o, NULL) > 0) {
                one_until(&o);
                ck_assert(o.code == RDZV_OK || alloc_fault_fired(&fault));
            }
            one_close();
        } else {
            ck_assert_int_eq(code, RDZV_ENOMEM);
            if (the.drive == RDZV_DRIVE_LOOP)
                uv_loop_close(&the.loop);
        }
    }
    ck_assert_int_gt(fault.round, 2);
    rdzv_server_close(the.server, NULL, NULL);
    ck_assert_int_eq(net_count_fds(), the.fds_before);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("client");
    TCase *t = tcase_create("client");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_call, 0, ONE_WAYS);
    tcase_add_loop_test(t, a_batch_a_wait_and_a_cancel, 0, ONE_WAYS);
    tcase_add_loop_test(t, a_lost_server_ends_every_call, 0, ONE_WAYS);
    tcase_add_loop_test(t, callbacks_submit_and_the_descriptor_tells, 0, ONE_WAYS);
    tcase_add_test(t, a_failed_client_has_no_timer);
    tcase_add_test(t, a_failed_client_is_not_ready);
    tcase_add_loop_test(t, large_values, 0, ONE_WAYS);
    tcase_add_loop_test(t, out_of_memory, 0, ONE_WAYS);
    tcase_add_test(t, bad_arguments);
    suite_add_tcase(s, t);
    return s;
}
