/*
 * test_fanout.c: what the core's hot path costs: allocations and looks at sessions are counted;
 * only that time grows no faster than the number of waiters is measured, as CPU time of this thread
 * for n and for 4 n, where something quadratic takes 16 times as long. test_hot_path.c has the
 * server's.
 */
#include "alloc_fault.h"
#include "peers.h"
#include "runner.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct wire w;

static struct alloc_fault count;
static const rdzv_allocator counting = {alloc_fault_alloc, alloc_fault_free, &count};

/* What goes wrong in the loops is counted: each assertion of Check writes to a file. */
static unsigned wrong;

static void setup(void)
{
    wrong = 0;
    count = (struct alloc_fault)ALLOC_FAULT_INIT;
    count.round = LONG_MAX; /* none fails */
}

static void teardown(void)
{
    wire_free(&w);
    ck_assert_int_eq(atomic_load(&count.live), 0);
}

/* A core with many sessions, of which the last one does things to the others. */
struct crowd {
    struct rdzv__core core;
    struct rdzv__session *s;
    unsigned n;
    int open; /* the first n are */
};

static void feed(struct rdzv__session *s)
{
    wrong += rdzv__session_feed(s, w.data, w.len) != w.len;
}

static void crowd_open(struct crowd *c, unsigned n)
{
    struct rdzv__core_options options = peers_options();
    options.allocator = &counting;
    rdzv__core_init(&c->core, &options);
    c->n = n;
    c->open = 1;
    c->s = malloc((n + 1) * sizeof *c->s);
    ck_assert_ptr_nonnull(c->s);
    w.len = 0;
    wire_hello(&w);
    for (unsigned i = 0; i <= n; i++) {
        rdzv__session_open(&c->s[i], &c->core);
        feed(&c->s[i]);
    }
}

static void crowd_wait(struct crowd *c)
{
    w.len = 0;
    wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "k");
    for (unsigned i = 0; i < c->n; i++)
        feed(&c->s[i]);
    ck_assert_uint_eq(c->core.waiting, c->n);
}

static void crowd_close(struct crowd *c)
{
    for (unsigned i = 0; i < c->n && c->open; i++)
        rdzv__session_close(&c->s[i]);
    rdzv__session_close(&c->s[c->n]);
    ck_assert_uint_eq(wrong, 0);
    rdzv__core_free(&c->core);
    ck_assert_uint_eq(c->core.store.bytes, 0);
    free(c->s);
}

/* Takes the output of everybody as the shell does; returns how many looks that took. */
static unsigned crowd_drain(struct crowd *c, size_t bytes_each)
{
    unsigned looks = 0;
    struct rdzv__session *s;
    while ((s = rdzv__core_next_ready(&c->core)) != NULL) {
        struct rdzv__field span[2];
        if (rdzv__session_output(s, span, 2) != 1 || span[0].len != bytes_each) {
            wrong++;
            break;
        }
        rdzv__session_sent(s, span[0].len);
        looks++;
    }
    return looks;
}

static void act_wake(struct crowd *c)
{
    w.len = 0;
    wire_add(&w, "bss", RDZV__OP_SET, "k", "v");
    feed(&c->s[c->n]);
    ck_assert_uint_eq(crowd_drain(c, 1), c->n);
}

static void ask_cancel(void)
{
    w.len = 0;
    wire_add(&w, "b", RDZV__OP_CANCEL_WAIT);
}

static void act_cancel_oldest_first(struct crowd *c)
{
    ask_cancel();
    for (unsigned i = 0; i < c->n; i++)
        feed(&c->s[i]);
    ck_assert_uint_eq(crowd_drain(c, 1), c->n);
}

static void act_cancel_newest_first(struct crowd *c)
{
    ask_cancel();
    for (unsigned i = c->n; i > 0; i--)
        feed(&c->s[i - 1]);
    ck_assert_uint_eq(crowd_drain(c, 1), c->n);
}

