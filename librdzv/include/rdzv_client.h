/*
 * rdzv_client.h: a client of a c10d store: of rdzvd, or of a TCPStore of PyTorch 2.5 and
 * later, or of 2.0 and older (RDZV_DIALECT_A); not of those between.
 *
 * A handle is one connection. Calls are asynchronous: each is submitted, and its `done` runs once.
 * A blocking use is a submission and rdzv_client_wait until `done` has run. Calls that were
 * submitted together leave together. One that waits for keys does not hold up the others (a barrier
 * does); they are executed in the order of submission otherwise.
 *
 * Driving, chosen at open:
 *   RDZV_DRIVE_THREAD  a named thread of the handle does the work; `done` and log lines run inside
 *                      rdzv_client_dispatch, _wait and _close, on the caller's thread.
 *   RDZV_DRIVE_CALLER  nothing happens outside dispatch and wait; the round trip is made on the
 *                      caller's thread, which is the quickest way to use a store.
 *   RDZV_DRIVE_LOOP    the caller's uv loop: every call on the loop's thread; `done` runs from
 *                      uv_run; fd, dispatch and wait answer RDZV_ENOTSUP.
 * A handle belongs to one thread at a time. Callbacks may submit and cancel; they may not dispatch,
 * wait (RDZV_EBUSY) or close (ignored, but allowed with RDZV_DRIVE_LOOP). In a child after fork
 * every call answers RDZV_ESTATE, and close does nothing.
 *
 * Failing. The handle connects with back-off until connect_timeout_ms is over, while calls queue
 * up. Once the connection is lost it stays lost: every pending call and every later one ends with
 * the reason. Nothing reconnects in silence, for what the lost server had executed is unknown.
 *
 * Time. Each call has a deadline, timeout_ms from its submission: RDZV_NO_WAIT asks for what is
 * there now, RDZV_DEFAULT_TIMEOUT takes the handle's. After it the call ends with RDZV_ETIMEDOUT,
 * at once or, if it waited for keys, as soon as the server has confirmed the end of the wait (1 s
 * at most); an answer that was under way counts. A request that was sent already may still be
 * executed.
 */
#ifndef RDZV_CLIENT_H
#define RDZV_CLIENT_H

#include "rdzv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Any bytes; data may be NULL when len_bytes is 0. */
typedef struct rdzv_bytes {
    const void *data;
    size_t len_bytes;
} rdzv_bytes;

enum { RDZV_DRIVE_THREAD = 0, RDZV_DRIVE_CALLER = 1, RDZV_DRIVE_LOOP = 2 };

/* It cannot be asked of a server: one of PyTorch 2.0 or older is stuck for ever by the question. */
enum {
    RDZV_DIALECT_C = 0, /* PyTorch 2.5 and later, rdzvd */
    RDZV_DIALECT_A = 1  /* PyTorch 2.0 and older, rdzvd; waits are polled, and append, queues,
                           list_keys and barrier answer RDZV_ENOTSUP */
};

enum {
    RDZV_CLIENT_RAW_KEYS = 1,  /* put no "/" in front of keys, which PyTorch's own clients do */
    RDZV_CLIENT_WAIT_FIRST = 2 /* never ask for a key before it is known to be there: two round
                                  trips a get, which may see what was set after it. PyTorch's older
                                  server (use_libuv=False) needs it; it is recognized at connect */
};

enum { RDZV_NO_WAIT = 0, RDZV_DEFAULT_TIMEOUT = -1 };

typedef struct rdzv_client_options {
    size_t size;            /* filled by rdzv_client_options_init */
    uint32_t drive;         /* RDZV_DRIVE_*; default THREAD */
    uint32_t dialect;       /* RDZV_DIALECT_*; default C */
    struct uv_loop_s *loop; /* for RDZV_DRIVE_LOOP, borrowed until `closed` */
    const char *host; /* name, IPv4 or IPv6 address; brackets and scopes ("[fe80::1%eth0]") are
                         allowed; borrowed during open; default "127.0.0.1" */
    uint16_t port;    /* default 29400 */
    uint16_t flags;   /* RDZV_CLIENT_* */
    int32_t connect_timeout_ms; /* for all tries together; default 300000 */
    int32_t hello_timeout_ms;   /* a peer that is silent so long is no store; default 5000 */
    int32_t timeout_ms;         /* of a call that takes the default; default 300000 */
    int32_t reply_timeout_ms;   /* a server that owes an answer and is silent so long is given up;
                                   default 30000 */
    uint64_t max_key_bytes;     /* on the wire, so with "/"; default 8192, as PyTorch's server */
    uint64_t max_value_bytes;   /* of one request; default 8 MiB, as PyTorch's server */
    uint64_t max_request_keys;  /* default 131072, as PyTorch's server */
    uint64_t max_reply_bytes;   /* a longer announced answer ends the connection; default 256 MiB */
    uint64_t max_pending_bytes; /* of requests that have not ended; default 256 MiB */
    const rdzv_allocator *allocator; /* copied; NULL = libc */
    rdzv_log_fn log;                 /* NULL = silent */
    void *log_ctx;
} rdzv_client_options;

