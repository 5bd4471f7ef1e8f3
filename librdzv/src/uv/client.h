/*
 * client.h: the client object as the files of its shell share it. Everything but what is marked
 * "caller" belongs to the thread that does the work: the handle's own, or the caller's.
 */
#ifndef RDZV_UV_CLIENT_H
#define RDZV_UV_CLIENT_H

#include "alloc.h"
#include "clock.h"
#include "core/client_c10d.h"
#include "outbox.h"
#include "queue.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <uv.h>

/* One call from its submission to its callback. Its encoded bytes follow in the same block. */
struct rdzv__client_call {
    struct rdzv__call call;
    struct rdzv_client *client;
    struct letter letter;
    struct queue open;        /* caller: in client->open_calls */
    struct queue cancel_link; /* under inbox_lock */
    rdzv_reply_fn done;
    void *ctx;
    size_t len_bytes;
};

/* Where the connection is. */
enum {
    RDZV__PHASE_IDLE = 0,
    RDZV__PHASE_LOOKUP,  /* the name is looked up */
    RDZV__PHASE_CONNECT, /* an address is tried */
    RDZV__PHASE_HELLO,   /* connected; the peer has to prove to be a store */
    RDZV__PHASE_PAUSE,   /* until the next try */
    RDZV__PHASE_UP,
    RDZV__PHASE_DOWN /* lost, given up, or closed */
};

/* uv_getaddrinfo, or what a test puts in its place. */
typedef int (*rdzv__lookup_fn)(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb done,
                               const char *node, const char *service, const struct addrinfo *hints);

/* libuv's handle of one try; outlives the try until libuv has let go of it. */
struct rdzv__client_socket;

struct rdzv_client {
    rdzv_allocator allocator;
    rdzv_log_fn log;
    void *log_ctx;
    pid_t owner; /* caller: process that opened it */
    uint32_t drive;
    int in_callback;         /* caller */
    int shut;                /* caller: close was called */
    uint64_t last_id;        /* caller */
    uint64_t pending_bytes;  /* caller: of the open calls */
    struct queue open_calls; /* caller: submitted, callback not yet run */
    rdzv_client_options options;
    struct rdzv__client_core core;
    char host[256];    /* without brackets */
    char service[8];   /* the port as text */
    char peer[288];    /* "HOST:PORT" as given, for texts */
    char trouble[200]; /* why the last try failed; empty = none has */
    int trouble_errno; /* behind `trouble`, or 0 */
    int told_trouble;  /* errno of the last line in the log about it */
    int told_patience; /* that it lasts */
    int told_close;    /* that a close was ignored */

    int phase;
    uint64_t phase_end_ms; /* UINT64_MAX = no limit */
    uint64_t connect_end_ms;
    uint32_t tries;
    struct addrinfo *literal; /* the address, if the host is one */
    struct addrinfo *found;   /* of a look-up */
    struct addrinfo *next;    /* the next one to try */
    int fd;                   /* -1 = none */
    int events;               /* that are watched */
    int blocking;             /* recv without MSG_DONTWAIT waits, at most RDZV__RECEIVE_MS */
    struct rdzv__client_socket *socket; /* not with RDZV_DRIVE_CALLER */
    rdzv__lookup_fn lookup;
    uv_getaddrinfo_t lookup_request;
    int looking_up;

    uv_loop_t *loop; /* with RDZV_DRIVE_CALLER only once a name is to be looked up */
    uv_loop_t own_loop;
    uv_timer_t timer;
    uint32_t handles; /* of libuv, and a look-up that runs */
    int closing;
    rdzv_closed_fn closed;
    void *closed_ctx;

    /* RDZV_DRIVE_CALLER, once rdzv_client_fd was called. */
    int epoll_fd; /* -1 = not */
    int timer_fd;
    uint64_t armed_ms;

    /* RDZV_DRIVE_THREAD */
    uv_async_t async;
    pthread_t thread;
    struct outbox out;
    pthread_mutex_t inbox_lock;
    struct queue inbox;   /* calls on their way to the thread */
    struct queue cancels; /* calls to be cancelled */
    int close_command;    /* under inbox_lock */
};

/* client.c */
int rdzv__client_open(rdzv_client **ret, const rdzv_client_options *opt, rdzv__lookup_fn lookup,
                      rdzv_error *err);
/* Caller's thread: NULL, foreign process? */
int rdzv__client_check(const struct rdzv_client *c);
/* The last of libuv's handles is gone on a borrowed loop, or the thread has ended. */
void rdzv__client_finish(struct rdzv_client *c);
__attribute__((format(printf, 3, 4))) void rdzv__client_log(struct rdzv_client *c, int level,
                                                            const char *format, ...);

