/*
 * duo.c: see duo.h.
 */
#include "duo.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct rdzv__client_config config(const struct duo *d, int legacy, int wait_first)
{
    return (struct rdzv__client_config){.allocator = &d->allocator,
                                        .peer = "peer:1",
                                        .trouble = "",
                                        .legacy = legacy,
                                        .wait_first = wait_first,
                                        .reply_timeout_ms = 30000,
                                        .max_key_bytes = 8192,
                                        .max_value_bytes = 8 << 20,
                                        .max_request_keys = 131072,
                                        .max_reply_bytes = 1 << 20};
}

void duo_open(struct duo *d, int legacy, int wait_first, const rdzv_allocator *allocator)
{
    memset(d, 0, sizeof *d);
    struct rdzv__core_options options = peers_options();
    peers_open(&d->server, &options);
    d->allocator = allocator != NULL ? *allocator : rdzv__allocator_libc;
    d->piece = SIZE_MAX;
    d->now_ms = 1000;
    d->client.config = config(d, legacy, wait_first);
    rdzv__client_core_init(&d->client);
    rdzv__client_core_hello(&d->client, 0x12345678, d->now_ms);
    duo_run(d);
}

void duo_close(struct duo *d)
{
    ck_assert_int_eq(d->live, 0);
    rdzv__client_core_free(&d->client);
    peers_close(&d->server);
}

void duo_take(struct duo *d, struct wire *w)
{
    const uint8_t *bytes;
    rdzv__client_core_pump(&d->client, d->now_ms);
    size_t len = rdzv__client_core_output(&d->client, &bytes);
    if (len == 0)
        return;
    wire_bytes(w, bytes, len);
    rdzv__client_core_sent(&d->client, len, d->now_ms);
}

void duo_feed(struct duo *d, const char *bytes, size_t len)
{
    rdzv__client_core_feed(&d->client, (const uint8_t *)bytes, len, d->now_ms);
}

static int move_answers(struct duo *d)
{
    struct wire *got = &d->server.got[0];
    int moved = got->len > 0;
    for (size_t at = 0; at < got->len; at += d->piece) {
        size_t left = got->len - at;
        size_t part = d->piece < left ? d->piece : left;
        rdzv__client_core_feed(&d->client, got->data + at, part, d->now_ms);
        if (part == left)
            break;
    }
    got->len = 0;
    return moved;
}

void duo_run(struct duo *d)
{
    struct wire w = WIRE_INIT;
    do {
        duo_take(d, &w);
        peers_send(&d->server, 0, w.data, w.len);
        int sent = w.len > 0;
        w.len = 0;
        if (!move_answers(d) && !sent)
            break;
    } while (1);
    wire_free(&w);
}

void duo_pass(struct duo *d, uint64_t ms)
{
    d->now_ms += ms;
    rdzv__client_core_tick(&d->client, d->now_ms);
    duo_run(d);
}

static rdzv_bytes text(const char *s)
{
    return (rdzv_bytes){s, strlen(s)};
}

struct rdzv__call *duo_submit(struct duo *d, uint8_t op, const char *const *keys, size_t keys_count,
                              const char *const *values, size_t values_count, int64_t number,
                              uint32_t timeout_ms)
{
    rdzv_bytes k[DUO_KEYS];
    rdzv_bytes v[DUO_KEYS];
    for (size_t i = 0; i < keys_count; i++)
        k[i] = text(keys[i]);
    for (size_t i = 0; i < values_count; i++)
        v[i] = text(values[i]);
    struct rdzv__request r = {op, k, keys_count, v, values_count, number};
    size_t len;
    ck_assert_int_eq(rdzv__call_measure(&d->client.config, &r, &len, NULL), RDZV_OK);
    struct rdzv__call *call = malloc(sizeof *call);
    uint8_t *bytes = malloc(len + 1);
    ck_assert(call != NULL && bytes != NULL);
    rdzv__call_init(call, bytes, &d->client.config, &r);
    call->no_wait = timeout_ms == 0;
    call->deadline_ms = d->now_ms + (timeout_ms > 0 ? timeout_ms : 100000);
    d->live++;
    rdzv__client_core_submit(&d->client, call, d->now_ms);
    return call;
}

struct rdzv__call *duo_key(struct duo *d, uint8_t op, const char *key, uint32_t timeout_ms)
{
    return duo_submit(d, op, &key, 1, NULL, 0, 0, timeout_ms);
}

struct rdzv__call *duo_set(struct duo *d, uint8_t op, const char *key, const char *value)
{
    return duo_submit(d, op, &key, 1, &value, 1, 0, 1000);
}

void duo_other_sets(struct duo *d, const char *key, const char *value)
{
    struct wire w = WIRE_INIT;
    wire_hello(&w);
    wire_add(&w, "bss", RDZV__OP_SET, key, value);
    peers_send_wire(&d->server, 1, &w);
    peers_disconnect(&d->server, 1);
    peers_connect(&d->server, 1);
    wire_free(&w);
}

int duo_is_done(const struct rdzv__call *call)
{
    return call->state == RDZV__CALL_DONE;
}

void duo_ends(struct duo *d, struct rdzv__call *call, int code)
{
    ck_assert_msg(duo_is_done(call), "%s \"%s\" is not done", rdzv__op_name(call->op), call->name);
    ck_assert_msg(call->result.code == code, "%s \"%s\" ended with %d: %s", rdzv__op_name(call->op),
                  call->name, call->result.code, call->result.text);
    queue_remove(&call->link);
    rdzv__call_clear(call, &d->allocator);
    free(call->bytes);
    free(call);
    d->live--;
}

void duo_ends_with(struct duo *d, struct rdzv__call *call, int64_t number)
{
    ck_assert(duo_is_done(call));
    ck_assert_int_eq(call->number, number);
    duo_ends(d, call, RDZV_OK);
}

void duo_brings(struct duo *d, struct rdzv__call *call, const char *value)
{
    ck_assert(duo_is_done(call));
    ck_assert_msg(call->result.code == RDZV_OK, "%s", call->result.text);
    ck_assert_uint_eq(call->count, 1);
    ck_assert_uint_eq(call->values[0].len_bytes, strlen(value));
    ck_assert_mem_eq(call->values[0].data, value, strlen(value));
    duo_ends(d, call, RDZV_OK);
}
