/*
 * fuzz_c10d.c: bytes to segments to the c10d core. Input: a list of segments, each a control byte
 * and a length byte, then that many bytes, sent from one of four connections; control bytes also
 * end a client, let a late persister catch up, or fail one allocation. Checked after each step:
 * counts add up, unread output stays within its limit. Checked once per input that starts with 'S':
 * a stream gives the same answers whole and byte by byte.
 */
#include "core/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 4, MAX_UNREAD = 1 << 16, MAX_STORE = 1 << 20, MAX_ANSWER = 1 << 18 };

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static long live;
static int fail_in; /* the allocation that fails, counted down; 0 = none */

static void *fuzz_alloc(void *ctx, size_t len, size_t align)
{
    (void)ctx;
    (void)align;
    REQUIRE(len <= MAX_STORE * 4); /* nothing may believe an announced length */
    if (fail_in > 0 && --fail_in == 0)
        return NULL;
    live++;
    return malloc(len);
}

static void fuzz_free(void *ctx, void *ptr)
{
    (void)ctx;
    live -= ptr != NULL;
    free(ptr);
}

static const rdzv_allocator allocator = {fuzz_alloc, fuzz_free, NULL};

static void on_change(void *ctx, uint64_t record, const struct rdzv__change *change)
{
    (void)ctx;
    (void)record;
    REQUIRE(change->key.data != NULL);
}

static void on_sealed(void *ctx, uint64_t record)
{
    (void)ctx;
    (void)record;
}

static const struct rdzv__journal late = {on_change, on_sealed, NULL};

static void start(struct rdzv__core *core, const struct rdzv__journal *journal)
{
    struct rdzv__core_options options = {
        .allocator = &allocator,
        .journal = journal,
        .limits = {512, 4096, 64, 16384},
        .max_store_bytes = MAX_STORE,
        .max_unread_bytes = MAX_UNREAD,
        .max_buffer_bytes = MAX_UNREAD / 2,
        .hash_seed = 7,
    };
    rdzv__core_init(core, &options);
}

static void feed_all(struct rdzv__session *s, const uint8_t *data, size_t len)
{
    for (size_t used = 0; used < len;) {
        size_t part = rdzv__session_feed(s, data + used, len - used);
        REQUIRE(part > 0 && part <= len - used);
        used += part;
    }
}

/* Appends what may be sent to `ret`, which holds *ret_len bytes; drops it when ret is NULL. */
static void take(struct rdzv__session *s, uint8_t *ret, size_t *ret_len)
{
    struct rdzv__field spans[4];
    size_t n;
    while ((n = rdzv__session_output(s, spans, 4)) > 0) {
        for (size_t i = 0; i < n; i++) {
            REQUIRE(spans[i].len > 0);
            if (ret != NULL && *ret_len + spans[i].len <= MAX_ANSWER) {
                memcpy(ret + *ret_len, spans[i].data, spans[i].len);
                *ret_len += spans[i].len;
            }
            rdzv__session_sent(s, spans[i].len);
        }
    }
}

/* Does what the shell does, and reopens what ended. */
static void settle(struct rdzv__core *core)
{
    struct rdzv__session *s;
    while ((s = rdzv__core_next_ready(core)) != NULL) {
        REQUIRE(rdzv__session_unsent(s) <= MAX_UNREAD);
        if (s->state != RDZV__SESSION_FAILED)
            take(s, NULL, NULL);
        if (s->state == RDZV__SESSION_FAILED ||
            (s->state != RDZV__SESSION_OPEN && rdzv__session_unsent(s) == 0)) {
            rdzv__session_close(s);
            rdzv__session_open(s, core);
        }
    }
    REQUIRE(core->store.bytes <= MAX_STORE);
    REQUIRE(core->waiting <= CLIENTS);
}

static void run_segments(const uint8_t *data, size_t len)
{
    struct rdzv__core core;
    struct rdzv__session clients[CLIENTS];
    start(&core, &late);
    for (int i = 0; i < CLIENTS; i++)
        rdzv__session_open(&clients[i], &core);
    while (len >= 2) {
        uint8_t control = data[0];
        size_t part = data[1];
        data += 2;
        len -= 2;
        struct rdzv__session *s = &clients[control % CLIENTS];
        if (part > len)
            part = len;
        if ((control & 0x80) != 0)
            rdzv__core_persisted(&core, core.recorded);
        fail_in = (control & 0x40) != 0 ? control >> 2 & 7 : 0;
        if (s->state == RDZV__SESSION_OPEN) {
            feed_all(s, data, part);
            if ((control & 0x20) != 0)
                rdzv__session_eof(s);
        }
        fail_in = 0;
        settle(&core);
        data += part;
        len -= part;
    }
    for (int i = 0; i < CLIENTS; i++)
        rdzv__session_close(&clients[i]);
    REQUIRE(core.waiting == 0);
    rdzv__core_free(&core);
    REQUIRE(core.store.bytes == 0);
    REQUIRE(live == 0);
}

static size_t answers(const uint8_t *data, size_t len, size_t piece, uint8_t *ret, int *ret_state)
{
    struct rdzv__core core;
    struct rdzv__session s;
    size_t ret_len = 0;
    start(&core, NULL);
    rdzv__session_open(&s, &core);
    for (size_t at = 0; at < len && s.state == RDZV__SESSION_OPEN; at += piece) {
        feed_all(&s, data + at, piece < len - at ? piece : len - at);
        take(&s, ret, &ret_len);
    }
    *ret_state = s.state;
    rdzv__session_close(&s);
    rdzv__core_free(&core);
    REQUIRE(live == 0);
    return ret_len;
}

static void compare_segmentations(const uint8_t *data, size_t len)
{
    static uint8_t whole[MAX_ANSWER];
    static uint8_t bytewise[MAX_ANSWER];
    int state_whole;
    int state_bytewise;
    size_t len_bytewise = answers(data, len, 1, bytewise, &state_bytewise);
    size_t len_whole = answers(data, len, len, whole, &state_whole);
    /* Many answers at once may be more than a client may leave unread; one by one they are not. */
    if (state_whole == RDZV__SESSION_FAILED)
        return;
    REQUIRE(state_whole == state_bytewise);
    REQUIRE(len_whole == len_bytewise && memcmp(whole, bytewise, len_whole) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len > 1 && data[0] == 'S')
        compare_segmentations(data + 1, len - 1);
    else
        run_segments(data, len);
    return 0;
}
