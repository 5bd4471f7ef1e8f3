/*
 * client_reply.c: where an answer ends, and what it says. Takes bytes as they come; keeps those of
 * an answer that somebody still wants and skips the others. Invariant: between two calls,
 * header_len bytes of a fixed field or body_left bytes of a value are known to be missing, never
 * both. Every announced number is checked before anything is done with it.
 */
#include "core/client_c10d.h"

#include "bytes.h"

#include <string.h>

#define HELLO_MOST_KEYS (1ull << 40) /* more cannot be in any memory */

void rdzv__client_reply_reset(struct rdzv__client_core *core)
{
    core->header_len = 0;
    core->counted = 0;
    core->items_left = 0;
    core->body_left = 0;
    core->reply_bytes = 0;
}

static size_t header_size(uint8_t kind)
{
    switch (kind) {
    case RDZV__SLOT_NONCE:
    case RDZV__SLOT_ECHO:
        return 4;
    case RDZV__SLOT_HELLO_CHECK:
    case RDZV__SLOT_PARK:
    case RDZV__SLOT_CANCEL:
    case RDZV__SLOT_CHECK:
        return 1;
    default:
        return 8;
    }
}

static void no_store(struct rdzv__client_core *core)
{
    char got[48];
    rdzv__printable(got, sizeof got, core->header, core->header_len);
    const char *echo = core->config.legacy ? "\x04" : "\x00\xCE\xF7\x85";
    if (memcmp(core->header, echo, core->config.legacy ? 1 : 4) == 0)
        rdzv__client_core_fail(core, RDZV_ENOTSTORE, 0,
                               "not a c10d store: %s sends back what it is sent",
                               core->config.peer);
    else
        rdzv__client_core_fail(core, RDZV_ENOTSTORE, 0,
                               "not a c10d store: %s answered the handshake with \"%s\"",
                               core->config.peer, got);
}

static void bad_answer(struct rdzv__client_core *core, const char *what)
{
    const struct rdzv__call *call = rdzv__client_core_owed(core);
    char got[48];
    rdzv__printable(got, sizeof got, core->header, core->header_len);
    rdzv__client_core_fail(
        core, RDZV_ENOTSTORE, 0, "not a c10d store, or out of step: %s answered %s with \"%s\", %s",
        core->config.peer, call != NULL ? rdzv__op_name(call->op) : "a request", got, what);
}

/* An answer of one number is complete. */
static void take_number(struct rdzv__client_core *core, uint64_t v)
{
    struct rdzv__call *call = rdzv__client_pop_slot(core);
    if (call == NULL)
        return;
    call->number = (int64_t)v;
    rdzv__client_answered(core, call);
}

/* Every value of the answer is there. */
static void take_values(struct rdzv__client_core *core)
{
    struct rdzv__call *call = rdzv__client_pop_slot(core);
    if (call != NULL)
        rdzv__client_answered(core, call);
}

/* The count that stands before the values of POP and LIST. */
static void take_count(struct rdzv__client_core *core, struct rdzv__slot *slot, int64_t v)
{
    if (v < 0) {
        bad_answer(core, "a negative count");
        return;
    }
    if ((uint64_t)v > core->config.max_reply_bytes / 8 && slot->kind == RDZV__SLOT_LIST) {
        rdzv__client_core_fail(
            core, RDZV_ELIMIT, 0, "%s announced %lld names: max_reply_bytes is %llu",
            core->config.peer, (long long)v, (unsigned long long)core->config.max_reply_bytes);
        return;
    }
    if (slot->call != NULL)
        slot->call->number = v;
    core->counted = 1;
    core->items_left = slot->kind == RDZV__SLOT_LIST ? (uint64_t)v : v > 0;
    if (core->items_left == 0)
        take_values(core);
}

