/*
 * test_client_core.c: the client's core against the server's core, and against bytes that no store
 * would send. No socket, no clock: time passes when the test says so.
 */
#include "alloc_fault.h"
#include "duo.h"
#include "runner.h"

#include <string.h>

static const size_t pieces[] = {1, 2, 3, 5, 7, 8, 9, 13, SIZE_MAX};
enum { PIECES = sizeof pieces / sizeof pieces[0] };

static const char *const ab[] = {"a", "b"};

/* What every dialect has. */
static void common_calls(struct duo *d)
{
    const char *values[] = {"one", "two"};
    duo_set(d, RDZV__OP_SET, "a", "1");
    struct rdzv__call *get = duo_key(d, RDZV__OP_GET, "a", 1000);
    duo_run(d); /* with care a get is two round trips, and sees what was set in between */
    struct rdzv__call *add = duo_submit(d, RDZV__OP_ADD, ab, 1, NULL, 0, 41, 1000);
    struct rdzv__call *none = duo_key(d, RDZV__OP_GET, "none", 0);
    struct rdzv__call *check = duo_submit(d, RDZV__OP_CHECK, ab, 2, NULL, 0, 0, 1000);
    struct rdzv__call *mset = duo_submit(d, RDZV__OP_MULTI_SET, ab, 2, values, 2, 0, 1000);
    struct rdzv__call *mget = duo_submit(d, RDZV__OP_MULTI_GET, ab, 2, NULL, 0, 0, 1000);
    duo_run(d);
    struct rdzv__call *wait = duo_submit(d, RDZV__OP_WAIT, ab, 2, NULL, 0, 0, 1000);
    const char *swap[] = {"one", "three"};
    struct rdzv__call *swapped = duo_submit(d, RDZV__OP_COMPARE_SET, ab, 1, swap, 2, 0, 1000);
    struct rdzv__call *empty = duo_set(d, RDZV__OP_SET, "empty", "");
    struct rdzv__call *flush = duo_submit(d, RDZV__OP_PING, NULL, 0, NULL, 0, 0, 1000);
    duo_run(d);
    ck_assert_uint_eq(mget->count, 2);
    ck_assert_mem_eq(mget->values[1].data, "two", 3);
    duo_brings(d, get, "1");
    duo_ends_with(d, add, 42);
    duo_ends(d, none, RDZV_ENOENT);
    duo_ends_with(d, check, 0);
    duo_ends(d, mset, RDZV_OK);
    duo_ends(d, mget, RDZV_OK);
    duo_ends(d, wait, RDZV_OK);
    duo_brings(d, swapped, "three");
    duo_ends(d, empty, RDZV_OK);
    duo_ends(d, flush, RDZV_OK);

    struct rdzv__call *empty_get = duo_key(d, RDZV__OP_GET, "empty", 1000);
    struct rdzv__call *empty_now = duo_key(d, RDZV__OP_GET, "empty", 0);
    struct rdzv__call *gone = duo_key(d, RDZV__OP_DELETE_KEY, "b", 1000);
    struct rdzv__call *again = duo_key(d, RDZV__OP_DELETE_KEY, "b", 1000);
    struct rdzv__call *count = duo_submit(d, RDZV__OP_GETNUMKEYS, NULL, 0, NULL, 0, 0, 1000);
    struct rdzv__call *nothing = duo_submit(d, RDZV__OP_MULTI_GET, NULL, 0, NULL, 0, 0, 1000);
    duo_run(d);
    duo_brings(d, empty_get, "");
    duo_brings(d, empty_now, "");
    duo_ends_with(d, gone, 1);
    duo_ends_with(d, again, 0);
    duo_ends_with(d, count, 2);
    duo_ends(d, nothing, RDZV_OK);
}

/* Takes the SETs back that nobody kept. */
static void take_sets(struct duo *d)
{
    while (!queue_empty(&d->client.done))
        duo_ends(d, CONTAINER_OF(d->client.done.next, struct rdzv__call, link), RDZV_OK);
}

