/*
 * rdzv.h: a c10d store server that unmodified PyTorch processes use as their TCPStore.
 *
 * Driving. A server runs on its own named thread (loop = NULL), or on the caller's uv loop.
 *
 * Own thread: every call belongs to the thread that opened the server; callbacks and log lines run
 * inside rdzv_server_dispatch, rdzv_server_wait and rdzv_server_close, on the caller's thread; the
 * `closed` of a job inside rdzv_job_close.
 *
 * Borrowed loop: every call on the loop's thread; callbacks come from the caller's uv_run, log
 * lines from there or from a close; rdzv_server_fd answers RDZV_ENOTSUP. Close is asynchronous:
 * when `closed` runs, the server is gone and the loop holds no handle of ours.
 *
 * Callbacks may not dispatch, wait, open a job (RDZV_EBUSY) or close (ignored). On a borrowed loop,
 * `drained` and a job's `closed` may open and close. No write of ours raises SIGPIPE. A handle does
 * not cross fork: in the child every call answers RDZV_ESTATE, and close does nothing.
 *
 * Results. 0 or positive is success, negative is one of RDZV_ERRORS. `ret` is written only on
 * success, `err` (may be NULL) only on failure.
 */
#ifndef RDZV_H
#define RDZV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RDZV_API __attribute__((visibility("default")))
#else
#define RDZV_API
#endif

#define RDZV_VERSION_MAJOR 0
#define RDZV_VERSION_MINOR 1
#define RDZV_VERSION_PATCH 0

/* Run-time version: major * 10000 + minor * 100 + patch. Any thread, never blocks. */
RDZV_API int32_t rdzv_version(void);

/* Each code says what the caller can do. Values are never reused. */
#define RDZV_ERRORS(X)                                                                             \
    X(OK, 0, "success")                                                                            \
    X(EINVAL, -1, "invalid argument or option")                                                    \
    X(ENOMEM, -2, "out of memory")                                                                 \
    X(ESTATE, -3, "handle cannot be used: closed, failed, or in a child after fork")               \
    X(EBUSY, -4, "called from a callback, or another operation is at work")                        \
    X(ETIMEDOUT, -5, "deadline passed")                                                            \
    X(ECANCELED, -6, "operation cancelled")                                                        \
    X(EADDRINUSE, -7, "address is in use")                                                         \
    X(EADDRNOTAVAIL, -8, "address is not one of this machine")                                     \
    X(EACCES, -9, "permission denied")                                                             \
    X(ENOTSUP, -10, "not available in this mode or build")                                         \
    X(EIO, -11, "system call failed")                                                              \
    X(ENOTSTORE, -12, "the peer is not a c10d store")                                              \
    X(ECONN, -13, "the connection is lost, or was closed by the peer")                             \
    X(ENOENT, -14, "no such key, or the queue is empty")                                           \
    X(ELIMIT, -15, "a limit of the options is exceeded")

enum {
#define RDZV_ERROR_ENUM(name, value, text) RDZV_##name = (value),
    RDZV_ERRORS(RDZV_ERROR_ENUM)
#undef RDZV_ERROR_ENUM
};

/* 256 bytes for ever, no allocation. */
typedef struct rdzv_error {
    int32_t code;      /* RDZV_OK or a RDZV_E* value */
    int32_t sys_errno; /* the errno behind it, or 0 */
    char text[248];    /* one line: what, to what, why; always NUL-terminated */
} rdzv_error;

/* Static text of a code; "unknown error" for others. Any thread. */
RDZV_API const char *rdzv_strerror(int code);

/* Called from any thread of the library: the only hook that must be thread-safe. `align` is a power
 * of two, at least sizeof(void *). Returns NULL when out of memory. */
typedef struct rdzv_allocator {
    void *(*alloc)(void *ctx, size_t len_bytes, size_t align);
    void (*free)(void *ctx, void *ptr); /* takes NULL */
    void *ctx;
} rdzv_allocator;

enum { RDZV_LOG_ERROR = 0, RDZV_LOG_WARN, RDZV_LOG_INFO, RDZV_LOG_DEBUG, RDZV_LOG_TRACE };

