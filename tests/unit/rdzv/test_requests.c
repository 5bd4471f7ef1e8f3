/*
 * test_requests.c: what each request answers and does, on the core, for several connections.
 */
#include "core/decimal.h"
#include "peers.h"
#include "runner.h"

static struct peers p;
static struct wire w;

static void setup(void)
{
    struct rdzv__core_options options = peers_options();
    peers_open(&p, &options);
    w = (struct wire)WIRE_INIT;
    for (int i = 0; i < PEERS; i++) {
        wire_hello(&w);
        peers_send_wire(&p, i, &w);
    }
}

static void teardown(void)
{
    peers_close(&p);
    wire_free(&w);
}

/* Sends one request, given like wire_add, from connection i. */
#define ASK(i, ...)                                                                                \
    do {                                                                                           \
        wire_add(&w, __VA_ARGS__);                                                                 \
        peers_send_wire(&p, (i), &w);                                                              \
    } while (0)
#define TOLD(i, ...) wire_expect(&p.got[i], __VA_ARGS__)
#define SILENT(i) ck_assert_uint_eq(p.got[i].len, 0)

static void expect_closed(int i, int why)
{
    ck_assert(!p.open[i]);
    ck_assert_msg(p.why[i] == why, "%s", rdzv__why_text(p.why[i]));
    peers_connect(&p, i);
    wire_hello(&w);
    peers_send_wire(&p, i, &w);
}

static void expect_value(const char *key, const char *value)
{
    ASK(7, "bs", RDZV__OP_GET, key);
    TOLD(7, "s", value);
}

START_TEST(set_and_get)
{
    ASK(0, "bss", RDZV__OP_SET, "k", "v");
    SILENT(0);
    ASK(1, "bs", RDZV__OP_GET, "k");
    TOLD(1, "s", "v");
    ASK(0, "bss", RDZV__OP_SET, "k", "");
    expect_value("k", "");
    expect_value("missing", "");
    ASK(0, "b", RDZV__OP_GETNUMKEYS);
    TOLD(0, "i", 1LL);
    ASK(0, "bss", RDZV__OP_SET, "", "empty name");
    expect_value("", "empty name");
}
END_TEST

START_TEST(compare_set_table)
{
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "k", "exp", "new");
    TOLD(0, "s", "exp");
    ASK(0, "b", RDZV__OP_GETNUMKEYS);
    TOLD(0, "i", 0LL);
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "k", "", "");
    TOLD(0, "s", "");
    ASK(0, "b", RDZV__OP_GETNUMKEYS);
    TOLD(0, "i", 1LL);
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "k", "", "one");
    TOLD(0, "s", "one");
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "k", "one", "two");
    TOLD(0, "s", "two");
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "k", "zz", "three");
    TOLD(0, "s", "two");
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "k", "", "three");
    TOLD(0, "s", "two");
    expect_value("k", "two");
}
END_TEST

START_TEST(compare_set_wakes_when_the_key_exists)
{
    ASK(1, "bis", RDZV__OP_WAIT, 1LL, "k");
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "k", "hope", "v");
    TOLD(0, "s", "hope");
    SILENT(1);
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "k", "", "v");
    TOLD(0, "s", "v");
    TOLD(1, "b", 0);
}
END_TEST

START_TEST(add_reads_like_strtoll)
{
    static const struct {
        const char *text;
        long long sum; /* after + 1 */
    } good[] = {{" 12abc", 13},
                {"012", 13},
                {"+5", 6},
                {"1e3", 2},
                {"0x10", 1},
                {"-2", -1},
                {"-0", 1},
                {"\t\n 7 8", 8},
                {"00000000000000000000009", 10},
                {"-9223372036854775808", INT64_MIN + 1}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ASK(0, "bss", RDZV__OP_SET, "n", good[i].text);
        ASK(0, "bsi", RDZV__OP_ADD, "n", 1LL);
        TOLD(0, "i", good[i].sum);
    }
    static const char *const bad[] = {"",
                                      " ",
                                      "abc",
                                      "- 5",
                                      "+-5",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ASK(0, "bss", RDZV__OP_SET, "n", bad[i]);
        ASK(0, "bsi", RDZV__OP_ADD, "n", 1LL);
        expect_closed(0, RDZV__WHY_NOT_NUMBER);
        expect_value("n", bad[i]);
    }
    static const uint8_t inside[] = {'1', '2', '\0', ' ', '3', '4'};
    int64_t n;
    ck_assert(rdzv__decimal_parse(inside, sizeof inside, &n));
    ck_assert_int_eq(n, 12);
}
END_TEST

