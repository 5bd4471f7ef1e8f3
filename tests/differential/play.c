/*
 * play.c: what makes two servers comparable: nobody acts before both have dealt with what was sent
 * before. After requests that answer, the answers say so; after others a PING does; after a WAIT or
 * a closing it is PINGs of a connection that does nothing else, and a moment between them.
 * Invariant: parked[c] is set exactly while client c has a WAIT or BARRIER that neither server has
 * answered.
 */
#include "play.h"

#include "bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
    ANSWER_MS = 5000, /* longer is a hang */
    LATE_MS = 300,    /* how much later one server may wake a waiter than the other */
    SWEPT_BYTES = 200,
    BYTEWISE_BYTES = 400
};

enum { SAME = 0, CLOSED, DIFFERENT };

static const int yardsticks[DIFFERENCE_COUNT] = {
#define DIFFERENCE_YARDSTICKS(name, yardsticks, text) yardsticks,
    DIFFERENCES(DIFFERENCE_YARDSTICKS)
#undef DIFFERENCE_YARDSTICKS
};

/* Whether the driver has to keep clear of this difference. */
static int avoid(const struct play *p, int difference)
{
    return (yardsticks[difference] & p->yardstick) != 0 && (p->exposed >> difference & 1) == 0;
}

__attribute__((format(printf, 2, 3))) static int differ(struct play *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(p->difference, sizeof p->difference, format, args);
    va_end(args);
    return DIFFERENT;
}

static void hex(char *ret, size_t size, const uint8_t *bytes, size_t len)
{
    enum { SHOWN = 48 };
    size_t at = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < len && i < SHOWN && at + 4 < size; i++)
        at += (size_t)snprintf(ret + at, size - at, "%02x", bytes[i]);
    if (len > SHOWN && at + 4 < size)
        snprintf(ret + at, size - at, "...");
}

static const char *state(const struct side *s)
{
    return s->ended ? "has closed" : "does not answer";
}

/* Takes `len` bytes from both, which must be equal; *ret are ours. */
static int take(struct play *p, struct pair *c, size_t len, const uint8_t **ret)
{
    const uint8_t *ours = side_take(&c->side[OURS], len, ANSWER_MS);
    const uint8_t *theirs = side_take(&c->side[THEIRS], len, ANSWER_MS);
    char a[120];
    char b[120];
    if (ours == NULL && theirs == NULL) {
        if (c->side[OURS].ended && c->side[THEIRS].ended)
            return CLOSED;
        return differ(p, "ours %s, theirs %s", state(&c->side[OURS]), state(&c->side[THEIRS]));
    }
    if (ours == NULL || theirs == NULL) {
        hex(a, sizeof a, ours != NULL ? ours : theirs, len);
        return differ(p, ours != NULL ? "ours answers %s, theirs %s" : "theirs answers %s, ours %s",
                      a, state(&c->side[ours != NULL ? THEIRS : OURS]));
    }
    if (memcmp(ours, theirs, len) != 0) {
        hex(a, sizeof a, ours, len);
        hex(b, sizeof b, theirs, len);
        return differ(p, "ours answers %s, theirs %s", a, b);
    }
    *ret = ours;
    return SAME;
}

static int take_u64(struct play *p, struct pair *c, uint64_t *ret)
{
    const uint8_t *bytes;
    int result = take(p, c, 8, &bytes);
    if (result == SAME)
        *ret = bytes_get_u64(bytes);
    return result;
}

static int take_vec(struct play *p, struct pair *c)
{
    uint64_t len = 0;
    const uint8_t *bytes;
    int result = take_u64(p, c, &len);
    return result == SAME ? take(p, c, (size_t)len, &bytes) : result;
}

static int compare_names(const void *a, const void *b)
{
    const struct wire *x = a;
    const struct wire *y = b;
    int order =
        x->len > 0 && y->len > 0 ? memcmp(x->data, y->data, x->len < y->len ? x->len : y->len) : 0;
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

/* The names of one LIST_KEYS answer, sorted: their order is free. NULL when they do not come. */
static struct wire *take_names(struct side *s, uint64_t count)
{
    struct wire *names = calloc(count + 1, sizeof *names);
    if (names == NULL)
        abort();
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *len_bytes = side_take(s, 8, ANSWER_MS);
        size_t len = len_bytes != NULL ? (size_t)bytes_get_u64(len_bytes) : 0;
        const uint8_t *text = len_bytes != NULL ? side_take(s, len, ANSWER_MS) : NULL;
        if (text != NULL)
            wire_bytes(&names[i], text, len);
    }
    qsort(names, count, sizeof *names, compare_names);
    return names;
}

