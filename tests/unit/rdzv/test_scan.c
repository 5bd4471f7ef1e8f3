/*
 * test_scan.c: where requests end, how dialects are told apart, which announced numbers are
 * refused.
 */
#include "runner.h"
#include "wire.h"

#include <stdlib.h>
#include <string.h>

static const struct rdzv__wire_limits limits = {64, 256, 16, 512};

/* Gives the scanner one byte more each time; returns its verdict, *ret_len = bytes it had seen. */
static int scan_slowly(struct wire *w, uint8_t *dialect, struct rdzv__scan *scan, size_t *ret_len)
{
    memset(scan, 0, sizeof *scan);
    for (size_t len = 1; len <= w->len; len++) {
        uint64_t need_before = scan->need;
        if (len < need_before)
            continue;
        /* A copy of exact size, so that a sanitizer sees each byte too far. */
        uint8_t *exact = malloc(len);
        memcpy(exact, w->data, len);
        int why = rdzv__scan(scan, dialect, &limits, exact, len);
        free(exact);
        *ret_len = len;
        if (why != RDZV__WHY_OK || scan->need == 0)
            return why;
        ck_assert_uint_gt(scan->need, len);
    }
    return RDZV__WHY_OK;
}

static void expect_start(struct wire *w, int want_why, size_t want_len, int want_dialect)
{
    struct rdzv__scan scan;
    uint8_t dialect = RDZV__DIALECT_START;
    size_t len = 0;
    int why = scan_slowly(w, &dialect, &scan, &len);
    ck_assert_msg(why == want_why, "byte %u: %s", w->data[0], rdzv__why_text(why));
    ck_assert_uint_eq(len, want_len);
    ck_assert_int_eq(dialect, want_dialect);
    wire_free(w);
}

START_TEST(every_request_of_c_ends_where_it_should)
{
    for (int op = RDZV__OP_SET; op < RDZV__OP_COUNT; op++) {
        struct wire w = WIRE_INIT;
        wire_add(&w, "b", op);
        switch (op) {
        case RDZV__OP_SET:
        case RDZV__OP_APPEND:
        case RDZV__OP_QUEUE_PUSH:
            wire_add(&w, "ss", "key", "value");
            break;
        case RDZV__OP_COMPARE_SET:
            wire_add(&w, "sss", "key", "", "value");
            break;
        case RDZV__OP_ADD:
        case RDZV__OP_BARRIER:
            wire_add(&w, "si", "key", 3LL);
            break;
        case RDZV__OP_CHECK:
        case RDZV__OP_WAIT:
        case RDZV__OP_MULTI_GET:
            wire_add(&w, "isss", 3LL, "one", "", "three");
            break;
        case RDZV__OP_MULTI_SET:
            wire_add(&w, "issss", 2LL, "one", "1", "two", "");
            break;
        case RDZV__OP_PING:
            wire_add(&w, "u", 7u);
            break;
        case RDZV__OP_GETNUMKEYS:
        case RDZV__OP_CANCEL_WAIT:
        case RDZV__OP_LIST_KEYS:
            break;
        default:
            wire_add(&w, "s", "key");
        }
        size_t end = w.len;
        wire_add(&w, "x", "next");
        struct rdzv__scan scan;
        uint8_t dialect = RDZV__DIALECT_C;
        size_t len;
        ck_assert_int_eq(scan_slowly(&w, &dialect, &scan, &len), RDZV__WHY_OK);
        ck_assert_uint_eq(scan.need, 0);
        ck_assert_uint_eq(scan.pos, end);
        ck_assert_uint_eq(len, end);
        ck_assert_int_eq(scan.op, op);
        memset(&scan, 0, sizeof scan);
        ck_assert_int_eq(rdzv__scan(&scan, &dialect, &limits, w.data, w.len), RDZV__WHY_OK);
        ck_assert_uint_eq(scan.pos, end);
        wire_free(&w);
    }
}
END_TEST

START_TEST(starts)
{
    struct wire w = WIRE_INIT;
    wire_hello(&w);
    expect_start(&w, RDZV__WHY_OK, 5, RDZV__DIALECT_C);
    wire_add(&w, "bss", 0, "k", "v");
    expect_start(&w, RDZV__WHY_OK, 1 + 8 + 1 + 8 + 1, RDZV__DIALECT_LEGACY);
    wire_add(&w, "bsi", 3, "init/", 1LL);
    expect_start(&w, RDZV__WHY_OK, 22, RDZV__DIALECT_LEGACY);
    wire_add(&w, "bi", 5, 0LL);
    expect_start(&w, RDZV__WHY_OK, 9, RDZV__DIALECT_LEGACY);
    wire_add(&w, "b", 6);
    expect_start(&w, RDZV__WHY_OK, 1, RDZV__DIALECT_LEGACY);
    wire_add(&w, "bs", 8, "k");
    expect_start(&w, RDZV__WHY_OK, 10, RDZV__DIALECT_A);
    wire_add(&w, "bis", 9, 1LL, "k");
    expect_start(&w, RDZV__WHY_OK, 18, RDZV__DIALECT_B);
}
END_TEST

