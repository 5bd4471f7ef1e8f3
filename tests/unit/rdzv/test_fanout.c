/*
 * test_fanout.c: what the hot path costs: writes, allocations and looks at sessions are counted;
 * only that time grows no faster than the number of waiters is measured, as CPU time of this thread
 * for n and for 4 n, where something quadratic takes 16 times as long.
 */
#include "net.h"
#include "peers.h"
#include "runner.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct wire w;
static struct wire got;

/* Writes of every thread but this one: the linker puts these before the library's own calls, under
 * names of its choice.
 * NOLINTBEGIN(bugprone-reserved-identifier, cert-dcl37-c, cert-dcl51-cpp) */
static atomic_long writes;
static atomic_long peers_asked;
static pthread_t test_thread;
ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

static void count_write(void)
{
    if (!pthread_equal(pthread_self(), test_thread))
        atomic_fetch_add(&writes, 1);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    count_write();
    return __real_send(fd, bytes, len, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    count_write();
    return __real_sendmsg(fd, msg, flags);
}

int __real_getpeername(int fd, struct sockaddr *addr, socklen_t *len);
int __wrap_getpeername(int fd, struct sockaddr *addr, socklen_t *len);

int __wrap_getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
    atomic_fetch_add(&peers_asked, 1);
    return __real_getpeername(fd, addr, len);
}
/* NOLINTEND(bugprone-reserved-identifier, cert-dcl37-c, cert-dcl51-cpp) */

static struct alloc_fault count;
static const rdzv_allocator counting = {alloc_fault_alloc, alloc_fault_free, &count};

/* What goes wrong in the loops is counted: each assertion of Check writes to a file. */
static unsigned wrong;

static void setup(void)
{
    test_thread = pthread_self();
    wrong = 0;
    count = (struct alloc_fault)ALLOC_FAULT_INIT;
    count.round = LONG_MAX; /* none fails */
}

static void teardown(void)
{
    wire_free(&w);
    wire_free(&got);
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

static rdzv_server *open_server(void)
{
    rdzv_server_options opt = net_options();
    opt.allocator = &counting;
    rdzv_server *s = NULL;
    ck_assert_int_eq(rdzv_server_open(&s, &opt, NULL), RDZV_OK);
    return s;
}

START_TEST(pipelined_requests_get_one_write)
{
    static const int depths[] = {1, 2, 32, 500};
    rdzv_server *s = open_server();
    int fd = net_greet(net_port(s));
    wire_add(&w, "bs", RDZV__OP_SET, "k");
    wire_fill(&w, 'v', 100);
    wire_add(&w, "bu", RDZV__OP_PING, 7u);
    net_send(fd, &w);
    net_read(fd, &got, 4);
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        for (int j = 0; j < depths[i]; j++)
            wire_add(&w, "bs", RDZV__OP_GET, "k"); /* 500 answers are 54,000 bytes */
        long before = atomic_load(&writes);
        net_send(fd, &w);
        net_read(fd, &got, (size_t)depths[i] * 108);
        NET_EXPECT_STAT(s, buffer_bytes, 0); /* it has dealt with all of it */
        ck_assert_msg(atomic_load(&writes) - before == 1, "%d requests: %ld writes", depths[i],
                      atomic_load(&writes) - before);
        got.len = 0;
    }
    close(fd);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(a_wake_up_is_one_write_for_each_waiter)
{
    enum { WAITERS = 300 };
    rdzv_server *s = open_server();
    int fd[WAITERS];
    for (int i = 0; i < WAITERS; i++) {
        fd[i] = net_greet(net_port(s));
        wire_add(&w, "biss", RDZV__OP_WAIT, 2LL, "a", "b");
        net_send(fd[i], &w);
    }
    NET_EXPECT_STAT(s, waiting, WAITERS);
    int last = net_greet(net_port(s));
    long before = atomic_load(&writes);
    wire_add(&w, "bss", RDZV__OP_SET, "a", "");
    wire_add(&w, "bss", RDZV__OP_SET, "b", "");
    wire_add(&w, "bu", RDZV__OP_PING, 7u);
    net_send(last, &w);
    net_read(last, &got, 4);
    got.len = 0;
    for (int i = 0; i < WAITERS; i++)
        net_read(fd[i], &got, 1);
    NET_EXPECT_STAT(s, waiting, 0);
    ck_assert_int_eq(atomic_load(&writes) - before, WAITERS + 1);
    for (int i = 0; i < WAITERS; i++)
        close(fd[i]);
    close(last);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(a_server_at_work_allocates_nothing)
{
    enum { FDS = 8, ROUNDS = 200 };
    rdzv_server *s = open_server();
    int fd[FDS];
    for (int i = 0; i < FDS; i++)
        fd[i] = net_greet(net_port(s));
    long seen = 0;
    for (int round = 0; round <= ROUNDS; round++) {
        for (int i = 0; i < FDS; i++) {
            wire_add(&w, "bss", RDZV__OP_SET, "k", "a value");
            wire_add(&w, "bs", RDZV__OP_GET, "k");
            wire_add(&w, "bsi", RDZV__OP_ADD, "n", 1LL);
            net_send(fd[i], &w);
        }
        for (int i = 0; i < FDS; i++)
            net_read(fd[i], &got, 8 + 7 + 8);
        got.len = 0;
        if (round == ROUNDS / 10)
            seen = atomic_load(&count.seen);
    }
    ck_assert_int_eq(atomic_load(&count.seen), seen);
    for (int i = 0; i < FDS; i++)
        close(fd[i]);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

/* The lines of level debug about each client cost nothing unless they are wanted. */
START_TEST(coming_and_leaving_is_told_only_when_asked_for)
{
    for (int level = RDZV_LOG_INFO; level <= RDZV_LOG_DEBUG; level++) {
        struct net_log log = {0};
        rdzv_server_options opt = net_options();
        opt.log_level = level;
        rdzv_server *s = net_open(&opt, &log);
        atomic_store(&peers_asked, 0);
        close(net_greet(net_port(s)));
        close(net_greet(net_port(s)));
        NET_EXPECT_STAT(s, connections, 0);
        NET_EXPECT_STAT(s, accepted, 2);
        rdzv_server_close(s, NULL, NULL);
        int told = level == RDZV_LOG_DEBUG;
        ck_assert_int_eq(atomic_load(&peers_asked), told ? 2 : 0);
        ck_assert_int_eq(log.lines, told ? 5 : 1); /* listening; each client came and left */
        ck_assert_int_eq(strstr(log.text, "left after 2 requests") != NULL, told);
    }
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
    tcase_add_test(t, pipelined_requests_get_one_write);
    tcase_add_test(t, a_wake_up_is_one_write_for_each_waiter);
    tcase_add_test(t, a_server_at_work_allocates_nothing);
    tcase_add_test(t, coming_and_leaving_is_told_only_when_asked_for);
    suite_add_tcase(s, t);
    return s;
}