static int take_list(struct play *p, struct pair *c)
{
    uint64_t count = 0;
    int result = take_u64(p, c, &count);
    if (result != SAME)
        return result;
    struct wire *names[SIDES];
    for (int i = 0; i < SIDES; i++)
        names[i] = take_names(&c->side[i], count);
    for (uint64_t i = 0; i < count && result == SAME; i++)
        if (compare_names(&names[OURS][i], &names[THEIRS][i]) != 0)
            result = differ(p, "LIST_KEYS: other names than theirs");
    for (int i = 0; i < SIDES; i++) {
        for (uint64_t n = 0; n < count; n++)
            wire_free(&names[i][n]);
        free(names[i]);
    }
    return result;
}

static int has_answer(const struct op *op)
{
    if (op->code == RDZV__OP_MULTI_GET)
        return op->count > 0;
    return op->code != RDZV__OP_VALIDATE && op->code != RDZV__OP_SET &&
           op->code != RDZV__OP_APPEND && op->code != RDZV__OP_MULTI_SET &&
           op->code != RDZV__OP_QUEUE_PUSH;
}

static int blocks(uint8_t code)
{
    return code == RDZV__OP_WAIT || code == RDZV__OP_BARRIER;
}

static int take_answer(struct play *p, struct pair *c, const struct op *op)
{
    const uint8_t *bytes;
    uint64_t n = 0;
    int result = SAME;
    switch (op->code) {
    case RDZV__OP_COMPARE_SET:
    case RDZV__OP_GET:
        return take_vec(p, c);
    case RDZV__OP_MULTI_GET:
        for (unsigned i = 0; i < op->count && result == SAME; i++)
            result = take_vec(p, c);
        return result;
    case RDZV__OP_QUEUE_POP:
        result = take_u64(p, c, &n);
        return result == SAME && n > 0 ? take_vec(p, c) : result;
    case RDZV__OP_LIST_KEYS:
        return take_list(p, c);
    case RDZV__OP_PING:
        return take(p, c, 4, &bytes);
    case RDZV__OP_CHECK:
    case RDZV__OP_WAIT:
    case RDZV__OP_BARRIER:
    case RDZV__OP_CANCEL_WAIT:
        return take(p, c, 1, &bytes);
    case RDZV__OP_ADD:
    case RDZV__OP_GETNUMKEYS:
    case RDZV__OP_DELETE_KEY:
    case RDZV__OP_QUEUE_LEN:
        return take_u64(p, c, &n);
    default:
        return SAME;
    }
}

/* Both servers have looked at their sockets since. */
static int fence(struct play *p)
{
    struct op ping = {.code = RDZV__OP_PING, .number = p->nonce++};
    struct wire w = WIRE_INIT;
    script_op_bytes(NULL, &ping, &w);
    pair_send(&p->control, w.data, w.len);
    wire_free(&w);
    if (take_answer(p, &p->control, &ping) == SAME)
        return SAME;
    char what[sizeof p->difference];
    snprintf(what, sizeof what, "%s", p->difference);
    return differ(p, "an idle client's PING: %.500s", what);
}

/* The same after something that nothing answers. The system may hand bytes of one connection on
 * later than those of another, so a PING on another connection alone proves nothing. */
static int settle(struct play *p)
{
    const struct timespec moment = {0, 1000000};
    int result = fence(p);
    nanosleep(&moment, NULL);
    return result == SAME ? fence(p) : result;
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
    int result = first > 0 && p->yardstick == YARDSTICK_UV ? fence(p) : SAME;
    pair_send(c, bytes + first, len - first);
    return result;
}

static void add_op(struct play *p, const struct op *op)
{
    script_op_bytes(p->script, op, &p->out);
    p->sent[p->sents++] = op;
    if (op->code == RDZV__OP_QUEUE_PUSH)
        p->queued[op->key[0]] = 1;
}