START_TEST(add_counts)
{
    ASK(0, "bsi", RDZV__OP_ADD, "n", 0LL);
    TOLD(0, "i", 0LL);
    expect_value("n", "0");
    ASK(0, "bsi", RDZV__OP_ADD, "n", -2LL);
    TOLD(0, "i", -2LL);
    expect_value("n", "-2");
    ASK(0, "bss", RDZV__OP_SET, "n", "9223372036854775807");
    ASK(0, "bsi", RDZV__OP_ADD, "n", 1LL);
    TOLD(0, "i", (long long)INT64_MIN);
    expect_value("n", "-9223372036854775808");
    ASK(0, "bsi", RDZV__OP_ADD, "n", -1LL);
    TOLD(0, "i", (long long)INT64_MAX);
    expect_value("n", "9223372036854775807");
}
END_TEST

/* The server keeps counters as numbers; nobody may see a difference. */
START_TEST(a_counter_is_text_to_everybody)
{
    ASK(0, "bsi", RDZV__OP_ADD, "n", 9LL);
    TOLD(0, "i", 9LL);
    ASK(0, "bsi", RDZV__OP_ADD, "n", 1LL);
    TOLD(0, "i", 10LL);
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "n", "10", "11");
    TOLD(0, "s", "11");
    ASK(0, "bsi", RDZV__OP_ADD, "n", 89LL);
    TOLD(0, "i", 100LL);
    ASK(0, "bss", RDZV__OP_APPEND, "n", "5");
    ASK(0, "bsi", RDZV__OP_ADD, "n", 0LL);
    TOLD(0, "i", 1005LL);
    ASK(0, "bsi", RDZV__OP_ADD, "n", -6LL);
    TOLD(0, "i", 999LL);
    ASK(0, "bis", RDZV__OP_MULTI_GET, 1LL, "n");
    TOLD(0, "s", "999");
    ASK(0, "bss", RDZV__OP_SET, "n", "007");
    expect_value("n", "007");
    ASK(0, "bsi", RDZV__OP_ADD, "n", 0LL);
    TOLD(0, "i", 7LL);
    expect_value("n", "7");
    ASK(0, "bsi", RDZV__OP_ADD, "n", 5LL);
    TOLD(0, "i", 12LL);
    ASK(0, "bs", RDZV__OP_DELETE_KEY, "n");
    TOLD(0, "i", 1LL);
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "n", "12", "x");
    TOLD(0, "s", "12");
    ASK(0, "bsi", RDZV__OP_ADD, "n", 3LL);
    TOLD(0, "i", 3LL);
    ASK(0, "bsi", RDZV__OP_ADD, "n", 1LL);
    TOLD(0, "i", 4LL);
    ASK(0, "bss", RDZV__OP_SET, "n", "3");
    expect_value("n", "3");
}
END_TEST

START_TEST(check)
{
    ASK(0, "bi", RDZV__OP_CHECK, 0LL);
    TOLD(0, "b", 0);
    ASK(0, "bss", RDZV__OP_SET, "k", "v");
    ASK(0, "biss", RDZV__OP_CHECK, 2LL, "k", "k");
    TOLD(0, "b", 0);
    ASK(0, "biss", RDZV__OP_CHECK, 2LL, "k", "q");
    TOLD(0, "b", 1);
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "e");
    ASK(0, "biss", RDZV__OP_CHECK, 2LL, "k", "q");
    TOLD(0, "b", 0);
}
END_TEST