/* client_calls.c */
/* Caller's thread: runs the callback of a finished call and frees it. */
void rdzv__client_deliver(struct rdzv__client_call *call);

/* client_connect.c */
/* Of a literal, without any look-up; EINVAL for what can be no host. */
int rdzv__client_set_host(struct rdzv_client *c, const char *host, rdzv_error *err);
/* Begins to connect. */
void rdzv__client_connect(struct rdzv_client *c);
/* The socket can be written while connecting. */
void rdzv__client_connected(struct rdzv_client *c);
/* The peer or the network has ended the connection; `error` 0 = orderly. */
void rdzv__client_lost(struct rdzv_client *c, int error);
/* After bytes came in: the core may be up, or have given up. */
void rdzv__client_follow_core(struct rdzv_client *c);
/* The phase has lasted too long, or a pause is over. */
void rdzv__client_phase_over(struct rdzv_client *c, uint64_t now_ms);
/* Ends everything; the core has been failed. */
void rdzv__client_down(struct rdzv_client *c);
void rdzv__client_free_addresses(struct rdzv_client *c);

/* client_io.c */
/* Puts the socket c->fd under watch. Returns 0 or an errno. */
int rdzv__client_watch_new(struct rdzv_client *c);
void rdzv__client_watch(struct rdzv_client *c, int events);
void rdzv__client_drop_socket(struct rdzv_client *c);
/* The socket is ready. */
void rdzv__client_ready(struct rdzv_client *c, int events);
/* RDZV_DRIVE_CALLER, connected: waits inside recv, which is one system call less than poll and
 * recv. At most RDZV__RECEIVE_MS. Returns -1 when a signal came first. */
enum { RDZV__RECEIVE_MS = 1000 };
int rdzv__client_receive_waiting(struct rdzv_client *c);
/* Sends what can go, hands over what is over, and arms the timer; the latter two not with
 * RDZV_DRIVE_CALLER. To be called after anything happened. */
void rdzv__client_settle(struct rdzv_client *c);
/* Deadlines. */
void rdzv__client_on_time(struct rdzv_client *c);
uint64_t rdzv__client_next_ms(const struct rdzv_client *c);

/* client_drive.c: the three ways to drive. */
int rdzv__client_start(struct rdzv_client *c, rdzv_error *err);
/* A call of the caller's goes to whoever does the work. */
void rdzv__client_post(struct rdzv_client *c, struct rdzv__client_call *call);
void rdzv__client_post_cancel(struct rdzv_client *c, struct rdzv__client_call *call);
/* The caller's side no longer knows the call. */
void rdzv__client_forget(struct rdzv_client *c, struct rdzv__client_call *call);
/* Hands the finished calls over to the caller's thread; runs them if this is the one. Returns how
 * many ran here. */
int rdzv__client_hand_over(struct rdzv_client *c);
/* Sets the timer for what is due next. */
void rdzv__client_arm(struct rdzv_client *c);
/* Sets it to now: there is work for whoever drives. */
void rdzv__client_kick(struct rdzv_client *c);
void rdzv__client_stop(struct rdzv_client *c);
/* Ends every call and lets go of the kernel; libuv's handles are closing then. */
void rdzv__client_stop_work(struct rdzv_client *c);
void rdzv__client_handle_closed(uv_handle_t *handle);
void rdzv__client_handle_gone(struct rdzv_client *c);

/* client_caller.c: RDZV_DRIVE_CALLER, but for need_loop. */
int rdzv__client_caller_fd(struct rdzv_client *c);
int rdzv__client_caller_wait(struct rdzv_client *c, int timeout_ms);
/* UINT64_MAX = off */
void rdzv__client_caller_set_timer(const struct rdzv_client *c, uint64_t delay_ms);
/* The descriptor may have been ready because of the timer. */
void rdzv__client_caller_woken(struct rdzv_client *c);
void rdzv__client_caller_stop(struct rdzv_client *c);
/* A loop for look-ups, where there is none yet. Returns 0 or a libuv error. */
int rdzv__client_need_loop(struct rdzv_client *c);

/* client_thread.c: RDZV_DRIVE_THREAD. Caller's thread, all of them. */
int rdzv__client_thread_start(struct rdzv_client *c, rdzv_error *err);
void rdzv__client_thread_post(struct rdzv_client *c, struct rdzv__client_call *call);
void rdzv__client_thread_post_cancel(struct rdzv_client *c, struct rdzv__client_call *call);
void rdzv__client_thread_forget(struct rdzv_client *c, struct rdzv__client_call *call);
int rdzv__client_thread_wait(struct rdzv_client *c, int timeout_ms);
/* Until the thread has ended. */
void rdzv__client_thread_stop(struct rdzv_client *c);
void rdzv__client_thread_free(struct rdzv_client *c);

#endif
