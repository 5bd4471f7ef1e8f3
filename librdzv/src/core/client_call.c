/*
 * client_call.c: one call of a client: its request as bytes, its answer as values. Invariant: a
 * call's bytes are complete when it is built, so sending it later can only lack room in the output;
 * its answer grows with the bytes that came, never with what they announce. Knows no connection.
 */
#include "core/client_c10d.h"

#include "bytes.h"
#include "error.h"

#include <assert.h>
#include <string.h>

enum { LEGACY_DELETE_KEY = 8 };

/* Counts bytes, and writes them where there is room for them. */
struct writer {
    uint8_t *data; /* NULL: count only */
    size_t len;
    const char *slash; /* in front of keys */
};

static void put(struct writer *w, const void *bytes, size_t len)
{
    if (w->data != NULL && len > 0)
        memcpy(w->data + w->len, bytes, len);
    w->len += len;
}

static void put_op(struct writer *w, uint8_t op)
{
    put(w, &op, 1);
}

static void put_u64(struct writer *w, uint64_t v)
{
    uint8_t b[8];
    bytes_put_u64(b, v);
    put(w, b, sizeof b);
}

static void put_key(struct writer *w, rdzv_bytes key)
{
    size_t slash = strlen(w->slash);
    put_u64(w, slash + key.len_bytes);
    put(w, w->slash, slash);
    put(w, key.data, key.len_bytes);
}

static void put_value(struct writer *w, rdzv_bytes value)
{
    put_u64(w, value.len_bytes);
    put(w, value.data, value.len_bytes);
}

static void put_keys(struct writer *w, const struct rdzv__request *r)
{
    put_u64(w, r->key_count);
    for (size_t i = 0; i < r->key_count; i++)
        put_key(w, r->keys[i]);
}

/* Numbers of dialect A. Those that it lacks were refused before. */
static uint8_t legacy_op(uint8_t op)
{
    return op == RDZV__OP_DELETE_KEY ? LEGACY_DELETE_KEY : (uint8_t)(op - 1);
}

/* MULTI_GET and MULTI_SET. Dialect A has neither: a row of requests does the same. */
static void put_many(struct writer *w, const struct rdzv__request *r, int legacy)
{
    int set = r->op == RDZV__OP_MULTI_SET;
    if (!legacy) {
        put_op(w, r->op);
        put_u64(w, r->key_count);
    }
    for (size_t i = 0; i < r->key_count; i++) {
        if (legacy)
            put_op(w, legacy_op(set ? RDZV__OP_SET : RDZV__OP_GET));
        put_key(w, r->keys[i]);
        if (set)
            put_value(w, r->values[i]);
    }
}

static void put_request(struct writer *w, const struct rdzv__request *r, int legacy)
{
    uint8_t op = legacy ? legacy_op(r->op) : r->op;
    switch (r->op) {
    case RDZV__OP_WAIT:
        return; /* only its keys */
    case RDZV__OP_MULTI_GET:
    case RDZV__OP_MULTI_SET:
        put_many(w, r, legacy);
        return;
    case RDZV__OP_CHECK:
        put_op(w, op);
        put_keys(w, r);
        return;
    case RDZV__OP_PING:
        if (legacy) {
            put_op(w, legacy_op(RDZV__OP_GETNUMKEYS));
        } else {
            put_op(w, op);
            put(w, "sync", 4);
        }
        return;
    default:
        put_op(w, op);
        for (size_t i = 0; i < r->key_count; i++)
            put_key(w, r->keys[i]);
        for (size_t i = 0; i < r->value_count; i++)
            put_value(w, r->values[i]);
        if (r->op == RDZV__OP_ADD || r->op == RDZV__OP_BARRIER)
            put_u64(w, (uint64_t)r->number);
    }
}

static int has_wait(uint8_t op)
{
    return op == RDZV__OP_WAIT || op == RDZV__OP_GET || op == RDZV__OP_MULTI_GET ||
           op == RDZV__OP_QUEUE_POP;
}

