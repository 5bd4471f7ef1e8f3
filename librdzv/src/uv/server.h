/*
 * server.h: the server and its jobs as the files of the shell share them. Everything but what is
 * marked "caller" belongs to the thread of the loop.
 *
 * One job is at work at a time: the one whose sockets are served. Whatever touches a job's core or
 * clients calls rdzv__job_enter first. So the counts and limits of the others stand still
 * meanwhile, and a request has no total to keep: its own core's limits already are what the others
 * have left.
 */
#ifndef RDZV_UV_SERVER_H
#define RDZV_UV_SERVER_H

#include "alloc.h"
#include "core/core.h"
#include "outbox.h"
#include "queue.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>
#include <uv.h>

enum { RDZV__READ_BYTES = 65536 };

/* Events that a hostile or broken peer can repeat; each kind gets one log line per second. The
 * core's reasons come first. */
enum {
    RDZV__LOG_ACCEPT_PAUSED = RDZV__WHY_COUNT,
    RDZV__LOG_ACCEPT_FAILED,
    RDZV__LOG_TOO_MANY,
    RDZV__LOG_KINDS
};

struct rdzv__log_window {
    uint64_t opened_ms; /* 0 = never */
    uint64_t left_out;  /* since then */
};

struct rdzv__listen_at {
    const char *host;
    uint16_t port;
    int32_t fd; /* -1, or the caller's socket, instead of host and port */
    uint32_t backlog;
};

struct rdzv__listener {
    int fd;            /* -1 = closed */
    int shared;        /* it came from the caller, and others may go on with it */
    int keep_fd;       /* open failed: the descriptor stays the caller's */
    uint64_t retry_ms; /* of clock_ms: accepting pauses until then; 0 = it does not */
    int broken;        /* errno of accept that was said; 0 = it works */
    char address[64];
    uint16_t port;
};

enum { RDZV__DRAIN_NO = 0, RDZV__DRAIN_RUNNING, RDZV__DRAIN_DONE };

/* Published for rdzv_job_get_stats. */
struct rdzv__stats {
    atomic_uint_least64_t connections, accepted, refused, requests, keys, store_bytes, waiting,
        buffer_bytes;
};

/* A job: its keys, its listener, its clients. */
struct rdzv_job {
    struct rdzv_server *server;
    struct queue open;                  /* caller: in server->open_jobs */
    char run_id[RDZV_RUN_ID_BYTES + 1]; /* "" = the unnamed one; fixed from its open on */
    struct queue link;                  /* in server->jobs; closed on a borrowed loop: gone_jobs */
    struct rdzv__core core;
    struct rdzv__listener listener;
    struct queue conns;
    uint64_t conn_count;
    uint64_t accepted;
    uint64_t refused;
    struct rdzv__room max; /* its own limits */
    uint64_t max_connections;
    uint32_t forget_after_ms;
    uint64_t forget_ms;       /* of clock_ms: when it is due; 0 = there is nothing to forget */
    uint64_t forget_requests; /* core.requests when the clock was set */
    uint64_t ended_conns;     /* what rdzv__job_stop found, for the log */
    uint64_t ended_names;
    struct rdzv__log_window windows[RDZV__LOG_KINDS];
    struct rdzv__stats stats;
    int told_close;        /* caller: see rdzv__close_ignored */
    rdzv_closed_fn closed; /* caller */
    void *closed_ctx;      /* caller */
};

