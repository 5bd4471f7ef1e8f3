/*
 * test_fair.c: a client whose requests cost much shares the server with all others. Counted, not
 * timed: the other one is answered before the greedy one's bytes are done with.
 */
#include "net.h"
#include "runner.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NAMES = 10000, LISTS = 2048 };

static struct net_log server_log;
static struct wire w;
static struct wire got;

static void setup(void)
{
    net_warm_up();
    memset(&server_log, 0, sizeof server_log);
}

static void teardown(void)
{
    wire_free(&w);
    wire_free(&got);
    net_expect_threads(0);
}

/* A client that has pushed to NAMES queues and then asks LISTS times for the keys, of which there
 * are none: much to look at, little to answer. */
static int greedy(uint16_t port)
{
    int fd = net_greet(port);
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "q%d", i);
        wire_add(&w, "bss", RDZV__OP_QUEUE_PUSH, name, "");
    }
    net_send(fd, &w);
    net_expect_served(fd);
    for (int i = 0; i < LISTS; i++)
        wire_add(&w, "b", RDZV__OP_LIST_KEYS);
    net_send(fd, &w);
    return fd;
}

/* Reads the answers that are due to it: none is lost, none comes twice. */
static void expect_all_answers(int fd)
{
    static const uint8_t none[8] = {0};
    net_read(fd, &got, LISTS * sizeof none);
    for (size_t i = 0; i < LISTS; i++)
        ck_assert_mem_eq(got.data + i * sizeof none, none, sizeof none);
    ck_assert(!net_heard(fd, 50));
    net_expect_served(fd);
}

START_TEST(others_are_served_meanwhile)
{
    rdzv_server *s = net_open(NULL, &server_log);
    int other = net_greet(net_port(s));
    int fd = greedy(net_port(s));
    for (int i = 0; i < 10; i++)
        net_expect_served(other);
    ck_assert_uint_lt(NET_STAT(s, requests), NAMES + LISTS); /* it is not done */
    ck_assert_uint_gt(NET_STAT(s, buffer_bytes), 0);
    expect_all_answers(fd);
    NET_EXPECT_STAT(s, buffer_bytes, 0);
    close(fd);
    close(other);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

/* Values of 1 MiB: what is long in bytes is shared out as well. */
START_TEST(a_long_answer_is_one_turn)
{
    enum { GETS = 200 };
    rdzv_server *s = net_open(NULL, &server_log);
    int other = net_greet(net_port(s));
    int fd = net_greet(net_port(s));
    net_set(fd, "big", 1 << 20);
    for (int i = 0; i < GETS; i++)
        wire_add(&w, "bs", RDZV__OP_GET, "big");
    uint64_t before = NET_STAT(s, requests);
    net_send(fd, &w);
    net_expect_served(other);
    ck_assert_uint_lt(NET_STAT(s, requests), before + GETS);
    net_read(fd, &got, (size_t)GETS * (8 + (1 << 20)));
    net_expect_served(fd);
    NET_EXPECT_STAT(s, buffer_bytes, 0);
    close(fd);
    close(other);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

/* Whoever leaves, or whatever ends, while bytes wait for their turn: nothing is left of them. */
START_TEST(it_may_end_at_any_time)
{
    rdzv_server *s = net_open(NULL, &server_log);
    int other = net_greet(net_port(s));
    int fd = greedy(net_port(s));
    struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
    net_expect_stat(s, offsetof(rdzv_server_stats, connections), 1, NET_LOST_RESET_S);
    NET_EXPECT_STAT(s, buffer_bytes, 0);
    net_expect_served(other);
    fd = greedy(net_port(s));
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0); /* it still gets its answers */
    ck_assert_int_eq(net_read_all(fd, &got), 0);
    ck_assert_uint_eq(got.len, LISTS * 8);
    close(fd);
    fd = greedy(net_port(s));
    rdzv_server_close(s, NULL, NULL);
    close(fd);
    close(other);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("fair");
    TCase *t = tcase_create("fair");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, others_are_served_meanwhile);
    tcase_add_test(t, a_long_answer_is_one_turn);
    tcase_add_test(t, it_may_end_at_any_time);
    suite_add_tcase(s, t);
    return s;
}