START_TEST(wait_is_answered_when_all_are_there)
{
    ASK(1, "bi", RDZV__OP_WAIT, 0LL);
    TOLD(1, "b", 0);
    ASK(0, "bss", RDZV__OP_SET, "a", "1");
    ASK(1, "bisss", RDZV__OP_WAIT, 3LL, "a", "b", "c");
    ck_assert_uint_eq(p.core.waiting, 1);
    ASK(0, "bs", RDZV__OP_DELETE_KEY, "a"); /* was counted off when it was there */
    TOLD(0, "i", 1LL);
    ASK(0, "bss", RDZV__OP_SET, "b", "1");
    ASK(0, "bs", RDZV__OP_DELETE_KEY, "b");
    TOLD(0, "i", 1LL);
    SILENT(1);
    ASK(0, "bss", RDZV__OP_SET, "c", "1");
    TOLD(1, "b", 0);
    ck_assert_uint_eq(p.core.waiting, 0);
}
END_TEST

START_TEST(wait_for_a_key_twice)
{
    ASK(1, "bisss", RDZV__OP_WAIT, 3LL, "a", "b", "a");
    ASK(0, "bss", RDZV__OP_SET, "a", "1");
    SILENT(1);
    ASK(0, "bss", RDZV__OP_SET, "b", "1");
    TOLD(1, "b", 0);
    ASK(1, "bisss", RDZV__OP_WAIT, 3LL, "q", "q", "q");
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "1");
    TOLD(1, "b", 0);
}
END_TEST

START_TEST(everything_that_makes_a_key_wakes)
{
    for (int i = 1; i < 6; i++)
        ASK(i, "bis", RDZV__OP_WAIT, 1LL, i == 1 ? "s" : i == 2 ? "a" : i == 3 ? "ap" : "m2");
    ASK(0, "bss", RDZV__OP_SET, "s", "");
    TOLD(1, "b", 0);
    ASK(0, "bsi", RDZV__OP_ADD, "a", 0LL);
    TOLD(0, "i", 0LL);
    TOLD(2, "b", 0);
    ASK(0, "bss", RDZV__OP_APPEND, "ap", "");
    TOLD(3, "b", 0);
    ASK(0, "bissss", RDZV__OP_MULTI_SET, 2LL, "m1", "1", "m2", "2");
    TOLD(4, "b", 0);
    TOLD(5, "b", 0);
}
END_TEST

START_TEST(any_request_drops_a_wait)
{
    ASK(1, "bis", RDZV__OP_WAIT, 1LL, "k");
    ASK(1, "bs", RDZV__OP_GET, "other");
    TOLD(1, "s", "");
    ck_assert_uint_eq(p.core.waiting, 0);
    ASK(0, "bss", RDZV__OP_SET, "k", "v");
    SILENT(1);
    /* Already its first byte does: the rest may be long in coming. */
    ASK(1, "bis", RDZV__OP_WAIT, 1LL, "l");
    ASK(1, "b", RDZV__OP_ADD);
    ASK(0, "bss", RDZV__OP_SET, "l", "v");
    ASK(1, "si", "n", 4LL);
    TOLD(1, "i", 4LL);
    /* Also a second WAIT. */
    ASK(1, "bis", RDZV__OP_WAIT, 1LL, "one");
    ASK(1, "bis", RDZV__OP_WAIT, 1LL, "two");
    ASK(0, "bss", RDZV__OP_SET, "one", "v");
    SILENT(1);
    ASK(0, "bss", RDZV__OP_SET, "two", "v");
    TOLD(1, "b", 0);
}
END_TEST

START_TEST(cancel_wait_is_always_answered)
{
    ASK(1, "b", RDZV__OP_CANCEL_WAIT);
    TOLD(1, "b", 1);
    ASK(1, "bis", RDZV__OP_WAIT, 1LL, "k");
    ASK(1, "bb", RDZV__OP_CANCEL_WAIT, RDZV__OP_CANCEL_WAIT);
    TOLD(1, "bb", 1, 1);
    ASK(0, "bss", RDZV__OP_SET, "k", "v");
    SILENT(1);
    ASK(1, "bisb", RDZV__OP_WAIT, 1LL, "k", RDZV__OP_CANCEL_WAIT);
    TOLD(1, "bb", 0, 1);
}
END_TEST