/* Fills defaults. `size` is sizeof(rdzv_client_options) of the caller. Any thread. */
RDZV_API void rdzv_client_options_init(rdzv_client_options *opt, size_t size);

typedef struct rdzv_client rdzv_client;

/* Starts to connect and returns at once: whether that succeeds is seen by the first call (a
 * rdzv_client_flush will do). Names are looked up off this thread, again at each try. The caller
 * owns *ret and ends it with rdzv_client_close. EINVAL, ENOMEM, EIO. */
RDZV_API int rdzv_client_open(rdzv_client **ret, const rdzv_client_options *opt, rdzv_error *err);

/* Not with RDZV_DRIVE_LOOP (ENOTSUP): descriptor to poll for readable, never to read or close;
 * dispatch does what is to be done, never waits, and returns how many callbacks ran; wait goes on
 * until at least one ran or timeout_ms is over (-1 = no limit); 0 also after a signal. EBUSY from a
 * callback. */
RDZV_API int rdzv_client_fd(rdzv_client *c);
RDZV_API int rdzv_client_dispatch(rdzv_client *c);
RDZV_API int rdzv_client_wait(rdzv_client *c, int timeout_ms);

/* Ends what is pending with RDZV_ECANCELED, disconnects, frees. With RDZV_DRIVE_LOOP it returns at
 * once and `closed` runs from uv_run; else `closed` runs before it returns. Waits for a name
 * look-up that is running. What was set and not flushed may be lost. `closed` may be NULL. Takes
 * NULL. */
RDZV_API void rdzv_client_close(rdzv_client *c, rdzv_closed_fn closed, void *ctx);

/* ------------------------------------------------------------------------------------------ */
/* Calls                                                                                        */

/* What a call brought; all of it is valid during `done` only. */
typedef struct rdzv_reply {
    int64_t number;           /* see each call */
    const rdzv_bytes *values; /* see each call */
    size_t count;             /* of values */
} rdzv_reply;

/* `reply` is NULL unless result->code is RDZV_OK. ETIMEDOUT, ECANCELED; ENOENT: not there (with
 * RDZV_NO_WAIT); ECONN: the connection is lost; ENOTSTORE: the peer is no c10d store; ELIMIT,
 * ENOMEM. */
typedef void (*rdzv_reply_fn)(void *ctx, const rdzv_reply *reply, const rdzv_error *result);

/*
 * All calls: key, value and keys are copied. They return a number above 0 that names the call for
 * rdzv_client_cancel, or an error, and then `done` never runs: EINVAL, ELIMIT (a limit of the
 * options), ENOTSUP (not in this dialect), ENOMEM, ESTATE. `done` may be NULL. They never block.
 */

/* Done when the bytes are on their way, as no server answers these; rdzv_client_flush tells when
 * they are executed. */
RDZV_API int64_t rdzv_client_set(rdzv_client *c, rdzv_bytes key, rdzv_bytes value,
                                 int32_t timeout_ms, rdzv_reply_fn done, void *ctx,
                                 rdzv_error *err);
RDZV_API int64_t rdzv_client_append(rdzv_client *c, rdzv_bytes key, rdzv_bytes value,
                                    int32_t timeout_ms, rdzv_reply_fn done, void *ctx,
                                    rdzv_error *err);
RDZV_API int64_t rdzv_client_multi_set(rdzv_client *c, const rdzv_bytes *keys,
                                       const rdzv_bytes *values, size_t count, int32_t timeout_ms,
                                       rdzv_reply_fn done, void *ctx, rdzv_error *err);