/* One event, one line, no newline. */
typedef void (*rdzv_log_fn)(void *ctx, int level, const char *line);

struct uv_loop_s; /* rdzv.h never includes uv.h */

typedef struct rdzv_server rdzv_server;

/* max_store_bytes, max_keys, max_connections and max_buffer_bytes are totals over all jobs. */
typedef struct rdzv_server_options {
    size_t size;            /* filled by rdzv_server_options_init */
    struct uv_loop_s *loop; /* borrowed until `closed`; NULL = own thread */
    const char *host;  /* numeric IPv4 or IPv6 address (brackets allowed), "localhost", or "*" for
                          all addresses, dual-stack; default "127.0.0.1"; borrowed during open */
    uint16_t port;     /* 0 = any; read it back with rdzv_server_address */
    int32_t listen_fd; /* a TCP socket that is already bound (listening or not), instead of host
                          and port; default -1. Owned by the server once open succeeded */
    uint32_t backlog;  /* default 4096 (the kernel may cap it) */
    uint64_t max_key_bytes;     /* default 8192, as PyTorch's */
    uint64_t max_value_bytes;   /* of one request; default 8 MiB, as PyTorch's */
    uint64_t max_request_keys;  /* of one WAIT, CHECK, MULTI_*; default 131072, as PyTorch's */
    uint64_t max_request_bytes; /* of one request in all; default 256 MiB */
    uint64_t max_store_bytes;   /* keys, values, queues, waits, and what is needed to keep them;
                                   default 4 GiB */
    uint64_t max_unread_bytes;  /* replies that a client has not read, so also the longest reply;
                                   default 256 MiB */
    const rdzv_allocator *allocator; /* copied; NULL = libc */
    rdzv_log_fn log;                 /* NULL = silent */
    void *log_ctx;
    uint64_t max_connections;    /* further ones are closed when they come; default 1048576 */
    uint64_t max_buffer_bytes;   /* requests that have not come in whole and unread replies, of all
                                    connections together; the first 64 KiB of each connection are
                                    always granted; default 4 GiB */
    uint32_t request_timeout_ms; /* from the first byte of a request to its last; 0 = no limit;
                                    default 60000. A connection between requests may be silent for
                                    ever */
    uint64_t max_keys;           /* names that hold a key, queue elements or waiting clients;
                                    default and most 1073741824 */
    uint32_t forget_after_ms;    /* of the unnamed job, see rdzv_job_options; default 0 */
    int32_t log_level;           /* the least important that `log` gets; default RDZV_LOG_INFO; with
                                    RDZV_LOG_DEBUG each client that comes or leaves is a line;
                                    RDZV_LOG_TRACE has none yet */
} rdzv_server_options;

/* Fills defaults. `size` is sizeof(rdzv_server_options) of the caller. Any thread. */
RDZV_API void rdzv_server_options_init(rdzv_server_options *opt, size_t size);

/* Binds, listens, starts. The caller owns *ret and ends it with rdzv_server_close. EADDRINUSE,
 * EADDRNOTAVAIL, EACCES, EINVAL, ENOMEM, EIO. */
RDZV_API int rdzv_server_open(rdzv_server **ret, const rdzv_server_options *opt, rdzv_error *err);

/* Address that clients connect to, "127.0.0.1:29400" or "[::1]:29400"; static for the life of the
 * server. Port alone in *port when not NULL. */
RDZV_API const char *rdzv_server_address(const rdzv_server *s, uint16_t *port);

/* Counters since open, of all jobs together, of a moment in the past few milliseconds. Never
 * blocks. */
typedef struct rdzv_server_stats {
    size_t size;           /* filled by the caller: sizeof(rdzv_server_stats) */
    uint64_t connections;  /* open now */
    uint64_t accepted;     /* since open */
    uint64_t refused;      /* closed because of a bad start, a bad request or a limit */
    uint64_t requests;     /* answered or applied */
    uint64_t keys;         /* in the store now, queues not counted */
    uint64_t store_bytes;  /* what counts against max_store_bytes */
    uint64_t waiting;      /* connections in a WAIT or BARRIER now */
    uint64_t buffer_bytes; /* what counts against max_buffer_bytes */
} rdzv_server_stats;
RDZV_API int rdzv_server_get_stats(const rdzv_server *s, rdzv_server_stats *ret);

