/*
 * test_records.c: a persister that comes late: no reply leaves before the record that it depends on
 * is persisted, order is kept, and the journal tells the whole state.
 */
#include "peers.h"
#include "runner.h"

static struct peers p;
static struct wire w;
static uint64_t sealed;
static int changes;
static struct wire told; /* the journal: kind, key, value of each change */

static void on_change(void *ctx, uint64_t record, const struct rdzv__change *c)
{
    (void)ctx;
    ck_assert_uint_eq(record, sealed + 1);
    uint8_t kind = (uint8_t)c->kind;
    wire_bytes(&told, &kind, 1);
    wire_add(&told, "i", (long long)c->key.len);
    wire_bytes(&told, c->key.data, c->key.len);
    wire_add(&told, "i", (long long)c->value.len);
    wire_bytes(&told, c->value.data, c->value.len);
    changes++;
}

static void on_sealed(void *ctx, uint64_t record)
{
    (void)ctx;
    ck_assert_uint_eq(record, sealed + 1);
    ck_assert_int_gt(changes, 0);
    changes = 0;
    sealed = record;
}

static void setup(void)
{
    static const struct rdzv__journal journal = {on_change, on_sealed, NULL};
    struct rdzv__core_options options = peers_options();
    options.journal = &journal;
    sealed = 0;
    changes = 0;
    told = (struct wire)WIRE_INIT;
    w = (struct wire)WIRE_INIT;
    peers_open(&p, &options);
    for (int i = 0; i < PEERS; i++) {
        wire_hello(&w);
        peers_send_wire(&p, i, &w);
    }
}

static void teardown(void)
{
    peers_close(&p);
    wire_free(&w);
    wire_free(&told);
}

#define ASK(i, ...)                                                                                \
    do {                                                                                           \
        wire_add(&w, __VA_ARGS__);                                                                 \
        peers_send_wire(&p, (i), &w);                                                              \
    } while (0)
#define TOLD(i, ...) wire_expect(&p.got[i], __VA_ARGS__)
#define SILENT(i) ck_assert_uint_eq(p.got[i].len, 0)

static void persisted(uint64_t record)
{
    rdzv__core_persisted(&p.core, record);
    peers_settle(&p);
}

START_TEST(replies_wait_for_their_record)
{
    ASK(0, "bs", RDZV__OP_GET, "k"); /* depends on nothing */
    TOLD(0, "s", "");
    ASK(0, "bsi", RDZV__OP_ADD, "n", 1LL);
    ASK(0, "bsi", RDZV__OP_ADD, "n", 1LL);
    ASK(0, "bu", RDZV__OP_PING, 7u); /* behind them, so it waits too */
    SILENT(0);
    ASK(1, "bu", RDZV__OP_PING, 8u); /* saw nothing */
    TOLD(1, "u", 8u);
    ASK(1, "bs", RDZV__OP_GET, "n"); /* saw record 2 */
    SILENT(1);
    ck_assert_uint_eq(sealed, 2);
    persisted(1);
    TOLD(0, "i", 1LL);
    SILENT(1);
    persisted(2);
    TOLD(0, "iu", 2LL, 7u);
    TOLD(1, "s", "2");
    ck_assert_ptr_null(p.s[0].marks);
}
END_TEST

START_TEST(wake_ups_wait_for_the_record_that_woke_them)
{
    ASK(0, "bis", RDZV__OP_WAIT, 1LL, "k");
    ASK(1, "bss", RDZV__OP_SET, "k", "v");
    SILENT(0);
    ASK(0, "b", RDZV__OP_CANCEL_WAIT); /* 0, then 1, in this order */
    SILENT(0);
    persisted(1);
    TOLD(0, "bb", 0, 1);
}
END_TEST