static void calls_of_c(struct duo *d)
{
    duo_set(d, RDZV__OP_APPEND, "log", "x");
    duo_set(d, RDZV__OP_APPEND, "log", "y");
    struct rdzv__call *log = duo_key(d, RDZV__OP_GET, "log", 1000);
    duo_set(d, RDZV__OP_QUEUE_PUSH, "q", "e1");
    duo_set(d, RDZV__OP_QUEUE_PUSH, "q", "");
    struct rdzv__call *len = duo_key(d, RDZV__OP_QUEUE_LEN, "q", 1000);
    struct rdzv__call *first = duo_key(d, RDZV__OP_QUEUE_POP, "q", 1000);
    struct rdzv__call *second = duo_key(d, RDZV__OP_QUEUE_POP, "q", 0);
    struct rdzv__call *third = duo_key(d, RDZV__OP_QUEUE_POP, "q", 0);
    struct rdzv__call *list = duo_submit(d, RDZV__OP_LIST_KEYS, NULL, 0, NULL, 0, 0, 1000);
    struct rdzv__call *barrier = duo_submit(d, RDZV__OP_BARRIER, ab + 1, 1, NULL, 0, 1, 1000);
    duo_run(d);
    duo_brings(d, log, "xy");
    duo_ends_with(d, len, 2);
    ck_assert_int_eq(first->number, 2);
    duo_brings(d, first, "e1");
    duo_brings(d, second, "");
    duo_ends(d, third, RDZV_ENOENT);
    ck_assert_uint_ge(list->count, 1);
    duo_ends(d, list, RDZV_OK);
    duo_ends(d, barrier, RDZV_OK);
    take_sets(d);
}

START_TEST(every_call_with_answers_in_pieces)
{
    for (int legacy = 0; legacy < 2; legacy++) {
        for (int careful = 0; careful < 2; careful++) {
            struct duo d;
            duo_open(&d, legacy, careful, NULL);
            ck_assert_int_eq(d.client.state, RDZV__CLIENT_UP);
            d.piece = pieces[_i];
            common_calls(&d);
            take_sets(&d);
            if (!legacy)
                calls_of_c(&d);
            duo_close(&d);
        }
    }
}
END_TEST

/* What one get costs: one request if the key is there; WAIT and GET at the older server. */
START_TEST(bytes_of_get_and_handshake)
{
    struct duo d;
    struct wire w = WIRE_INIT;
    duo_open(&d, 0, 0, NULL);
    duo_other_sets(&d, "/k", "v");
    struct rdzv__call *get = duo_key(&d, RDZV__OP_GET, "k", 1000);
    duo_take(&d, &w);
    wire_expect(&w, "bs", RDZV__OP_GET, "/k");
    duo_feed(&d, "\x01\0\0\0\0\0\0\0v", 9);
    duo_brings(&d, get, "v");
    get = duo_key(&d, RDZV__OP_GET, "k", 1000); /* not there: GET, then WAIT, then GET again */
    duo_take(&d, &w);
    duo_feed(&d, "\0\0\0\0\0\0\0\0", 8);
    duo_take(&d, &w);
    wire_expect(&w, "bsbis", RDZV__OP_GET, "/k", RDZV__OP_WAIT, 1LL, "/k");
    duo_feed(&d, "\0", 1);
    duo_take(&d, &w);
    wire_expect(&w, "bs", RDZV__OP_GET, "/k");
    duo_feed(&d, "\x01\0\0\0\0\0\0\0v", 9);
    duo_brings(&d, get, "v");
    duo_close(&d);

    duo_open(&d, 0, 1, NULL);
    get = duo_key(&d, RDZV__OP_GET, "k", 1000);
    duo_take(&d, &w);
    wire_expect(&w, "bis", RDZV__OP_WAIT, 1LL, "/k");
    duo_feed(&d, "\0", 1);
    duo_take(&d, &w);
    wire_expect(&w, "bs", RDZV__OP_GET, "/k");
    duo_feed(&d, "\x01\0\0\0\0\0\0\0v", 9);
    duo_brings(&d, get, "v");
    rdzv__client_core_hello(&d.client, 2, d.now_ms); /* VALIDATE and PING in one piece */
    duo_take(&d, &w);
    wire_expect(&w, "bubu", RDZV__OP_VALIDATE, RDZV__C10D_MAGIC, RDZV__OP_PING, 3u);
    duo_close(&d);
    wire_free(&w);
}
END_TEST

