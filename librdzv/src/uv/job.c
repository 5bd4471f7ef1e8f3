/*
 * job.c: a job on the loop's thread: which one is at work, its share of the server's limits, what
 * it does later (accept again, forget its keys), its end. Invariant: `others` is what all jobs but
 * the one at work take up, and every job but that one has published its counts. Knows nothing of
 * the owner's handles.
 */
#include "clock.h"
#include "uv/random.h"
#include "uv/server.h"

void rdzv__job_init(struct rdzv_job *job, struct rdzv_server *s)
{
    const rdzv_server_options *o = &s->options;
    struct rdzv__core_options options = {
        .allocator = &s->allocator,
        .limits = {o->max_key_bytes, o->max_value_bytes, o->max_request_keys, o->max_request_bytes},
        .max = job->max,
        .max_unread_bytes = o->max_unread_bytes,
        .hash_seed = rdzv__random(),
    };
    job->server = s;
    queue_init(&job->open);
    queue_init(&job->link);
    queue_init(&job->conns);
    rdzv__core_init(&job->core, &options);
}

void rdzv__job_free(struct rdzv_job *job)
{
    rdzv_allocator a = job->server->allocator;
    rdzv__core_free(&job->core);
    if (job != &job->server->unnamed)
        rdzv__free(&a, job);
}

static uint64_t share(uint64_t own, uint64_t all, uint64_t others)
{
    uint64_t left = all > others ? all - others : 0;
    return own < left ? own : left;
}

void rdzv__job_switch(struct rdzv_job *job)
{
    struct rdzv_server *s = job->server;
    const rdzv_server_options *o = &s->options;
    struct rdzv__room was = rdzv__core_used(&s->at_work->core);
    struct rdzv__room is = rdzv__core_used(&job->core);
    rdzv__job_publish(s->at_work);
    s->others.store_bytes += was.store_bytes - is.store_bytes;
    s->others.names += was.names - is.names;
    s->others.buffer_bytes += was.buffer_bytes - is.buffer_bytes;
    s->at_work = job;
    struct rdzv__room may = {
        share(job->max.store_bytes, o->max_store_bytes, s->others.store_bytes),
        share(job->max.names, o->max_keys, s->others.names),
        share(job->max.buffer_bytes, o->max_buffer_bytes, s->others.buffer_bytes),
    };
    rdzv__core_limit(&job->core, &may);
}

const char *rdzv__whose_limit(int of_job, int with_others)
{
    if (of_job)
        return " (of this job)";
    return with_others ? " (of the server, all jobs together)" : "";
}

const char *rdzv__job_whose(const struct rdzv_job *job, int why)
{
    const rdzv_server_options *o = &job->server->options;
    uint64_t all = o->max_store_bytes;
    uint64_t own = job->max.store_bytes;
    uint64_t now = job->core.options.max.store_bytes;
    if (why == RDZV__WHY_KEYS_FULL) {
        all = o->max_keys;
        own = job->max.names;
        now = job->core.options.max.names;
    } else if (why == RDZV__WHY_BUFFERS_FULL) {
        all = o->max_buffer_bytes;
        own = job->max.buffer_bytes;
        now = job->core.options.max.buffer_bytes;
    } else if (why != RDZV__WHY_STORE_FULL) {
        return "";
    }
    return rdzv__whose_limit(own < all && now == own, now < all);
}

void rdzv__job_publish(struct rdzv_job *job)
{
    struct rdzv__stats *st = &job->stats;
    const struct rdzv__core *core = &job->core;
    atomic_store_explicit(&st->connections, job->conn_count, memory_order_relaxed);
    atomic_store_explicit(&st->accepted, job->accepted, memory_order_relaxed);
    atomic_store_explicit(&st->refused, job->refused, memory_order_relaxed);
    atomic_store_explicit(&st->requests, core->requests, memory_order_relaxed);
    atomic_store_explicit(&st->keys, core->store.keys, memory_order_relaxed);
    atomic_store_explicit(&st->store_bytes, core->store.bytes, memory_order_relaxed);
    atomic_store_explicit(&st->waiting, core->waiting, memory_order_relaxed);
    atomic_store_explicit(&st->buffer_bytes, core->buffer_bytes, memory_order_relaxed);
}

