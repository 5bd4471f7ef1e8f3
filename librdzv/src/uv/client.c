/*
 * client.c: the client's handle: options, open, close, log lines. Owns the memory of the handle.
 * Invariant: after close nothing is called but the callbacks of calls that were open, and `closed`.
 */
#include "uv/client.h"

#include "error.h"
#include "caller_options.h"
#include "options.h"

#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024ull * 1024)

enum { LINE_BYTES = 600 };

void rdzv_client_options_init(rdzv_client_options *opt, size_t size)
{
    rdzv_client_options defaults = {
        .size = size,
        .drive = RDZV_DRIVE_THREAD,
        .dialect = RDZV_DIALECT_C,
        .host = "127.0.0.1",
        .port = 29400,
        .connect_timeout_ms = 300000,
        .hello_timeout_ms = 5000,
        .timeout_ms = 300000,
        .reply_timeout_ms = 30000,
        .max_key_bytes = 8192,
        .max_value_bytes = 8 * MIB,
        .max_request_keys = 131072,
        .max_reply_bytes = 256 * MIB,
        .max_pending_bytes = 256 * MIB,
    };
    options_fill(opt, size, &defaults, sizeof defaults);
}

static int read_options(rdzv_client_options *ret, const rdzv_client_options *opt, rdzv_error *err)
{
    rdzv_client_options_init(ret, sizeof *ret);
    int code = rdzv__options_read(ret, sizeof *ret, opt, offsetof(rdzv_client_options, loop),
                                  "client", err);
    if (code != RDZV_OK)
        return code;
    if (ret->drive > RDZV_DRIVE_LOOP || ret->dialect > RDZV_DIALECT_A ||
        (ret->flags & ~(RDZV_CLIENT_RAW_KEYS | RDZV_CLIENT_WAIT_FIRST)) != 0)
        return rdzv__fail(err, RDZV_EINVAL, 0, "client options: unknown drive, dialect or flag");
    if ((ret->loop != NULL) != (ret->drive == RDZV_DRIVE_LOOP))
        return rdzv__fail(err, RDZV_EINVAL, 0,
                          "client options: a loop goes with RDZV_DRIVE_LOOP, and only with it");
    if (ret->host == NULL || ret->port == 0)
        return rdzv__fail(err, RDZV_EINVAL, 0, "client options: no host or port");
    if (ret->connect_timeout_ms <= 0 || ret->hello_timeout_ms <= 0 || ret->timeout_ms <= 0 ||
        ret->reply_timeout_ms <= 0)
        return rdzv__fail(err, RDZV_EINVAL, 0, "client options: a timeout is not above 0");
    if (ret->max_key_bytes == 0 || ret->max_value_bytes == 0 || ret->max_request_keys == 0 ||
        ret->max_request_keys > UINT32_MAX || ret->max_reply_bytes == 0 ||
        ret->max_reply_bytes > SIZE_MAX / 4 || ret->max_pending_bytes == 0)
        return rdzv__fail(err, RDZV_EINVAL, 0, "client options: a limit is 0 or too large");
    return rdzv__options_allocator(ret->allocator, "client", err);
}

static void init_core(struct rdzv_client *c)
{
    const rdzv_client_options *o = &c->options;
    c->core.config = (struct rdzv__client_config){
        .allocator = &c->allocator,
        .peer = c->peer,
        .trouble = c->trouble,
        .legacy = o->dialect == RDZV_DIALECT_A,
        .raw_keys = (o->flags & RDZV_CLIENT_RAW_KEYS) != 0,
        .wait_first = (o->flags & RDZV_CLIENT_WAIT_FIRST) != 0,
        .reply_timeout_ms = o->reply_timeout_ms,
        .max_key_bytes = o->max_key_bytes,
        .max_value_bytes = o->max_value_bytes,
        .max_request_keys = o->max_request_keys,
        .max_reply_bytes = o->max_reply_bytes,
    };
    rdzv__client_core_init(&c->core);
}

