/*
 * core.h: the c10d store server without sockets, clocks or threads: bytes and events in, bytes out.
 *
 * The shell embeds one rdzv__session per connection, feeds it what it read, and afterwards takes
 * sessions with something to do from rdzv__core_next_ready: it sends their output, then ends those
 * whose state is not OPEN and whose output is gone.
 *
 * Records. A request that changes the store makes one record, numbered 1, 2, ...: its changes go to
 * the journal, then it is sealed. A reply that saw the store depends on the newest record of that
 * moment, and is not given out before rdzv__core_persisted of that number; replies behind it on the
 * same connection wait with it.
 */
#ifndef RDZV_CORE_CORE_H
#define RDZV_CORE_CORE_H

#include "core/store.h"
#include "core/why.h"
#include "core/wire_c10d.h"

enum {
    RDZV__CHANGE_SET,    /* key has this value now */
    RDZV__CHANGE_APPEND, /* value was added at the end */
    RDZV__CHANGE_DELETE, /* key is gone; no value */
    RDZV__CHANGE_PUSH,   /* element was added to the queue */
    RDZV__CHANGE_POP,    /* first element was taken; no value */
    RDZV__CHANGE_FORGET  /* every key and queue is gone; no key, no value */
};

struct rdzv__change {
    int kind;
    struct rdzv__field key; /* borrowed during the call, as is the value */
    struct rdzv__field value;
};

/* `sealed` may call rdzv__core_persisted at once. */
struct rdzv__journal {
    void (*change)(void *ctx, uint64_t record, const struct rdzv__change *change);
    void (*sealed)(void *ctx, uint64_t record);
    void *ctx;
};

/* What all clients of a core take up, or may take up, together. */
struct rdzv__room {
    uint64_t store_bytes;
    uint64_t names; /* with a key, a queue or waits */
    uint64_t buffer_bytes;
};

struct rdzv__core_options {
    const rdzv_allocator *allocator;
    const struct rdzv__journal *journal; /* copied; NULL = in memory, no records */
    struct rdzv__wire_limits limits;
    struct rdzv__room max;
    uint64_t max_unread_bytes;
    uint64_t hash_seed; /* random, so that clients cannot aim at one bucket */
};

struct rdzv__core {
    struct rdzv__core_options options;
    struct rdzv__journal journal;
    struct rdzv__store store;
    struct queue ready;  /* sessions that the shell has to look at */
    struct queue held;   /* sessions with replies that wait for a record */
    struct rdzv__spare { /* output blocks for reuse: small ones, whole ones */
        struct rdzv__block *first;
        uint32_t count;
    } spare[2];
    uint8_t record_open; /* the running request has changed something */
    uint64_t recorded;
    uint64_t persisted;
    uint64_t requests;
    uint64_t visits; /* names that requests for several have looked at: a measure of work */
    uint64_t waiting;
    uint64_t buffer_bytes; /* of all sessions: their `pending` and their output blocks */
};

enum {
    RDZV__SESSION_OPEN = 0,
    RDZV__SESSION_ENDING,  /* the client has sent its last byte; end when the output is sent */
    RDZV__SESSION_REFUSED, /* see why; end when what can be sent at once has been sent */
    RDZV__SESSION_FAILED   /* see why; end at once */
};

struct rdzv__session {
    struct rdzv__core *core;
    struct queue ready;
    struct queue held;
    struct rdzv__wait *wait;  /* pending WAIT or BARRIER */
    struct rdzv__block *head; /* output */
    struct rdzv__block *tail;
    struct rdzv__marks *marks; /* which output waits for which record; NULL = none does */
    uint64_t out_made;         /* bytes of output since open, and how many of them were sent */
    uint64_t out_sent;
    uint8_t *pending; /* start of a request that has not come in whole */
    size_t pending_len;
    size_t pending_cap;
    struct rdzv__scan scan;
    uint8_t dialect;
    uint8_t state;
    uint8_t why;
};

void rdzv__core_init(struct rdzv__core *core, const struct rdzv__core_options *options);
/* Every session must have been closed. */
void rdzv__core_free(struct rdzv__core *core);
/* Forgets every key and queue. No session may be open. */
void rdzv__core_forget(struct rdzv__core *core);
struct rdzv__room rdzv__core_used(const struct rdzv__core *core);
/* Changes the limits: of the store not below what it holds, of buffers to anything. */
void rdzv__core_limit(struct rdzv__core *core, const struct rdzv__room *max);
void rdzv__core_persisted(struct rdzv__core *core, uint64_t record);
/* Takes one session off the ready list; NULL when it is empty. */
struct rdzv__session *rdzv__core_next_ready(struct rdzv__core *core);

void rdzv__session_open(struct rdzv__session *s, struct rdzv__core *core);
/* Forgets the session, its wait and its output. Call it at any time but inside another call. */
void rdzv__session_close(struct rdzv__session *s);
/* Returns how many bytes were taken: less than len after much output or work, so that the shell can
 * send it and serve others before it feeds the rest. Bytes after a refusal are dropped. */
size_t rdzv__session_feed(struct rdzv__session *s, const uint8_t *bytes, size_t len);
/* The client will send no more; it still gets the answers to what it asked. */
void rdzv__session_eof(struct rdzv__session *s);
/* Ends a session that began a request and let too much time go by. */
void rdzv__session_expire(struct rdzv__session *s);
/* Whether a request has begun and not come in whole. */
static inline int rdzv__session_begun(const struct rdzv__session *s)
{
    return s->pending_len > 0;
}

/* Fills at most `max` spans of output that may be sent now; returns how many. */
size_t rdzv__session_output(const struct rdzv__session *s, struct rdzv__field *spans, size_t max);
void rdzv__session_sent(struct rdzv__session *s, size_t len);
/* Bytes of output, held ones included, that have not been sent. */
static inline uint64_t rdzv__session_unsent(const struct rdzv__session *s)
{
    return s->out_made - s->out_sent;
}

#endif