START_TEST(delete_count_and_list)
{
    ASK(0, "bss", RDZV__OP_SET, "a", "1");
    ASK(0, "bss", RDZV__OP_SET, "", "2");
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "3");
    ASK(1, "bis", RDZV__OP_WAIT, 1LL, "nothing");
    ASK(0, "b", RDZV__OP_GETNUMKEYS);
    TOLD(0, "i", 2LL);
    ASK(0, "b", RDZV__OP_LIST_KEYS);
    TOLD(0, "iss", 2LL, "a", "");
    ASK(0, "bs", RDZV__OP_DELETE_KEY, "q"); /* a queue is no key */
    TOLD(0, "i", 0LL);
    ASK(0, "bs", RDZV__OP_DELETE_KEY, "a");
    TOLD(0, "i", 1LL);
    ASK(0, "bs", RDZV__OP_DELETE_KEY, "a");
    TOLD(0, "i", 0LL);
    ASK(0, "b", RDZV__OP_LIST_KEYS);
    TOLD(0, "is", 1LL, "");
}
END_TEST

START_TEST(append_and_multi)
{
    ASK(0, "bss", RDZV__OP_APPEND, "ap", "xy");
    ASK(0, "bss", RDZV__OP_APPEND, "ap", "z");
    expect_value("ap", "xyz");
    ASK(0, "bi", RDZV__OP_MULTI_GET, 0LL);
    SILENT(0);
    ASK(0, "bi", RDZV__OP_MULTI_SET, 0LL);
    SILENT(0);
    ASK(0, "bissssss", RDZV__OP_MULTI_SET, 3LL, "a", "1", "b", "", "a", "2");
    ASK(0, "bissss", RDZV__OP_MULTI_GET, 4LL, "a", "b", "missing", "ap");
    TOLD(0, "ssss", "2", "", "", "xyz");
    ASK(0, "b", RDZV__OP_GETNUMKEYS);
    TOLD(0, "i", 3LL);
}
END_TEST

START_TEST(multi_set_is_applied_when_complete)
{
    ASK(0, "biss", RDZV__OP_MULTI_SET, 2LL, "a", "1");
    ASK(1, "b", RDZV__OP_GETNUMKEYS);
    TOLD(1, "i", 0LL);
    ASK(0, "ss", "b", "2");
    ASK(1, "b", RDZV__OP_GETNUMKEYS);
    TOLD(1, "i", 2LL);
}
END_TEST

START_TEST(queues)
{
    ASK(0, "bs", RDZV__OP_QUEUE_LEN, "q");
    TOLD(0, "i", 0LL);
    ASK(0, "bs", RDZV__OP_QUEUE_POP, "q");
    TOLD(0, "i", 0LL);
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "one");
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "");
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "three");
    ASK(0, "bss", RDZV__OP_SET, "q", "key of that name");
    ASK(0, "bs", RDZV__OP_QUEUE_LEN, "q");
    TOLD(0, "i", 3LL);
    ASK(0, "bs", RDZV__OP_QUEUE_POP, "q");
    TOLD(0, "is", 3LL, "one");
    ASK(0, "bs", RDZV__OP_DELETE_KEY, "q");
    TOLD(0, "i", 1LL);
    ASK(0, "bs", RDZV__OP_QUEUE_POP, "q");
    TOLD(0, "is", 2LL, "");
    expect_value("q", "");
    ASK(0, "bs", RDZV__OP_QUEUE_POP, "q");
    TOLD(0, "is", 1LL, "three");
    ASK(0, "bis", RDZV__OP_CHECK, 1LL, "q"); /* empty again is absent again */
    TOLD(0, "b", 1);
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "again");
    ASK(0, "bs", RDZV__OP_QUEUE_POP, "q");
    TOLD(0, "is", 1LL, "again");
}
END_TEST

