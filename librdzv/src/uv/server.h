/*
 * server.h: the server object as the files of the shell share it. Everything but what is marked
 * "caller" belongs to the thread of the loop.
 */
#ifndef RDZV_UV_SERVER_H
#define RDZV_UV_SERVER_H

#include "alloc.h"
#include "core/core.h"
#include "queue.h"
#include "uv/mailbox.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/types.h>
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

struct rdzv__listener {
    uv_timer_t retry; /* ends a pause of accepting */
    int fd;           /* -1 = closed */
    int keep_fd;      /* open failed: the descriptor stays the caller's */
    char address[64];
    uint16_t port;
};

enum { RDZV__DRAIN_NO = 0, RDZV__DRAIN_RUNNING, RDZV__DRAIN_DONE };

/* Published for rdzv_server_get_stats. */
struct rdzv__stats {
    atomic_uint_least64_t connections, accepted, refused, requests, keys, store_bytes, waiting,
        buffer_bytes;
};

struct rdzv_server {
    rdzv_allocator allocator;
    rdzv_log_fn log;
    void *log_ctx;
    pid_t owner;     /* caller: process that opened it */
    int borrowed;    /* the loop is the caller's */
    int in_callback; /* caller: depth of callbacks that may not close, dispatch or wait */
    int drain_asked; /* caller */
    uv_loop_t *loop;
    struct rdzv__core core;
    struct rdzv__listener listener;
    struct rdzv__log_window windows[RDZV__LOG_KINDS];
    uv_timer_t log_timer;
    uv_timer_t drain_timer;
    uv_timer_t request_timer; /* runs while `begun` is not empty */
    uint32_t request_timeout_ms;
    struct queue conns;
    struct queue begun; /* connections with a request that has not come in whole, oldest first */
    uint64_t max_connections;
    struct queue gone; /* closed, but an event at hand may still name them */
    uv_poll_t poll;    /* of `epoll` */
    int epoll;
    uint64_t conn_count;
    uint64_t accepted;
    uint64_t refused;
    uint32_t handles; /* uv handles whose close callback has not run */
    int closing;
    int drain;
    rdzv_closed_fn drained; /* NULL once called */
    void *drained_ctx;
    rdzv_closed_fn closed;
    void *closed_ctx;
    struct rdzv__stats stats;
    uint8_t *read_buffer;

    /* Own thread only. */
    uv_loop_t own_loop;
    uv_async_t async;
    pthread_t thread;
    struct rdzv__mailbox mailbox;
    struct rdzv__letter *drained_letter; /* allocated at open, so drained cannot be lost */
    atomic_int drain_command;
    atomic_int close_command;
    int32_t drain_timeout_ms; /* written before drain_command */
};

/* log.c */
__attribute__((format(printf, 3, 4))) void rdzv__log(struct rdzv_server *s, int level,
                                                     const char *format, ...);
/* For one of the repeatable kinds; says how many were left out when the second is over. */
__attribute__((format(printf, 4, 5))) void rdzv__log_kind(struct rdzv_server *s, int kind,
                                                          int level, const char *format, ...);
void rdzv__log_timer(uv_timer_t *timer);

/* listen.c */
int rdzv__listener_bind(struct rdzv__listener *l, const rdzv_server_options *opt, rdzv_error *err);
/* Takes what has come, up to a limit. */
void rdzv__listener_accept(struct rdzv_server *s);
void rdzv__listener_start(struct rdzv_server *s);
void rdzv__listener_close(struct rdzv_server *s);
/* "127.0.0.1:29400" or "[::1]:29400"; returns the port. */
uint16_t rdzv__address_text(const struct sockaddr_storage *addr, char *ret, size_t size);

/* conn.c */
struct rdzv__conn;
/* Takes over `fd`. */
void rdzv__conn_open(struct rdzv_server *s, int fd);
void rdzv__conn_serve(struct rdzv__conn *c, uint32_t events);
/* At the end of a turn. */
void rdzv__conn_free_gone(struct rdzv_server *s);
void rdzv__conn_close_all(struct rdzv_server *s);
/* Ends those that began a request too long ago. */
void rdzv__conn_request_timer(uv_timer_t *timer);

/* events.c: the listener and all connections as one descriptor on the loop. */
int rdzv__events_start(struct rdzv_server *s); /* 0, or a libuv error and nothing is left */
void rdzv__events_close(struct rdzv_server *s);

/* loop.c: what happens on the loop's thread. */
int rdzv__loop_start(struct rdzv_server *s);
void rdzv__loop_drain(struct rdzv_server *s, int32_t timeout_ms);
void rdzv__loop_close(struct rdzv_server *s);
/* The last connection may have left. */
void rdzv__loop_conn_left(struct rdzv_server *s);
void rdzv__loop_publish(struct rdzv_server *s);
/* Close callback of every handle of the server itself. */
void rdzv__loop_handle_closed(uv_handle_t *handle);
void rdzv__loop_handle_gone(struct rdzv_server *s);
/* Own thread. */
int rdzv__thread_start(struct rdzv_server *s, rdzv_error *err);
void rdzv__thread_stop(struct rdzv_server *s);

/* server.c */
/* Calls `drained` if it is still owed, frees everything, calls `closed`. */
void rdzv__server_finish(struct rdzv_server *s);

#endif