START_TEST(each_request_is_one_record)
{
    ASK(0, "bissss", RDZV__OP_MULTI_SET, 2LL, "a", "1", "b", "2");
    ck_assert_uint_eq(sealed, 1);
    ASK(0, "bss", RDZV__OP_APPEND, "a", "x");
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "e");
    ASK(0, "bs", RDZV__OP_QUEUE_POP, "q");
    ASK(0, "bs", RDZV__OP_DELETE_KEY, "b");
    ASK(0, "bsi", RDZV__OP_BARRIER, "bar", 1LL);
    ASK(0, "bsss", RDZV__OP_COMPARE_SET, "c", "", "3");
    ck_assert_uint_eq(sealed, 7);
    TOLD(0, "");
    /* What changes nothing makes no record. */
    ASK(1, "bsss", RDZV__OP_COMPARE_SET, "c", "zz", "4");
    ASK(1, "bsi", RDZV__OP_ADD, "bar", 0LL);
    ASK(1, "bs", RDZV__OP_DELETE_KEY, "b");
    ASK(1, "bss", RDZV__OP_SET, "c", "3");
    ck_assert_uint_eq(sealed, 7);
    wire_expect(&told, "bssbssbssbssbssbssbssbss", RDZV__CHANGE_SET, "a", "1", RDZV__CHANGE_SET,
                "b", "2", RDZV__CHANGE_APPEND, "a", "x", RDZV__CHANGE_PUSH, "q", "e",
                RDZV__CHANGE_POP, "q", "", RDZV__CHANGE_DELETE, "b", "", RDZV__CHANGE_SET, "bar",
                "1", RDZV__CHANGE_SET, "c", "3");
    persisted(7);
    TOLD(0, "isibs", 1LL, "e", 1LL, 0, "3");
    TOLD(1, "sii", "3", 1LL, 0LL);
}
END_TEST

START_TEST(order_is_kept_over_many_records)
{
    enum { REQUESTS = 500 };
    struct wire want = WIRE_INIT;
    for (long long i = 1; i <= REQUESTS; i++) {
        ASK(0, "bsi", RDZV__OP_ADD, "n", 1LL);
        wire_add(&want, "i", i);
        if (i % 7 == 0) {
            persisted((uint64_t)i - 3);
            ck_assert_uint_eq(p.got[0].len, 8 * (size_t)(i - 3));
        }
    }
    persisted(REQUESTS);
    ck_assert_uint_eq(p.got[0].len, want.len);
    ck_assert_mem_eq(p.got[0].data, want.data, want.len);
    wire_free(&want);
}
END_TEST

START_TEST(ends_wait_too)
{
    ASK(0, "bsi", RDZV__OP_ADD, "n", 1LL);
    peers_eof(&p, 0); /* half-closed: still owed its answer */
    ck_assert(p.open[0]);
    ASK(1, "bsib", RDZV__OP_ADD, "n", 1LL, RDZV__OP_COUNT); /* refused behind an answer */
    ck_assert(p.open[1]);
    ASK(2, "bsi", RDZV__OP_ADD, "n", 1LL);
    peers_disconnect(&p, 2); /* gone: nothing is owed */
    persisted(sealed);
    TOLD(0, "i", 1LL);
    TOLD(1, "i", 2LL);
    ck_assert(!p.open[0] && !p.open[1]);
    ck_assert_int_eq(p.why[1], RDZV__WHY_BAD_OPCODE);
}
END_TEST

START_TEST(forgetting_is_one_record)
{
    ASK(0, "bss", RDZV__OP_SET, "k", "v");
    ASK(0, "bss", RDZV__OP_QUEUE_PUSH, "q", "e");
    persisted(2);
    for (int i = 0; i < PEERS; i++)
        peers_disconnect(&p, i);
    rdzv__core_forget(&p.core);
    ck_assert_uint_eq(sealed, 3);
    ck_assert_uint_eq(p.core.store.bytes, 0);
    rdzv__core_forget(&p.core); /* nothing is there, so nothing changes */
    ck_assert_uint_eq(sealed, 3);
    peers_connect(&p, 0);
    wire_hello(&w);
    ASK(0, "bsbss", RDZV__OP_GET, "k", RDZV__OP_SET, "k", "new");
    SILENT(0); /* that there is no key depends on the record */
    persisted(3);
    TOLD(0, "s", "");
    wire_expect(&told, "bssbssbssbss", RDZV__CHANGE_SET, "k", "v", RDZV__CHANGE_PUSH, "q", "e",
                RDZV__CHANGE_FORGET, "", "", RDZV__CHANGE_SET, "k", "new");
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("records");
    TCase *t = tcase_create("records");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, replies_wait_for_their_record);
    tcase_add_test(t, wake_ups_wait_for_the_record_that_woke_them);
    tcase_add_test(t, each_request_is_one_record);
    tcase_add_test(t, order_is_kept_over_many_records);
    tcase_add_test(t, ends_wait_too);
    tcase_add_test(t, forgetting_is_one_record);
    suite_add_tcase(s, t);
    return s;
}
