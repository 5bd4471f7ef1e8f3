/*
 * server.c: the public calls of rdzv.h for a server: options, and who may call what when. The work
 * is done by the files beside it, on the loop's thread. Invariant: nothing but close calls back
 * before the submitting call has returned, and every accepted operation calls back once.
 */
#include "clock.h"
#include "error.h"
#include "caller_options.h"
#include "options.h"
#include "uv/server.h"
#include "uv/socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024ull * 1024)

/* Key lengths and the size of the table are kept in 32 bits. */
enum { MAX_KEY_LIMIT = 1 << 30, MOST_KEYS = 1 << 30 };

void rdzv_server_options_init(rdzv_server_options *opt, size_t size)
{
    rdzv_server_options defaults = {
        .size = size,
        .host = "127.0.0.1",
        .listen_fd = -1,
        .backlog = 4096,
        .max_key_bytes = 8192,
        .max_value_bytes = 8 * MIB,
        .max_request_keys = 131072,
        .max_request_bytes = 256 * MIB,
        .max_store_bytes = 4096 * MIB,
        .max_unread_bytes = 256 * MIB,
        .max_connections = 1048576,
        .max_buffer_bytes = 4096 * MIB,
        .request_timeout_ms = 60000,
        .max_keys = MOST_KEYS,
        .log_level = RDZV_LOG_INFO,
    };
    options_fill(opt, size, &defaults, sizeof defaults);
}

static int read_options(rdzv_server_options *ret, const rdzv_server_options *opt, rdzv_error *err)
{
    rdzv_server_options_init(ret, sizeof *ret);
    int code = rdzv__options_read(ret, sizeof *ret, opt, offsetof(rdzv_server_options, host),
                                  "server", err);
    if (code != RDZV_OK)
        return code;
    if (ret->host == NULL && ret->listen_fd < 0)
        return rdzv__fail(err, RDZV_EINVAL, 0, "server options: neither host nor listen_fd");
    if (ret->backlog == 0 || ret->max_key_bytes == 0 || ret->max_value_bytes == 0 ||
        ret->max_request_keys == 0 || ret->max_request_bytes == 0 || ret->max_store_bytes == 0 ||
        ret->max_unread_bytes == 0 || ret->max_connections == 0 || ret->max_buffer_bytes == 0 ||
        ret->max_keys == 0)
        return rdzv__fail(err, RDZV_EINVAL, 0, "server options: backlog or a limit is 0");
    if (ret->max_key_bytes > MAX_KEY_LIMIT)
        return rdzv__fail(err, RDZV_EINVAL, 0, "server options: max_key_bytes is above %d",
                          MAX_KEY_LIMIT);
    if (ret->max_keys > MOST_KEYS)
        return rdzv__fail(err, RDZV_EINVAL, 0, "server options: max_keys is above %d", MOST_KEYS);
    if (ret->log_level < RDZV_LOG_ERROR || ret->log_level > RDZV_LOG_TRACE)
        return rdzv__fail(err, RDZV_EINVAL, 0, "server options: log_level is none of RDZV_LOG_*");
    return rdzv__options_allocator(ret->allocator, "server", err);
}

/* The job that every server has. */
static void init_unnamed(struct rdzv_server *s)
{
    struct rdzv_job *job = &s->unnamed;
    job->max.store_bytes = s->options.max_store_bytes;
    job->max.names = s->options.max_keys;
    job->max.buffer_bytes = s->options.max_buffer_bytes;
    job->max_connections = s->options.max_connections;
    job->forget_after_ms = s->options.forget_after_ms;
    rdzv__job_init(job, s);
    queue_push(&s->open_jobs, &job->open);
    s->at_work = job;
}

