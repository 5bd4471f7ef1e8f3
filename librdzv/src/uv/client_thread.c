/*
 * client_thread.c: a thread of the client's own does its work. Invariant: while it runs, the two
 * sides share the inbox, the list of cancels and close_command, under inbox_lock, and the outbox;
 * no more than that.
 */
#include "error.h"
#include "thread.h"
#include "uv/client.h"
#include "uv/own_loop.h"

#include <errno.h>
#include <poll.h>

void rdzv__client_thread_post(struct rdzv_client *c, struct rdzv__client_call *call)
{
    pthread_mutex_lock(&c->inbox_lock);
    queue_push(&c->inbox, &call->call.link);
    pthread_mutex_unlock(&c->inbox_lock);
    uv_async_send(&c->async);
}

void rdzv__client_thread_post_cancel(struct rdzv_client *c, struct rdzv__client_call *call)
{
    pthread_mutex_lock(&c->inbox_lock);
    if (queue_empty(&call->cancel_link))
        queue_push(&c->cancels, &call->cancel_link);
    pthread_mutex_unlock(&c->inbox_lock);
    uv_async_send(&c->async);
}

void rdzv__client_thread_forget(struct rdzv_client *c, struct rdzv__client_call *call)
{
    pthread_mutex_lock(&c->inbox_lock);
    queue_remove(&call->cancel_link);
    pthread_mutex_unlock(&c->inbox_lock);
}

int rdzv__client_thread_wait(struct rdzv_client *c, int timeout_ms)
{
    uint64_t now = clock_ms();
    uint64_t end = clock_end_ms(timeout_ms);
    for (;;) {
        struct pollfd p = {.fd = c->out.mailbox.fd, .events = POLLIN};
        if (poll(&p, 1, clock_poll_ms(now, end)) < 0)
            return errno == EINTR ? 0 : RDZV_EIO;
        c->in_callback++;
        int count = mailbox_deliver(&c->out.mailbox);
        c->in_callback--;
        now = clock_ms();
        if (count > 0 || now >= end)
            return count;
    }
}

static void on_inbox(uv_async_t *async)
{
    struct rdzv_client *c = async->data;
    if (c->closing)
        return;
    uint64_t now = clock_ms();
    pthread_mutex_lock(&c->inbox_lock);
    while (!queue_empty(&c->inbox)) {
        struct rdzv__call *call = CONTAINER_OF(c->inbox.next, struct rdzv__call, link);
        queue_remove(&call->link);
        rdzv__client_core_submit(&c->core, call, now);
    }
    int cancel = !queue_empty(&c->cancels);
    while (!queue_empty(&c->cancels)) {
        struct rdzv__client_call *call =
            CONTAINER_OF(c->cancels.next, struct rdzv__client_call, cancel_link);
        queue_remove(&call->cancel_link);
        call->call.canceled = 1;
    }
    int close_command = c->close_command;
    pthread_mutex_unlock(&c->inbox_lock);
    if (cancel)
        rdzv__client_core_cancel_marked(&c->core, now);
    if (close_command) {
        rdzv__client_stop_work(c);
        rdzv__client_hand_over(c);
    } else {
        rdzv__client_settle(c);
    }
}

static void *run_loop(void *arg)
{
    struct rdzv_client *c = arg;
    pthread_setname_np(pthread_self(), "rdzv-client");
    uv_run(&c->own_loop, UV_RUN_DEFAULT);
    return NULL;
}

static int start(struct rdzv_client *c, rdzv_error *err)
{
    int code = rdzv__own_loop_init(&c->own_loop, &c->async, on_inbox, c, err);
    if (code != RDZV_OK)
        return code;
    c->loop = &c->own_loop;
    uv_timer_init(c->loop, &c->timer);
    c->handles = 2;
    c->timer.data = c;
    rdzv__client_connect(c);
    rdzv__client_arm(c);
    int error = thread_start(&c->thread, run_loop, c);
    if (error == 0)
        return RDZV_OK;
    rdzv__client_stop_work(c);
    uv_run(c->loop, UV_RUN_DEFAULT);
    uv_loop_close(c->loop);
    return rdzv__fail_sys(err, RDZV_EIO, error, "starting the client's thread");
}

int rdzv__client_thread_start(struct rdzv_client *c, rdzv_error *err)
{
    const rdzv_allocator *a = &c->allocator;
    struct outbox_hooks hooks = {a->alloc, a->free, a->ctx, c->log, c->log_ctx};
    int error = outbox_init(&c->out, &hooks, OUTBOX_LINES);
    if (error != 0)
        return rdzv__fail_sys(err, RDZV_EIO, error, "eventfd for the client");
    pthread_mutex_init(&c->inbox_lock, NULL);
    int code = start(c, err);
    if (code != RDZV_OK)
        rdzv__client_thread_free(c);
    return code;
}

void rdzv__client_thread_stop(struct rdzv_client *c)
{
    pthread_mutex_lock(&c->inbox_lock);
    c->close_command = 1;
    pthread_mutex_unlock(&c->inbox_lock);
    uv_async_send(&c->async);
    pthread_join(c->thread, NULL);
    uv_loop_close(c->loop);
}

void rdzv__client_thread_free(struct rdzv_client *c)
{
    outbox_free(&c->out);
    pthread_mutex_destroy(&c->inbox_lock);
}
