/*
 * script.c: makes cases from seeds, turns their requests into bytes and into text. Invariant: a
 * script depends on its seed alone, never on an answer, so that any part of it can be left out.
 * Keys are in groups, so that most numbers meet numbers: a refused ADD ends a connection.
 */
#include "script.h"

#include "bytes.h"

#include <stdio.h>
#include <string.h>

enum { COUNTERS = 5, PLAIN = 8, BARRIERS = 3, QUEUES = 4, NUMBERS = 12 };
_Static_assert(COUNTERS + PLAIN + BARRIERS + QUEUES == KEYS, "every key has a group");

enum { GROUP_COUNTER, GROUP_PLAIN, GROUP_BARRIER, GROUP_QUEUE };
static const uint8_t group_first[] = {0, COUNTERS, COUNTERS + PLAIN, COUNTERS + PLAIN + BARRIERS};
static const uint8_t group_len[] = {COUNTERS, PLAIN, BARRIERS, QUEUES};

uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static unsigned below(uint64_t *r, unsigned n)
{
    return (unsigned)(random_next(r) % n);
}

static void set_text(struct wire *w, const void *bytes, size_t len)
{
    w->len = 0;
    wire_bytes(w, bytes, len);
}

static void set_random(struct wire *w, uint64_t *r, size_t len)
{
    w->len = 0;
    while (w->len < len) {
        uint8_t part[8];
        bytes_put_u64(part, random_next(r));
        wire_bytes(w, part, len - w->len < 8 ? len - w->len : 8);
    }
}

static void make_texts(struct script *s, uint64_t *r)
{
    static const char *const numbers[NUMBERS] = {"0",     "-1",   " 12abc",  "+5",
                                                 "1e3",   "0x10", "0012",    "7",
                                                 "12 34", "-03",  "\t\n 42", "9223372036854775807"};
    static const char *const texts[] = {"", "abc", "- 5", "9223372036854775808", " ", "1"};
    enum { TEXTS = sizeof texts / sizeof texts[0] };
    for (unsigned i = 0; i < KEYS; i++) {
        char name[16];
        int len = snprintf(name, sizeof name, "/k%u", i);
        set_text(&s->key[i], name, (size_t)len);
    }
    struct wire *odd = &s->key[group_first[GROUP_PLAIN]];
    set_text(&odd[0], "", 0);
    set_text(&odd[1], "init/", 5);
    set_text(&odd[2], "/k\0with\0zeros", 13);
    set_random(&odd[3], r, 1 + below(r, 40));
    set_random(&odd[4], r, below(r, 8) == 0 ? 8192 : 500);
    set_text(&s->key[group_first[GROUP_QUEUE]], "\xff\0", 2);
    for (unsigned i = 0; i < NUMBERS; i++)
        set_text(&s->value[i], numbers[i], strlen(numbers[i]));
    for (unsigned i = 0; i < TEXTS; i++)
        set_text(&s->value[NUMBERS + i], texts[i], strlen(texts[i]));
    set_text(&s->value[NUMBERS + TEXTS], "12\0 34", 6);
    for (unsigned i = NUMBERS + TEXTS + 1; i < VALUES - 1; i++)
        set_random(&s->value[i], r, below(r, 300));
    size_t large = below(r, 4) == 0 ? 1u << 20 : 70000;
    set_random(&s->value[VALUES - 1], r, below(r, 3) == 0 ? large : 5000);
}

static uint8_t pick_key(uint64_t *r, unsigned group, unsigned strays_of_100)
{
    if (below(r, 100) < strays_of_100)
        return (uint8_t)below(r, KEYS);
    return (uint8_t)(group_first[group] + below(r, group_len[group]));
}

/* A number for what is counted with, else anything; the longest value only now and then. */
static uint8_t pick_value(uint64_t *r, uint8_t key)
{
    int counted = key < group_first[GROUP_PLAIN] ||
                  (key >= group_first[GROUP_BARRIER] && key < group_first[GROUP_QUEUE]);
    if (counted && below(r, 50) > 0)
        return (uint8_t)below(r, NUMBERS);
    uint8_t value = (uint8_t)below(r, VALUES);
    return value == VALUES - 1 && below(r, 4) > 0 ? NUMBERS : value;
}

