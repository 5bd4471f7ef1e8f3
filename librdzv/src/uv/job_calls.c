/*
 * job_calls.c: the public calls of rdzv.h for a job. On a borrowed loop they do the work at once;
 * an own thread is asked to do it while the caller waits, so an answer is always the whole answer.
 * Invariant: a job is in server->open_jobs while its handle is the owner's, and no two jobs there
 * have one run id.
 */
#include "error.h"
#include "caller_options.h"
#include "options.h"
#include "uv/server.h"
#include "uv/socket.h"

#include <errno.h>
#include <string.h>

void rdzv_job_options_init(rdzv_job_options *opt, size_t size)
{
    rdzv_job_options defaults = {
        .size = size,
        .host = "127.0.0.1",
        .listen_fd = -1,
        .backlog = 4096,
    };
    options_fill(opt, size, &defaults, sizeof defaults);
}

static int read_options(rdzv_job_options *ret, const rdzv_job_options *opt, rdzv_error *err)
{
    rdzv_job_options_init(ret, sizeof *ret);
    int code =
        rdzv__options_read(ret, sizeof *ret, opt, offsetof(rdzv_job_options, host), "job", err);
    if (code != RDZV_OK)
        return code;
    size_t len = ret->run_id != NULL ? strnlen(ret->run_id, RDZV_RUN_ID_BYTES + 1) : 0;
    if (len == 0 || len > RDZV_RUN_ID_BYTES)
        return rdzv__fail(err, RDZV_EINVAL, 0, "job options: run_id must have 1 to %d characters",
                          (int)RDZV_RUN_ID_BYTES);
    for (size_t i = 0; i < len; i++)
        if (ret->run_id[i] < ' ' || ret->run_id[i] > '~')
            return rdzv__fail(err, RDZV_EINVAL, 0,
                              "job options: character %zu of run_id is not printable ASCII", i + 1);
    if (ret->host == NULL && ret->listen_fd < 0)
        return rdzv__fail(err, RDZV_EINVAL, 0, "job options: neither host nor listen_fd");
    if (ret->backlog == 0)
        return rdzv__fail(err, RDZV_EINVAL, 0, "job options: backlog is 0");
    return RDZV_OK;
}

static uint64_t own_limit(uint64_t wanted, uint64_t of_server)
{
    return wanted != 0 && wanted < of_server ? wanted : of_server;
}

static struct rdzv_job *allocate(struct rdzv_server *s, const rdzv_job_options *opt)
{
    const rdzv_server_options *o = &s->options;
    struct rdzv_job *job = rdzv__alloc(&s->allocator, sizeof *job);
    if (job == NULL)
        return NULL;
    memset(job, 0, sizeof *job);
    memcpy(job->run_id, opt->run_id, strlen(opt->run_id) + 1);
    job->max.store_bytes = own_limit(opt->max_store_bytes, o->max_store_bytes);
    job->max.names = own_limit(opt->max_keys, o->max_keys);
    job->max.buffer_bytes = own_limit(opt->max_buffer_bytes, o->max_buffer_bytes);
    job->max_connections = own_limit(opt->max_connections, o->max_connections);
    job->forget_after_ms = opt->forget_after_ms;
    rdzv__job_init(job, s);
    return job;
}

/* Whether a job may be opened now. */
static int check_open(const struct rdzv_server *s, rdzv_error *err)
{
    if (rdzv__server_check(s) != RDZV_OK)
        return rdzv__fail(err, RDZV_ESTATE, 0,
                          "the server belongs to process %ld, not to its child", (long)s->owner);
    if (s->in_callback)
        return rdzv__fail(err, RDZV_EBUSY, 0, "a callback cannot open a job");
    if (s->drain_asked || (s->borrowed && s->closing))
        return rdzv__fail(err, RDZV_ESTATE, 0, "the server takes no clients any more");
    return RDZV_OK;
}

static int check_run_id(const struct rdzv_server *s, const char *run_id, rdzv_error *err)
{
    for (const struct queue *at = s->open_jobs.next; at != &s->open_jobs; at = at->next) {
        const struct rdzv_job *job = CONTAINER_OF(at, struct rdzv_job, open);
        if (strcmp(job->run_id, run_id) == 0)
            return rdzv__fail(err, RDZV_EBUSY, 0, "job \"%.150s\" is open already, on %s", run_id,
                              job->listener.address);
    }
    return RDZV_OK;
}