RDZV_API int64_t rdzv_client_queue_push(rdzv_client *c, rdzv_bytes key, rdzv_bytes value,
                                        int32_t timeout_ms, rdzv_reply_fn done, void *ctx,
                                        rdzv_error *err);

/* Done when the server has executed every call before it. */
RDZV_API int64_t rdzv_client_flush(rdzv_client *c, int32_t timeout_ms, rdzv_reply_fn done,
                                   void *ctx, rdzv_error *err);

/* Waits until the key is there; values[0]. One round trip if it is there and not empty. */
RDZV_API int64_t rdzv_client_get(rdzv_client *c, rdzv_bytes key, int32_t timeout_ms,
                                 rdzv_reply_fn done, void *ctx, rdzv_error *err);
/* The same for all of the keys; count values. */
RDZV_API int64_t rdzv_client_multi_get(rdzv_client *c, const rdzv_bytes *keys, size_t count,
                                       int32_t timeout_ms, rdzv_reply_fn done, void *ctx,
                                       rdzv_error *err);

/* Waits until all of the keys were there, together or one after another. */
RDZV_API int64_t rdzv_client_wait_keys(rdzv_client *c, const rdzv_bytes *keys, size_t count,
                                       int32_t timeout_ms, rdzv_reply_fn done, void *ctx,
                                       rdzv_error *err);
/* number = 1 if all of the keys are there, else 0. */
RDZV_API int64_t rdzv_client_check(rdzv_client *c, const rdzv_bytes *keys, size_t count,
                                   int32_t timeout_ms, rdzv_reply_fn done, void *ctx,
                                   rdzv_error *err);

/* number = the sum. The key holds decimal text; a missing one counts as 0. */
RDZV_API int64_t rdzv_client_add(rdzv_client *c, rdzv_bytes key, int64_t delta, int32_t timeout_ms,
                                 rdzv_reply_fn done, void *ctx, rdzv_error *err);

/* Sets the key to `desired` if it holds `expected`, or is absent and `expected` is empty; values[0]
 * is `desired` then, else what the key holds, or `expected` again if it is absent. */
RDZV_API int64_t rdzv_client_compare_set(rdzv_client *c, rdzv_bytes key, rdzv_bytes expected,
                                         rdzv_bytes desired, int32_t timeout_ms, rdzv_reply_fn done,
                                         void *ctx, rdzv_error *err);

/* number = 1 if the key was there, else 0. */
RDZV_API int64_t rdzv_client_delete_key(rdzv_client *c, rdzv_bytes key, int32_t timeout_ms,
                                        rdzv_reply_fn done, void *ctx, rdzv_error *err);

/* number = of keys in the whole store. */
RDZV_API int64_t rdzv_client_num_keys(rdzv_client *c, int32_t timeout_ms, rdzv_reply_fn done,
                                      void *ctx, rdzv_error *err);
/* values = their names in any order, of those that start with "/", which is taken off (all of them
 * with RDZV_CLIENT_RAW_KEYS). */
RDZV_API int64_t rdzv_client_list_keys(rdzv_client *c, int32_t timeout_ms, rdzv_reply_fn done,
                                       void *ctx, rdzv_error *err);

/* Waits until the queue is not empty; values[0] = its oldest element, number = elements that were
 * there. */
RDZV_API int64_t rdzv_client_queue_pop(rdzv_client *c, rdzv_bytes key, int32_t timeout_ms,
                                       rdzv_reply_fn done, void *ctx, rdzv_error *err);
/* number = of its elements. */
RDZV_API int64_t rdzv_client_queue_len(rdzv_client *c, rdzv_bytes key, int32_t timeout_ms,
                                       rdzv_reply_fn done, void *ctx, rdzv_error *err);

/* Waits until world_size clients are in the barrier of that key, which serves once. Calls behind it
 * wait for its end. One that times out stays counted. */
RDZV_API int64_t rdzv_client_barrier(rdzv_client *c, rdzv_bytes key, int64_t world_size,
                                     int32_t timeout_ms, rdzv_reply_fn done, void *ctx,
                                     rdzv_error *err);

/* Ends a call with RDZV_ECANCELED as its deadline would end it: a wait that was just over counts.
 * No effect if `done` has run. EINVAL, ESTATE. */
RDZV_API int rdzv_client_cancel(rdzv_client *c, int64_t call);

#ifdef __cplusplus
}
#endif

#endif /* RDZV_CLIENT_H */