/* The length that stands before a value. */
static void take_length(struct rdzv__client_core *core, struct rdzv__slot *slot, uint64_t v)
{
    if (v > core->config.max_reply_bytes || core->reply_bytes + v > core->config.max_reply_bytes) {
        const struct rdzv__call *call = rdzv__client_core_owed(core);
        rdzv__client_core_fail(
            core, RDZV_ELIMIT, 0,
            "%s announced %llu bytes for %s \"%s\": more than max_reply_bytes (%llu), or no store",
            core->config.peer, (unsigned long long)v, call != NULL ? rdzv__op_name(call->op) : "",
            call != NULL ? call->name : "", (unsigned long long)core->config.max_reply_bytes);
        return;
    }
    core->reply_bytes += v;
    if (slot->call != NULL)
        rdzv__call_keep(slot->call, core->config.allocator, core->header, 8);
    core->body_left = v;
    if (v == 0 && --core->items_left == 0)
        take_values(core);
}

static void take_byte(struct rdzv__client_core *core, struct rdzv__slot *slot, uint8_t v)
{
    switch (slot->kind) {
    case RDZV__SLOT_HELLO_CHECK:
        if (v != 0)
            no_store(core);
        else
            rdzv__client_pop_slot(core);
        return;
    case RDZV__SLOT_PARK:
        if (v == 0 || (v == 1 && slot->called_off))
            rdzv__client_parked(core, v);
        else
            bad_answer(core, "expected 0");
        return;
    case RDZV__SLOT_CANCEL:
        if (v != 1)
            bad_answer(core, "expected 1 for CANCEL_WAIT");
        else
            rdzv__client_pop_slot(core);
        return;
    default:
        if (v > 1) {
            bad_answer(core, "expected 0 or 1");
            return;
        }
        struct rdzv__call *call = rdzv__client_pop_slot(core);
        if (call != NULL)
            rdzv__client_checked(core, call, v == 0);
    }
}

/* Answers of the handshake; the nonce proves that the peer is a store. */
static void take_hello(struct rdzv__client_core *core, uint8_t kind)
{
    int is_nonce = kind == RDZV__SLOT_NONCE;
    uint64_t v = is_nonce ? bytes_get_u32(core->header) : bytes_get_u64(core->header);
    if (is_nonce ? v != core->nonce : v > (kind == RDZV__SLOT_PROBE ? 0 : HELLO_MOST_KEYS)) {
        no_store(core);
        return;
    }
    rdzv__client_pop_slot(core);
    if (is_nonce)
        core->hello_answered = 1;
    if (!is_nonce || core->wait_first) /* a probe is still to be answered otherwise */
        rdzv__client_up(core);
}

static void take_header(struct rdzv__client_core *core, struct rdzv__slot *slot)
{
    uint64_t v = 0;
    switch (slot->kind) {
    case RDZV__SLOT_NONCE:
    case RDZV__SLOT_PROBE:
    case RDZV__SLOT_HELLO_COUNT:
        take_hello(core, slot->kind);
        return;
    case RDZV__SLOT_ECHO:
        take_values(core);
        return;
    case RDZV__SLOT_NUMBER:
        take_number(core, bytes_get_u64(core->header));
        return;
    case RDZV__SLOT_POP:
    case RDZV__SLOT_LIST:
        v = bytes_get_u64(core->header);
        if (!core->counted)
            take_count(core, slot, (int64_t)v);
        else
            take_length(core, slot, v);
        return;
    case RDZV__SLOT_VALUES:
        if (!core->counted) {
            core->counted = 1;
            core->items_left = slot->items;
        }
        take_length(core, slot, bytes_get_u64(core->header));
        return;
    default:
        take_byte(core, slot, core->header[0]);
    }
}

size_t rdzv__client_reply_take(struct rdzv__client_core *core, const uint8_t *bytes, size_t len)
{
    struct rdzv__slot *slot = rdzv__client_slot(core, core->slots_first);
    if (core->body_left > 0) {
        size_t part = core->body_left < len ? (size_t)core->body_left : len;
        if (slot->call != NULL)
            rdzv__call_keep(slot->call, core->config.allocator, bytes, part);
        core->body_left -= part;
        if (core->body_left == 0 && --core->items_left == 0)
            take_values(core);
        return part;
    }
    size_t wanted = header_size(slot->kind) - core->header_len;
    size_t part = wanted < len ? wanted : len;
    memcpy(core->header + core->header_len, bytes, part);
    core->header_len += (uint8_t)part;
    if (part == wanted) {
        take_header(core, slot);
        core->header_len = 0;
    }
    return part;
}
