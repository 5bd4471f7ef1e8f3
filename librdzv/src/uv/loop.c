/*
 * loop.c: what happens on the loop's thread, be it ours or the borrower's: start, drain, close, and
 * the own thread itself. Invariant: s->handles counts every libuv handle of ours on the loop; when
 * closing brings it to 0, nothing of ours is left there.
 */
#include "error.h"
#include "uv/server.h"
#include "uv/thread.h"

#include <string.h>

void rdzv__loop_publish(struct rdzv_server *s)
{
    struct rdzv__stats *st = &s->stats;
    atomic_store_explicit(&st->connections, s->conn_count, memory_order_relaxed);
    atomic_store_explicit(&st->accepted, s->accepted, memory_order_relaxed);
    atomic_store_explicit(&st->refused, s->refused, memory_order_relaxed);
    atomic_store_explicit(&st->requests, s->core.requests, memory_order_relaxed);
    atomic_store_explicit(&st->keys, s->core.store.keys, memory_order_relaxed);
    atomic_store_explicit(&st->store_bytes, s->core.store.bytes, memory_order_relaxed);
    atomic_store_explicit(&st->waiting, s->core.waiting, memory_order_relaxed);
    atomic_store_explicit(&st->buffer_bytes, s->core.buffer_bytes, memory_order_relaxed);
}

int rdzv__loop_start(struct rdzv_server *s)
{
    int result = rdzv__events_start(s);
    if (result != 0)
        return result;
    rdzv__listener_start(s);
    uv_timer_init(s->loop, &s->log_timer);
    uv_timer_init(s->loop, &s->drain_timer);
    uv_timer_init(s->loop, &s->request_timer);
    s->log_timer.data = s;
    s->drain_timer.data = s;
    s->request_timer.data = s;
    s->handles += 3;
    return 0;
}

static void on_drained(uv_timer_t *timer)
{
    struct rdzv_server *s = timer->data;
    if (s->drain != RDZV__DRAIN_RUNNING)
        return;
    s->drain = RDZV__DRAIN_DONE;
    if (s->conn_count == 0)
        rdzv__log(s, RDZV_LOG_INFO, "drained: the last client has left");
    else
        rdzv__log(s, RDZV_LOG_WARN, "drained: the time is over with %llu clients still connected",
                  (unsigned long long)s->conn_count);
    if (!s->borrowed) {
        rdzv__mailbox_post(&s->mailbox, s->drained_letter);
        return;
    }
    rdzv_closed_fn drained = s->drained;
    s->drained = NULL;
    if (drained != NULL)
        drained(s->drained_ctx);
}

void rdzv__loop_drain(struct rdzv_server *s, int32_t timeout_ms)
{
    if (s->closing)
        return;
    s->drain = RDZV__DRAIN_RUNNING;
    rdzv__listener_close(s);
    if (s->conn_count == 0)
        timeout_ms = 0;
    if (timeout_ms >= 0)
        uv_timer_start(&s->drain_timer, on_drained, (uint64_t)timeout_ms, 0);
}

void rdzv__loop_conn_left(struct rdzv_server *s)
{
    if (s->drain == RDZV__DRAIN_RUNNING && s->conn_count == 0 && !s->closing)
        uv_timer_start(&s->drain_timer, on_drained, 0, 0);
}

void rdzv__loop_close(struct rdzv_server *s)
{
    s->closing = 1;
    rdzv__listener_close(s);
    rdzv__conn_close_all(s);
    rdzv__events_close(s);
    uv_close((uv_handle_t *)&s->log_timer, rdzv__loop_handle_closed);
    uv_close((uv_handle_t *)&s->drain_timer, rdzv__loop_handle_closed);
    uv_close((uv_handle_t *)&s->request_timer, rdzv__loop_handle_closed);
    if (!s->borrowed)
        uv_close((uv_handle_t *)&s->async, rdzv__loop_handle_closed);
}

void rdzv__loop_handle_gone(struct rdzv_server *s)
{
    s->handles--;
    if (s->handles == 0 && s->closing && s->borrowed)
        rdzv__server_finish(s);
}

void rdzv__loop_handle_closed(uv_handle_t *handle)
{
    rdzv__loop_handle_gone(handle->data);
}

static void on_command(uv_async_t *async)
{
    struct rdzv_server *s = async->data;
    if (s->closing)
        return;
    if (atomic_exchange(&s->drain_command, 0))
        rdzv__loop_drain(s, s->drain_timeout_ms);
    if (atomic_load(&s->close_command))
        rdzv__loop_close(s);
}

static void *run_loop(void *arg)
{
    struct rdzv_server *s = arg;
    pthread_setname_np(pthread_self(), "rdzv-server");
    uv_run(&s->own_loop, UV_RUN_DEFAULT);
    return NULL;
}

/* Runs the close callbacks of what was started, on the caller's thread. */
static void unwind(struct rdzv_server *s)
{
    s->listener.keep_fd = 1;
    rdzv__loop_close(s);
    uv_run(&s->own_loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->own_loop);
}

int rdzv__thread_start(struct rdzv_server *s, rdzv_error *err)
{
    int result = uv_loop_init(&s->own_loop);
    if (result != 0)
        return rdzv__fail(err, RDZV_EIO, -result, "event loop: %s", uv_strerror(result));
    s->loop = &s->own_loop;
    result = uv_async_init(s->loop, &s->async, on_command);
    if (result != 0) {
        uv_loop_close(&s->own_loop);
        return rdzv__fail(err, RDZV_EIO, -result, "event loop: %s", uv_strerror(result));
    }
    s->async.data = s;
    s->handles++;
    result = rdzv__loop_start(s);
    if (result != 0) {
        uv_close((uv_handle_t *)&s->async, NULL);
        uv_run(&s->own_loop, UV_RUN_DEFAULT);
        uv_loop_close(&s->own_loop);
        return rdzv__fail(err, RDZV_EIO, -result, "listening in the event loop: %s",
                          uv_strerror(result));
    }
    int error = rdzv__thread_create(&s->thread, run_loop, s);
    if (error == 0)
        return RDZV_OK;
    unwind(s);
    return rdzv__fail(err, RDZV_EIO, error, "starting the server's thread: %s", strerror(error));
}

void rdzv__thread_stop(struct rdzv_server *s)
{
    atomic_store(&s->close_command, 1);
    uv_async_send(&s->async);
    pthread_join(s->thread, NULL);
    uv_loop_close(&s->own_loop);
}