static struct rdzv_server *allocate(const rdzv_server_options *opt, const rdzv_allocator *a)
{
    struct rdzv_server *s = rdzv__alloc(a, sizeof *s);
    if (s == NULL)
        return NULL;
    memset(s, 0, sizeof *s);
    s->allocator = *a;
    s->read_buffer = rdzv__alloc(a, RDZV__READ_BYTES);
    if (s->read_buffer == NULL) {
        rdzv__free(a, s);
        return NULL;
    }
    s->log = opt->log;
    s->log_ctx = opt->log_ctx;
    s->owner = getpid();
    s->borrowed = opt->loop != NULL;
    s->loop = opt->loop;
    s->options = *opt;
    s->options.host = NULL; /* was borrowed */
    pthread_mutex_init(&s->ask_lock, NULL);
    pthread_cond_init(&s->answered, NULL);
    queue_init(&s->open_jobs);
    queue_init(&s->jobs);
    queue_init(&s->gone_jobs);
    queue_init(&s->begun);
    queue_init(&s->busy);
    queue_init(&s->gone);
    init_unnamed(s);
    return s;
}

static void release(struct rdzv_server *s)
{
    rdzv_allocator a = s->allocator;
    while (!queue_empty(&s->open_jobs)) {
        struct rdzv_job *job = CONTAINER_OF(s->open_jobs.next, struct rdzv_job, open);
        queue_remove(&job->open);
        rdzv__job_free(job);
    }
    pthread_cond_destroy(&s->answered);
    pthread_mutex_destroy(&s->ask_lock);
    rdzv__free(&a, s->read_buffer);
    rdzv__free(&a, s);
}

/* Puts the bound server to work. On failure nothing of it is left but memory and the socket. */
static int start(struct rdzv_server *s, rdzv_error *err)
{
    if (s->borrowed) {
        int result = rdzv__loop_start(s);
        return result == 0 ? RDZV_OK
                           : rdzv__fail(err, RDZV_EIO, -result, "listening in the given loop: %s",
                                        uv_strerror(result));
    }
    const rdzv_allocator *a = &s->allocator;
    struct outbox_hooks hooks = {a->alloc, a->free, a->ctx, s->log, s->log_ctx};
    int error = outbox_init(&s->out, &hooks, OUTBOX_LINES);
    if (error != 0)
        return rdzv__fail_sys(err, RDZV_EIO, error, "eventfd for the server");
    rdzv__log(s, RDZV_LOG_INFO, "listening on %s", s->unnamed.listener.address);
    int code = rdzv__thread_start(s, err);
    if (code != RDZV_OK)
        outbox_free(&s->out);
    return code;
}

int rdzv_server_open(rdzv_server **ret, const rdzv_server_options *opt, rdzv_error *err)
{
    rdzv_server_options o;
    if (ret == NULL)
        return rdzv__fail(err, RDZV_EINVAL, 0, "rdzv_server_open: ret is NULL");
    int code = read_options(&o, opt, err);
    if (code != RDZV_OK)
        return code;
    const rdzv_allocator *a = o.allocator != NULL ? o.allocator : &rdzv__allocator_libc;
    struct rdzv_server *s = allocate(&o, a);
    if (s == NULL)
        return rdzv__fail(err, RDZV_ENOMEM, ENOMEM, "out of memory for a server");
    struct rdzv__listen_at at = {o.host, o.port, o.listen_fd, o.backlog};
    code = rdzv__listener_bind(&s->unnamed.listener, &at, err);
    if (code != RDZV_OK) {
        release(s);
        return code;
    }
    code = start(s, err);
    if (code != RDZV_OK) {
        if (o.listen_fd < 0)
            rdzv__socket_close(s->unnamed.listener.fd);
        release(s);
        return code;
    }
    *ret = s;
    return RDZV_OK;
}

const char *rdzv_server_address(const rdzv_server *s, uint16_t *port)
{
    return rdzv_job_address(&s->unnamed, port);
}

int rdzv_server_get_stats(const rdzv_server *s, rdzv_server_stats *ret)
{
    int code = rdzv__server_check(s);
    if (code != RDZV_OK)
        return code;
    rdzv_server_stats sum = s->past;
    for (const struct queue *at = s->open_jobs.next; at != &s->open_jobs; at = at->next)
        rdzv__job_add_stats(CONTAINER_OF(at, struct rdzv_job, open), &sum);
    return rdzv__stats_give(&sum, ret);
}

