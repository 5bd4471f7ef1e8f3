/*
 * play.c: plays a script, step by step, and leaves both stores empty. Invariant: parked[c] is set
 * exactly while client c has a WAIT or BARRIER that neither server has answered.
 */
#include "play.h"

#include "answer.h"
#include "bytes.h"
#include "exchange.h"
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { LATE_MS = 300 /* how much later one server may wake a waiter than the other */ };

/* Whether a push may have been what ended this wait. */
static int awaits_queue(const struct play *p, const struct op *wait)
{
    for (unsigned i = 0; wait->code == RDZV__OP_WAIT && i < wait->count; i++)
        if (p->queued[wait->key[i]])
            return 1;
    return wait->code == RDZV__OP_BARRIER && p->queued[wait->key[0]];
}

/* Who was released by the last step must be the same on both. */
static int look_at_waiters(struct play *p)
{
    static const struct op wait = {.code = RDZV__OP_WAIT};
    int result = play_anybody_waits(p) ? exchange_fence(p) : SAME;
    for (unsigned i = 0; i < CLIENTS && result == SAME; i++) {
        struct pair *c = &p->client[i];
        if (p->parked[i] == NULL)
            continue;
        int ours = side_ready(&c->side[OURS], 0);
        int theirs = side_ready(&c->side[THEIRS], 0);
        if (!ours && !theirs)
            continue;
        p->pushed[i] |= awaits_queue(p, p->parked[i]);
        p->parked[i] = NULL;
        if (!side_ready(&c->side[ours ? THEIRS : OURS], LATE_MS))
            return answer_differ(p, "client %u waits: %s has released it, %s has not", i,
                                 ours ? "ours" : "theirs", ours ? "theirs" : "ours");
        result = answer_take_op(p, c, &wait);
        if (result == CLOSED)
            result = exchange_reconnect(p, i);
    }
    return result;
}

/* Nobody has been sent more than was asked for. */
static int expect_silence(struct play *p)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        for (int side = 0; side < SIDES; side++)
            if (side_ready(&p->client[i].side[side], 0))
                return answer_differ(p, "client %u was sent by %s what it had not asked for", i,
                                     side == OURS ? "ours" : "theirs");
    return SAME;
}

static void side_ask(struct side *s, const struct wire *w)
{
    if (send(s->fd, w->data, w->len, MSG_NOSIGNAL) != (ssize_t)w->len)
        s->ended = 1;
}

/* Deletes every key. */
static void delete_keys(struct side *s)
{
    struct wire w = WIRE_INIT;
    wire_add(&w, "b", RDZV__OP_LIST_KEYS);
    side_ask(s, &w);
    const uint8_t *bytes = side_take(s, 8, ANSWER_MS);
    uint64_t count = bytes != NULL ? bytes_get_u64(bytes) : 0;
    struct wire *names = answer_names(s, count);
    for (uint64_t i = 0; i < count; i++) {
        w.len = 0;
        wire_add(&w, "bi", RDZV__OP_DELETE_KEY, (long long)names[i].len);
        wire_bytes(&w, names[i].data, names[i].len);
        side_ask(s, &w);
        side_take(s, 8, ANSWER_MS);
        wire_free(&names[i]);
    }
    free(names);
    wire_free(&w);
}

/* Empties the queue under one of the script's keys. */
static void drain_queue(struct side *s, const struct script *script, unsigned key)
{
    struct op pop = {.code = RDZV__OP_QUEUE_POP, .key = {(uint8_t)key}};
    struct wire w = WIRE_INIT;
    script_op_bytes(script, &pop, &w);
    for (;;) {
        side_ask(s, &w);
        const uint8_t *bytes = side_take(s, 8, ANSWER_MS);
        if (bytes == NULL || bytes_get_u64(bytes) == 0)
            break;
        bytes = side_take(s, 8, ANSWER_MS);
        if (bytes != NULL)
            side_take(s, (size_t)bytes_get_u64(bytes), ANSWER_MS);
    }
    wire_free(&w);
}

/* Empties each server by itself: after a difference they do not hold the same. */
static void clean(struct play *p)
{
    for (int i = 0; i < SIDES; i++) {
        struct side *s = &p->control.side[i];
        delete_keys(s);
        for (unsigned key = 0; key < KEYS && (p->yardstick == YARDSTICK_UV || i == OURS); key++)
            drain_queue(s, p->script, key);
    }
}

/* After a case nobody waits, nothing is on its way, and both stores are empty. */
static int finish(struct play *p)
{
    static const struct op count = {.code = RDZV__OP_GETNUMKEYS};
    int result = SAME;
    for (unsigned i = 0; i < CLIENTS && result == SAME; i++)
        result = exchange_cancel(p, i);
    if (result == SAME)
        result = exchange_settle(p);
    if (result == SAME)
        result = expect_silence(p);
    if (result != SAME)
        return result;
    clean(p);
    pair_send(&p->control, &count.code, 1);
    return answer_take_op(p, &p->control, &count);
}

int play_script(struct play *p, const struct script *s)
{
    p->script = s;
    p->difference[0] = '\0';
    memset(p->queued, 0, sizeof p->queued);
    int result = SAME;
    for (unsigned i = 0; i < s->steps && result == SAME; i++) {
        p->at_step = i;
        result = step_play(p, &s->step[i]);
        p->sents = 0;
        p->out.len = 0;
        if (result == CLOSED)
            result = exchange_reconnect(p, s->step[i].client);
        if (result == SAME)
            result = look_at_waiters(p);
    }
    if (result == SAME) {
        p->at_step = s->steps;
        result = finish(p);
    }
    if (result == CLOSED)
        result = answer_differ(p, "both close in the middle of cleaning up");
    return result != SAME;
}

void play_open(struct play *p, const struct script *s)
{
    p->script = s;
    struct wire hello = WIRE_INIT;
    wire_hello(&hello);
    unsigned exposed = p->exposed;
    p->exposed = 0; /* until there is a connection to fence with */
    for (unsigned i = 0; i < CLIENTS; i++)
        if (exchange_connect(p, i) != SAME) {
            fprintf(stderr, "connecting: %s\n", p->difference);
            exit(2);
        }
    p->exposed = exposed;
    pair_connect(&p->control, p->port, &hello);
    wire_free(&hello);
    clean(p);
}

void play_close(struct play *p)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        pair_close(&p->client[i]);
    pair_close(&p->control);
    wire_free(&p->out);
    p->sents = 0;
}