static int64_t pick_delta(uint64_t *r)
{
    static const int64_t odd[] = {INT64_MAX, INT64_MIN, -1000000, 1ll << 40};
    if (below(r, 20) == 0)
        return odd[below(r, 4)];
    return (int64_t)below(r, 21) - 10;
}

/* How often each request is made; the rest of 100 are PINGs. */
static const struct {
    uint8_t code;
    uint8_t share;
    uint8_t group;
    uint8_t strays;
} menu[] = {
    {RDZV__OP_SET, 14, GROUP_PLAIN, 30},       {RDZV__OP_COMPARE_SET, 9, GROUP_PLAIN, 25},
    {RDZV__OP_GET, 10, GROUP_PLAIN, 50},       {RDZV__OP_ADD, 10, GROUP_COUNTER, 1},
    {RDZV__OP_CHECK, 6, GROUP_PLAIN, 60},      {RDZV__OP_WAIT, 8, GROUP_PLAIN, 60},
    {RDZV__OP_GETNUMKEYS, 3, GROUP_PLAIN, 0},  {RDZV__OP_DELETE_KEY, 8, GROUP_PLAIN, 60},
    {RDZV__OP_APPEND, 5, GROUP_PLAIN, 10},     {RDZV__OP_MULTI_GET, 4, GROUP_PLAIN, 50},
    {RDZV__OP_MULTI_SET, 4, GROUP_PLAIN, 40},  {RDZV__OP_CANCEL_WAIT, 2, GROUP_PLAIN, 0},
    {RDZV__OP_QUEUE_PUSH, 4, GROUP_QUEUE, 10}, {RDZV__OP_QUEUE_POP, 4, GROUP_QUEUE, 10},
    {RDZV__OP_QUEUE_LEN, 2, GROUP_QUEUE, 10},  {RDZV__OP_LIST_KEYS, 2, GROUP_PLAIN, 0},
    {RDZV__OP_BARRIER, 4, GROUP_BARRIER, 3},
};

static void make_op(struct op *op, uint64_t *r)
{
    memset(op, 0, sizeof *op);
    op->code = RDZV__OP_PING;
    op->number = (int64_t)below(r, 1u << 31);
    unsigned at = below(r, 100);
    for (size_t i = 0; i < sizeof menu / sizeof menu[0]; i++) {
        if (at >= menu[i].share) {
            at -= menu[i].share;
            continue;
        }
        op->code = menu[i].code;
        op->count = (uint8_t)below(r, FIELDS);
        for (unsigned f = 0; f < FIELDS; f++) {
            op->key[f] = pick_key(r, menu[i].group, menu[i].strays);
            op->value[f] = pick_value(r, op->key[f]);
        }
        op->value[1] = pick_value(r, op->key[0]); /* COMPARE_SET has two of one key */
        if (op->code == RDZV__OP_WAIT && below(r, 8) > 0)
            op->count = (uint8_t)(1 + below(r, 2));
        op->number = op->code == RDZV__OP_BARRIER ? (int64_t)below(r, 7) - 1 : pick_delta(r);
        return;
    }
}

/* The request that is worth leaving in the middle of. */
static void make_multi_set(struct op *op, uint64_t *r)
{
    op->code = RDZV__OP_MULTI_SET;
    op->count = (uint8_t)(2 + below(r, FIELDS - 1));
    for (unsigned f = 0; f < FIELDS; f++) {
        op->key[f] = pick_key(r, GROUP_PLAIN, 40);
        op->value[f] = (uint8_t)below(r, NUMBERS);
    }
}