START_TEST(push_releases_the_longest_waiter)
{
    ASK(1, "bis", RDZV__OP_WAIT, 1LL, "q");
    ASK(2, "biss", RDZV__OP_WAIT, 2LL, "other", "q");
    ASK(3, "bis", RDZV__OP_WAIT, 1LL, "q");
    ASK(4, "bis", RDZV__OP_WAIT, 1LL, "q");
    ASK(5, "bis", RDZV__OP_WAIT, 1LL, "q");
    ASK(6, "bis", RDZV__OP_WAIT, 1LL, "q");
    peers_disconnect(&p, 3);           /* dead: skipped */
    ASK(4, "b", RDZV__OP_CANCEL_WAIT); /* cancelled: skipped */
    TOLD(4, "b", 1);
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "1");
    TOLD(1, "b", 0);
    SILENT(5);
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "2"); /* counts 2 off, who lacks the other */
    SILENT(2);
    SILENT(5);
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "3");
    TOLD(5, "b", 0);
    SILENT(6);
    ASK(0, "bss", RDZV__OP_SET, "q", ""); /* a key of that name releases all */
    TOLD(6, "b", 0);
    ASK(0, "bss", RDZV__OP_SET, "other", "");
    TOLD(2, "b", 0);
}
END_TEST

START_TEST(barrier)
{
    ASK(0, "bsi", RDZV__OP_BARRIER, "b", 3LL);
    ASK(1, "bsi", RDZV__OP_BARRIER, "b", 3LL);
    SILENT(0);
    ck_assert_uint_eq(p.core.waiting, 2);
    expect_value("b", "2");
    ASK(2, "bsi", RDZV__OP_BARRIER, "b", 3LL);
    TOLD(0, "b", 0);
    TOLD(1, "b", 0);
    TOLD(2, "b", 0);
    ASK(0, "bsi", RDZV__OP_BARRIER, "b", 3LL); /* the counter stays */
    TOLD(0, "b", 0);
    ASK(0, "bsi", RDZV__OP_BARRIER, "zero", 0LL);
    TOLD(0, "b", 0);
    ASK(0, "bsi", RDZV__OP_BARRIER, "minus", -1LL);
    TOLD(0, "b", 0);
    ASK(0, "bsi", RDZV__OP_BARRIER, "t", 2LL); /* cancelled, but counted */
    ASK(0, "b", RDZV__OP_CANCEL_WAIT);
    TOLD(0, "b", 1);
    expect_value("t", "1");
    ASK(0, "bsi", RDZV__OP_BARRIER, "set", 9LL);
    ASK(1, "bsi", RDZV__OP_BARRIER, "set", 9LL);
    ASK(2, "bss", RDZV__OP_SET, "set", "any");
    TOLD(0, "b", 0);
    TOLD(1, "b", 0);
    ASK(0, "bsi", RDZV__OP_BARRIER, "set", 9LL);
    expect_closed(0, RDZV__WHY_NOT_NUMBER);
}
END_TEST

START_TEST(ping_and_pipelining)
{
    ASK(0, "bubbsbs", RDZV__OP_PING, 0x44332211u, RDZV__OP_GETNUMKEYS, RDZV__OP_GET, "k",
        RDZV__OP_QUEUE_LEN, "q");
    TOLD(0, "uisi", 0x44332211u, 0LL, "", 0LL);
}
END_TEST

START_TEST(bad_opcode_closes_after_the_answers_before_it)
{
    ASK(0, "bbb", RDZV__OP_GETNUMKEYS, RDZV__OP_COUNT, RDZV__OP_GETNUMKEYS);
    TOLD(0, "i", 0LL);
    expect_closed(0, RDZV__WHY_BAD_OPCODE);
    ASK(0, "bu", RDZV__OP_VALIDATE, RDZV__C10D_MAGIC);
    expect_closed(0, RDZV__WHY_BAD_OPCODE);
}
END_TEST

START_TEST(nothing_of_a_bad_start_is_executed)
{
    peers_disconnect(&p, 0);
    peers_connect(&p, 0);
    ASK(0, "bubss", 0, 0x3C85F7CDu, RDZV__OP_SET, "k", "v");
    ck_assert_int_eq(p.why[0], RDZV__WHY_BAD_START);
    ck_assert(!p.open[0]);
    ck_assert_uint_eq(p.core.store.keys, 0);
    /* One request per VALIDATE so far. */
    ck_assert_uint_eq(p.core.requests, PEERS);
}
END_TEST

