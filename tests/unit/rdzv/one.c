/*
 * one.c: see one.h.
 */
#include "one.h"

#include "clock.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

struct one the;

void one_on_reply(void *ctx, const rdzv_reply *reply, const rdzv_error *result)
{
    struct outcome *o = ctx;
    ck_assert((reply != NULL) == (result->code == RDZV_OK));
    if (the.drive == RDZV_DRIVE_LOOP)
        uv_stop(&the.loop); /* uv_run may have done its timers, and would go on to wait */
    o->calls++;
    o->code = result->code;
    o->sys_errno = result->sys_errno;
    snprintf(o->text, sizeof o->text, "%s", result->code != RDZV_OK ? result->text : "");
    if (reply == NULL)
        return;
    o->number = reply->number;
    o->count = reply->count;
    if (reply->count > 0)
        snprintf(o->value, sizeof o->value, "%.*s", (int)reply->values[0].len_bytes,
                 (const char *)reply->values[0].data);
}

rdzv_bytes one_text(const char *s)
{
    return (rdzv_bytes){s, strlen(s)};
}

rdzv_client_options one_options(uint16_t port)
{
    rdzv_client_options opt;
    rdzv_client_options_init(&opt, sizeof opt);
    opt.drive = (uint32_t)the.drive;
    opt.loop = the.drive == RDZV_DRIVE_LOOP ? &the.loop : NULL;
    opt.port = port;
    opt.timeout_ms = 20000;
    opt.connect_timeout_ms = 20000;
    return opt;
}

void one_open_with(const rdzv_client_options *opt, rdzv__lookup_fn lookup)
{
    rdzv_error err;
    if (the.drive == RDZV_DRIVE_LOOP)
        ck_assert_int_eq(uv_loop_init(&the.loop), 0);
    ck_assert_msg(rdzv__client_open(&the.client, opt, lookup, &err) == RDZV_OK, "%s", err.text);
}

void one_open(const rdzv_client_options *opt)
{
    one_open_with(opt, uv_getaddrinfo);
}

static void turn(void)
{
    if (the.drive == RDZV_DRIVE_LOOP)
        uv_run(&the.loop, UV_RUN_ONCE);
    else
        ck_assert_int_ge(rdzv_client_wait(the.client, 5000), 0);
}

void one_until(const struct outcome *o)
{
    uint64_t end = clock_ms() + 20000;
    while (o->calls == 0) {
        ck_assert_msg(clock_ms() < end, "no callback within 20 s");
        turn();
    }
}

void one_ends(struct outcome *o, int code)
{
    one_until(o);
    ck_assert_msg(o->code == code, "%d: %s", o->code, o->text);
    ck_assert_int_eq(o->calls, 1);
    *o = (struct outcome){0};
}

void one_close(void)
{
    int closed = 0;
    rdzv_client_close(the.client, net_count_call, &closed);
    if (the.drive == RDZV_DRIVE_LOOP) {
        ck_assert_int_eq(closed, 0);
        uv_run(&the.loop, UV_RUN_DEFAULT);
        ck_assert_int_eq(uv_loop_close(&the.loop), 0);
    }
    ck_assert_int_eq(closed, 1);
}

void one_start(int i)
{
    the.drive = i;
    net_warm_up();
    rdzv_server_options opt = net_options();
    the.fds_before = net_count_fds();
    ck_assert_int_eq(rdzv_server_open(&the.server, &opt, NULL), RDZV_OK);
}

void one_finish(void)
{
    one_close();
    rdzv_server_close(the.server, NULL, NULL);
    ck_assert_int_eq(net_count_fds(), the.fds_before);
    net_expect_threads(0);
}
