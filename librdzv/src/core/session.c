/*
 * session.c: one connection as the core sees it: bytes in, requests out, one at a time and in
 * order. Invariant: `pending` holds only the start of the one request that has not come in whole,
 * and grows with the bytes that came, never with what they announce. Requests that are whole run
 * straight from the shell's buffer.
 */
#include "core/core.h"

#include "core/ops.h"
#include "core/out.h"
#include "core/wait.h"

#include <string.h>

enum { FIRST_PENDING = 256, OUTPUT_PER_FEED = 262144, VISITS_PER_FEED = 8192 };

void rdzv__session_open(struct rdzv__session *s, struct rdzv__core *core)
{
    memset(s, 0, sizeof *s);
    s->core = core;
    queue_init(&s->ready);
    queue_init(&s->held);
}

static void drop_pending(struct rdzv__session *s)
{
    rdzv__free(s->core->options.allocator, s->pending);
    s->core->buffer_bytes -= s->pending_cap;
    s->pending = NULL;
    s->pending_len = 0;
    s->pending_cap = 0;
}

void rdzv__session_close(struct rdzv__session *s)
{
    rdzv__wait_drop(s);
    rdzv__out_clear(s);
    drop_pending(s);
    queue_remove(&s->ready);
}

void rdzv__session_eof(struct rdzv__session *s)
{
    if (s->state != RDZV__SESSION_OPEN)
        return;
    rdzv__wait_drop(s);
    drop_pending(s);
    s->state = RDZV__SESSION_ENDING;
    rdzv__session_ready(s);
}

static void refuse(struct rdzv__session *s, int why)
{
    rdzv__wait_drop(s);
    drop_pending(s);
    if (s->state != RDZV__SESSION_OPEN)
        return;
    s->state = RDZV__SESSION_REFUSED;
    s->why = (uint8_t)why;
    rdzv__session_ready(s);
}

void rdzv__session_expire(struct rdzv__session *s)
{
    refuse(s, RDZV__WHY_SLOW_REQUEST);
}

/* Room for `more` further bytes of the pending request. */
static int grow_pending(struct rdzv__session *s, size_t more)
{
    size_t wanted = s->pending_len + more;
    if (wanted <= s->pending_cap)
        return RDZV__WHY_OK;
    size_t cap = 2 * s->pending_cap > wanted ? 2 * s->pending_cap : wanted;
    if (cap < FIRST_PENDING)
        cap = FIRST_PENDING;
    if (!rdzv__buffer_room(s, cap - s->pending_cap))
        return RDZV__WHY_BUFFERS_FULL;
    const rdzv_allocator *a = s->core->options.allocator;
    uint8_t *block = rdzv__alloc(a, cap);
    if (block == NULL)
        return RDZV__WHY_NO_MEMORY;
    if (s->pending_len > 0)
        memcpy(block, s->pending, s->pending_len);
    rdzv__free(a, s->pending);
    s->core->buffer_bytes += cap - s->pending_cap;
    s->pending = block;
    s->pending_cap = cap;
    return RDZV__WHY_OK;
}

static int keep(struct rdzv__session *s, const uint8_t *bytes, size_t len)
{
    int why = grow_pending(s, len);
    if (why != RDZV__WHY_OK)
        return why;
    memcpy(s->pending + s->pending_len, bytes, len);
    s->pending_len += len;
    return RDZV__WHY_OK;
}

/* Scans the request at `at` and runs it when it is whole; *ret_len is its length then, else 0. */
static int advance(struct rdzv__session *s, const uint8_t *at, size_t len, size_t *ret_len)
{
    *ret_len = 0;
    int why = rdzv__scan(&s->scan, &s->dialect, &s->core->options.limits, at, len);
    if (why != RDZV__WHY_OK || s->scan.need != 0)
        return why;
    *ret_len = (size_t)s->scan.pos;
    uint8_t op = s->scan.op;
    memset(&s->scan, 0, sizeof s->scan);
    return rdzv__op_run(s, op, at + 1);
}

/* Runs the request at `at`, where none is pending; *ret_used is as in advance. */
static int run_next(struct rdzv__session *s, const uint8_t *at, size_t len, size_t *ret_used)
{
    *ret_used =
        s->dialect == RDZV__DIALECT_C ? rdzv__scan_short(&s->core->options.limits, at, len) : 0;
    if (*ret_used > 0)
        return rdzv__op_run(s, at[0], at + 1);
    int why = advance(s, at, len, ret_used);
    if (why == RDZV__WHY_OK && *ret_used == 0) {
        *ret_used = len;
        why = keep(s, at, len);
    }
    return why;
}

/* Takes as much as the pending request needs next, and no byte of the request after it. */
static int feed_pending(struct rdzv__session *s, const uint8_t *bytes, size_t len, size_t *ret_used)
{
    uint64_t wanted = s->scan.need - s->pending_len;
    *ret_used = wanted < len ? (size_t)wanted : len;
    int why = keep(s, bytes, *ret_used);
    if (why != RDZV__WHY_OK || s->pending_len < s->scan.need)
        return why;
    size_t request_len;
    why = advance(s, s->pending, s->pending_len, &request_len);
    if (request_len > 0)
        drop_pending(s);
    return why;
}

size_t rdzv__session_feed(struct rdzv__session *s, const uint8_t *bytes, size_t len)
{
    struct rdzv__core *core = s->core;
    uint64_t stop = s->out_made + OUTPUT_PER_FEED;
    uint64_t visits_stop = core->visits + VISITS_PER_FEED;
    size_t used = 0;
    while (used < len && s->out_made < stop && core->visits < visits_stop) {
        if (s->state != RDZV__SESSION_OPEN)
            return len;
        /* The client has stopped waiting when it sends anything else, be it CANCEL_WAIT. */
        rdzv__wait_drop(s);
        size_t part;
        int why = s->pending_len > 0 ? feed_pending(s, bytes + used, len - used, &part)
                                     : run_next(s, bytes + used, len - used, &part);
        if (why != RDZV__WHY_OK) {
            refuse(s, why);
            return len;
        }
        used += part;
    }
    return used;
}