START_TEST(a_half_closed_client_gets_its_answers)
{
    ASK(0, "bs", RDZV__OP_GET, "k");
    peers_eof(&p, 0);
    TOLD(0, "s", "");
    ck_assert_int_eq(p.why[0], -1);
    ASK(1, "bis", RDZV__OP_WAIT, 1LL, "k");
    ASK(2, "bsis", RDZV__OP_GET, "k", 5LL, "half of a");
    peers_eof(&p, 1); /* its wait is dropped */
    ck_assert(!p.open[1]);
    ck_assert_uint_eq(p.core.waiting, 0);
    ASK(0, "bss", RDZV__OP_SET, "k", "v");
    SILENT(1);
}
END_TEST

START_TEST(names_are_forgotten)
{
    ASK(0, "bissss", RDZV__OP_WAIT, 4LL, "a", "b", "c", "d");
    ASK(0, "bissss", RDZV__OP_WAIT, 4LL, "e", "f", "g", "h");
    ASK(0, "b", RDZV__OP_CANCEL_WAIT);
    TOLD(0, "b", 1);
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "k", "exp", "new");
    TOLD(0, "s", "exp");
    ASK(0, "bss", RDZV__OP_SET, "k", "v");
    ASK(0, "bs", RDZV__OP_DELETE_KEY, "k");
    TOLD(0, "i", 1LL);
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "v");
    ASK(0, "bs", RDZV__OP_QUEUE_POP, "q");
    TOLD(0, "is", 1LL, "v");
    ck_assert_uint_eq(p.core.store.bytes, 0);
}
END_TEST

START_TEST(legacy_dialects)
{
    peers_disconnect(&p, 0);
    peers_connect(&p, 0);
    ASK(0, "bsi", 3, "init/", 1LL);
    TOLD(0, "i", 1LL);
    ASK(0, "bis", 5, 1LL, "/k");
    ASK(0, "bsi", 3, "/n", 2LL); /* timed out without a word: the wait is dropped */
    TOLD(0, "i", 2LL);
    ASK(1, "bss", RDZV__OP_SET, "/k", "v");
    SILENT(0);
    ASK(0, "bs", 8, "/k"); /* DELETE_KEY of A */
    TOLD(0, "i", 1LL);
    ASK(0, "bs", 7, "/k"); /* WATCH_KEY of A */
    ck_assert(!p.open[0]);
    ck_assert_int_eq(p.why[0], RDZV__WHY_WATCH_KEY);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("requests");
    TCase *t = tcase_create("requests");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, set_and_get);
    tcase_add_test(t, compare_set_table);
    tcase_add_test(t, compare_set_wakes_when_the_key_exists);
    tcase_add_test(t, add_reads_like_strtoll);
    tcase_add_test(t, add_counts);
    tcase_add_test(t, a_counter_is_text_to_everybody);
    tcase_add_test(t, check);
    tcase_add_test(t, wait_is_answered_when_all_are_there);
    tcase_add_test(t, wait_for_a_key_twice);
    tcase_add_test(t, everything_that_makes_a_key_wakes);
    tcase_add_test(t, any_request_drops_a_wait);
    tcase_add_test(t, cancel_wait_is_always_answered);
    tcase_add_test(t, delete_count_and_list);
    tcase_add_test(t, append_and_multi);
    tcase_add_test(t, multi_set_is_applied_when_complete);
    tcase_add_test(t, queues);
    tcase_add_test(t, push_releases_the_longest_waiter);
    tcase_add_test(t, barrier);
    tcase_add_test(t, ping_and_pipelining);
    tcase_add_test(t, bad_opcode_closes_after_the_answers_before_it);
    tcase_add_test(t, nothing_of_a_bad_start_is_executed);
    tcase_add_test(t, a_half_closed_client_gets_its_answers);
    tcase_add_test(t, names_are_forgotten);
    tcase_add_test(t, legacy_dialects);
    suite_add_tcase(s, t);
    return s;
}