typedef void (*rdzv_closed_fn)(void *ctx);

/* Stops accepting on all jobs, goes on serving until the last client has left or timeout_ms is over
 * (-1 = no limit), then calls `drained` (may be NULL); the server is still to be closed, and close
 * calls `drained` first if it has not run. EBUSY when called before, EINVAL. */
RDZV_API int rdzv_server_drain(rdzv_server *s, int32_t timeout_ms, rdzv_closed_fn drained,
                               void *ctx);

/* Own thread only: descriptor to poll, never to read or close; dispatch runs what is ready and
 * returns how many; wait goes on until at least one ran or timeout_ms is over (-1 = no limit), 0
 * also after a signal. ENOTSUP on a borrowed loop. */
RDZV_API int rdzv_server_fd(const rdzv_server *s);
RDZV_API int rdzv_server_dispatch(rdzv_server *s);
RDZV_API int rdzv_server_wait(rdzv_server *s, int timeout_ms);

/* Closes every connection, and every job that is still open: their handles are gone with this call.
 * Own thread: joins the thread, runs `closed`, returns. Borrowed loop: returns at once, `closed`
 * runs from uv_run. `closed` may be NULL. Takes NULL. */
RDZV_API void rdzv_server_close(rdzv_server *s, rdzv_closed_fn closed, void *ctx);

/* A job is a name space with its own port: its clients see only its keys. What rdzv_server_open
 * listens on is the unnamed job. Calls follow the server's rules. */
typedef struct rdzv_job rdzv_job;

enum { RDZV_RUN_ID_BYTES = 255 };

typedef struct rdzv_job_options {
    size_t size;        /* filled by rdzv_job_options_init */
    const char *run_id; /* required: 1 to RDZV_RUN_ID_BYTES printable ASCII characters; copied */
    const char *host;   /* these four as in rdzv_server_options */
    uint16_t port;
    int32_t listen_fd;
    uint32_t backlog;
    uint64_t max_store_bytes; /* these four: the job's share; 0, or more than the server's, is the
                                 server's. A job that is full refuses, and hurts no other */
    uint64_t max_keys;
    uint64_t max_connections;
    uint64_t max_buffer_bytes;
    uint32_t forget_after_ms; /* all keys are forgotten when the last client has been gone for this
                                 long, so the next run finds an empty store; a connection that
                                 asks nothing is no client; 0 = never, the default */
} rdzv_job_options;

/* Fills defaults. `size` is sizeof(rdzv_job_options) of the caller. Any thread. */
RDZV_API void rdzv_job_options_init(rdzv_job_options *opt, size_t size);

/* Binds, listens, serves. The caller owns *ret and ends it with rdzv_job_close or with the server.
 * EBUSY when the run id is open on this server, or from a callback; ESTATE when the server drains;
 * and what rdzv_server_open answers. */
RDZV_API int rdzv_server_open_job(rdzv_server *s, rdzv_job **ret, const rdzv_job_options *opt,
                                  rdzv_error *err);

/* As of the server; of this job alone. */
RDZV_API const char *rdzv_job_address(const rdzv_job *job, uint16_t *port);
RDZV_API int rdzv_job_get_stats(const rdzv_job *job, rdzv_server_stats *ret);

/* Closes the job's listener and connections and forgets its keys; its run id and port are free when
 * this returns. Own thread: runs `closed`, returns. Borrowed loop: `closed` runs from uv_run, at
 * the latest with the server's. `closed` may be NULL. Takes NULL. */
RDZV_API void rdzv_job_close(rdzv_job *job, rdzv_closed_fn closed, void *ctx);

#ifdef __cplusplus
}
#endif

#endif /* RDZV_H */