struct rdzv_server {
    rdzv_allocator allocator;
    rdzv_log_fn log;
    void *log_ctx;
    pid_t owner;            /* caller: process that opened it */
    int borrowed;           /* the loop is the caller's */
    int in_callback;        /* caller: depth of callbacks that may not close, dispatch or wait */
    int told_close;         /* caller: that a close from there was ignored */
    int drain_asked;        /* caller */
    struct queue open_jobs; /* caller: handles that are not closed, the unnamed job first */
    rdzv_server_stats past; /* caller: what closed jobs had counted */
    uv_loop_t *loop;
    rdzv_server_options options;
    struct rdzv_job unnamed;
    struct queue jobs;      /* served */
    struct queue gone_jobs; /* borrowed loop: closed, but `closed` has not run */
    struct rdzv_job *at_work;
    struct rdzv__room others; /* what all jobs but the one at work take up */
    uv_timer_t log_timer;
    uv_timer_t drain_timer;
    uv_timer_t jobs_timer;    /* for what jobs have to do later */
    uv_timer_t request_timer; /* runs while `begun` is not empty */
    uv_idle_t busy_idle;      /* runs while `busy` is not empty */
    struct queue busy;        /* connections with bytes that wait for their turn, see conn.c */
    struct queue begun; /* connections with a request that has not come in whole, oldest first */
    struct queue gone;  /* closed, but an event at hand may still name them */
    uv_poll_t poll;     /* of `epoll`, in a borrowed loop */
    int epoll;
    uint64_t conn_count;
    uint32_t handles; /* uv handles whose close callback has not run */
    int closing;
    int drain;
    uint64_t drain_end_ms;  /* of clock_ms */
    rdzv_closed_fn drained; /* caller: NULL once called */
    void *drained_ctx;      /* caller */
    rdzv_closed_fn closed;  /* caller */
    void *closed_ctx;       /* caller */
    uint8_t *read_buffer;

    /* Own thread only. */
    uv_loop_t own_loop;
    uv_async_t async;
    pthread_t thread;
    struct outbox out;
    struct letter drained_letter; /* caller, until the loop posts it */
    atomic_int drain_command;
    atomic_int close_command;
    int32_t drain_timeout_ms; /* written before drain_command */
    pthread_mutex_t ask_lock; /* of the next four */
    pthread_cond_t answered;
    int (*ask)(struct rdzv_job *job); /* NULL once it is answered */
    struct rdzv_job *ask_job;
    int answer;
};

/* log.c */
/* Whether a line of this level goes anywhere: asked before one that costs more than its format. */
static inline int rdzv__logs(const struct rdzv_server *s, int level)
{
    return s->log != NULL && level <= s->options.log_level;
}
__attribute__((format(printf, 3, 4))) void rdzv__log(struct rdzv_server *s, int level,
                                                     const char *format, ...);
/* The line names the job. */
__attribute__((format(printf, 3, 4))) void rdzv__log_job(struct rdzv_job *job, int level,
                                                         const char *format, ...);
/* For one of the repeatable kinds: one line a second; how many were left out is said later. */
__attribute__((format(printf, 4, 5))) void rdzv__log_kind(struct rdzv_job *job, int kind, int level,
                                                          const char *format, ...);
/* Says how many were left out so far. */
void rdzv__log_left_out(struct rdzv_job *job);

/* listen.c */
int rdzv__listener_bind(struct rdzv__listener *l, const struct rdzv__listen_at *at,
                        rdzv_error *err);
/* Into the epoll set; 0, or a negative errno. */
int rdzv__listener_start(struct rdzv_job *job);
/* Takes what has come, up to a limit. */
void rdzv__listener_accept(struct rdzv_job *job);
/* Whether a client has come that is not accepted yet. */
int rdzv__listener_waits(const struct rdzv_job *job);
/* Ends a pause. */
void rdzv__listener_retry(struct rdzv_job *job);
void rdzv__listener_close(struct rdzv_job *job);
/* "127.0.0.1:29400" or "[::1]:29400"; returns the port. */
uint16_t rdzv__address_text(const struct sockaddr_storage *addr, char *ret, size_t size);

/* conn.c */
struct rdzv__conn;
/* Takes over `fd`. */
void rdzv__conn_open(struct rdzv_job *job, int fd);
void rdzv__conn_serve(struct rdzv__conn *c, uint32_t events);
/* At the end of a turn. */
void rdzv__conn_free_gone(struct rdzv_server *s);
void rdzv__conn_close_all(struct rdzv_job *job);

