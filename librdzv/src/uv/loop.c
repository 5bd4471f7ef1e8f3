/*
 * loop.c: what happens on the loop's thread, be it ours or the borrower's: start, drain, close, and
 * the own thread itself. Invariant: s->handles counts every libuv handle of ours on the loop; when
 * closing brings it to 0, nothing of ours is left there.
 */
#include "clock.h"
#include "error.h"
#include "thread.h"
#include "uv/own_loop.h"
#include "uv/server.h"

int rdzv__loop_start(struct rdzv_server *s)
{
    int result = rdzv__events_start(s);
    if (result != 0)
        return result;
    uv_timer_t *timers[] = {&s->log_timer, &s->drain_timer, &s->request_timer, &s->jobs_timer};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        uv_timer_init(s->loop, timers[i]);
        timers[i]->data = s;
        s->handles++;
    }
    uv_idle_init(s->loop, &s->busy_idle);
    s->busy_idle.data = s;
    s->handles++;
    return 0;
}

static void on_drained(uv_timer_t *timer)
{
    struct rdzv_server *s = timer->data;
    uint64_t now = clock_ms();
    if (s->drain != RDZV__DRAIN_RUNNING)
        return;
    if (s->conn_count > 0 && now < s->drain_end_ms) { /* the time of a borrowed loop was old */
        uv_timer_start(timer, on_drained, s->drain_end_ms - now, 0);
        return;
    }
    if (s->conn_count > 0)
        rdzv__events_look(s); /* the server itself may have stood still */
    s->drain = RDZV__DRAIN_DONE;
    if (s->conn_count == 0)
        rdzv__log(s, RDZV_LOG_INFO, "drained: the last client has left");
    else
        rdzv__log(s, RDZV_LOG_WARN, "drained: the time is over with %llu clients still connected",
                  (unsigned long long)s->conn_count);
    if (!s->borrowed) {
        mailbox_post(&s->out.mailbox, &s->drained_letter);
        return;
    }
    rdzv__server_drained(s);
}

void rdzv__loop_drain(struct rdzv_server *s, int32_t timeout_ms)
{
    if (s->closing)
        return;
    s->drain = RDZV__DRAIN_RUNNING;
    for (struct queue *at = s->jobs.next; at != &s->jobs; at = at->next)
        rdzv__listener_close(CONTAINER_OF(at, struct rdzv_job, link));
    if (s->conn_count == 0)
        timeout_ms = 0;
    if (timeout_ms < 0)
        return;
    s->drain_end_ms = clock_in_ms(timeout_ms);
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
    while (!queue_empty(&s->jobs))
        rdzv__job_stop(CONTAINER_OF(s->jobs.next, struct rdzv_job, link));
    rdzv__events_close(s);
    uv_close((uv_handle_t *)&s->log_timer, rdzv__loop_handle_closed);
    uv_close((uv_handle_t *)&s->drain_timer, rdzv__loop_handle_closed);
    uv_close((uv_handle_t *)&s->request_timer, rdzv__loop_handle_closed);
    uv_close((uv_handle_t *)&s->jobs_timer, rdzv__loop_handle_closed);
    uv_close((uv_handle_t *)&s->busy_idle, rdzv__loop_handle_closed);
    if (!s->borrowed)
        uv_close((uv_handle_t *)&s->async, rdzv__loop_handle_closed);
}

void rdzv__loop_handle_closed(uv_handle_t *handle)
{
    struct rdzv_server *s = handle->data;
    s->handles--;
    if (s->handles == 0 && s->closing && s->borrowed)
        rdzv__server_finish(s);
}

static void on_command(uv_async_t *async)
{
    struct rdzv_server *s = async->data;
    if (s->closing)
        return;
    pthread_mutex_lock(&s->ask_lock);
    if (s->ask != NULL) {
        s->answer = s->ask(s->ask_job);
        s->ask = NULL;
        pthread_cond_signal(&s->answered);
    }
    pthread_mutex_unlock(&s->ask_lock);
    if (atomic_exchange(&s->drain_command, 0))
        rdzv__loop_drain(s, s->drain_timeout_ms);
    if (atomic_load(&s->close_command))
        rdzv__loop_close(s);
}

/* The loop runs until rdzv__thread_stop, which is another call of the same caller. */
int rdzv__thread_ask(struct rdzv_server *s, int (*ask)(struct rdzv_job *job), struct rdzv_job *job)
{
    pthread_mutex_lock(&s->ask_lock);
    s->ask = ask;
    s->ask_job = job;
    uv_async_send(&s->async);
    while (s->ask != NULL)
        pthread_cond_wait(&s->answered, &s->ask_lock);
    int answer = s->answer;
    pthread_mutex_unlock(&s->ask_lock);
    return answer;
}

static void *run_loop(void *arg)
{
    struct rdzv_server *s = arg;
    pthread_setname_np(pthread_self(), "rdzv-server");
    rdzv__events_run(s);
    return NULL;
}

/* Runs the close callbacks of what was started, on the caller's thread. */
static void unwind(struct rdzv_server *s)
{
    s->unnamed.listener.keep_fd = 1;
    rdzv__loop_close(s);
    uv_run(&s->own_loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->own_loop);
}

int rdzv__thread_start(struct rdzv_server *s, rdzv_error *err)
{
    int code = rdzv__own_loop_init(&s->own_loop, &s->async, on_command, s, err);
    if (code != RDZV_OK)
        return code;
    s->loop = &s->own_loop;
    s->handles++;
    int result = rdzv__loop_start(s);
    if (result != 0) {
        uv_close((uv_handle_t *)&s->async, NULL);
        uv_run(&s->own_loop, UV_RUN_DEFAULT);
        uv_loop_close(&s->own_loop);
        return rdzv__fail_sys(err, RDZV_EIO, -result, "listening in the event loop");
    }
    int error = thread_start(&s->thread, run_loop, s);
    if (error == 0)
        return RDZV_OK;
    unwind(s);
    return rdzv__fail_sys(err, RDZV_EIO, error, "starting the server's thread");
}

void rdzv__thread_stop(struct rdzv_server *s)
{
    atomic_store(&s->close_command, 1);
    uv_async_send(&s->async);
    pthread_join(s->thread, NULL);
    uv_loop_close(&s->own_loop);
}