static void init(struct rdzv_client *c, const rdzv_client_options *o, const rdzv_allocator *a)
{
    memset(c, 0, sizeof *c);
    c->allocator = *a;
    c->options = *o;
    c->log = o->log;
    c->log_ctx = o->log_ctx;
    c->owner = getpid();
    c->drive = o->drive;
    c->loop = o->loop;
    c->fd = -1;
    c->epoll_fd = -1;
    c->timer_fd = -1;
    c->armed_ms = UINT64_MAX;
    c->phase_end_ms = UINT64_MAX;
    queue_init(&c->open_calls);
    queue_init(&c->inbox);
    queue_init(&c->cancels);
}

static void release(struct rdzv_client *c)
{
    rdzv_allocator a = c->allocator;
    rdzv__client_free_addresses(c);
    if (c->literal != NULL)
        freeaddrinfo(c->literal);
    rdzv__client_core_free(&c->core);
    rdzv__free(&a, c);
}

int rdzv__client_open(rdzv_client **ret, const rdzv_client_options *opt, rdzv__lookup_fn lookup,
                      rdzv_error *err)
{
    rdzv_client_options o;
    if (ret == NULL)
        return rdzv__fail(err, RDZV_EINVAL, 0, "rdzv_client_open: ret is NULL");
    int code = read_options(&o, opt, err);
    if (code != RDZV_OK)
        return code;
    const rdzv_allocator *a = o.allocator != NULL ? o.allocator : &rdzv__allocator_libc;
    struct rdzv_client *c = rdzv__alloc(a, sizeof *c);
    if (c == NULL)
        return rdzv__fail(err, RDZV_ENOMEM, 0, "out of memory for a client");
    init(c, &o, a);
    c->lookup = lookup;
    init_core(c);
    code = rdzv__client_set_host(c, o.host, err);
    if (code == RDZV_OK)
        code = rdzv__client_start(c, err);
    if (code != RDZV_OK) {
        release(c);
        return code;
    }
    *ret = c;
    return RDZV_OK;
}

int rdzv_client_open(rdzv_client **ret, const rdzv_client_options *opt, rdzv_error *err)
{
    return rdzv__client_open(ret, opt, uv_getaddrinfo, err);
}

int rdzv__client_check(const struct rdzv_client *c)
{
    if (c == NULL)
        return RDZV_EINVAL;
    return c->owner == getpid() && !c->shut ? RDZV_OK : RDZV_ESTATE;
}

void rdzv__client_log(struct rdzv_client *c, int level, const char *format, ...)
{
    if (c->log == NULL)
        return;
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (c->drive == RDZV_DRIVE_THREAD) {
        outbox_log(&c->out, level, line);
        return;
    }
    c->in_callback++;
    c->log(c->log_ctx, level, line);
    c->in_callback--;
}

void rdzv__client_finish(struct rdzv_client *c)
{
    c->in_callback++;
    if (c->drive == RDZV_DRIVE_THREAD)
        mailbox_deliver(&c->out.mailbox);
    else
        rdzv__client_hand_over(c);
    rdzv_closed_fn closed = c->closed;
    void *ctx = c->closed_ctx;
    if (c->drive == RDZV_DRIVE_THREAD)
        rdzv__client_thread_free(c);
    release(c);
    if (closed != NULL)
        closed(ctx);
}

void rdzv_client_close(rdzv_client *c, rdzv_closed_fn closed, void *ctx)
{
    if (rdzv__client_check(c) != RDZV_OK)
        return; /* NULL, closed already, or a child after fork: all here is the parent's */
    if (c->in_callback && c->drive != RDZV_DRIVE_LOOP) {
        int told = c->told_close; /* once: the log may be what calls it */
        c->told_close = 1;
        if (!told)
            rdzv__client_log(c, RDZV_LOG_ERROR,
                             "rdzv_client_close was called from a callback: ignored");
        return;
    }
    c->shut = 1;
    c->closed = closed;
    c->closed_ctx = ctx;
    rdzv__client_stop(c);
}
