/*
 * exchange.c: what makes two servers comparable: nobody acts before both have dealt with what was
 * sent before. After requests that answer, the answers say so; after others a PING does; after a
 * WAIT or a closing it is PINGs of a connection that does nothing else, and a moment between them.
 * Invariant: p->out holds the bytes of p->sent, and both are empty after a flush.
 */
#include "exchange.h"

#include "answer.h"
#include "excuses.h"
#include "op.h"

#include <stdio.h>
#include <time.h>

enum { BYTEWISE_BYTES = 400, LOOKUP_MS = 60000 };

/* Their server looks up the name of each client that comes and serves nobody meanwhile, which takes
 * seconds where no name server answers. For answers that are sure to come. */
static void be_patient(struct pair *c)
{
    side_ready(&c->side[THEIRS], LOOKUP_MS);
}

/* Both servers have looked at their sockets since. */
int exchange_fence(struct play *p)
{
    struct op ping = {.code = RDZV__OP_PING, .number = p->nonce++};
    struct wire w = WIRE_INIT;
    script_op_bytes(NULL, &ping, &w);
    pair_send(&p->control, w.data, w.len);
    wire_free(&w);
    be_patient(&p->control);
    if (answer_take_op(p, &p->control, &ping) == SAME)
        return SAME;
    char what[sizeof p->difference];
    snprintf(what, sizeof what, "%s", p->difference);
    return answer_differ(p, "an idle client's PING: %.500s", what);
}

/* The same after something that nothing answers. The system may hand bytes of one connection on
 * later than those of another, so a PING on another connection alone proves nothing. */
int exchange_settle(struct play *p)
{
    const struct timespec moment = {0, 1000000};
    int result = exchange_fence(p);
    nanosleep(&moment, NULL);
    return result == SAME ? exchange_fence(p) : result;
}

/* Sends `out` in the pieces that `cut` asks for. */
static int send_cut(struct play *p, struct pair *c, unsigned cut)
{
    const uint8_t *bytes = p->out.data;
    size_t len = p->out.len;
    if (cut == CUT_EVERYWHERE && len <= BYTEWISE_BYTES) {
        for (size_t i = 0; i < len; i++)
            pair_send(c, bytes + i, 1);
        return SAME;
    }
    size_t first = len > 0 ? cut % len : 0;
    if (first > 0)
        pair_send(c, bytes, first);
    /* The old server waits for the rest of a request and serves nobody meanwhile. */
    int result = first > 0 && p->yardstick == YARDSTICK_UV ? exchange_fence(p) : SAME;
    pair_send(c, bytes + first, len - first);
    return result;
}

void exchange_add(struct play *p, const struct op *op)
{
    script_op_bytes(p->script, op, &p->out);
    p->sent[p->sents++] = op;
    if (op->code == RDZV__OP_QUEUE_PUSH)
        p->queued[op->key[0]] = 1;
}

/* Reads the answers to what is in `out`. A WAIT before a CANCEL_WAIT may have none. */
int exchange_answers(struct play *p, struct pair *c)
{
    int result = SAME;
    for (unsigned i = 0; i < p->sents && result == SAME; i++) {
        const struct op *op = p->sent[i];
        if (!op_is_answered(op))
            continue;
        const uint8_t *byte = NULL;
        if (!op_blocks(op->code) || i + 1 == p->sents ||
            p->sent[i + 1]->code != RDZV__OP_CANCEL_WAIT)
            result = answer_take_op(p, c, op);
        else if ((result = answer_take(p, c, 1, &byte)) == SAME && *byte == 1)
            i++; /* that was the CANCEL_WAIT's */
    }
    return result;
}

/* Sends what is in `out` and compares the answers. */
int exchange_flush(struct play *p, unsigned client, unsigned cut)
{
    static const struct op ping = {.code = RDZV__OP_PING, .number = 0x7e57};
    struct pair *c = &p->client[client];
    if (p->sents == 0)
        return SAME;
    p->asked += p->sents;
    if (!op_is_answered(p->sent[p->sents - 1]))
        exchange_add(p, &ping);
    int result = send_cut(p, c, cut);
    if (result == SAME)
        result = exchange_answers(p, c);
    p->out.len = 0;
    p->sents = 0;
    return result;
}

/* A WAIT or BARRIER at the end of `out`: after it the client is parked, or both have answered. */
int exchange_flush_blocking(struct play *p, unsigned client, unsigned cut)
{
    struct pair *c = &p->client[client];
    p->asked += p->sents;
    const struct op *last = p->sent[--p->sents];
    int result = send_cut(p, c, cut);
    if (result == SAME)
        result = exchange_answers(p, c);
    p->out.len = 0;
    p->sents = 0;
    if (result == SAME)
        result = exchange_settle(p);
    if (result != SAME)
        return result;
    int ready[SIDES];
    for (int i = 0; i < SIDES; i++)
        ready[i] = side_ready(&c->side[i], 0);
    if (ready[OURS] || ready[THEIRS])
        return answer_take_op(p, c, last);
    p->parked[client] = last;
    return SAME;
}

/* A client that waits says so before it goes on. */
int exchange_cancel(struct play *p, unsigned client)
{
    static const struct op op = {.code = RDZV__OP_CANCEL_WAIT};
    if (p->parked[client] == NULL)
        return SAME;
    p->parked[client] = NULL;
    if (!excused(p, DIFFERENT_ask_while_waiting))
        return SAME;
    exchange_add(p, &op);
    return exchange_flush(p, client, CUT_NOWHERE);
}

/* What both servers say to CHECK of the keys of `op`: 1 = all there. */
int exchange_probe(struct play *p, const struct op *op, int *ret_there)
{
    struct op check = *op;
    check.code = RDZV__OP_CHECK;
    if (op->code == RDZV__OP_GET)
        check.count = 1;
    struct wire w = WIRE_INIT;
    script_op_bytes(p->script, &check, &w);
    pair_send(&p->control, w.data, w.len);
    wire_free(&w);
    const uint8_t *byte = NULL;
    int result = answer_take(p, &p->control, 1, &byte);
    *ret_there = result == SAME && *byte == 0;
    return result == CLOSED ? answer_differ(p, "both close at a CHECK") : result;
}

int exchange_connect(struct play *p, unsigned client)
{
    struct wire hello = WIRE_INIT;
    struct pair *c = &p->client[client];
    wire_hello(&hello);
    wire_add(&hello, "bu", RDZV__OP_PING, 1u);
    size_t len = hello.len;
    if (!excused(p, DIFFERENT_split_hello))
        hello.len = 2;
    pair_connect(c, p->port, &hello);
    int result = SAME;
    if (hello.len < len) {
        result = p->yardstick == YARDSTICK_UV ? exchange_settle(p) : SAME;
        pair_send(c, hello.data + hello.len, len - hello.len);
    }
    const uint8_t *bytes;
    be_patient(c);
    if (result == SAME)
        result = answer_take(p, c, 4, &bytes);
    p->parked[client] = NULL;
    p->pushed[client] = 0;
    wire_free(&hello);
    return result == CLOSED ? answer_differ(p, "both close a new connection") : result;
}

int exchange_reconnect(struct play *p, unsigned client)
{
    pair_close(&p->client[client]);
    int result = exchange_settle(p);
    return result == SAME ? exchange_connect(p, client) : result;
}
