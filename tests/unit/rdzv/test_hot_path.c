/*
 * test_hot_path.c: what a server's hot path costs: writes, allocations and lookups of addresses are
 * counted, with a real server on its own thread. test_fanout.c has the core's.
 */
#include "alloc_fault.h"
#include "net.h"
#include "runner.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
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

static void setup(void)
{
    test_thread = pthread_self();
    count = (struct alloc_fault)ALLOC_FAULT_INIT;
    count.round = LONG_MAX; /* none fails */
}

static void teardown(void)
{
    wire_free(&w);
    wire_free(&got);
    ck_assert_int_eq(atomic_load(&count.live), 0);
}

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
    Suite *s = suite_create("hot_path");
    TCase *t = tcase_create("hot_path");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, pipelined_requests_get_one_write);
    tcase_add_test(t, a_wake_up_is_one_write_for_each_waiter);
    tcase_add_test(t, a_server_at_work_allocates_nothing);
    tcase_add_test(t, coming_and_leaving_is_told_only_when_asked_for);
    suite_add_tcase(s, t);
    return s;
}
