/*
 * fuzz_c10d_client.c: the client's core against any bytes, in any segments, between any calls,
 * cancellations, deadlines and lost memory. Each record of the input is: control byte, length byte,
 * bytes. Whatever comes, every call ends exactly once, memory follows the bytes that came, and
 * nothing leaks.
 */
#include "core/client_c10d.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 64, MAX_REPLY = 1 << 16 };

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static size_t live;
static int fail_in; /* allocations until one fails; 0 = never */

static void *fuzz_alloc(void *ctx, size_t len, size_t align)
{
    (void)ctx;
    (void)align;
    REQUIRE(len <= 64 * MAX_REPLY);
    if (fail_in > 0 && --fail_in == 0)
        return NULL;
    void *p = malloc(len);
    live += p != NULL;
    return p;
}

static void fuzz_free(void *ctx, void *p)
{
    (void)ctx;
    live -= p != NULL;
    free(p);
}

static const rdzv_allocator allocator = {fuzz_alloc, fuzz_free, NULL};
static struct rdzv__call *open_calls[CALLS];

static void submit(struct rdzv__client_core *core, uint8_t what, uint64_t now)
{
    static const rdzv_bytes keys[] = {{"k", 1}, {"key", 3}, {"", 0}};
    static const rdzv_bytes values[] = {{"v", 1}, {"", 0}, {"value", 5}};
    uint8_t op = (uint8_t)(RDZV__OP_SET + what % (RDZV__OP_COUNT - 1));
    int many = op == RDZV__OP_WAIT || op == RDZV__OP_CHECK || op == RDZV__OP_MULTI_GET ||
               op == RDZV__OP_MULTI_SET;
    int none = op == RDZV__OP_GETNUMKEYS || op == RDZV__OP_LIST_KEYS || op == RDZV__OP_PING;
    size_t value_count = op == RDZV__OP_COMPARE_SET ? 2
                         : op == RDZV__OP_SET || op == RDZV__OP_APPEND || op == RDZV__OP_QUEUE_PUSH
                             ? 1
                             : 0;
    struct rdzv__request r = {op, keys, 1, values, value_count, 2};
    if (many)
        r.key_count = what >> 6;
    if (none)
        r.key_count = 0;
    if (op == RDZV__OP_MULTI_SET)
        r.value_count = r.key_count;
    size_t len;
    int slot = 0;
    while (slot < CALLS && open_calls[slot] != NULL)
        slot++;
    if (op == RDZV__OP_CANCEL_WAIT || slot == CALLS ||
        rdzv__call_measure(&core->config, &r, &len, NULL) != RDZV_OK)
        return;
    struct rdzv__call *call = malloc(sizeof *call);
    uint8_t *bytes = malloc(len + 1);
    if (call == NULL || bytes == NULL)
        abort();
    rdzv__call_init(call, bytes, &core->config, &r);
    call->no_wait = (what & 0x20) != 0;
    call->deadline_ms = now + 50 + what;
    open_calls[slot] = call;
    rdzv__client_core_submit(core, call, now);
}

/* Takes what is over; reads every byte of it. */
static void collect(struct rdzv__client_core *core)
{
    while (!queue_empty(&core->done)) {
        struct rdzv__call *call = QUEUE_ENTRY(core->done.next, struct rdzv__call, link);
        int slot = 0;
        while (slot < CALLS && open_calls[slot] != call)
            slot++;
        REQUIRE(slot < CALLS); /* once only */
        open_calls[slot] = NULL;
        volatile uint8_t sum = 0;
        for (size_t i = 0; call->result.code == RDZV_OK && i < call->count; i++)
            for (size_t j = 0; j < call->values[i].len_bytes; j++)
                sum = (uint8_t)(sum + ((const uint8_t *)call->values[i].data)[j]);
        REQUIRE(call->reply_len <= 2 * MAX_REPLY);
        queue_remove(&call->link);
        rdzv__call_clear(call, &allocator);
        free(call->bytes);
        free(call);
    }
}

static void send_all(struct rdzv__client_core *core, uint64_t now)
{
    const uint8_t *bytes;
    rdzv__client_core_pump(core, now);
    size_t len = rdzv__client_core_output(core, &bytes);
    if (len > 0)
        rdzv__client_core_sent(core, len, now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct rdzv__client_core core;
    uint64_t now = 1000;
    if (len < 1)
        return 0;
    core.config = (struct rdzv__client_config){.allocator = &allocator,
                                               .peer = "peer",
                                               .legacy = data[0] & 1,
                                               .wait_first = data[0] >> 1 & 1,
                                               .reply_timeout_ms = 400,
                                               .max_key_bytes = 64,
                                               .max_value_bytes = 64,
                                               .max_request_keys = 8,
                                               .max_reply_bytes = MAX_REPLY};
    rdzv__client_core_init(&core);
    rdzv__client_core_hello(&core, 0x41414141, now);
    send_all(&core, now);
    for (size_t at = 1; at + 2 <= len;) {
        uint8_t control = data[at];
        size_t part = data[at + 1];
        at += 2;
        if (part > len - at)
            part = len - at;
        fail_in = (control & 0x40) != 0 ? control >> 2 & 7 : 0;
        if ((control & 1) != 0)
            for (size_t i = 0; i < part; i++)
                submit(&core, data[at + i], now);
        else
            rdzv__client_core_feed(&core, data + at, part, now);
        if ((control & 0x80) != 0)
            now += part;
        if ((control & 0x20) != 0 && open_calls[part % CALLS] != NULL) {
            open_calls[part % CALLS]->canceled = 1;
            rdzv__client_core_cancel_marked(&core, now);
        }
        rdzv__client_core_tick(&core, now);
        send_all(&core, now);
        fail_in = 0;
        collect(&core);
        REQUIRE(rdzv__client_core_next_ms(&core) >= now || core.state != RDZV__CLIENT_UP ||
                !queue_empty(&core.waiting));
        at += part;
    }
    rdzv__client_core_fail(&core, RDZV_ECANCELED, 0, "closed");
    collect(&core);
    for (int i = 0; i < CALLS; i++)
        REQUIRE(open_calls[i] == NULL);
    rdzv__client_core_free(&core);
    REQUIRE(live == 0);
    return 0;
}