/* Binds here, so that the caller learns what is wrong with the address; then has it served. */
static int start(struct rdzv_job *job, const rdzv_job_options *opt, rdzv_error *err)
{
    struct rdzv_server *s = job->server;
    struct rdzv__listen_at at = {opt->host, opt->port, opt->listen_fd, opt->backlog};
    int code = rdzv__listener_bind(&job->listener, &at, err);
    if (code != RDZV_OK)
        return code;
    int result = s->borrowed ? rdzv__job_start(job) : rdzv__thread_ask(s, rdzv__job_start, job);
    if (result == 0)
        return RDZV_OK;
    if (opt->listen_fd < 0)
        rdzv__socket_close(job->listener.fd);
    return rdzv__fail_sys(err, result == -ENOMEM ? RDZV_ENOMEM : RDZV_EIO, -result,
                          "serving job \"%.100s\" on %s", job->run_id, job->listener.address);
}

int rdzv_server_open_job(rdzv_server *s, rdzv_job **ret, const rdzv_job_options *opt,
                         rdzv_error *err)
{
    rdzv_job_options o;
    if (s == NULL || ret == NULL)
        return rdzv__fail(err, RDZV_EINVAL, 0, "rdzv_server_open_job: server or ret is NULL");
    int code = check_open(s, err);
    if (code == RDZV_OK)
        code = read_options(&o, opt, err);
    if (code == RDZV_OK)
        code = check_run_id(s, o.run_id, err);
    if (code != RDZV_OK)
        return code;
    struct rdzv_job *job = allocate(s, &o);
    if (job == NULL)
        return rdzv__fail(err, RDZV_ENOMEM, ENOMEM, "out of memory for job \"%.150s\"", o.run_id);
    code = start(job, &o, err);
    if (code != RDZV_OK) {
        rdzv__job_free(job);
        return code;
    }
    queue_push(&s->open_jobs, &job->open);
    if (!s->borrowed)
        rdzv__log_job(job, RDZV_LOG_INFO, "listening on %s", job->listener.address);
    *ret = job;
    return RDZV_OK;
}

const char *rdzv_job_address(const rdzv_job *job, uint16_t *port)
{
    if (port != NULL)
        *port = job->listener.port;
    return job->listener.address;
}

void rdzv__job_add_stats(const struct rdzv_job *job, rdzv_server_stats *sum)
{
    const struct rdzv__stats *st = &job->stats;
    sum->connections += atomic_load_explicit(&st->connections, memory_order_relaxed);
    sum->accepted += atomic_load_explicit(&st->accepted, memory_order_relaxed);
    sum->refused += atomic_load_explicit(&st->refused, memory_order_relaxed);
    sum->requests += atomic_load_explicit(&st->requests, memory_order_relaxed);
    sum->keys += atomic_load_explicit(&st->keys, memory_order_relaxed);
    sum->store_bytes += atomic_load_explicit(&st->store_bytes, memory_order_relaxed);
    sum->waiting += atomic_load_explicit(&st->waiting, memory_order_relaxed);
    sum->buffer_bytes += atomic_load_explicit(&st->buffer_bytes, memory_order_relaxed);
}

int rdzv__stats_give(const rdzv_server_stats *sum, rdzv_server_stats *ret)
{
    rdzv_server_stats now = *sum;
    if (ret == NULL || ret->size < sizeof ret->size || ret->size > OPTIONS_MOST_BYTES)
        return RDZV_EINVAL;
    now.size = ret->size;
    options_fill(ret, ret->size, &now, sizeof now);
    return RDZV_OK;
}

static struct rdzv_server *server_of(const rdzv_job *job)
{
    return job != NULL ? job->server : NULL;
}

int rdzv_job_get_stats(const rdzv_job *job, rdzv_server_stats *ret)
{
    rdzv_server_stats now = {0};
    int code = rdzv__server_check(server_of(job));
    if (code != RDZV_OK)
        return code;
    rdzv__job_add_stats(job, &now);
    return rdzv__stats_give(&now, ret);
}

void rdzv_job_close(rdzv_job *job, rdzv_closed_fn closed, void *ctx)
{
    struct rdzv_server *s = server_of(job);
    if (rdzv__server_check(s) != RDZV_OK)
        return;
    if (s->in_callback) {
        rdzv__close_ignored(s, &job->told_close, "rdzv_job_close");
        return;
    }
    job->closed = closed;
    job->closed_ctx = ctx;
    queue_remove(&job->open);
    if (s->borrowed)
        rdzv__job_stop(job);
    else
        rdzv__thread_ask(s, rdzv__job_stop, job);
    rdzv__job_add_stats(job, &s->past);
    if (s->borrowed) {
        queue_push(&s->gone_jobs, &job->link);
        rdzv__jobs_due(s, 0);
        return;
    }
    s->in_callback++;
    rdzv__job_finish(job);
    s->in_callback--;
}
