/*
 * wire_c10d.c: finds the end of each request and checks every announced number, resuming where the
 * bytes ended. Invariant: scan.pos never passes a byte that has not come, and no announced length
 * is believed beyond its limit. Knows nothing of the store, of replies, or of where bytes are kept.
 */
#include "core/wire_c10d.h"

#include "bytes.h"

/* Fields of a request after its opcode: k key, v value (u64 length, bytes), i i64, u u32;
 * * is a u64 count, and what follows it comes that many times. */
static const char layouts[RDZV__OP_COUNT][4] = {
    [RDZV__OP_VALIDATE] = "u",   [RDZV__OP_SET] = "kv",       [RDZV__OP_COMPARE_SET] = "kvv",
    [RDZV__OP_GET] = "k",        [RDZV__OP_ADD] = "ki",       [RDZV__OP_CHECK] = "*k",
    [RDZV__OP_WAIT] = "*k",      [RDZV__OP_GETNUMKEYS] = "",  [RDZV__OP_DELETE_KEY] = "k",
    [RDZV__OP_APPEND] = "kv",    [RDZV__OP_MULTI_GET] = "*k", [RDZV__OP_MULTI_SET] = "*kv",
    [RDZV__OP_CANCEL_WAIT] = "", [RDZV__OP_PING] = "u",       [RDZV__OP_QUEUE_PUSH] = "kv",
    [RDZV__OP_QUEUE_POP] = "k",  [RDZV__OP_QUEUE_LEN] = "k",  [RDZV__OP_LIST_KEYS] = "",
    [RDZV__OP_BARRIER] = "ki",
};

enum { FIRST_BYTES = 5, TLS_HANDSHAKE = 0x16, NATIVE_FIRST = 0x80 };

/* Legacy numbers that mean different requests in A and B. */
enum { LEGACY_SEVEN = 7, LEGACY_EIGHT = 8, LEGACY_LAST = 11 };

/* Translates an opcode of A or B and learns from it which of the two this connection speaks. */
static int decode_legacy(uint8_t *dialect, uint8_t byte, uint8_t *ret_op)
{
    if (byte > LEGACY_LAST)
        return RDZV__WHY_BAD_OPCODE;
    if (byte < LEGACY_SEVEN) {
        *ret_op = (uint8_t)(byte + 1);
        return RDZV__WHY_OK;
    }
    if (byte == LEGACY_EIGHT) { /* DELETE_KEY of A, unless B has shown itself before */
        if (*dialect == RDZV__DIALECT_LEGACY)
            *dialect = RDZV__DIALECT_A;
        *ret_op = *dialect == RDZV__DIALECT_A ? RDZV__OP_DELETE_KEY : RDZV__OP_APPEND;
        return RDZV__WHY_OK;
    }
    if (*dialect == RDZV__DIALECT_A)
        return byte == LEGACY_SEVEN ? RDZV__WHY_WATCH_KEY : RDZV__WHY_BAD_OPCODE;
    *dialect = RDZV__DIALECT_B;
    *ret_op = (uint8_t)(byte + 1);
    return RDZV__WHY_OK;
}

/* The first bytes decide the dialect; a start that no client sends is refused at once. */
static int decode_start(struct rdzv__scan *scan, uint8_t *dialect,
                        const struct rdzv__wire_limits *limits, const uint8_t *bytes, size_t len)
{
    uint8_t first = bytes[0];
    if (first == TLS_HANDSHAKE)
        return RDZV__WHY_TLS;
    if (first >= NATIVE_FIRST)
        return RDZV__WHY_NATIVE;
    if (first >= LEGACY_LAST) /* 11 cancels a wait; there is none yet */
        return RDZV__WHY_BAD_START;
    if (first == LEGACY_SEVEN) /* A's second connection is only for this; B never starts so */
        return RDZV__WHY_WATCH_KEY;
    if (first + 1 != RDZV__OP_GETNUMKEYS) {
        scan->need = FIRST_BYTES;
        if (len < FIRST_BYTES)
            return RDZV__WHY_OK;
        uint32_t low = bytes_get_u32(bytes + 1);
        if (first == 0 && low == RDZV__C10D_MAGIC) {
            *dialect = RDZV__DIALECT_C;
            scan->op = RDZV__OP_VALIDATE;
            scan->pos = FIRST_BYTES;
            scan->step = 1;
            return RDZV__WHY_OK;
        }
        uint8_t probe = RDZV__DIALECT_LEGACY;
        int why = decode_legacy(&probe, first, &scan->op);
        if (why != RDZV__WHY_OK)
            return why;
        /* The low half of the first length or count; PyTorch's keys are never empty. */
        int counted = layouts[scan->op][0] == '*';
        if (counted ? low > limits->max_request_keys : low == 0 || low > limits->max_key_bytes)
            return RDZV__WHY_BAD_START;
    }
    *dialect = RDZV__DIALECT_LEGACY;
    return RDZV__WHY_OK;
}

