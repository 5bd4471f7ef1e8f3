/*
 * client_c10d.h: the client's end of a c10d connection: calls in, bytes out; bytes in, finished
 * calls out. Time is given as milliseconds of any clock that only grows. docs/formats/c10d.md says
 * what goes over the wire, docs/design/client.md why in this order.
 */
#ifndef RDZV_CORE_CLIENT_C10D_H
#define RDZV_CORE_CLIENT_C10D_H

#include "alloc.h"
#include "core/wire_c10d.h"
#include "queue.h"
#include "rdzv_client.h"

enum { RDZV__CLIENT_GRACE_MS = 1000 }; /* for the outcome of a wait that is called off */

struct rdzv__client_config {
    const rdzv_allocator *allocator;
    const char *peer;    /* for texts; lives as long as the core */
    const char *trouble; /* why there is no connection yet, "" = not known; lives as long */
    int legacy;          /* dialect A */
    int raw_keys;
    int wait_first;
    int32_t reply_timeout_ms;
    uint64_t max_key_bytes;
    uint64_t max_value_bytes;
    uint64_t max_request_keys;
    uint64_t max_reply_bytes;
};

/* What a call is to ask; borrowed while it is built. */
struct rdzv__request {
    uint8_t op; /* RDZV__OP_*, numbers of dialect C */
    const rdzv_bytes *keys;
    size_t key_count;
    const rdzv_bytes *values;
    size_t value_count;
    int64_t number;
};

/* Where a call is. */
enum {
    RDZV__CALL_READY = 0, /* its next request can go */
    RDZV__CALL_SENDING,   /* has no answer: ends when its last byte has left */
    RDZV__CALL_ASKED,     /* an answer is due */
    RDZV__CALL_WAITING,   /* lacks a key, and nothing about it is at the server */
    RDZV__CALL_PARKED,    /* its WAIT or BARRIER is at the server */
    RDZV__CALL_UNPARKING, /* the same, and a CANCEL_WAIT was sent after it */
    RDZV__CALL_DONE
};

struct rdzv__call {
    struct queue link; /* in one of the lists of the core */
    uint8_t op;
    uint8_t state;
    uint8_t check;    /* the next, or pending, request is a CHECK of its keys */
    uint8_t present;  /* its keys were seen: an empty answer is the answer */
    uint8_t no_wait;  /* RDZV_NO_WAIT */
    uint8_t canceled; /* set by the caller's thread, see rdzv__client_core_cancel_marked */
    int stop;         /* code that it is to end with, once its wait is called off */
    uint32_t items;   /* values in its answer */
    uint64_t id;
    uint64_t deadline_ms;
    uint64_t poll_ms; /* WAITING: when to check again */
    uint32_t poll_interval_ms;
    uint64_t slot;    /* number of its slot */
    uint64_t out_end; /* SENDING: position of its last byte in the output */
    uint8_t *bytes;   /* request, then the keys as WAIT and CHECK take them; not owned */
    size_t ask_len;
    size_t keys_len;
    char name[64]; /* of its first key, for texts */

    /* Its answer: values as they came, each behind its u64 length. */
    int64_t number;
    uint8_t *reply;
    size_t reply_len;
    size_t reply_cap;
    int reply_lost; /* out of memory: the rest is skipped */
    rdzv_bytes one;
    rdzv_bytes *values; /* &one, or owned */
    size_t count;
    rdzv_error result;
    uint8_t small[232]; /* where a short answer lies */
};

/* An answer that the server owes. */
struct rdzv__slot {
    struct rdzv__call *call; /* NULL: nobody wants it any more */
    uint32_t items;
    uint8_t kind;
    uint8_t called_off; /* of a parked one: a slot of CANCEL_WAIT follows */
};

enum { RDZV__CLIENT_OFF = 0, RDZV__CLIENT_HELLO, RDZV__CLIENT_UP, RDZV__CLIENT_FAILED };

struct rdzv__client_core {
    struct rdzv__client_config config;
    uint8_t state;
    uint8_t wait_first;
    uint8_t hello_answered; /* the peer has proved to be a store */
    uint32_t nonce;
    uint64_t now_ms;
    struct queue ready;
    struct queue waiting;
    struct queue sending;
    struct queue flight; /* ASKED, PARKED, UNPARKING */
    struct queue done;
    struct rdzv__call *parked; /* the one whose WAIT or BARRIER is the last request sent */
    uint64_t earliest_ms;      /* no deadline is before this */
    uint64_t owed_since_ms;    /* last progress while something is owed */
    rdzv_error failure;

    uint8_t *out; /* bytes to send */
    size_t out_len;
    size_t out_sent;
    size_t out_cap;
    uint64_t out_end; /* position of out_len, of sent bytes since connect */

    struct rdzv__slot *slots; /* a ring */
    size_t slots_cap;
    uint64_t slots_first; /* number of the oldest */
    uint64_t slots_end;

    /* The answer that is coming in, of the oldest slot. */
    uint8_t header[8];
    uint8_t header_len;
    uint8_t counted; /* its number of items is known */
    uint64_t items_left;
    uint64_t body_left;
    uint64_t reply_bytes;
};

/* client_call.c */
/* Length of the encoded request, or an error (EINVAL, ENOTSUP, ELIMIT). */
int rdzv__call_measure(const struct rdzv__client_config *config, const struct rdzv__request *r,
                       size_t *ret, rdzv_error *err);
/* `bytes` has room for what was measured and lives as long as the call. */
void rdzv__call_init(struct rdzv__call *call, uint8_t *bytes,
                     const struct rdzv__client_config *config, const struct rdzv__request *r);
