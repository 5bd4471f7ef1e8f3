/*
 * fuzz_c10d.c: any bytes to the c10d core, in any pieces, from four clients. Input: a byte that
 * chooses limits and persistence, then records: control byte, length byte, bytes. The control
 * byte names the client and what else happens: an allocation fails, records are persisted, the
 * client does not read, ends, resets, or its deadline passes. Checked after each record: limits
 * hold, and nobody is left with output that the shell was not told of. COMPARE plays the records
 * twice, the second time byte by byte and without records to wait for: the answers are the same.
 */
#include "core/core.h"

#define FUZZ_LARGEST (1u << 18)
#include "fuzz.h"

#include <string.h>

/* First byte. TIGHT: other jobs of the server leave little room, so limits follow what is used. */
enum {
    COMPARE = 1,
    NO_JOURNAL = 2,
    PERSIST_AT_ONCE = 4,
    SMALL_STORE = 8,
    PATIENT = 16,
    TIGHT = 32
};

/* Control byte; the two lowest bits are the client. */
enum { EVENT_SHIFT = 2, EVENT_MASK = 7, END = 0x20, FAULT = 0x40, PERSIST = 0x80 };

/* Bits 2 to 4 of a control byte; with FAULT they are the number of the allocation that fails. */
enum { READ_NOTHING = 1, READ_ONE, PERSIST_HALF, EXPIRE, RESET, BYTEWISE, EIGHT_TIMES };

enum { CLIENTS = 4, LONG_PART = 0xf0, LONG_UNIT = 256 };

struct client {
    struct rdzv__session session;
    int blocked;     /* has output that it did not read */
    uint64_t read;   /* bytes */
    uint64_t digest; /* of them */
};

struct play {
    struct rdzv__core core;
    struct client clients[CLIENTS];
    uint8_t plan;
    int bytewise;
    int ended; /* a client did */
    int lost;  /* output was thrown away */
};

static void on_change(void *ctx, uint64_t record, const struct rdzv__change *change)
{
    const struct play *play = ctx;
    REQUIRE(record == play->core.recorded);
    REQUIRE(change->kind == RDZV__CHANGE_FORGET || play->core.record_open);
    REQUIRE(change->kind == RDZV__CHANGE_FORGET || change->key.data != NULL);
}

static void on_sealed(void *ctx, uint64_t record)
{
    struct play *play = ctx;
    REQUIRE(record == play->core.recorded);
    if ((play->plan & PERSIST_AT_ONCE) != 0)
        rdzv__core_persisted(&play->core, record);
}

static void start(struct play *play, uint8_t plan)
{
    struct rdzv__journal journal = {on_change, on_sealed, play};
    struct rdzv__core_options options = {
        .allocator = &allocator,
        .journal = (plan & NO_JOURNAL) != 0 ? NULL : &journal,
        .limits = {256, 1024, 64, 2048},
        .max = {.store_bytes = (plan & SMALL_STORE) != 0 ? 2048 : FUZZ_LARGEST,
                .names = UINT64_MAX,
                .buffer_bytes = 1 << 15},
        .max_unread_bytes = (plan & PATIENT) != 0 ? 1 << 20 : 1 << 13,
        .hash_seed = 7,
    };
    memset(play, 0, sizeof *play);
    play->plan = plan;
    rdzv__core_init(&play->core, &options);
    for (int i = 0; i < CLIENTS; i++)
        rdzv__session_open(&play->clients[i].session, &play->core);
}

static void add_digest(struct client *c, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        c->digest = (c->digest ^ bytes[i]) * 0x100000001b3u;
    c->read += len;
}

/* Reads what may be sent, at most `max` bytes. */
static void take(struct client *c, size_t max)
{
    struct rdzv__field spans[2];
    size_t n;
    while (max > 0 && (n = rdzv__session_output(&c->session, spans, 2)) > 0) {
        size_t len = 0;
        for (size_t i = 0; i < n && len < max; i++) {
            size_t part = spans[i].len < max - len ? spans[i].len : max - len;
            REQUIRE(part > 0);
            add_digest(c, spans[i].data, part);
            len += part;
        }
        rdzv__session_sent(&c->session, len);
        max -= len;
    }
    c->blocked = rdzv__session_output(&c->session, spans, 1) > 0;
}

static void reopen(struct play *play, struct client *c)
{
    c->blocked = 0;
    rdzv__session_close(&c->session);
    rdzv__session_open(&c->session, &play->core);
}

/* What the shell does with a session: sends, and ends it when it is over. */
static void settle_one(struct play *play, struct client *c, size_t max)
{
    struct rdzv__session *s = &c->session;
    REQUIRE(rdzv__session_unsent(s) <= play->core.options.max_unread_bytes);
    if (s->state != RDZV__SESSION_FAILED)
        take(c, max);
    int lost =
        s->state == RDZV__SESSION_FAILED || (s->state == RDZV__SESSION_REFUSED && c->blocked);
    play->lost |= lost || s->why == RDZV__WHY_BUFFERS_FULL;
    if (lost || (s->state != RDZV__SESSION_OPEN && rdzv__session_unsent(s) == 0))
        reopen(play, c);
}