START_TEST(keys_that_come_later)
{
    struct duo d;
    duo_open(&d, _i & 1, _i >> 1, NULL);
    struct rdzv__call *get = duo_key(&d, RDZV__OP_GET, "late", 5000);
    struct rdzv__call *wait = duo_submit(&d, RDZV__OP_WAIT, ab, 2, NULL, 0, 0, 5000);
    struct rdzv__call *mget = duo_submit(&d, RDZV__OP_MULTI_GET, ab, 2, NULL, 0, 0, 5000);
    struct rdzv__call *forever = duo_key(&d, RDZV__OP_GET, "never", 300);
    duo_run(&d);
    ck_assert(!duo_is_done(get) && !duo_is_done(wait) && !duo_is_done(mget));
    duo_other_sets(&d, "/b", "B");
    for (int i = 0; i < 40; i++) {
        /* Other calls are not held up by those that wait. */
        struct rdzv__call *count = duo_submit(&d, RDZV__OP_GETNUMKEYS, NULL, 0, NULL, 0, 0, 100);
        duo_run(&d);
        duo_ends_with(&d, count, 1);
        duo_pass(&d, 10);
    }
    duo_ends(&d, forever, RDZV_ETIMEDOUT);
    ck_assert(!duo_is_done(get) && !duo_is_done(wait) && !duo_is_done(mget));
    duo_other_sets(&d, "/a", "A");
    duo_other_sets(&d, "/late", "x");
    for (int i = 0; i < 12; i++)
        duo_pass(&d, 10);
    duo_brings(&d, get, "x");
    duo_ends(&d, wait, RDZV_OK);
    ck_assert_uint_eq(mget->count, 2);
    duo_ends(&d, mget, RDZV_OK);
    duo_close(&d);
}
END_TEST

/* A wait of which one key is there times out; then the same connection is used. */
START_TEST(row_20_timed_out_wait_leaves_the_connection_in_step)
{
    struct duo d;
    duo_open(&d, 0, 0, NULL);
    duo_other_sets(&d, "/a", "A");
    struct rdzv__call *wait = duo_submit(&d, RDZV__OP_WAIT, ab, 2, NULL, 0, 0, 200);
    duo_run(&d);
    duo_pass(&d, 199);
    ck_assert(!duo_is_done(wait));
    duo_pass(&d, 1);
    ck_assert_ptr_nonnull(strstr(wait->result.text, "wait_keys \"a\""));
    duo_ends(&d, wait, RDZV_ETIMEDOUT);
    struct rdzv__call *get = duo_key(&d, RDZV__OP_GET, "a", 200);
    duo_run(&d);
    duo_brings(&d, get, "A");
    duo_close(&d);
}
END_TEST

/* Feeds the answers to a WAIT that has timed out, and then the one to a GET. */
static void race(const char *answers, size_t len, size_t piece, int code)
{
    struct duo d;
    struct wire w = WIRE_INIT;
    duo_open(&d, 0, 0, NULL);
    struct rdzv__call *wait = duo_submit(&d, RDZV__OP_WAIT, ab, 1, NULL, 0, 0, 200);
    duo_take(&d, &w);
    d.now_ms += 200;
    rdzv__client_core_tick(&d.client, d.now_ms);
    duo_take(&d, &w);
    wire_expect(&w, "bisb", RDZV__OP_WAIT, 1LL, "/a", RDZV__OP_CANCEL_WAIT);
    struct rdzv__call *get = duo_key(&d, RDZV__OP_GET, "a", 200); /* sent before the answer */
    duo_take(&d, &w);
    for (size_t at = 0; at < len; at += piece)
        duo_feed(&d, answers + at, piece < len - at ? piece : len - at);
    duo_ends(&d, wait, code);
    duo_brings(&d, get, "A");
    wire_free(&w);
    duo_close(&d);
}