void rdzv__server_drained(struct rdzv_server *s)
{
    rdzv_closed_fn drained = s->drained;
    s->drained = NULL;
    if (drained != NULL)
        drained(s->drained_ctx);
}

static void deliver_drained(struct letter *letter)
{
    rdzv__server_drained(CONTAINER_OF(letter, struct rdzv_server, drained_letter));
}

int rdzv_server_drain(rdzv_server *s, int32_t timeout_ms, rdzv_closed_fn drained, void *ctx)
{
    int code = rdzv__server_check(s);
    if (code != RDZV_OK)
        return code;
    if (timeout_ms < -1)
        return RDZV_EINVAL;
    if (s->borrowed && s->closing)
        return RDZV_ESTATE;
    if (s->drain_asked)
        return RDZV_EBUSY;
    s->drain_asked = 1;
    s->drained = drained;
    s->drained_ctx = ctx;
    if (s->borrowed) {
        rdzv__loop_drain(s, timeout_ms);
        return RDZV_OK;
    }
    s->drained_letter.deliver = deliver_drained;
    s->drain_timeout_ms = timeout_ms;
    atomic_store(&s->drain_command, 1);
    uv_async_send(&s->async);
    return RDZV_OK;
}

/* For the calls that only a server with its own thread has. */
static int check_own(const rdzv_server *s)
{
    int code = rdzv__server_check(s);
    if (code == RDZV_OK && s->borrowed)
        code = RDZV_ENOTSUP;
    return code;
}

int rdzv_server_fd(const rdzv_server *s)
{
    int code = check_own(s);
    return code != RDZV_OK ? code : s->out.mailbox.fd;
}

int rdzv_server_dispatch(rdzv_server *s)
{
    int code = check_own(s);
    if (code != RDZV_OK)
        return code;
    if (s->in_callback)
        return RDZV_EBUSY;
    s->in_callback++;
    int count = mailbox_deliver(&s->out.mailbox);
    s->in_callback--;
    return count;
}

int rdzv_server_wait(rdzv_server *s, int timeout_ms)
{
    int code = check_own(s);
    if (code != RDZV_OK)
        return code;
    if (s->in_callback)
        return RDZV_EBUSY;
    uint64_t now = clock_ms();
    uint64_t end = clock_end_ms(timeout_ms);
    for (;;) {
        struct pollfd p = {.fd = s->out.mailbox.fd, .events = POLLIN};
        if (poll(&p, 1, clock_poll_ms(now, end)) < 0)
            return errno == EINTR ? 0 : RDZV_EIO;
        int count = rdzv_server_dispatch(s);
        now = clock_ms();
        if (count != 0 || now >= end)
            return count;
    }
}

void rdzv__server_finish(struct rdzv_server *s)
{
    s->in_callback++;
    if (!s->borrowed)
        mailbox_deliver(&s->out.mailbox);
    rdzv__jobs_finish(s);
    rdzv__server_drained(s);
    rdzv_closed_fn closed = s->closed;
    void *ctx = s->closed_ctx;
    if (!s->borrowed)
        outbox_free(&s->out);
    release(s);
    if (closed != NULL)
        closed(ctx);
}

void rdzv__close_ignored(struct rdzv_server *s, int *told, const char *call)
{
    int told_before = *told;
    *told = 1;
    if (!told_before && !s->borrowed)
        rdzv__log(s, RDZV_LOG_ERROR, "%s was called from a callback: ignored", call);
}

void rdzv_server_close(rdzv_server *s, rdzv_closed_fn closed, void *ctx)
{
    if (rdzv__server_check(s) != RDZV_OK)
        return; /* NULL, or a child after fork: everything here belongs to the parent */
    if (s->in_callback) {
        rdzv__close_ignored(s, &s->told_close, "rdzv_server_close");
        return;
    }
    if (s->borrowed && s->closing)
        return;
    s->closed = closed;
    s->closed_ctx = ctx;
    if (s->borrowed) {
        rdzv__loop_close(s);
        return;
    }
    rdzv__thread_stop(s);
    rdzv__server_finish(s);
}