/* Frees the answer. */
void rdzv__call_clear(struct rdzv__call *call, const rdzv_allocator *allocator);
const char *rdzv__op_name(uint8_t op);
/* Lays the values of a complete answer out. Returns 0 when out of memory. */
int rdzv__call_decode(struct rdzv__call *call, const struct rdzv__client_config *config);
/* Keeps bytes of its answer. */
void rdzv__call_keep(struct rdzv__call *call, const rdzv_allocator *allocator, const void *bytes,
                     size_t len);
/* For a key of texts: printable, cut. */
void rdzv__printable(char *ret, size_t size, const uint8_t *bytes, size_t len);

/* client_c10d.c */
/* `core->config` is filled in by the caller before. */
void rdzv__client_core_init(struct rdzv__client_core *core);
void rdzv__client_core_free(struct rdzv__client_core *core);

/* Takes a call in; it ends up in core->done. */
void rdzv__client_core_submit(struct rdzv__client_core *core, struct rdzv__call *call,
                              uint64_t now_ms);
/* Ends the calls whose `canceled` is set. */
void rdzv__client_core_cancel_marked(struct rdzv__client_core *core, uint64_t now_ms);
/* Puts what can go now into the output. */
void rdzv__client_core_pump(struct rdzv__client_core *core, uint64_t now_ms);
/* Bytes to send; they stay in place until the next call of any other function. */
size_t rdzv__client_core_output(const struct rdzv__client_core *core, const uint8_t **ret);
void rdzv__client_core_sent(struct rdzv__client_core *core, size_t len, uint64_t now_ms);
void rdzv__client_core_feed(struct rdzv__client_core *core, const uint8_t *bytes, size_t len,
                            uint64_t now_ms);
/* Deadlines that have passed. */
void rdzv__client_core_tick(struct rdzv__client_core *core, uint64_t now_ms);
/* When to tick next; UINT64_MAX = never. */
uint64_t rdzv__client_core_next_ms(const struct rdzv__client_core *core);
/* Connected: greets the peer. `nonce` is random. */
void rdzv__client_core_hello(struct rdzv__client_core *core, uint32_t nonce, uint64_t now_ms);
/* The connection is gone before it was up; another try may follow. */
void rdzv__client_core_disconnect(struct rdzv__client_core *core);
/* Ends every call, now and later. The first reason stays. */
__attribute__((format(printf, 4, 5))) void rdzv__client_core_fail(struct rdzv__client_core *core,
                                                                  int code, int sys_errno,
                                                                  const char *format, ...);
/* What the oldest answer that is owed belongs to, or NULL. */
const struct rdzv__call *rdzv__client_core_owed(const struct rdzv__client_core *core);

/* client_out.c, inside the core */
enum { RDZV__LEGACY_CHECK = 4, RDZV__LEGACY_GETNUMKEYS = 6 }; /* opcodes of dialect A */
/* Room for one more request of `len` bytes, and for calling it off. 0 = out of memory. */
int rdzv__client_reserve(struct rdzv__client_core *core, size_t len);
void rdzv__client_put(struct rdzv__client_core *core, const void *bytes, size_t len);
void rdzv__client_put_byte(struct rdzv__client_core *core, uint8_t byte);
struct rdzv__slot *rdzv__client_push_slot(struct rdzv__client_core *core, uint8_t kind,
                                          struct rdzv__call *call);
/* The server, or the network, is to do something. */
int rdzv__client_is_owed(const struct rdzv__client_core *core);

/* client_reply.c, inside the core */
/* What a slot's answer looks like. */
enum {
    RDZV__SLOT_NONCE = 0,   /* u32: of the hello */
    RDZV__SLOT_PROBE,       /* an empty vec: of the hello */
    RDZV__SLOT_HELLO_CHECK, /* u8 0: of A's hello */
    RDZV__SLOT_HELLO_COUNT, /* i64: of A's hello, the last */
    RDZV__SLOT_PARK,        /* u8 0; or 1 if called off */
    RDZV__SLOT_CANCEL,      /* u8 1 */
    RDZV__SLOT_CHECK,       /* u8 0 or 1 */
    RDZV__SLOT_ECHO,        /* u32, not looked at */
    RDZV__SLOT_NUMBER,      /* i64 */
    RDZV__SLOT_VALUES,      /* items vecs */
    RDZV__SLOT_POP,         /* i64, then a vec if it is not 0 */
    RDZV__SLOT_LIST         /* i64 n, then n strings */
};
static inline struct rdzv__slot *rdzv__client_slot(struct rdzv__client_core *core, uint64_t number)
{
    return &core->slots[number & (core->slots_cap - 1)];
}
void rdzv__client_reply_reset(struct rdzv__client_core *core);
/* Takes bytes of the oldest slot's answer; returns how many. */
size_t rdzv__client_reply_take(struct rdzv__client_core *core, const uint8_t *bytes, size_t len);

/* The oldest answer is complete: takes its slot away and returns its call or NULL. */
struct rdzv__call *rdzv__client_pop_slot(struct rdzv__client_core *core);
void rdzv__client_answered(struct rdzv__client_core *core, struct rdzv__call *call);
void rdzv__client_checked(struct rdzv__client_core *core, struct rdzv__call *call, int there);
void rdzv__client_parked(struct rdzv__client_core *core, int canceled);
void rdzv__client_up(struct rdzv__client_core *core);

/* Pause before try number `attempt` (0 = the second try), spread by `random`. */
uint32_t rdzv__client_backoff_ms(uint32_t attempt, uint32_t random);

#endif