START_TEST(row_20_both_orders_of_stop_and_cancel)
{
    static const char cancelled[] = "\1\1\0\0\0\0\0\0\0A";
    static const char answered_before[] = "\0\1\1\0\0\0\0\0\0\0A";
    race(cancelled, sizeof cancelled - 1, pieces[_i] < 64 ? pieces[_i] : 64, RDZV_ETIMEDOUT);
    race(answered_before, sizeof answered_before - 1, pieces[_i] < 64 ? pieces[_i] : 64, RDZV_OK);
}
END_TEST

START_TEST(cancelled_calls)
{
    struct duo d;
    duo_open(&d, 0, 0, NULL);
    struct rdzv__call *parked = duo_key(&d, RDZV__OP_GET, "no", 100000);
    struct rdzv__call *waiting = duo_key(&d, RDZV__OP_GET, "no2", 100000);
    duo_run(&d);
    struct rdzv__call *unsent = duo_key(&d, RDZV__OP_GET, "no3", 100000);
    parked->canceled = waiting->canceled = unsent->canceled = 1;
    rdzv__client_core_cancel_marked(&d.client, d.now_ms);
    duo_ends(&d, unsent, RDZV_ECANCELED);
    duo_run(&d);
    duo_ends(&d, waiting, RDZV_ECANCELED);
    duo_ends(&d, parked, RDZV_ECANCELED);
    ck_assert_uint_eq(d.server.core.waiting, 0);
    duo_close(&d);
}
END_TEST

START_TEST(barrier_holds_up_and_times_out)
{
    struct duo d;
    duo_open(&d, 0, 0, NULL);
    struct rdzv__call *waits = duo_key(&d, RDZV__OP_GET, "late", 5000);
    duo_run(&d);
    struct rdzv__call *barrier = duo_submit(&d, RDZV__OP_BARRIER, ab, 1, NULL, 0, 2, 300);
    struct rdzv__call *behind = duo_key(&d, RDZV__OP_QUEUE_LEN, "q", 5000);
    duo_run(&d);
    ck_assert(!duo_is_done(behind));
    duo_pass(&d, 300);
    duo_ends(&d, barrier, RDZV_ETIMEDOUT);
    duo_ends_with(&d, behind, 0);
    barrier = duo_submit(&d, RDZV__OP_BARRIER, ab, 1, NULL, 0, 2, 300); /* that count stayed */
    duo_run(&d);
    duo_ends(&d, barrier, RDZV_OK);
    duo_other_sets(&d, "/late", "x");
    duo_pass(&d, 60);
    duo_brings(&d, waits, "x");
    duo_close(&d);
}
END_TEST

/* Two consumers, elements that come one by one: nothing is lost, also when a pop times out. */
START_TEST(queue_elements_are_never_lost)
{
    struct duo d;
    struct wire w = WIRE_INIT;
    duo_open(&d, 0, 0, NULL);
    wire_hello(&w);
    peers_send_wire(&d.server, 1, &w);
    int got = 0;
    int timed_out = 0;
    for (int i = 0; i < 200; i++) {
        struct rdzv__call *pop = duo_key(&d, RDZV__OP_QUEUE_POP, "q", 50);
        duo_run(&d);
        if (i % 3 != 0) {
            wire_add(&w, "bss", RDZV__OP_QUEUE_PUSH, "/q", "e");
            peers_send_wire(&d.server, 1, &w);
        }
        duo_pass(&d, 50);
        duo_pass(&d, RDZV__CLIENT_GRACE_MS);
        ck_assert(duo_is_done(pop));
        got += pop->result.code == RDZV_OK;
        timed_out += pop->result.code == RDZV_ETIMEDOUT;
        duo_ends(&d, pop, pop->result.code);
    }
    ck_assert_int_eq(got, 133);
    ck_assert_int_eq(timed_out, 67);
    wire_free(&w);
    duo_close(&d);
}
END_TEST

