/*
 * steps.c: plays one step of a script: which of its requests can be sent now, and what must be
 * looked at before. CLOSED says that both servers have closed the client's connection, or that it
 * is to be closed.
 */
#include "steps.h"

#include "answer.h"
#include "excuses.h"
#include "exchange.h"
#include "op.h"

enum { SWEPT_BYTES = 200 };

/* Before a WAIT or BARRIER of `client`. */
static int prepare_to_wait(struct play *p, unsigned client, unsigned cut)
{
    if (!p->pushed[client] || !excused(p, DIFFERENT_released_twice))
        return SAME;
    int result = exchange_flush(p, client, cut);
    return result == SAME ? exchange_reconnect(p, client) : result;
}

/* Adds a WAIT that does not end the step: pipelined with what follows when it cannot block. */
static int add_wait(struct play *p, const struct step *step, const struct op *op)
{
    int there = 0;
    int result = exchange_flush(p, step->client, step->cut);
    if (result == SAME && op->code == RDZV__OP_WAIT)
        result = exchange_probe(p, op, &there);
    if (result != SAME)
        return result;
    exchange_add(p, op);
    return there ? SAME : exchange_flush_blocking(p, step->client, step->cut);
}

static int play_ask(struct play *p, const struct step *step)
{
    int result = SAME;
    for (unsigned i = 0; i < step->ops && result == SAME; i++) {
        const struct op *op = &step->op[i];
        int there = 1;
        if (!excuses_usable(p, op))
            continue;
        if (p->sents == 0)
            result = exchange_cancel(p, step->client);
        if (result == SAME && op_counts(op->code) && excused(p, DIFFERENT_answers_lost_at_closing))
            result = exchange_flush(p, step->client, step->cut);
        if (result == SAME && op_reads_key(op->code) && excused(p, DIFFERENT_missing_key_closes)) {
            result = exchange_flush(p, step->client, step->cut);
            if (result == SAME)
                result = exchange_probe(p, op, &there);
        }
        if (result == SAME && op_blocks(op->code))
            result = prepare_to_wait(p, step->client, step->cut);
        if (result != SAME || !there)
            continue;
        if (!op_blocks(op->code)) {
            exchange_add(p, op);
        } else if (i + 1 == step->ops) {
            exchange_add(p, op);
            return exchange_flush_blocking(p, step->client, step->cut);
        } else if (step->op[i + 1].code == RDZV__OP_CANCEL_WAIT) {
            exchange_add(p, op);
            exchange_add(p, &step->op[++i]);
        } else {
            result = add_wait(p, step, op);
        }
    }
    return result == SAME ? exchange_flush(p, step->client, step->cut) : result;
}

/* Puts the requests of the step into `out` that neither block nor need a look first. */
static void add_simple(struct play *p, const struct step *step, int silent_only)
{
    for (unsigned i = 0; i < step->ops; i++) {
        const struct op *op = &step->op[i];
        if (!excuses_usable(p, op) || op_blocks(op->code) || (silent_only && op_is_answered(op)) ||
            (op_reads_key(op->code) && excused(p, DIFFERENT_missing_key_closes)) ||
            (op_counts(op->code) && excused(p, DIFFERENT_answers_lost_at_closing)))
            continue;
        if (silent_only && op->code == RDZV__OP_MULTI_SET && excused(p, DIFFERENT_half_multi_set))
            continue;
        exchange_add(p, op);
    }
}

static int play_sweep(struct play *p, const struct step *step)
{
    int result = exchange_cancel(p, step->client);
    for (unsigned cut = 1; result == SAME; cut++) {
        add_simple(p, step, 0);
        if (p->sents == 0 || p->out.len > SWEPT_BYTES || cut >= p->out.len)
            break;
        result = exchange_flush(p, step->client, cut);
    }
    p->sents = 0;
    p->out.len = 0;
    return result;
}

static int play_half_close(struct play *p, const struct step *step)
{
    struct pair *c = &p->client[step->client];
    int result = exchange_cancel(p, step->client);
    if (result != SAME)
        return result;
    add_simple(p, step, 0);
    p->asked += p->sents;
    pair_send(c, p->out.data, p->out.len);
    pair_shutdown(c);
    result = exchange_answers(p, c);
    if (result == SAME)
        result = answer_end(p, c);
    return result == SAME ? CLOSED : result;
}

/* Leaves in the middle of its last request, at once or while it waits. That request has no answer,
 * nor has any other when it leaves: unread answers would make the closing a reset. */
static int play_hangup(struct play *p, const struct step *step)
{
    if (step->cut == 0)
        return CLOSED;
    int result = exchange_cancel(p, step->client);
    add_simple(p, step, 1);
    struct wire half = WIRE_INIT;
    if (result == SAME && p->sents > 0) {
        script_op_bytes(p->script, p->sent[--p->sents], &half);
        p->out.len -= half.len;
        half.len = step->cut % half.len;
        result = exchange_flush(p, step->client, CUT_NOWHERE);
    }
    if (result == SAME) {
        pair_send(&p->client[step->client], half.data, half.len);
        result = CLOSED;
    }
    wire_free(&half);
    return result;
}

static int play_nonsense(struct play *p, const struct step *step)
{
    struct pair *c = &p->client[step->client];
    unsigned number = step->cut;
    struct wire w = WIRE_INIT;
    int result = exchange_cancel(p, step->client);
    if (result != SAME || (number >= NONSENSE_STARTS && excused(p, DIFFERENT_bad_start)) ||
        (number >= NONSENSE_LIMITS && number < NONSENSE_STARTS && excused(p, DIFFERENT_no_limits)))
        return result;
    p->asked++;
    script_nonsense(number, &w);
    if (number >= NONSENSE_STARTS) {
        pair_close(c);
        pair_connect(c, p->port, &w);
    } else {
        pair_send(c, w.data, w.len);
    }
    wire_free(&w);
    result = answer_end(p, c);
    return result == SAME ? CLOSED : result;
}

int step_play(struct play *p, const struct step *step)
{
    switch (step->kind) {
    case STEP_SWEEP:
        return play_sweep(p, step);
    case STEP_HALF_CLOSE:
        return play_half_close(p, step);
    case STEP_HANGUP:
        return play_hangup(p, step);
    case STEP_NONSENSE:
        return play_nonsense(p, step);
    default:
        return play_ask(p, step);
    }
}
