/*
 * fuzz_c10d_client.c: the client's core against any bytes, in any pieces, between any calls,
 * cancellations, deadlines, reconnects and lost memory. Input: a byte that chooses dialect and
 * limits, then records: control byte, length byte, bytes. Checked: every call ends exactly once and
 * within its deadline and the grace, memory follows the bytes that came, nothing leaks. COMPARE
 * plays the records twice, the second time byte by byte: the calls end the same way.
 */
#include "core/client_c10d.h"

#define FUZZ_LARGEST (8u << 16)
#include "fuzz.h"

#include <string.h>

/* First byte. */
enum { LEGACY = 1, WAIT_FIRST = 2, RAW_KEYS = 4, SHORT_REPLIES = 8, COMPARE = 16 };

/* Control byte. SUBMIT: each byte is a call, else what the peer sends. PASS: time does, by the
 * length. CANCEL: the call of that number. */
enum { SUBMIT = 1, EVENT_SHIFT = 2, EVENT_MASK = 7, CANCEL = 0x20, FAULT = 0x40, PASS = 0x80 };

/* Bits 2 to 4 of a control byte; with FAULT they are the number of the allocation that fails. */
enum { SEND_NOTHING = 1, SEND_ONE, LOSE, CONNECT };

enum { CALLS = 64, LONG_REPLIES = 1 << 16, DEADLINE_MS = 50, MOST_MS = DEADLINE_MS + 255 };

struct play {
    struct rdzv__client_core core;
    struct rdzv__call *calls[CALLS];
    uint64_t now;
    uint64_t submitted;
    uint64_t digest; /* of how the calls ended */
    int compare;
    int bytewise;
};

static int free_slot(const struct play *play)
{
    int slot = 0;
    while (slot < CALLS && play->calls[slot] != NULL)
        slot++;
    return slot;
}

/* The request that `what` stands for. */
static struct rdzv__request choose_request(uint8_t what)
{
    static const char odd[] = "a \"long\\\x01\" key, cut in the text of a failure";
    static const rdzv_bytes keys[] = {{"k", 1}, {"", 0}, {odd, sizeof odd - 1}};
    static const char large[1000];
    static const rdzv_bytes values[] = {{"v", 1}, {"", 0}, {large, sizeof large}};
    uint8_t op = (uint8_t)(RDZV__OP_SET + what % (RDZV__OP_COUNT - 1));
    struct rdzv__request r = {op, keys, 1, values, 0, 2};
    switch (op) {
    case RDZV__OP_WAIT:
    case RDZV__OP_CHECK:
    case RDZV__OP_MULTI_GET:
    case RDZV__OP_MULTI_SET:
        r.key_count = what >> 6;
        r.value_count = op == RDZV__OP_MULTI_SET ? r.key_count : 0;
        break;
    case RDZV__OP_GETNUMKEYS:
    case RDZV__OP_LIST_KEYS:
    case RDZV__OP_PING:
        r.key_count = 0;
        break;
    case RDZV__OP_COMPARE_SET:
        r.value_count = 2;
        break;
    case RDZV__OP_SET:
    case RDZV__OP_APPEND:
    case RDZV__OP_QUEUE_PUSH:
        r.value_count = 1;
        r.values += (what >> 6) % 3;
        break;
    default:
        r.keys += (what >> 6) % 3;
    }
    return r;
}

static void submit(struct play *play, uint8_t what)
{
    struct rdzv__client_core *core = &play->core;
    struct rdzv__request r = choose_request(what);
    size_t len;
    int slot = free_slot(play);
    if (r.op == RDZV__OP_CANCEL_WAIT || slot == CALLS ||
        rdzv__call_measure(&core->config, &r, &len, NULL) != RDZV_OK)
        return;
    struct rdzv__call *call = malloc(sizeof *call);
    uint8_t *bytes = malloc(len + 1);
    if (call == NULL || bytes == NULL)
        abort();
    rdzv__call_init(call, bytes, &core->config, &r);
    call->id = ++play->submitted;
    call->no_wait = (what & 0x20) != 0;
    call->deadline_ms = play->now + DEADLINE_MS + what;
    play->calls[slot] = call;
    rdzv__client_core_submit(core, call, play->now);
}