static void make_step(struct step *step, uint64_t *r)
{
    unsigned kind = below(r, 1000);
    step->client = (uint8_t)below(r, CLIENTS);
    step->ops = (uint8_t)(1 + below(r, STEP_OPS));
    step->cut = CUT_NOWHERE;
    step->kind = STEP_ASK;
    if (kind < 20) {
        step->kind = STEP_SWEEP;
        step->ops = (uint8_t)(1 + below(r, 3));
    } else if (kind < 24) {
        step->kind = STEP_HALF_CLOSE;
    } else if (kind < 54) {
        step->kind = STEP_HANGUP;
        step->cut = (uint16_t)below(r, 300);
    } else if (kind < 64) {
        step->kind = STEP_NONSENSE;
        step->cut = (uint16_t)below(r, NONSENSE_COUNT);
    } else if (kind < 110) {
        step->cut = CUT_EVERYWHERE;
    } else if (kind < 300) {
        step->cut = (uint16_t)(1 + below(r, 500));
    }
    for (unsigned i = 0; i < step->ops; i++)
        make_op(&step->op[i], r);
    if (step->kind == STEP_HANGUP && below(r, 2) == 0)
        make_multi_set(&step->op[step->ops - 1u], r);
}

void script_make(struct script *s, uint64_t seed)
{
    uint64_t r = seed;
    s->seed = seed;
    make_texts(s, &r);
    s->steps = STEPS;
    for (unsigned i = 0; i < STEPS; i++)
        make_step(&s->step[i], &r);
}

void script_free(struct script *s)
{
    for (unsigned i = 0; i < KEYS; i++)
        wire_free(&s->key[i]);
    for (unsigned i = 0; i < VALUES; i++)
        wire_free(&s->value[i]);
}

/* Fields of each request: k key, v value, w second value, i i64, u u32; after *, once per count. */
static const char *const shapes[RDZV__OP_COUNT] = {
    [RDZV__OP_SET] = "kv",       [RDZV__OP_COMPARE_SET] = "kvw", [RDZV__OP_GET] = "k",
    [RDZV__OP_ADD] = "ki",       [RDZV__OP_CHECK] = "*k",        [RDZV__OP_WAIT] = "*k",
    [RDZV__OP_GETNUMKEYS] = "",  [RDZV__OP_DELETE_KEY] = "k",    [RDZV__OP_APPEND] = "kv",
    [RDZV__OP_MULTI_GET] = "*k", [RDZV__OP_MULTI_SET] = "*kv",   [RDZV__OP_CANCEL_WAIT] = "",
    [RDZV__OP_PING] = "u",       [RDZV__OP_QUEUE_PUSH] = "kv",   [RDZV__OP_QUEUE_POP] = "k",
    [RDZV__OP_QUEUE_LEN] = "k",  [RDZV__OP_LIST_KEYS] = "",      [RDZV__OP_BARRIER] = "ki",
};

static void add_string(struct wire *w, const struct wire *text)
{
    wire_add(w, "i", (long long)text->len);
    wire_bytes(w, text->data, text->len);
}

void script_op_bytes(const struct script *s, const struct op *op, struct wire *w)
{
    const char *shape = shapes[op->code];
    wire_add(w, "b", op->code);
    unsigned times = 1;
    if (*shape == '*') {
        times = op->count;
        wire_add(w, "i", (long long)times);
        shape++;
    }
    for (unsigned i = 0; i < times; i++) {
        for (const char *field = shape; *field != '\0'; field++) {
            if (*field == 'k')
                add_string(w, &s->key[op->key[i]]);
            else if (*field == 'v')
                add_string(w, &s->value[op->value[i]]);
            else if (*field == 'w')
                add_string(w, &s->value[op->value[i + 1]]);
            else if (*field == 'i')
                wire_add(w, "i", (long long)op->number);
            else
                wire_add(w, "u", (unsigned)op->number);
        }
    }
}