static const struct {
    const char *bytes;
    size_t len;
    const char *text;
} no_stores[] = {
    {"\0\xCE\xF7\x85\x3C\x0D", 6, "sends back what it is sent"},
    {"HTTP/1.1 400 Bad Request\r\n\r\n", 28, "\"HTTP\""},
    {"\x15\x03\x01\0\x02\x02\x0a", 7, "\"\\x15\\x03\\x01\\x00\""},
    {"SSH-2.0-x\r\n", 11, "\"SSH-\""},
    {"\x79\x56\x34\x12"
     "12345678",
     12, "not a c10d store"}, /* right nonce, then no empty value */
};

START_TEST(row_19_not_a_store)
{
    struct duo d;
    duo_open(&d, 0, 0, NULL);
    rdzv__client_core_disconnect(&d.client);
    struct rdzv__call *get = duo_key(&d, RDZV__OP_GET, "a", 1000);
    rdzv__client_core_hello(&d.client, 0x12345678, d.now_ms);
    for (size_t at = 0; at < no_stores[_i].len; at++)
        duo_feed(&d, no_stores[_i].bytes + at, 1);
    ck_assert_int_eq(d.client.state, RDZV__CLIENT_FAILED);
    ck_assert_msg(strstr(get->result.text, no_stores[_i].text) != NULL, "%s", get->result.text);
    ck_assert_ptr_nonnull(strstr(get->result.text, "not a c10d store"));
    duo_ends(&d, get, RDZV_ENOTSTORE);
    struct rdzv__call *later = duo_key(&d, RDZV__OP_GET, "a", 1000);
    duo_ends(&d, later, RDZV_ENOTSTORE);
    duo_close(&d);
}
END_TEST