/* Reads the answers to what is in `out`. A WAIT before a CANCEL_WAIT may have none. */
static int take_answers(struct play *p, struct pair *c)
{
    int result = SAME;
    for (unsigned i = 0; i < p->sents && result == SAME; i++) {
        const struct op *op = p->sent[i];
        if (!has_answer(op))
            continue;
        const uint8_t *byte = NULL;
        if (!blocks(op->code) || i + 1 == p->sents || p->sent[i + 1]->code != RDZV__OP_CANCEL_WAIT)
            result = take_answer(p, c, op);
        else if ((result = take(p, c, 1, &byte)) == SAME && *byte == 1)
            i++; /* that was the CANCEL_WAIT's */
    }
    return result;
}

/* Sends what is in `out` and compares the answers. */
static int flush(struct play *p, unsigned client, unsigned cut)
{
    static const struct op ping = {.code = RDZV__OP_PING, .number = 0x7e57};
    struct pair *c = &p->client[client];
    if (p->sents == 0)
        return SAME;
    p->asked += p->sents;
    if (!has_answer(p->sent[p->sents - 1]))
        add_op(p, &ping);
    int result = send_cut(p, c, cut);
    if (result == SAME)
        result = take_answers(p, c);
    p->out.len = 0;
    p->sents = 0;
    return result;
}

static int connect_client(struct play *p, unsigned client)
{
    struct wire hello = WIRE_INIT;
    struct pair *c = &p->client[client];
    wire_hello(&hello);
    wire_add(&hello, "bu", RDZV__OP_PING, 1u);
    size_t len = hello.len;
    if (!avoid(p, DIFFERENT_split_hello))
        hello.len = 2;
    pair_connect(c, p->port, &hello);
    int result = SAME;
    if (hello.len < len) {
        result = p->yardstick == YARDSTICK_UV ? settle(p) : SAME;
        pair_send(c, hello.data + hello.len, len - hello.len);
    }
    const uint8_t *bytes;
    if (result == SAME)
        result = take(p, c, 4, &bytes);
    p->parked[client] = NULL;
    wire_free(&hello);
    return result == CLOSED ? differ(p, "both close a new connection") : result;
}

static int reconnect(struct play *p, unsigned client)
{
    pair_close(&p->client[client]);
    int result = settle(p);
    return result == SAME ? connect_client(p, client) : result;
}

/* Both servers end the connection and answer nothing more. */
static int expect_end(struct play *p, struct pair *c)
{
    for (int i = 0; i < SIDES; i++) {
        struct side *s = &c->side[i];
        const char *who = i == OURS ? "ours" : "theirs";
        side_ready(s, ANSWER_MS);
        if (s->taken < s->in.len)
            return differ(p, "%s answers where a closing was due", who);
        if (!s->ended)
            return differ(p, "%s keeps the connection open where a closing was due", who);
    }
    return SAME;
}

/* A client that waits says so before it goes on. */
static int cancel(struct play *p, unsigned client)
{
    static const struct op op = {.code = RDZV__OP_CANCEL_WAIT};
    if (p->parked[client] == NULL)
        return SAME;
    p->parked[client] = NULL;
    if (!avoid(p, DIFFERENT_ask_while_waiting))
        return SAME;
    add_op(p, &op);
    return flush(p, client, CUT_NOWHERE);
}

static int anybody_waits(const struct play *p)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        if (p->parked[i] != NULL)
            return 1;
    return 0;
}

/* What both servers say to CHECK of the keys of `op`: 1 = all there. */
static int probe(struct play *p, const struct op *op, int *ret_there)
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
    int result = take(p, &p->control, 1, &byte);
    *ret_there = result == SAME && *byte == 0;
    return result == CLOSED ? differ(p, "both close at a CHECK") : result;
}

static int is_queue(uint8_t code)
{
    return code == RDZV__OP_QUEUE_PUSH || code == RDZV__OP_QUEUE_POP || code == RDZV__OP_QUEUE_LEN;
}

/* Whether a WAIT for several names and a queue meet. */
static int queue_among_awaited(const struct play *p, const struct op *op)
{
    if (op->code == RDZV__OP_WAIT && op->count > 1) {
        for (unsigned i = 0; i < op->count; i++)
            if (p->queued[op->key[i]])
                return 1;
    }
    for (unsigned i = 0; i < CLIENTS && op->code == RDZV__OP_QUEUE_PUSH; i++)
        if (p->parked[i] != NULL && p->parked[i]->code == RDZV__OP_WAIT && p->parked[i]->count > 1)
            return 1;
    return 0;
}