void script_nonsense(unsigned number, struct wire *w)
{
    static const uint8_t opcodes[] = {19, 42, 127, 128, 255};
    w->len = 0;
    switch (number) {
    case 5: /* a second VALIDATE */
        wire_hello(w);
        break;
    case NONSENSE_LIMITS:
        wire_add(w, "bi", RDZV__OP_GET, 8193ll);
        break;
    case NONSENSE_LIMITS + 1:
        wire_add(w, "bi", RDZV__OP_SET, -1ll);
        break;
    case NONSENSE_LIMITS + 2:
        wire_add(w, "bsi", RDZV__OP_SET, "/k", (8ll << 20) + 1);
        break;
    case NONSENSE_LIMITS + 3:
        wire_add(w, "bsi", RDZV__OP_APPEND, "/k", INT64_MIN);
        break;
    case NONSENSE_LIMITS + 4:
        wire_add(w, "bi", RDZV__OP_WAIT, 131073ll);
        break;
    case NONSENSE_LIMITS + 5:
        wire_add(w, "bi", RDZV__OP_MULTI_SET, -1ll);
        break;
    case NONSENSE_STARTS:
        wire_add(w, "x", "GET / HTTP/1.1\r\n\r\n");
        break;
    case NONSENSE_STARTS + 1:
        wire_add(w, "bu", RDZV__OP_VALIDATE, RDZV__C10D_MAGIC + 0x01000000u);
        wire_add(w, "bu", RDZV__OP_PING, 1u);
        break;
    case NONSENSE_STARTS + 2:
        wire_add(w, "bbbbbb", 0x16, 3, 1, 2, 0, 1);
        break;
    default:
        wire_add(w, "b", opcodes[number % sizeof opcodes]);
        break;
    }
}

static void print_text(const struct wire *text)
{
    enum { SHOWN = 40 };
    putchar('"');
    for (size_t i = 0; i < text->len && i < SHOWN; i++) {
        uint8_t c = text->data[i];
        if (c < ' ' || c > '~' || c == '"' || c == '\\')
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    printf(text->len > SHOWN ? "...\" (%zu bytes)" : "\"", text->len);
}

void script_print_op(const struct script *s, const struct op *op)
{
    static const char *const names[RDZV__OP_COUNT] = {
        "VALIDATE",   "SET",        "COMPARE_SET", "GET",       "ADD",       "CHECK",       "WAIT",
        "GETNUMKEYS", "DELETE_KEY", "APPEND",      "MULTI_GET", "MULTI_SET", "CANCEL_WAIT", "PING",
        "QUEUE_PUSH", "QUEUE_POP",  "QUEUE_LEN",   "LIST_KEYS", "BARRIER"};
    const char *shape = shapes[op->code];
    printf("%s", names[op->code]);
    unsigned times = *shape == '*' ? op->count : 1;
    shape += *shape == '*';
    for (unsigned i = 0; i < times; i++) {
        for (const char *field = shape; *field != '\0'; field++) {
            putchar(' ');
            if (*field == 'k')
                print_text(&s->key[op->key[i]]);
            else if (*field == 'v')
                print_text(&s->value[op->value[i]]);
            else if (*field == 'w')
                print_text(&s->value[op->value[i + 1]]);
            else
                printf("%lld", (long long)op->number);
        }
    }
}

static void print_step(const struct script *s, const struct step *step)
{
    static const char *const kinds[] = {"asks", "asks, cut at each place in turn",
                                        "asks and closes its sending side", "hangs up",
                                        "sends nonsense"};
    printf("client %u %s", step->client, kinds[step->kind]);
    if (step->kind == STEP_NONSENSE)
        printf(" %u", step->cut);
    else if (step->kind == STEP_HANGUP)
        printf(" after %u bytes of", step->cut);
    else if (step->cut == CUT_EVERYWHERE)
        printf(" byte by byte");
    else if (step->cut != CUT_NOWHERE)
        printf(", cut after %u bytes", step->cut);
    putchar('\n');
    for (unsigned i = 0; step->kind != STEP_NONSENSE && i < step->ops; i++) {
        printf("    ");
        script_print_op(s, &step->op[i]);
        putchar('\n');
    }
}

void script_print(const struct script *s)
{
    for (unsigned i = 0; i < s->steps; i++)
        print_step(s, &s->step[i]);
}