static const struct {
    const char *bytes;
    size_t len;
    int code;
    uint8_t op;
} bad_answers[] = {
    {"\2", 1, RDZV_ENOTSTORE, RDZV__OP_CHECK},
    {"\1", 1, RDZV_ENOTSTORE, RDZV__OP_WAIT},
    {"\1", 1, RDZV_ENOTSTORE, RDZV__OP_BARRIER},
    {"\xff\xff\xff\xff\xff\xff\xff\xff", 8, RDZV_ELIMIT, RDZV__OP_GET},
    {"\x01\0\x10\0\0\0\0\0", 8, RDZV_ELIMIT, RDZV__OP_GET}, /* 1 MiB + 1 */
    {"\xff\xff\xff\xff\xff\xff\xff\xff", 8, RDZV_ENOTSTORE, RDZV__OP_QUEUE_POP},
    {"\1\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 16, RDZV_ELIMIT, RDZV__OP_QUEUE_POP},
    {"\xff\xff\xff\xff\xff\xff\xff\xff", 8, RDZV_ENOTSTORE, RDZV__OP_LIST_KEYS},
    {"\xff\xff\xff\xff\xff\xff\xff\x7f", 8, RDZV_ELIMIT, RDZV__OP_LIST_KEYS},
    {"\0", 1, RDZV_OK, RDZV__OP_SET}, /* an answer that nobody asked for */
};

START_TEST(answers_that_cannot_be)
{
    struct duo d;
    struct wire w = WIRE_INIT;
    duo_open(&d, 0, 0, NULL);
    const char *value = "v";
    uint8_t op = bad_answers[_i].op;
    struct rdzv__call *call =
        duo_submit(&d, op, ab, op != RDZV__OP_LIST_KEYS, &value, op == RDZV__OP_SET, 5, 1000);
    duo_take(&d, &w);
    duo_feed(&d, bad_answers[_i].bytes, bad_answers[_i].len);
    ck_assert_int_eq(d.client.state, RDZV__CLIENT_FAILED);
    duo_ends(&d, call, bad_answers[_i].code);
    wire_free(&w);
    duo_close(&d);
}
END_TEST

START_TEST(silence)
{
    struct duo d;
    struct wire w = WIRE_INIT;
    duo_open(&d, 0, 0, NULL);
    struct rdzv__call *parked = duo_key(&d, RDZV__OP_GET, "no", 900000);
    duo_run(&d);
    duo_pass(&d, 60000); /* a wait may last */
    ck_assert(!duo_is_done(parked));
    struct rdzv__call *add = duo_submit(&d, RDZV__OP_ADD, ab, 1, NULL, 0, 1, 1000);
    struct rdzv__call *num = duo_submit(&d, RDZV__OP_GETNUMKEYS, NULL, 0, NULL, 0, 0, 90000);
    duo_take(&d, &w);
    ck_assert_uint_eq(rdzv__client_core_next_ms(&d.client), d.now_ms + 1000);
    d.now_ms += 1000;
    rdzv__client_core_tick(&d.client, d.now_ms);
    duo_ends(&d, add, RDZV_ETIMEDOUT); /* its own deadline; the connection stands */
    duo_feed(&d, "\1", 1);             /* progress */
    duo_feed(&d, "\x05\0\0", 3);       /* of an answer that nobody waits for */
    duo_take(&d, &w);                  /* the wait goes on */
    ck_assert_uint_eq(rdzv__client_core_next_ms(&d.client), 62000 + 30000);
    d.now_ms += 29999;
    rdzv__client_core_tick(&d.client, d.now_ms);
    ck_assert(!duo_is_done(num));
    d.now_ms += 1;
    rdzv__client_core_tick(&d.client, d.now_ms);
    ck_assert_ptr_nonnull(strstr(num->result.text, "silent for 30000 ms"));
    duo_ends(&d, num, RDZV_ECONN);
    duo_ends(&d, parked, RDZV_ECONN);
    duo_ends(&d, duo_key(&d, RDZV__OP_GET, "no", 1000), RDZV_ECONN);
    ck_assert_uint_eq(rdzv__client_core_next_ms(&d.client),
                      UINT64_MAX); /* of calls that are over */
    wire_free(&w);
    duo_close(&d);
}
END_TEST

START_TEST(limits_of_requests)
{
    struct duo d;
    rdzv_error err;
    static char big[8193];
    memset(big, 'k', sizeof big);
    duo_open(&d, 1, 0, NULL);
    size_t len;
    rdzv_bytes key = {big, 8191};
    struct rdzv__request r = {RDZV__OP_GET, &key, 1, NULL, 0, 0};
    ck_assert_int_eq(rdzv__call_measure(&d.client.config, &r, &len, &err), RDZV_OK);
    key.len_bytes = 8192; /* and the "/" */
    ck_assert_int_eq(rdzv__call_measure(&d.client.config, &r, &len, &err), RDZV_ELIMIT);
    ck_assert_ptr_nonnull(strstr(err.text, "max_key_bytes"));
    r.key_count = 131073;
    ck_assert_int_eq(rdzv__call_measure(&d.client.config, &r, &len, &err), RDZV_ELIMIT);
    rdzv_bytes value = {big, (8 << 20) + 1};
    key.len_bytes = 1;
    r = (struct rdzv__request){RDZV__OP_SET, &key, 1, &value, 1, 0};
    ck_assert_int_eq(rdzv__call_measure(&d.client.config, &r, &len, &err), RDZV_ELIMIT);
    value.data = NULL;
    value.len_bytes = 1;
    ck_assert_int_eq(rdzv__call_measure(&d.client.config, &r, &len, &err), RDZV_EINVAL);
    r.op = RDZV__OP_QUEUE_PUSH;
    ck_assert_int_eq(rdzv__call_measure(&d.client.config, &r, &len, &err), RDZV_ENOTSUP);
    duo_close(&d);
}
END_TEST

/* Each allocation of the core fails once, and then for ever: calls fail, the connection stays in
 * step, nothing leaks. */
START_TEST(out_of_memory)
{
    struct alloc_fault fault = ALLOC_FAULT_INIT;
    static char long_value[5000];
    memset(long_value, 'v', sizeof long_value - 1);
    while (alloc_fault_next(&fault)) {
        struct duo d;
        rdzv_allocator a = {alloc_fault_alloc, alloc_fault_free, &fault};
        duo_open(&d, 0, 0, &a);
        duo_other_sets(&d, "/a", long_value);
        duo_other_sets(&d, "/b", "B");
        struct rdzv__call *set = duo_set(&d, RDZV__OP_SET, "c", long_value);
        struct rdzv__call *get = duo_key(&d, RDZV__OP_GET, "a", 1000);
        struct rdzv__call *mget = duo_submit(&d, RDZV__OP_MULTI_GET, ab, 2, NULL, 0, 0, 1000);
        struct rdzv__call *list = duo_submit(&d, RDZV__OP_LIST_KEYS, NULL, 0, NULL, 0, 0, 1000);
        struct rdzv__call *many[20];
        for (int i = 0; i < 20; i++)
            many[i] = duo_key(&d, RDZV__OP_QUEUE_LEN, "q", 1000);
        struct rdzv__call *pop = duo_key(&d, RDZV__OP_QUEUE_POP, "q", 100);
        duo_run(&d);
        duo_pass(&d, 100);
        duo_pass(&d, RDZV__CLIENT_GRACE_MS);
        if (!alloc_fault_fired(&fault)) {
            ck_assert_int_eq(get->result.code, RDZV_OK);
            ck_assert_int_eq(pop->result.code, RDZV_ETIMEDOUT);
        }
        struct rdzv__call *calls[] = {set, get, mget, list, pop};
        for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
            duo_ends(&d, calls[i], calls[i]->result.code);
        for (int i = 0; i < 20; i++)
            duo_ends(&d, many[i], many[i]->result.code);
        if (d.client.state == RDZV__CLIENT_UP && fault.round % 2 == 0) {
            struct rdzv__call *last = duo_key(&d, RDZV__OP_GET, "b", 1000);
            duo_run(&d);
            if (last->result.code != RDZV_ENOMEM)
                duo_brings(&d, last, "B");
            else
                duo_ends(&d, last, RDZV_ENOMEM);
        }
        duo_close(&d);
    }
    ck_assert_int_gt(fault.round, 8);
}
END_TEST

START_TEST(back_off)
{
    for (uint32_t attempt = 0; attempt < 100; attempt++) {
        uint32_t least = rdzv__client_backoff_ms(attempt, 0);
        uint32_t most = rdzv__client_backoff_ms(attempt, UINT32_MAX);
        ck_assert_uint_ge(least, 50);
        ck_assert_uint_le(most, 7500);
        ck_assert_uint_lt(least, most);
        ck_assert_uint_le(rdzv__client_backoff_ms(attempt > 0 ? attempt - 1 : 0, 7),
                          rdzv__client_backoff_ms(attempt, 7));
    }
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("client_core");
    TCase *t = tcase_create("calls");
    tcase_add_loop_test(t, every_call_with_answers_in_pieces, 0, PIECES);
    tcase_add_test(t, bytes_of_get_and_handshake);
    tcase_add_loop_test(t, keys_that_come_later, 0, 4);
    tcase_add_test(t, row_20_timed_out_wait_leaves_the_connection_in_step);
    tcase_add_loop_test(t, row_20_both_orders_of_stop_and_cancel, 0, PIECES);
    tcase_add_test(t, cancelled_calls);
    tcase_add_test(t, barrier_holds_up_and_times_out);
    tcase_add_test(t, queue_elements_are_never_lost);
    tcase_add_test(t, limits_of_requests);
    tcase_add_test(t, back_off);
    suite_add_tcase(s, t);
    t = tcase_create("peers");
    tcase_add_loop_test(t, row_19_not_a_store, 0, sizeof no_stores / sizeof no_stores[0]);
    tcase_add_loop_test(t, answers_that_cannot_be, 0, sizeof bad_answers / sizeof bad_answers[0]);
    tcase_add_test(t, silence);
    tcase_add_test(t, out_of_memory);
    suite_add_tcase(s, t);
    return s;
}