/* Leaves out what would meet a difference that we keep. */
static int usable(const struct play *p, const struct op *op)
{
    if (is_queue(op->code) && avoid(p, DIFFERENT_no_queues))
        return 0;
    if (queue_among_awaited(p, op) && avoid(p, DIFFERENT_queue_among_awaited))
        return 0;
    if (op->code != RDZV__OP_COMPARE_SET || !anybody_waits(p))
        return 1;
    if (avoid(p, DIFFERENT_compare_set_wakes_nobody))
        return 0;
    return p->script->value[op->value[0]].len == 0 || !avoid(p, DIFFERENT_failed_compare_set_wakes);
}

static int reads_key(uint8_t code)
{
    return code == RDZV__OP_GET || code == RDZV__OP_MULTI_GET;
}

/* Closes when the value is no number. */
static int counts(uint8_t code)
{
    return code == RDZV__OP_ADD || code == RDZV__OP_BARRIER;
}

/* A WAIT or BARRIER at the end of `out`: after it the client is parked, or both have answered. */
static int flush_blocking(struct play *p, unsigned client, unsigned cut)
{
    struct pair *c = &p->client[client];
    p->asked += p->sents;
    const struct op *last = p->sent[--p->sents];
    int result = send_cut(p, c, cut);
    if (result == SAME)
        result = take_answers(p, c);
    p->out.len = 0;
    p->sents = 0;
    if (result == SAME)
        result = settle(p);
    if (result != SAME)
        return result;
    int ready[SIDES];
    for (int i = 0; i < SIDES; i++)
        ready[i] = side_ready(&c->side[i], 0);
    if (ready[OURS] || ready[THEIRS])
        return take_answer(p, c, last);
    p->parked[client] = last;
    return SAME;
}

/* Adds a WAIT that does not end the step: pipelined with what follows when it cannot block. */
static int add_wait(struct play *p, const struct step *step, const struct op *op)
{
    int there = 0;
    int result = flush(p, step->client, step->cut);
    if (result == SAME && op->code == RDZV__OP_WAIT)
        result = probe(p, op, &there);
    if (result != SAME)
        return result;
    add_op(p, op);
    return there ? SAME : flush_blocking(p, step->client, step->cut);
}

static int play_ask(struct play *p, const struct step *step)
{
    int result = SAME;
    for (unsigned i = 0; i < step->ops && result == SAME; i++) {
        const struct op *op = &step->op[i];
        int there = 1;
        if (!usable(p, op))
            continue;
        if (p->sents == 0)
            result = cancel(p, step->client);
        if (result == SAME && counts(op->code) && avoid(p, DIFFERENT_answers_lost_at_closing))
            result = flush(p, step->client, step->cut);
        if (result == SAME && reads_key(op->code) && avoid(p, DIFFERENT_missing_key_closes)) {
            result = flush(p, step->client, step->cut);
            if (result == SAME)
                result = probe(p, op, &there);
        }
        if (result != SAME || !there)
            continue;
        if (!blocks(op->code)) {
            add_op(p, op);
        } else if (i + 1 == step->ops) {
            add_op(p, op);
            return flush_blocking(p, step->client, step->cut);
        } else if (step->op[i + 1].code == RDZV__OP_CANCEL_WAIT) {
            add_op(p, op);
            add_op(p, &step->op[++i]);
        } else {
            result = add_wait(p, step, op);
        }
    }
    return result == SAME ? flush(p, step->client, step->cut) : result;
}

/* Puts the requests of the step into `out` that neither block nor need a look first. */
static void add_simple(struct play *p, const struct step *step, int silent_only)
{
    for (unsigned i = 0; i < step->ops; i++) {
        const struct op *op = &step->op[i];
        if (!usable(p, op) || blocks(op->code) || (silent_only && has_answer(op)) ||
            (reads_key(op->code) && avoid(p, DIFFERENT_missing_key_closes)) ||
            (counts(op->code) && avoid(p, DIFFERENT_answers_lost_at_closing)))
            continue;
        if (silent_only && op->code == RDZV__OP_MULTI_SET && avoid(p, DIFFERENT_half_multi_set))
            continue;
        add_op(p, op);
    }
}