static void settle(struct play *play, size_t max)
{
    struct rdzv__session *s;
    for (int i = 0; i < CLIENTS; i++)
        if (play->clients[i].blocked)
            settle_one(play, &play->clients[i], max);
    while ((s = rdzv__core_next_ready(&play->core)) != NULL)
        settle_one(play, CONTAINER_OF(s, struct client, session), max);
    for (int i = 0; i < CLIENTS; i++) {
        struct rdzv__field span;
        struct client *c = &play->clients[i];
        REQUIRE(c->blocked || rdzv__session_output(&c->session, &span, 1) == 0);
    }
    REQUIRE(play->core.store.bytes <= play->core.store.max_bytes);
    REQUIRE(rdzv__core_used(&play->core).names <= play->core.store.max_names);
    REQUIRE(play->core.waiting <= CLIENTS);
}

static void feed(struct play *play, struct client *c, const uint8_t *data, size_t len, size_t piece)
{
    for (size_t used = 0; used < len;) {
        size_t part = piece < len - used ? piece : len - used;
        size_t taken = rdzv__session_feed(&c->session, data + used, part);
        REQUIRE(taken > 0 && taken <= part);
        used += taken;
        if (c->session.state != RDZV__SESSION_OPEN)
            return;
        if (used < len)
            settle(play, SIZE_MAX);
    }
}

static void tighten(struct rdzv__core *core)
{
    struct rdzv__room room = rdzv__core_used(core);
    room.store_bytes += 600;
    room.names += 2;
    room.buffer_bytes += 600;
    rdzv__core_limit(core, &room);
}

static void run_record(struct play *play, uint8_t control, const uint8_t *data, size_t len)
{
    struct client *c = &play->clients[control % CLIENTS];
    struct rdzv__core *core = &play->core;
    int event = control >> EVENT_SHIFT & EVENT_MASK;
    if ((play->plan & TIGHT) != 0)
        tighten(core);
    if ((control & FAULT) != 0) {
        fail_in = (play->plan & COMPARE) != 0 ? 0 : event;
        event = 0;
    }
    if ((control & PERSIST) != 0)
        rdzv__core_persisted(core, core->recorded);
    else if (event == PERSIST_HALF)
        rdzv__core_persisted(core, core->recorded - (core->recorded - core->persisted) / 2);
    for (int times = event == EIGHT_TIMES ? 8 : 1; times > 0; times--)
        feed(play, c, data, len, play->bytewise || event == BYTEWISE ? 1 : SIZE_MAX);
    if (event == EXPIRE && rdzv__session_begun(&c->session))
        rdzv__session_expire(&c->session);
    if ((control & END) != 0)
        rdzv__session_eof(&c->session);
    fail_in = 0;
    play->lost |= event == RESET;
    play->ended |= c->session.state != RDZV__SESSION_OPEN;
    if (event == RESET)
        reopen(play, c);
    settle(play, event == READ_NOTHING ? 0 : event == READ_ONE ? 1 : SIZE_MAX);
}

static void stop(struct play *play)
{
    rdzv__core_persisted(&play->core, play->core.recorded);
    settle(play, SIZE_MAX);
    for (int i = 0; i < CLIENTS; i++)
        rdzv__session_close(&play->clients[i].session);
    rdzv__core_forget(&play->core);
    struct rdzv__room used = rdzv__core_used(&play->core);
    REQUIRE(used.store_bytes == 0 && used.names == 0 && used.buffer_bytes == 0);
    REQUIRE(play->core.waiting == 0 && play->core.store.keys == 0);
    rdzv__core_free(&play->core);
    REQUIRE(live == 0);
}

static void run(struct play *play, uint8_t plan, int bytewise, const uint8_t *data, size_t len)
{
    start(play, plan);
    play->bytewise = bytewise;
    while (len >= 2 && !((plan & COMPARE) != 0 && play->ended)) {
        uint8_t control = data[0];
        size_t part = data[1] < LONG_PART ? data[1] : (data[1] - LONG_PART + 1u) * LONG_UNIT;
        data += 2;
        len -= 2;
        if (part > len)
            part = len;
        run_record(play, control, data, part);
        data += part;
        len -= part;
    }
    stop(play);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct play first;
    static struct play second;
    if (len == 0)
        return 0;
    run(&first, data[0], 0, data + 1, len - 1);
    if ((data[0] & COMPARE) == 0)
        return 0;
    run(&second, data[0] | NO_JOURNAL, 1, data + 1, len - 1);
    if (!first.lost && !second.lost)
        for (int i = 0; i < CLIENTS; i++)
            REQUIRE(first.clients[i].read == second.clients[i].read &&
                    first.clients[i].digest == second.clients[i].digest);
    return 0;
}