const char *rdzv__op_name(uint8_t op)
{
    static const char *const names[RDZV__OP_COUNT] = {
        "validate",  "set",       "compare_set", "get",        "add",
        "check",     "wait_keys", "num_keys",    "delete_key", "append",
        "multi_get", "multi_set", "cancel_wait", "flush",      "queue_push",
        "queue_pop", "queue_len", "list_keys",   "barrier",
    };
    return names[op];
}

static int in_legacy(uint8_t op)
{
    return op != RDZV__OP_APPEND && op != RDZV__OP_QUEUE_PUSH && op != RDZV__OP_QUEUE_POP &&
           op != RDZV__OP_QUEUE_LEN && op != RDZV__OP_LIST_KEYS && op != RDZV__OP_BARRIER;
}

static int check_limits(const struct rdzv__client_config *config, const struct rdzv__request *r,
                        rdzv_error *err)
{
    const char *name = rdzv__op_name(r->op);
    if (r->key_count > config->max_request_keys)
        return rdzv__fail(err, RDZV_ELIMIT, 0, "%s of %zu keys: max_request_keys is %llu", name,
                          r->key_count, (unsigned long long)config->max_request_keys);
    for (size_t i = 0; i < r->key_count; i++) {
        if (r->keys[i].data == NULL && r->keys[i].len_bytes > 0)
            return rdzv__fail(err, RDZV_EINVAL, 0, "%s: key %zu is NULL", name, i);
        if (r->keys[i].len_bytes > config->max_key_bytes - (config->raw_keys ? 0 : 1))
            return rdzv__fail(err, RDZV_ELIMIT, 0,
                              "%s: key %zu has %zu bytes%s: max_key_bytes is %llu", name, i,
                              r->keys[i].len_bytes, config->raw_keys ? "" : " and a \"/\"",
                              (unsigned long long)config->max_key_bytes);
    }
    for (size_t i = 0; i < r->value_count; i++) {
        if (r->values[i].data == NULL && r->values[i].len_bytes > 0)
            return rdzv__fail(err, RDZV_EINVAL, 0, "%s: value %zu is NULL", name, i);
        if (r->values[i].len_bytes > config->max_value_bytes)
            return rdzv__fail(err, RDZV_ELIMIT, 0,
                              "%s: value %zu has %zu bytes: max_value_bytes is %llu", name, i,
                              r->values[i].len_bytes, (unsigned long long)config->max_value_bytes);
    }
    return RDZV_OK;
}

static void encode(struct writer *w, const struct rdzv__client_config *config,
                   const struct rdzv__request *r, size_t *ret_ask_len)
{
    w->slash = config->raw_keys ? "" : "/";
    put_request(w, r, config->legacy);
    *ret_ask_len = w->len;
    if (has_wait(r->op))
        put_keys(w, r);
}

int rdzv__call_measure(const struct rdzv__client_config *config, const struct rdzv__request *r,
                       size_t *ret, rdzv_error *err)
{
    if ((r->key_count > 0 && r->keys == NULL) || (r->value_count > 0 && r->values == NULL))
        return rdzv__fail(err, RDZV_EINVAL, 0, "%s: keys or values are NULL", rdzv__op_name(r->op));
    if (config->legacy && !in_legacy(r->op))
        return rdzv__fail(err, RDZV_ENOTSUP, 0, "%s: dialect A (PyTorch 2.0 or older) has it not",
                          rdzv__op_name(r->op));
    int code = check_limits(config, r, err);
    if (code != RDZV_OK)
        return code;
    struct writer w = {0};
    size_t ask_len;
    encode(&w, config, r, &ask_len);
    *ret = w.len;
    return RDZV_OK;
}