START_TEST(bad_starts_are_refused_at_once)
{
    struct wire w = WIRE_INIT;
    wire_add(&w, "bux", 0, 0x3C85F7CDu, "rest"); /* wrong magic */
    expect_start(&w, RDZV__WHY_BAD_START, 5, RDZV__DIALECT_START);
    wire_add(&w, "biii", 0, 0LL, 0LL, 0LL); /* zeros */
    expect_start(&w, RDZV__WHY_BAD_START, 5, RDZV__DIALECT_START);
    wire_add(&w, "x", "GET / HTTP/1.1\r\n");
    expect_start(&w, RDZV__WHY_BAD_START, 1, RDZV__DIALECT_START);
    wire_add(&w, "bbb", 0x16, 3, 1);
    expect_start(&w, RDZV__WHY_TLS, 1, RDZV__DIALECT_START);
    wire_add(&w, "bb", 0x80, 1);
    expect_start(&w, RDZV__WHY_NATIVE, 1, RDZV__DIALECT_START);
    wire_add(&w, "b", 0xff);
    expect_start(&w, RDZV__WHY_NATIVE, 1, RDZV__DIALECT_START);
    wire_add(&w, "bu", RDZV__OP_PING, 1u); /* PING without VALIDATE */
    expect_start(&w, RDZV__WHY_BAD_START, 1, RDZV__DIALECT_START);
    wire_add(&w, "bs", 7, "/k");
    expect_start(&w, RDZV__WHY_WATCH_KEY, 1, RDZV__DIALECT_START);
    wire_add(&w, "bux", 2, 0x20544547u, "junk"); /* plausible opcode, absurd length */
    expect_start(&w, RDZV__WHY_BAD_START, 5, RDZV__DIALECT_START);
    wire_add(&w, "bux", 4, 17u, "junk"); /* CHECK of too many keys */
    expect_start(&w, RDZV__WHY_BAD_START, 5, RDZV__DIALECT_START);
    wire_add(&w, "buuu", 2, 5u, 1u, 0u); /* low half plausible, high half not */
    expect_start(&w, RDZV__WHY_LONG_KEY, 9, RDZV__DIALECT_LEGACY);
    for (int first = 11; first < 0x80; first++) {
        if (first == 0x16)
            continue;
        wire_add(&w, "b", first);
        expect_start(&w, RDZV__WHY_BAD_START, 1, RDZV__DIALECT_START);
    }
}
END_TEST

static int next_of(uint8_t *dialect, int byte, uint8_t *ret_op)
{
    struct wire w = WIRE_INIT;
    wire_add(&w, "bss", byte, "k", "v");
    struct rdzv__scan scan = {0};
    int why = rdzv__scan(&scan, dialect, &limits, w.data, w.len);
    *ret_op = scan.op;
    wire_free(&w);
    return why;
}

START_TEST(a_and_b_are_told_apart_by_what_only_one_has)
{
    uint8_t op;
    uint8_t dialect = RDZV__DIALECT_LEGACY;
    ck_assert_int_eq(next_of(&dialect, 8, &op), RDZV__WHY_OK);
    ck_assert_int_eq(op, RDZV__OP_DELETE_KEY);
    ck_assert_int_eq(dialect, RDZV__DIALECT_A);
    ck_assert_int_eq(next_of(&dialect, 7, &op), RDZV__WHY_WATCH_KEY);
    ck_assert_int_eq(next_of(&dialect, 9, &op), RDZV__WHY_BAD_OPCODE);

    dialect = RDZV__DIALECT_LEGACY;
    ck_assert_int_eq(next_of(&dialect, 11, &op), RDZV__WHY_OK);
    ck_assert_int_eq(op, RDZV__OP_CANCEL_WAIT);
    ck_assert_int_eq(dialect, RDZV__DIALECT_B);
    ck_assert_int_eq(next_of(&dialect, 8, &op), RDZV__WHY_OK);
    ck_assert_int_eq(op, RDZV__OP_APPEND);
    ck_assert_int_eq(next_of(&dialect, 7, &op), RDZV__WHY_OK);
    ck_assert_int_eq(op, RDZV__OP_DELETE_KEY);
    ck_assert_int_eq(next_of(&dialect, 12, &op), RDZV__WHY_BAD_OPCODE);

    dialect = RDZV__DIALECT_LEGACY;
    ck_assert_int_eq(next_of(&dialect, 7, &op), RDZV__WHY_OK);
    ck_assert_int_eq(dialect, RDZV__DIALECT_B);

    dialect = RDZV__DIALECT_C;
    ck_assert_int_eq(next_of(&dialect, RDZV__OP_COUNT, &op), RDZV__WHY_BAD_OPCODE);
    ck_assert_int_eq(next_of(&dialect, RDZV__OP_VALIDATE, &op), RDZV__WHY_BAD_OPCODE);
}
END_TEST