int rdzv__job_start(struct rdzv_job *job)
{
    int result = rdzv__listener_start(job);
    if (result == 0)
        queue_push(&job->server->jobs, &job->link);
    return result;
}

int rdzv__job_stop(struct rdzv_job *job)
{
    struct rdzv_server *s = job->server;
    rdzv__job_enter(job);
    job->ended_conns = job->conn_count;
    rdzv__listener_close(job);
    rdzv__conn_close_all(job);
    job->ended_names = rdzv__core_used(&job->core).names; /* with no client, none is only awaited */
    rdzv__core_forget(&job->core);
    rdzv__log_left_out(job);
    queue_remove(&job->link);
    rdzv__job_enter(&s->unnamed);
    rdzv__job_publish(job);
    return 0;
}

/* A connection that asked nothing, say a probe of the port, leaves the clock as it was. */
void rdzv__job_left(struct rdzv_job *job)
{
    uint64_t now = clock_ms();
    if (job->forget_after_ms == 0)
        return;
    if (job->forget_ms == 0 || job->forget_requests != job->core.requests) {
        job->forget_ms = now + job->forget_after_ms;
        job->forget_requests = job->core.requests;
    }
    rdzv__jobs_due(job->server, job->forget_ms > now ? job->forget_ms - now : 0);
}

static void forget(struct rdzv_job *job)
{
    uint64_t names = rdzv__core_used(&job->core).names;
    job->forget_ms = 0;
    if (names == 0)
        return;
    rdzv__core_forget(&job->core);
    rdzv__log_job(job, RDZV_LOG_INFO, "forgot %llu keys and queues: no client for %lu ms",
                  (unsigned long long)names, (unsigned long)job->forget_after_ms);
}

/* Does what is due at `now`; returns when the job wants to be looked at again, 0 = not. */
static uint64_t look_at(struct rdzv_job *job, uint64_t now)
{
    uint64_t next = 0;
    rdzv__job_enter(job);
    if (job->listener.retry_ms != 0 && job->listener.retry_ms <= now)
        rdzv__listener_retry(job);
    if (job->listener.retry_ms != 0)
        next = job->listener.retry_ms;
    if (job->forget_ms == 0 || job->conn_count > 0)
        return next; /* the last client to leave asks again */
    if (job->forget_ms <= now && !rdzv__listener_waits(job))
        forget(job);
    else if (job->forget_ms <= now) /* one has come while the server stood still, say */
        next = next != 0 ? next : now + 1;
    else if (next == 0 || job->forget_ms < next)
        next = job->forget_ms;
    return next;
}

static void on_jobs_timer(uv_timer_t *timer)
{
    struct rdzv_server *s = timer->data;
    uint64_t now = clock_ms();
    uint64_t next = 0;
    for (struct queue *at = s->jobs.next; at != &s->jobs; at = at->next) {
        uint64_t job_next = look_at(CONTAINER_OF(at, struct rdzv_job, link), now);
        if (job_next != 0 && (next == 0 || job_next < next))
            next = job_next;
    }
    rdzv__job_publish(s->at_work);
    if (next != 0)
        rdzv__jobs_due(s, next - now);
    rdzv__jobs_finish(s); /* last, for a callback may close the server */
}

void rdzv__jobs_due(struct rdzv_server *s, uint64_t delay_ms)
{
    if (s->closing)
        return;
    if (!uv_is_active((uv_handle_t *)&s->jobs_timer) ||
        uv_timer_get_due_in(&s->jobs_timer) > delay_ms)
        uv_timer_start(&s->jobs_timer, on_jobs_timer, delay_ms, 0);
}

void rdzv__job_finish(struct rdzv_job *job)
{
    rdzv_closed_fn closed = job->closed;
    void *ctx = job->closed_ctx;
    rdzv__log_job(job, RDZV_LOG_INFO, "closed with %llu clients, %llu keys and queues",
                  (unsigned long long)job->ended_conns, (unsigned long long)job->ended_names);
    rdzv__job_free(job);
    if (closed != NULL)
        closed(ctx);
}

void rdzv__jobs_finish(struct rdzv_server *s)
{
    while (!queue_empty(&s->gone_jobs)) {
        struct rdzv_job *job = CONTAINER_OF(s->gone_jobs.next, struct rdzv_job, link);
        queue_remove(&job->link);
        rdzv__job_finish(job);
    }
}