static int play_sweep(struct play *p, const struct step *step)
{
    int result = cancel(p, step->client);
    for (unsigned cut = 1; result == SAME; cut++) {
        add_simple(p, step, 0);
        if (p->sents == 0 || p->out.len > SWEPT_BYTES || cut >= p->out.len)
            break;
        result = flush(p, step->client, cut);
    }
    p->sents = 0;
    p->out.len = 0;
    return result;
}

static int play_half_close(struct play *p, const struct step *step)
{
    struct pair *c = &p->client[step->client];
    int result = cancel(p, step->client);
    if (result != SAME)
        return result;
    add_simple(p, step, 0);
    p->asked += p->sents;
    pair_send(c, p->out.data, p->out.len);
    pair_shutdown(c);
    result = take_answers(p, c);
    if (result == SAME)
        result = expect_end(p, c);
    return result == SAME ? CLOSED : result;
}

/* Leaves in the middle of its last request, at once or while it waits. That request has no answer,
 * nor has any other when it leaves: unread answers would make the closing a reset. */
static int play_hangup(struct play *p, const struct step *step)
{
    if (step->cut == 0)
        return CLOSED;
    int result = cancel(p, step->client);
    add_simple(p, step, 1);
    struct wire half = WIRE_INIT;
    if (result == SAME && p->sents > 0) {
        script_op_bytes(p->script, p->sent[--p->sents], &half);
        p->out.len -= half.len;
        half.len = step->cut % half.len;
        result = flush(p, step->client, CUT_NOWHERE);
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
    int result = cancel(p, step->client);
    if (result != SAME || (number >= NONSENSE_STARTS && avoid(p, DIFFERENT_bad_start)) ||
        (number >= NONSENSE_LIMITS && number < NONSENSE_STARTS && avoid(p, DIFFERENT_no_limits)))
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
    result = expect_end(p, c);
    return result == SAME ? CLOSED : result;
}

static int play_step(struct play *p, const struct step *step)
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

/* Who was released by the last step must be the same on both. */
static int look_at_waiters(struct play *p)
{
    static const struct op wait = {.code = RDZV__OP_WAIT};
    int result = anybody_waits(p) ? fence(p) : SAME;
    for (unsigned i = 0; i < CLIENTS && result == SAME; i++) {
        struct pair *c = &p->client[i];
        if (p->parked[i] == NULL)
            continue;
        int ours = side_ready(&c->side[OURS], 0);
        int theirs = side_ready(&c->side[THEIRS], 0);
        if (!ours && !theirs)
            continue;
        p->parked[i] = NULL;
        if (!side_ready(&c->side[ours ? THEIRS : OURS], LATE_MS))
            return differ(p, "client %u waits: %s has released it, %s has not", i,
                          ours ? "ours" : "theirs", ours ? "theirs" : "ours");
        result = take_answer(p, c, &wait);
        if (result == CLOSED)
            result = reconnect(p, i);
    }
    return result;
}

/* Nobody has been sent more than was asked for. */
static int expect_silence(struct play *p)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        for (int side = 0; side < SIDES; side++)
            if (side_ready(&p->client[i].side[side], 0))
                return differ(p, "client %u was sent by %s what it had not asked for", i,
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
    struct wire *names = take_names(s, count);
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
        result = cancel(p, i);
    if (result == SAME)
        result = settle(p);
    if (result == SAME)
        result = expect_silence(p);
    if (result != SAME)
        return result;
    clean(p);
    pair_send(&p->control, &count.code, 1);
    return take_answer(p, &p->control, &count);
}

int play_script(struct play *p, const struct script *s)
{
    p->script = s;
    p->difference[0] = '\0';
    memset(p->queued, 0, sizeof p->queued);
    int result = SAME;
    for (unsigned i = 0; i < s->steps && result == SAME; i++) {
        p->at_step = i;
        result = play_step(p, &s->step[i]);
        p->sents = 0;
        p->out.len = 0;
        if (result == CLOSED)
            result = reconnect(p, s->step[i].client);
        if (result == SAME)
            result = look_at_waiters(p);
    }
    if (result == SAME) {
        p->at_step = s->steps;
        result = finish(p);
    }
    if (result == CLOSED)
        result = differ(p, "both close in the middle of cleaning up");
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
        if (connect_client(p, i) != SAME) {
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
