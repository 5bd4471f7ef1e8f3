/*
 * wire_c10d.h: where a c10d request ends. docs/formats/c10d.md draws the bytes.
 */
#ifndef RDZV_CORE_WIRE_C10D_H
#define RDZV_CORE_WIRE_C10D_H

#include "bytes.h"
#include "core/why.h"

#include <stddef.h>
#include <stdint.h>

/* Numbers of dialect C; requests of the older dialects are translated to them. */
enum {
    RDZV__OP_VALIDATE = 0,
    RDZV__OP_SET,
    RDZV__OP_COMPARE_SET,
    RDZV__OP_GET,
    RDZV__OP_ADD,
    RDZV__OP_CHECK,
    RDZV__OP_WAIT,
    RDZV__OP_GETNUMKEYS,
    RDZV__OP_DELETE_KEY,
    RDZV__OP_APPEND,
    RDZV__OP_MULTI_GET,
    RDZV__OP_MULTI_SET,
    RDZV__OP_CANCEL_WAIT,
    RDZV__OP_PING,
    RDZV__OP_QUEUE_PUSH,
    RDZV__OP_QUEUE_POP,
    RDZV__OP_QUEUE_LEN,
    RDZV__OP_LIST_KEYS,
    RDZV__OP_BARRIER,
    RDZV__OP_COUNT
};

#define RDZV__C10D_MAGIC 0x3C85F7CEu

/* What is known of a connection's dialect. LEGACY is A or B, not yet told apart. */
enum {
    RDZV__DIALECT_START = 0,
    RDZV__DIALECT_LEGACY,
    RDZV__DIALECT_A,
    RDZV__DIALECT_B,
    RDZV__DIALECT_C
};

struct rdzv__wire_limits {
    uint64_t max_key_bytes;
    uint64_t max_value_bytes;
    uint64_t max_request_keys;
    uint64_t max_request_bytes;
};

/* How far one request is understood; all zero before its first byte. */
struct rdzv__scan {
    uint64_t pos;    /* its bytes up to here have been understood */
    uint64_t need;   /* nothing more can be said before this many bytes are there */
    uint64_t repeat; /* rounds of the repeated part that are still to come */
    uint8_t step;    /* position in the opcode's layout */
    uint8_t op;      /* valid once pos > 0 */
};

/* Goes on with the request that starts at `bytes`, of which `len` > 0 bytes are there; they hold
 * everything of the earlier calls. Decides the dialect with a connection's first request. On
 * RDZV__WHY_OK the request is complete when scan->need == 0 and then scan->pos bytes long; else
 * more bytes are needed. Any other result refuses the connection. Allocates nothing. */
int rdzv__scan(struct rdzv__scan *scan, uint8_t *dialect, const struct rdzv__wire_limits *limits,
               const uint8_t *bytes, size_t len);

/* The length of the request at `bytes` when it is one of dialect C's short ones (a key and at most
 * a number), has come in whole and keeps the limits; 0 = rdzv__scan has to look. */
size_t rdzv__scan_short(const struct rdzv__wire_limits *limits, const uint8_t *bytes, size_t len);

/* Walks the fields of a complete request. */
struct rdzv__field {
    const uint8_t *data;
    size_t len;
};

static inline const uint8_t *rdzv__take(const uint8_t **cursor, size_t len)
{
    const uint8_t *p = *cursor;
    *cursor += len;
    return p;
}

static inline uint64_t rdzv__take_u64(const uint8_t **cursor)
{
    return bytes_get_u64(rdzv__take(cursor, 8));
}

static inline struct rdzv__field rdzv__take_string(const uint8_t **cursor)
{
    size_t len = (size_t)rdzv__take_u64(cursor);
    return (struct rdzv__field){rdzv__take(cursor, len), len};
}

#endif
