/*
 * answer.c: takes one answer from both servers and compares it. Who asked what, and when, is not
 * known here. Invariant: after SAME both sides have given exactly the bytes of one answer; after
 * DIFFERENT p->difference says what was not the same.
 */
#include "answer.h"

#include "bytes.h"
#include "op.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) int answer_differ(struct play *p, const char *format, ...)
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
int answer_take(struct play *p, struct pair *c, size_t len, const uint8_t **ret)
{
    const uint8_t *ours = side_take(&c->side[OURS], len, ANSWER_MS);
    const uint8_t *theirs = side_take(&c->side[THEIRS], len, ANSWER_MS);
    char a[120];
    char b[120];
    if (ours == NULL && theirs == NULL) {
        if (c->side[OURS].ended && c->side[THEIRS].ended)
            return CLOSED;
        answer_differ(p, "ours %s, theirs %s", state(&c->side[OURS]), state(&c->side[THEIRS]));
        return DIFFERENT;
    }
    if (ours == NULL || theirs == NULL) {
        hex(a, sizeof a, ours != NULL ? ours : theirs, len);
        answer_differ(p, ours != NULL ? "ours answers %s, theirs %s" : "theirs answers %s, ours %s",
                      a, state(&c->side[ours != NULL ? THEIRS : OURS]));
        return DIFFERENT;
    }
    if (memcmp(ours, theirs, len) != 0) {
        hex(a, sizeof a, ours, len);
        hex(b, sizeof b, theirs, len);
        answer_differ(p, "ours answers %s, theirs %s", a, b);
        return DIFFERENT;
    }
    *ret = ours;
    return SAME;
}

static int take_u64(struct play *p, struct pair *c, uint64_t *ret)
{
    const uint8_t *bytes;
    int result = answer_take(p, c, 8, &bytes);
    if (result == SAME)
        *ret = bytes_get_u64(bytes);
    return result;
}

static int take_vec(struct play *p, struct pair *c)
{
    uint64_t len = 0;
    const uint8_t *bytes;
    int result = take_u64(p, c, &len);
    return result == SAME ? answer_take(p, c, (size_t)len, &bytes) : result;
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
struct wire *answer_names(struct side *s, uint64_t count)
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
        names[i] = answer_names(&c->side[i], count);
    for (uint64_t i = 0; i < count && result == SAME; i++)
        if (compare_names(&names[OURS][i], &names[THEIRS][i]) != 0)
            result = answer_differ(p, "LIST_KEYS: other names than theirs");
    for (int i = 0; i < SIDES; i++) {
        for (uint64_t n = 0; n < count; n++)
            wire_free(&names[i][n]);
        free(names[i]);
    }
    return result;
}

int answer_take_op(struct play *p, struct pair *c, const struct op *op)
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
        return answer_take(p, c, 4, &bytes);
    case RDZV__OP_CHECK:
    case RDZV__OP_WAIT:
    case RDZV__OP_BARRIER:
    case RDZV__OP_CANCEL_WAIT:
        return answer_take(p, c, 1, &bytes);
    case RDZV__OP_ADD:
    case RDZV__OP_GETNUMKEYS:
    case RDZV__OP_DELETE_KEY:
    case RDZV__OP_QUEUE_LEN:
        return take_u64(p, c, &n);
    default:
        return SAME;
    }
}

/* Both servers end the connection and answer nothing more. */
int answer_end(struct play *p, struct pair *c)
{
    for (int i = 0; i < SIDES; i++) {
        struct side *s = &c->side[i];
        const char *who = i == OURS ? "ours" : "theirs";
        side_ready(s, ANSWER_MS);
        if (s->taken < s->in.len)
            return answer_differ(p, "%s answers where a closing was due", who);
        if (!s->ended)
            return answer_differ(p, "%s keeps the connection open where a closing was due", who);
    }
    return SAME;
}