/* events.c: the listeners and all connections as one descriptor on the loop. */
int rdzv__events_start(struct rdzv_server *s); /* 0, or a libuv error and nothing is left */
/* The own thread: serves until the server has closed. */
void rdzv__events_run(struct rdzv_server *s);
/* Serves what has come by now; for a timer that would judge without having looked. */
void rdzv__events_look(struct rdzv_server *s);
void rdzv__events_close(struct rdzv_server *s);
/* What the epoll set keeps for a listener; for a conn it is the pointer itself. */
static inline uint64_t rdzv__events_listener(const struct rdzv_job *job)
{
    return (uint64_t)(uintptr_t)job | 1;
}

/* job.c: a job on the loop's thread. */
void rdzv__job_init(struct rdzv_job *job, struct rdzv_server *s);
int rdzv__job_start(struct rdzv_job *job); /* 0, or a negative errno and it is not served */
/* Closes its sockets and forgets its keys. Returns 0. */
int rdzv__job_stop(struct rdzv_job *job);
void rdzv__job_free(struct rdzv_job *job);
void rdzv__job_switch(struct rdzv_job *job);
static inline void rdzv__job_enter(struct rdzv_job *job)
{
    if (job->server->at_work != job)
        rdzv__job_switch(job);
}
/* The last client of the job has left. */
void rdzv__job_left(struct rdzv_job *job);
/* The jobs have something to do in `delay_ms`. */
void rdzv__jobs_due(struct rdzv_server *s, uint64_t delay_ms);
/* Caller: frees a job that has stopped, and calls its `closed`. */
void rdzv__job_finish(struct rdzv_job *job);
/* Borrowed loop: for every job in gone_jobs. */
void rdzv__jobs_finish(struct rdzv_server *s);
void rdzv__job_publish(struct rdzv_job *job);
/* For a line about a client that was refused: whose limit it was; "" when it was none. */
const char *rdzv__job_whose(const struct rdzv_job *job, int why);
/* The job's own limit, or else one that other jobs have used up. */
const char *rdzv__whose_limit(int of_job, int with_others);

/* job_calls.c, on the caller's thread */
void rdzv__job_add_stats(const struct rdzv_job *job, rdzv_server_stats *sum);
/* Copies `sum` to a caller's struct, which may be of another version. RDZV_OK or RDZV_EINVAL. */
int rdzv__stats_give(const rdzv_server_stats *sum, rdzv_server_stats *ret);

/* loop.c: what happens on the loop's thread. */
int rdzv__loop_start(struct rdzv_server *s);
void rdzv__loop_drain(struct rdzv_server *s, int32_t timeout_ms);
void rdzv__loop_close(struct rdzv_server *s);
/* The last connection may have left. */
void rdzv__loop_conn_left(struct rdzv_server *s);
/* Close callback of every handle of the server itself. */
void rdzv__loop_handle_closed(uv_handle_t *handle);
/* Caller, own thread: has the loop run `ask`, and returns what that returned. */
int rdzv__thread_ask(struct rdzv_server *s, int (*ask)(struct rdzv_job *job), struct rdzv_job *job);
int rdzv__thread_start(struct rdzv_server *s, rdzv_error *err);
void rdzv__thread_stop(struct rdzv_server *s);

/* server.c */
/* Caller: may it call anything on this server? */
static inline int rdzv__server_check(const struct rdzv_server *s)
{
    if (s == NULL)
        return RDZV_EINVAL;
    return s->owner == getpid() ? RDZV_OK : RDZV_ESTATE;
}
/* Caller: says so, but once, for it may be the log hook that calls; on a borrowed loop that would
 * be called within itself. */
void rdzv__close_ignored(struct rdzv_server *s, int *told, const char *call);
/* Caller: calls `drained` of struct rdzv_server *s, if it is still owed. */
void rdzv__server_drained(struct rdzv_server *s);
/* Caller: calls what is still owed, frees everything, calls `closed`. */
void rdzv__server_finish(struct rdzv_server *s);

#endif