/* The refusal must come with the announced number, before any byte of what it announces. */
static void expect_refused(struct wire *w, int want)
{
    struct rdzv__scan scan;
    uint8_t dialect = RDZV__DIALECT_C;
    size_t len = 0;
    int why = scan_slowly(w, &dialect, &scan, &len);
    ck_assert_msg(why == want, "%s", rdzv__why_text(why));
    wire_free(w);
}

START_TEST(announced_numbers_over_the_limit_are_refused)
{
    struct wire w = WIRE_INIT;
    wire_add(&w, "bi", RDZV__OP_GET, 65LL);
    expect_refused(&w, RDZV__WHY_LONG_KEY);
    wire_add(&w, "bi", RDZV__OP_GET, (long long)(1ull << 63));
    expect_refused(&w, RDZV__WHY_LONG_KEY);
    wire_add(&w, "bsi", RDZV__OP_SET, "k", 257LL);
    expect_refused(&w, RDZV__WHY_LONG_VALUE);
    wire_add(&w, "bsi", RDZV__OP_SET, "k", -1LL);
    expect_refused(&w, RDZV__WHY_LONG_VALUE);
    wire_add(&w, "bssi", RDZV__OP_COMPARE_SET, "k", "", 257LL);
    expect_refused(&w, RDZV__WHY_LONG_VALUE);
    wire_add(&w, "bi", RDZV__OP_WAIT, 17LL);
    expect_refused(&w, RDZV__WHY_MANY_KEYS);
    wire_add(&w, "bi", RDZV__OP_MULTI_SET, -1LL);
    expect_refused(&w, RDZV__WHY_MANY_KEYS);
    /* 1 + 8 + 8 + 64 + 8 + 256 = 345 bytes, then a key and a value that would make it 681. */
    wire_add(&w, "bi", RDZV__OP_MULTI_SET, 2LL);
    wire_fill(&w, 'k', 64);
    wire_fill(&w, 'v', 256);
    wire_fill(&w, 'l', 64);
    wire_add(&w, "i", 256LL);
    expect_refused(&w, RDZV__WHY_LONG_REQUEST);
}
END_TEST

START_TEST(numbers_at_the_limit_pass)
{
    struct wire w = WIRE_INIT;
    wire_add(&w, "b", RDZV__OP_SET);
    wire_fill(&w, 'k', 64);
    wire_fill(&w, 'v', 256);
    expect_refused(&w, RDZV__WHY_OK);
    wire_add(&w, "bi", RDZV__OP_CHECK, 16LL);
    for (int i = 0; i < 16; i++)
        wire_add(&w, "s", "key");
    expect_refused(&w, RDZV__WHY_OK);
}
END_TEST

/* Random requests and every cut of them, lengths at and over the limits included: what the short
 * scan says, the other one says as well, and the short ones are never missed. */
START_TEST(the_short_scan_agrees)
{
    uint32_t random = 2463534242u;
    uint64_t taken = 0;
    for (int i = 0; i < 200000; i++) {
        uint8_t bytes[96];
        for (size_t k = 0; k < sizeof bytes; k++) {
            random = random * 1664525u + 1013904223u;
            bytes[k] = (uint8_t)(random >> 24);
        }
        bytes[0] %= RDZV__OP_COUNT + 2;
        memset(bytes + 2, 0, 7);
        bytes[1] %= 80; /* max_key_bytes is 64 */
        size_t len = bytes[95] % 95 + 1u;
        size_t n = rdzv__scan_short(&limits, bytes, len);
        struct rdzv__scan scan = {0};
        uint8_t dialect = RDZV__DIALECT_C;
        int why = rdzv__scan(&scan, &dialect, &limits, bytes, len);
        int op = bytes[0];
        int is_short = op == RDZV__OP_GET || op == RDZV__OP_ADD || op == RDZV__OP_DELETE_KEY ||
                       op == RDZV__OP_QUEUE_POP || op == RDZV__OP_QUEUE_LEN ||
                       op == RDZV__OP_BARRIER;
        if (is_short && why == RDZV__WHY_OK && scan.need == 0)
            ck_assert_uint_eq(n, scan.pos);
        else
            ck_assert_uint_eq(n, 0);
        taken += n > 0;
    }
    ck_assert_uint_gt(taken, 10000);
    /* A length that would wrap around, where no limit forbids it. */
    static const struct rdzv__wire_limits none = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    uint8_t wraps[12] = {RDZV__OP_GET, 0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    ck_assert_uint_eq(rdzv__scan_short(&none, wraps, sizeof wraps), 0);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("scan");
    TCase *t = tcase_create("scan");
    tcase_add_test(t, every_request_of_c_ends_where_it_should);
    tcase_add_test(t, starts);
    tcase_add_test(t, bad_starts_are_refused_at_once);
    tcase_add_test(t, a_and_b_are_told_apart_by_what_only_one_has);
    tcase_add_test(t, announced_numbers_over_the_limit_are_refused);
    tcase_add_test(t, numbers_at_the_limit_pass);
    tcase_add_test(t, the_short_scan_agrees);
    suite_add_tcase(s, t);
    return s;
}