static void act_leave_in_the_middle_first(struct crowd *c)
{
    for (unsigned i = 0; i < c->n; i++)
        rdzv__session_close(&c->s[(i + c->n / 2) % c->n]);
    c->open = 0;
}

typedef void act_fn(struct crowd *c);

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t median_cost(act_fn *act, unsigned n)
{
    enum { TRIES = 7 };
    uint64_t ns[TRIES];
    for (int i = 0; i < TRIES; i++) {
        struct crowd c;
        crowd_open(&c, n);
        crowd_wait(&c);
        uint64_t before = cpu_ns();
        act(&c);
        ns[i] = cpu_ns() - before;
        ck_assert_uint_eq(c.core.waiting, 0);
        crowd_close(&c);
    }
    qsort(ns, TRIES, sizeof ns[0], compare_times);
    return ns[TRIES / 2];
}

static const struct {
    const char *name;
    act_fn *act;
    unsigned n;
} acts[] = {
    {"wake", act_wake, 10000},
    {"cancel, oldest first", act_cancel_oldest_first, 5000},
    {"cancel, newest first", act_cancel_newest_first, 5000},
    {"leave, from the middle", act_leave_in_the_middle_first, 5000},
};

START_TEST(the_end_of_waits_is_linear)
{
    uint64_t quarter = median_cost(acts[_i].act, acts[_i].n / 4);
    uint64_t whole = median_cost(acts[_i].act, acts[_i].n);
    printf("%s: %u in %llu us, %u in %llu us of CPU\n", acts[_i].name, acts[_i].n / 4,
           (unsigned long long)quarter / 1000, acts[_i].n, (unsigned long long)whole / 1000);
    ck_assert_msg(whole < 8 * quarter, "%s: 4 times the waiters took %.1f times as long",
                  acts[_i].name, (double)whole / (double)quarter);
}
END_TEST

START_TEST(ten_thousand_wake_in_one_pass)
{
    enum { MANY = 10000 };
    struct crowd c;
    crowd_open(&c, MANY);
    crowd_wait(&c);
    w.len = 0;
    wire_add(&w, "bss", RDZV__OP_SET, "k", "v");
    long seen = atomic_load(&count.seen);
    long live = atomic_load(&count.live);
    feed(&c.s[MANY]); /* the one request answers them all */
    ck_assert_uint_eq(c.core.waiting, 0);
    /* The value, and one small block for each answer; each wait has gone. */
    ck_assert_int_le(atomic_load(&count.seen) - seen, MANY + 1);
    ck_assert_int_le(atomic_load(&count.live) - live, 1);
    ck_assert_uint_eq(crowd_drain(&c, 1), MANY); /* and the shell looks at each once */
    crowd_close(&c);
}
END_TEST

/* Requests, and what one round of them may allocate: what the store keeps, nothing else. */
static void ask_reads(void)
{
    wire_add(&w, "bs", RDZV__OP_GET, "k");
    wire_add(&w, "biss", RDZV__OP_MULTI_GET, 2LL, "k", "absent");
    wire_add(&w, "biss", RDZV__OP_CHECK, 2LL, "k", "absent");
    wire_add(&w, "biss", RDZV__OP_WAIT, 2LL, "k", "k");
    wire_add(&w, "b", RDZV__OP_GETNUMKEYS);
    wire_add(&w, "b", RDZV__OP_LIST_KEYS);
    wire_add(&w, "bs", RDZV__OP_QUEUE_LEN, "q");
    wire_add(&w, "bs", RDZV__OP_QUEUE_POP, "q");
    wire_add(&w, "bs", RDZV__OP_DELETE_KEY, "absent");
    wire_add(&w, "b", RDZV__OP_CANCEL_WAIT);
    wire_add(&w, "bu", RDZV__OP_PING, 1u);
}