static int decode_opcode(struct rdzv__scan *scan, uint8_t *dialect,
                         const struct rdzv__wire_limits *limits, const uint8_t *bytes, size_t len)
{
    if (*dialect == RDZV__DIALECT_START) {
        int why = decode_start(scan, dialect, limits, bytes, len);
        if (why != RDZV__WHY_OK || *dialect == RDZV__DIALECT_START || *dialect == RDZV__DIALECT_C)
            return why;
    }
    if (*dialect == RDZV__DIALECT_C) {
        if (bytes[0] == RDZV__OP_VALIDATE || bytes[0] >= RDZV__OP_COUNT)
            return RDZV__WHY_BAD_OPCODE;
        scan->op = bytes[0];
    } else {
        int why = decode_legacy(dialect, bytes[0], &scan->op);
        if (why != RDZV__WHY_OK)
            return why;
    }
    scan->pos = 1;
    return RDZV__WHY_OK;
}

/* The u64 at scan->pos, refused when it is over the limit. */
static int read_length(struct rdzv__scan *scan, const uint8_t *bytes, size_t len, uint64_t limit,
                       int why_over, uint64_t *ret)
{
    uint64_t end = scan->pos + 8;
    scan->need = end > len ? end : 0;
    if (scan->need != 0)
        return RDZV__WHY_OK;
    *ret = bytes_get_u64(bytes + scan->pos);
    return *ret > limit ? why_over : RDZV__WHY_OK;
}

/* One field of `layout`; scan->need != 0 afterwards means that it is not there in whole. */
static int scan_field(struct rdzv__scan *scan, char kind, const struct rdzv__wire_limits *limits,
                      const uint8_t *bytes, size_t len)
{
    if (kind == 'i' || kind == 'u') {
        uint64_t end = scan->pos + (kind == 'i' ? 8 : 4);
        scan->need = end > len ? end : 0;
        if (scan->need == 0)
            scan->pos = end;
        return RDZV__WHY_OK;
    }
    uint64_t n = 0;
    if (kind == '*') {
        int why = read_length(scan, bytes, len, limits->max_request_keys, RDZV__WHY_MANY_KEYS, &n);
        if (why == RDZV__WHY_OK && scan->need == 0) {
            scan->repeat = n;
            scan->pos += 8;
        }
        return why;
    }
    int why =
        kind == 'k'
            ? read_length(scan, bytes, len, limits->max_key_bytes, RDZV__WHY_LONG_KEY, &n)
            : read_length(scan, bytes, len, limits->max_value_bytes, RDZV__WHY_LONG_VALUE, &n);
    if (why != RDZV__WHY_OK || scan->need != 0)
        return why;
    if (scan->pos + 8 > limits->max_request_bytes || n > limits->max_request_bytes - scan->pos - 8)
        return RDZV__WHY_LONG_REQUEST;
    uint64_t end = scan->pos + 8 + n;
    scan->need = end > len ? end : 0;
    if (scan->need == 0)
        scan->pos = end;
    return RDZV__WHY_OK;
}

size_t rdzv__scan_short(const struct rdzv__wire_limits *limits, const uint8_t *bytes, size_t len)
{
    enum { HEAD = 1 + 8 };
    /* Bytes after the key, and one, so that 0 is "not one of these". */
    static const uint8_t tails[RDZV__OP_COUNT] = {
        [RDZV__OP_GET] = 1,       [RDZV__OP_ADD] = 9,       [RDZV__OP_DELETE_KEY] = 1,
        [RDZV__OP_QUEUE_POP] = 1, [RDZV__OP_QUEUE_LEN] = 1, [RDZV__OP_BARRIER] = 9,
    };
    if (len < HEAD || bytes[0] >= RDZV__OP_COUNT || tails[bytes[0]] == 0)
        return 0;
    uint64_t key_len = bytes_get_u64(bytes + 1);
    if (key_len > limits->max_key_bytes || key_len > len)
        return 0;
    uint64_t whole = HEAD - 1 + key_len + tails[bytes[0]];
    return whole <= len && whole <= limits->max_request_bytes ? (size_t)whole : 0;
}

int rdzv__scan(struct rdzv__scan *scan, uint8_t *dialect, const struct rdzv__wire_limits *limits,
               const uint8_t *bytes, size_t len)
{
    scan->need = 0;
    if (scan->pos == 0) {
        int why = decode_opcode(scan, dialect, limits, bytes, len);
        if (why != RDZV__WHY_OK)
            return why;
        if (scan->pos == 0)
            return RDZV__WHY_OK; /* need says how many bytes decide the dialect */
        scan->need = 0;
    }
    const char *layout = layouts[scan->op];
    for (;;) {
        char kind = layout[scan->step];
        if (kind == '\0') {
            if (layout[0] != '*' || scan->repeat <= 1)
                return RDZV__WHY_OK;
            scan->repeat--;
            scan->step = 1;
            continue;
        }
        int why = scan_field(scan, kind, limits, bytes, len);
        if (why != RDZV__WHY_OK || scan->need != 0)
            return why;
        if (kind == '*' && scan->repeat == 0)
            return RDZV__WHY_OK;
        scan->step++;
    }
}