void rdzv__printable(char *ret, size_t size, const uint8_t *bytes, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    size_t used = 0;
    size_t i = 0;
    for (; i < len && used + 8 < size; i++) {
        if (bytes[i] >= 0x20 && bytes[i] < 0x7f && bytes[i] != '\\' && bytes[i] != '"') {
            ret[used++] = (char)bytes[i];
            continue;
        }
        ret[used++] = '\\';
        ret[used++] = 'x';
        ret[used++] = hex[bytes[i] >> 4];
        ret[used++] = hex[bytes[i] & 15];
    }
    if (i < len) {
        memcpy(ret + used, "...", 3);
        used += 3;
    }
    ret[used] = '\0';
}

void rdzv__call_init(struct rdzv__call *call, uint8_t *bytes,
                     const struct rdzv__client_config *config, const struct rdzv__request *r)
{
    memset(call, 0, offsetof(struct rdzv__call, small));
    queue_init(&call->link);
    struct writer w = {.data = bytes};
    encode(&w, config, r, &call->ask_len);
    call->bytes = bytes;
    call->keys_len = w.len - call->ask_len;
    call->op = r->op;
    call->items = r->op == RDZV__OP_MULTI_GET ? (uint32_t)r->key_count : 1;
    call->reply = call->small;
    call->reply_cap = sizeof call->small;
    if (r->key_count > 0)
        rdzv__printable(call->name, sizeof call->name, r->keys[0].data, r->keys[0].len_bytes);
}

void rdzv__call_clear(struct rdzv__call *call, const rdzv_allocator *allocator)
{
    if (call->reply != call->small)
        rdzv__free(allocator, call->reply);
    if (call->values != &call->one)
        rdzv__free(allocator, call->values);
    call->reply = call->small;
    call->reply_cap = sizeof call->small;
    call->reply_len = 0;
    call->reply_lost = 0;
    call->values = NULL;
    call->count = 0;
}

void rdzv__call_keep(struct rdzv__call *call, const rdzv_allocator *allocator, const void *bytes,
                     size_t len)
{
    if (call->reply_lost)
        return;
    size_t wanted = call->reply_len + len;
    if (wanted > call->reply_cap) {
        size_t cap = wanted > 2 * call->reply_cap ? wanted : 2 * call->reply_cap;
        uint8_t *grown = rdzv__alloc(allocator, cap);
        if (grown == NULL) {
            rdzv__call_clear(call, allocator);
            call->reply_lost = 1;
            return;
        }
        memcpy(grown, call->reply, call->reply_len);
        if (call->reply != call->small)
            rdzv__free(allocator, call->reply);
        call->reply = grown;
        call->reply_cap = cap;
    }
    memcpy(call->reply + call->reply_len, bytes, len);
    call->reply_len = wanted;
}

/* Of a listed name as it is stored, to what the caller knows. 0 = it is not one of the caller's. */
static int own_name(rdzv_bytes *name, int raw_keys)
{
    if (raw_keys)
        return 1;
    const char *text = name->data;
    if (name->len_bytes == 0 || text[0] != '/')
        return 0;
    *name = (rdzv_bytes){text + 1, name->len_bytes - 1};
    return 1;
}

int rdzv__call_decode(struct rdzv__call *call, const struct rdzv__client_config *config)
{
    if (call->reply_len == 0)
        return 1;
    size_t items = 0;
    const uint8_t *end = call->reply + call->reply_len;
    for (const uint8_t *at = call->reply; at < end; items++)
        at += 8 + bytes_get_u64(at);
    call->values = &call->one;
    if (items > 1)
        call->values = rdzv__alloc(config->allocator, items * sizeof *call->values);
    if (call->values == NULL)
        return 0;
    const uint8_t *at = call->reply;
    for (size_t i = 0; i < items; i++) {
        size_t len = (size_t)bytes_get_u64(at);
        rdzv_bytes value = {at + 8, len};
        at += 8 + len;
        if (call->op != RDZV__OP_LIST_KEYS || own_name(&value, config->raw_keys))
            call->values[call->count++] = value;
    }
    assert(at == end);
    return 1;
}