static void ask_changes_of_what_is_there(void)
{
    wire_add(&w, "bss", RDZV__OP_SET, "k", "one value");
    wire_add(&w, "bss", RDZV__OP_SET, "k", "another");
    wire_add(&w, "bsss", RDZV__OP_COMPARE_SET, "k", "another", "one value");
    wire_add(&w, "bissss", RDZV__OP_MULTI_SET, 2LL, "k", "two", "k", "one value");
    wire_add(&w, "bsi", RDZV__OP_ADD, "n", 1LL);
    wire_add(&w, "bsi", RDZV__OP_ADD, "n", -1000000007LL);
}

static void ask_new_key(void)
{
    wire_add(&w, "bss", RDZV__OP_SET, "new", "value");
    wire_add(&w, "bs", RDZV__OP_DELETE_KEY, "new");
}

static void ask_queue(void)
{
    wire_add(&w, "bss", RDZV__OP_QUEUE_PUSH, "k", "first");
    wire_add(&w, "bss", RDZV__OP_QUEUE_PUSH, "k", "second");
    wire_add(&w, "bs", RDZV__OP_QUEUE_POP, "k");
    wire_add(&w, "bs", RDZV__OP_QUEUE_POP, "k");
}

static void ask_wait(void)
{
    wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "absent");
    wire_add(&w, "b", RDZV__OP_CANCEL_WAIT);
}

static void ask_barrier(void)
{
    wire_add(&w, "bsi", RDZV__OP_BARRIER, "n", INT64_MAX);
    wire_add(&w, "b", RDZV__OP_CANCEL_WAIT);
}

static const struct {
    const char *name;
    void (*ask)(void);
    long allocations;
} rounds[] = {
    {"reads", ask_reads, 0},
    {"changes of what is there", ask_changes_of_what_is_there, 0},
    {"a new key", ask_new_key, 2},        /* its name and its value */
    {"a queue", ask_queue, 2},            /* its elements */
    {"a wait", ask_wait, 2},              /* the absent name and the waiter */
    {"a barrier's wait", ask_barrier, 1}, /* the waiter */
};

START_TEST(a_request_allocates_what_the_store_keeps)
{
    enum { DEEP = 32, ROUNDS = 500 };
    struct crowd c;
    crowd_open(&c, 1);
    w.len = 0;
    wire_add(&w, "bss", RDZV__OP_SET, "k", "one value");
    wire_add(&w, "bsi", RDZV__OP_ADD, "n", 1LL);
    feed(&c.s[0]);
    w.len = 0;
    for (int i = 0; i < DEEP; i++)
        rounds[_i].ask();
    long seen = 0;
    for (int i = 0; i <= ROUNDS; i++) { /* the first one finds no output blocks yet */
        feed(&c.s[0]);
        struct rdzv__session *s = rdzv__core_next_ready(&c.core);
        struct rdzv__field span[16];
        size_t n = s != NULL ? rdzv__session_output(s, span, 16) : 0;
        for (size_t j = 0; j < n; j++)
            rdzv__session_sent(s, span[j].len);
        ck_assert_uint_eq(rdzv__session_unsent(&c.s[0]), 0); /* one write took it all */
        if (i == 0)
            seen = atomic_load(&count.seen);
    }
    long allocations = atomic_load(&count.seen) - seen;
    ck_assert_msg(allocations == (long)ROUNDS * DEEP * rounds[_i].allocations, "%s: %ld in %d",
                  rounds[_i].name, allocations, ROUNDS * DEEP);
    crowd_close(&c);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("fanout");
    TCase *t = tcase_create("fanout");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, the_end_of_waits_is_linear, 0, (int)(sizeof acts / sizeof acts[0]));
    tcase_add_test(t, ten_thousand_wake_in_one_pass);
    tcase_add_loop_test(t, a_request_allocates_what_the_store_keeps, 0,
                        (int)(sizeof rounds / sizeof rounds[0]));
    suite_add_tcase(s, t);
    return s;
}
