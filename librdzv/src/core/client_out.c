/*
 * client_out.c: what goes out, and what is owed for it: the output, the row of slots, the
 * handshake. Invariant: after a reserve, one request and the CANCEL_WAIT behind it find room.
 */
#include "core/client_c10d.h"

#include "bytes.h"

#include <string.h>

enum {
    FIRST_OUT = 4096,
    FIRST_SLOTS = 16,
    SPARE = 2 /* slots and bytes for a CANCEL_WAIT, which must not fail */
};

static int reserve_out(struct rdzv__client_core *core, size_t more)
{
    size_t wanted = core->out_len + more + SPARE;
    if (wanted <= core->out_cap)
        return 1;
    if (core->out_sent > 0) {
        memmove(core->out, core->out + core->out_sent, core->out_len - core->out_sent);
        core->out_len -= core->out_sent;
        core->out_sent = 0;
        wanted = core->out_len + more + SPARE;
        if (wanted <= core->out_cap)
            return 1;
    }
    size_t cap = 2 * core->out_cap > wanted ? 2 * core->out_cap : wanted;
    if (cap < FIRST_OUT)
        cap = FIRST_OUT;
    uint8_t *grown = rdzv__alloc(core->config.allocator, cap);
    if (grown == NULL)
        return 0;
    if (core->out_len > 0)
        memcpy(grown, core->out, core->out_len);
    rdzv__free(core->config.allocator, core->out);
    core->out = grown;
    core->out_cap = cap;
    return 1;
}

static int reserve_slots(struct rdzv__client_core *core)
{
    uint64_t used = core->slots_end - core->slots_first;
    if (used + 1 + SPARE <= core->slots_cap)
        return 1;
    size_t cap = core->slots_cap > 0 ? 2 * core->slots_cap : FIRST_SLOTS;
    struct rdzv__slot *grown = rdzv__alloc(core->config.allocator, cap * sizeof *grown);
    if (grown == NULL)
        return 0;
    for (uint64_t i = core->slots_first; i < core->slots_end; i++)
        grown[i & (cap - 1)] = *rdzv__client_slot(core, i);
    rdzv__free(core->config.allocator, core->slots);
    core->slots = grown;
    core->slots_cap = cap;
    return 1;
}

/* Room for one more request of `len` bytes, and for calling it off. */
int rdzv__client_reserve(struct rdzv__client_core *core, size_t len)
{
    return reserve_out(core, len) && reserve_slots(core);
}

const struct rdzv__call *rdzv__client_core_owed(const struct rdzv__client_core *core)
{
    if (core->slots_first == core->slots_end)
        return NULL;
    return core->slots[core->slots_first & (core->slots_cap - 1)].call;
}

/* The server, or the network, is to do something. */
int rdzv__client_is_owed(const struct rdzv__client_core *core)
{
    if (core->out_sent < core->out_len)
        return 1;
    return core->slots_end - core->slots_first > (core->parked != NULL ? 1u : 0u);
}

void rdzv__client_put(struct rdzv__client_core *core, const void *bytes, size_t len)
{
    if (!rdzv__client_is_owed(core))
        core->owed_since_ms = core->now_ms;
    memcpy(core->out + core->out_len, bytes, len);
    core->out_len += len;
    core->out_end += len;
}

void rdzv__client_put_byte(struct rdzv__client_core *core, uint8_t byte)
{
    rdzv__client_put(core, &byte, 1);
}

struct rdzv__slot *rdzv__client_push_slot(struct rdzv__client_core *core, uint8_t kind,
                                          struct rdzv__call *call)
{
    struct rdzv__slot *slot = rdzv__client_slot(core, core->slots_end);
    *slot = (struct rdzv__slot){.call = call, .kind = kind};
    if (call != NULL) {
        call->slot = core->slots_end;
        slot->items = call->items;
    }
    core->slots_end++;
    return slot;
}

struct rdzv__call *rdzv__client_pop_slot(struct rdzv__client_core *core)
{
    struct rdzv__call *call = rdzv__client_slot(core, core->slots_first)->call;
    core->slots_first++;
    rdzv__client_reply_reset(core);
    return call;
}

size_t rdzv__client_core_output(const struct rdzv__client_core *core, const uint8_t **ret)
{
    size_t len = core->out_len - core->out_sent;
    *ret = len > 0 ? core->out + core->out_sent : NULL; /* a large buffer was given back */
    return len;
}

void rdzv__client_core_hello(struct rdzv__client_core *core, uint32_t nonce, uint64_t now_ms)
{
    static const char probe[] = "rallypoint/is-it-the-older-server";
    rdzv__client_core_disconnect(core);
    core->now_ms = now_ms;
    core->hello_answered = 0;
    core->nonce = nonce | 1; /* so that an echo of the magic is none */
    if (!rdzv__client_reserve(core, 64 + sizeof probe) || !reserve_slots(core)) {
        rdzv__client_core_fail(core, RDZV_ENOMEM, 0, "out of memory for the handshake with %s",
                               core->config.peer);
        return;
    }
    core->state = RDZV__CLIENT_HELLO;
    uint8_t number[8] = {0};
    if (core->config.legacy) {
        rdzv__client_put_byte(core, RDZV__LEGACY_CHECK);
        rdzv__client_put(core, number, 8); /* no keys: all there */
        rdzv__client_put_byte(core, RDZV__LEGACY_GETNUMKEYS);
        rdzv__client_push_slot(core, RDZV__SLOT_HELLO_CHECK, NULL);
        rdzv__client_push_slot(core, RDZV__SLOT_HELLO_COUNT, NULL);
        return;
    }
    rdzv__client_put_byte(core, RDZV__OP_VALIDATE);
    bytes_put_u32(number, RDZV__C10D_MAGIC);
    rdzv__client_put(core, number, 4);
    rdzv__client_put_byte(core, RDZV__OP_PING);
    bytes_put_u32(number, core->nonce);
    rdzv__client_put(core, number, 4);
    rdzv__client_push_slot(core, RDZV__SLOT_NONCE, NULL);
    if (core->wait_first)
        return;
    /* PyTorch's older server closes at a GET of a key that is not there: better now than later. */
    rdzv__client_put_byte(core, RDZV__OP_GET);
    bytes_put_u64(number, sizeof probe - 1);
    rdzv__client_put(core, number, 8);
    rdzv__client_put(core, probe, sizeof probe - 1);
    rdzv__client_push_slot(core, RDZV__SLOT_PROBE, NULL);
}