static void add_digest(struct play *play, const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        play->digest = (play->digest ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
}

/* Takes what is over; reads every byte of it. */
static void collect(struct play *play)
{
    struct rdzv__client_core *core = &play->core;
    while (!queue_empty(&core->done)) {
        struct rdzv__call *call = CONTAINER_OF(core->done.next, struct rdzv__call, link);
        int slot = 0;
        while (slot < CALLS && play->calls[slot] != call)
            slot++;
        REQUIRE(slot < CALLS); /* once only */
        play->calls[slot] = NULL;
        add_digest(play, &call->id, sizeof call->id);
        add_digest(play, &call->result.code, sizeof call->result.code);
        if (call->result.code == RDZV_OK) {
            add_digest(play, &call->number, sizeof call->number);
            for (size_t i = 0; i < call->count; i++)
                add_digest(play, call->values[i].data, call->values[i].len_bytes);
        } else {
            REQUIRE(call->result.text[0] != '\0');
        }
        REQUIRE(call->reply_len <= 2 * core->config.max_reply_bytes);
        queue_remove(&call->link);
        rdzv__call_clear(call, &allocator);
        free(call->bytes);
        free(call);
    }
}

static void send_some(struct play *play, size_t most)
{
    const uint8_t *bytes;
    rdzv__client_core_pump(&play->core, play->now);
    size_t len = rdzv__client_core_output(&play->core, &bytes);
    if (len > most)
        len = most;
    for (size_t i = 0; i < len; i++)
        add_digest(play, &bytes[i], 1);
    if (len > 0)
        rdzv__client_core_sent(&play->core, len, play->now);
}

/* What the shell does when the connection is gone. */
static void lose(struct rdzv__client_core *core)
{
    if (core->state == RDZV__CLIENT_UP)
        rdzv__client_core_fail(core, RDZV_ECONN, 0, "lost");
    if (core->state != RDZV__CLIENT_HELLO)
        return;
    if (core->hello_answered)
        core->wait_first = 1;
    rdzv__client_core_disconnect(core);
}

static void feed(struct play *play, const uint8_t *data, size_t len)
{
    size_t piece = play->bytewise ? 1 : len;
    for (size_t at = 0; at < len; at += piece)
        rdzv__client_core_feed(&play->core, data + at, piece, play->now);
}

static void run_record(struct play *play, uint8_t control, const uint8_t *data, size_t len)
{
    struct rdzv__client_core *core = &play->core;
    int event = control >> EVENT_SHIFT & EVENT_MASK;
    if ((control & FAULT) != 0) {
        fail_in = play->compare ? 0 : event;
        event = 0;
    }
    if ((control & SUBMIT) != 0)
        for (size_t i = 0; i < len; i++)
            submit(play, data[i]);
    else
        feed(play, data, len);
    if ((control & PASS) != 0)
        play->now += len;
    if ((control & CANCEL) != 0 && play->calls[len % CALLS] != NULL) {
        play->calls[len % CALLS]->canceled = 1;
        rdzv__client_core_cancel_marked(core, play->now);
    }
    if (event == LOSE)
        lose(core);
    if ((event == CONNECT || fail_in > 0) && core->state == RDZV__CLIENT_OFF)
        rdzv__client_core_hello(core, 0x41414141, play->now);
    rdzv__client_core_tick(core, play->now);
    send_some(play, event == SEND_NOTHING ? 0 : event == SEND_ONE ? 1 : SIZE_MAX);
    fail_in = 0;
    collect(play);
    REQUIRE(rdzv__client_core_next_ms(core) >= play->now || core->state != RDZV__CLIENT_UP ||
            !queue_empty(&core->waiting));
}

static void start(struct play *play, uint8_t plan)
{
    memset(play, 0, sizeof *play);
    play->now = 1000;
    play->compare = (plan & COMPARE) != 0;
    play->core.config = (struct rdzv__client_config){
        .allocator = &allocator,
        .peer = "peer",
        .trouble = "",
        .legacy = (plan & LEGACY) != 0,
        .raw_keys = (plan & RAW_KEYS) != 0,
        .wait_first = (plan & WAIT_FIRST) != 0,
        .reply_timeout_ms = 400,
        .max_key_bytes = 64,
        .max_value_bytes = 1000,
        .max_request_keys = 8,
        .max_reply_bytes = (plan & SHORT_REPLIES) != 0 ? 64 : LONG_REPLIES,
    };
    rdzv__client_core_init(&play->core);
    rdzv__client_core_hello(&play->core, 0x41414141, play->now);
    send_some(play, SIZE_MAX);
}

/* The peer says nothing more: each call reaches its deadline, and the outcome of its wait the end
 * of the grace. */
static void stop(struct play *play)
{
    play->now += MOST_MS;
    rdzv__client_core_tick(&play->core, play->now);
    play->now += RDZV__CLIENT_GRACE_MS;
    rdzv__client_core_tick(&play->core, play->now);
    collect(play);
    for (int i = 0; i < CALLS; i++)
        REQUIRE(play->calls[i] == NULL);
    rdzv__client_core_fail(&play->core, RDZV_ECANCELED, 0, "closed");
    submit(play, 0);
    collect(play);
    rdzv__client_core_free(&play->core);
    REQUIRE(live == 0);
}

static void run(struct play *play, int bytewise, const uint8_t *data, size_t len)
{
    start(play, data[0]);
    play->bytewise = bytewise;
    for (size_t at = 1; at + 2 <= len;) {
        uint8_t control = data[at];
        size_t part = data[at + 1];
        at += 2;
        if (part > len - at)
            part = len - at;
        run_record(play, control, data + at, part);
        at += part;
    }
    stop(play);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct play whole;
    static struct play pieces;
    if (len == 0)
        return 0;
    run(&whole, 0, data, len);
    if (!whole.compare)
        return 0;
    run(&pieces, 1, data, len);
    REQUIRE(whole.submitted == pieces.submitted && whole.digest == pieces.digest);
    return 0;
}
