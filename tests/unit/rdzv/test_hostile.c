/*
 * test_hostile.c: a real server among clients that are broken, lost or malicious: each is bounded
 * and ended with a reason in the log, and those beside it notice nothing.
 */
#include "clock.h"
#include "net.h"
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB (1u << 20)

/* How much memory may move under noise. Sanitizers keep notes about every access. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FLAT_BYTES (256ll * MIB)
#else
#define FLAT_BYTES ((long long)MIB)
#endif

static struct wire w;
static struct wire got;

static rdzv_server *open_with_deadline(uint32_t request_timeout_ms)
{
    rdzv_server_options opt = net_options();
    opt.request_timeout_ms = request_timeout_ms;
    return net_open(&opt, &net_server_log);
}

static void expect_served(int fd)
{
    uint64_t begun = clock_ms();
    net_expect_served(fd);
    ck_assert_uint_lt(clock_ms() - begun, 2000);
}

/* Sends as much as the server takes until it closes; nothing may be answered. */
static void send_until_closed(int fd, const uint8_t *bytes, size_t len)
{
    net_send_some(fd, bytes, len);
    got.len = 0;
    net_read_all(fd, &got);
    ck_assert_uint_eq(got.len, 0);
    close(fd);
}

static long resident_bytes(void)
{
    long pages = 0;
    long resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%ld %ld", &pages, &resident), 2);
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

START_TEST(every_first_byte_that_is_no_request)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    unsigned closed = 0;
    for (unsigned first = 0; first < 256; first++) {
        if (first < 11 && first != 7)
            continue; /* may be a request of some dialect */
        int fd = net_connect(net_port(s));
        wire_add(&w, "b", (int)first); /* this byte is enough */
        net_send(fd, &w);
        net_read_all(fd, &got);
        ck_assert_uint_eq(got.len, 0);
        close(fd);
        closed++;
    }
    NET_EXPECT_STAT(s, refused, closed);
    ck_assert_uint_eq(NET_STAT(s, requests), 0);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(nothing_behind_a_junk_first_byte_is_executed)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    for (unsigned cut = 1; cut < 12; cut++) { /* in one segment with the request or before it */
        int fd = net_connect(net_port(s));
        wire_add(&w, "b", 'G');
        wire_hello(&w);
        wire_add(&w, "bss", RDZV__OP_SET, "k", "v");
        send(fd, w.data, cut, MSG_NOSIGNAL);
        usleep(2000);
        send_until_closed(fd, w.data + cut, w.len - cut);
        w.len = 0;
    }
    ck_assert_int_eq(net_count_keys(net_port(s)), 0);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

/* Row 17: port scans and other protocols. */
START_TEST(noise_leaves_memory_flat_and_one_line)
{
    static const char http[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char tls[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    static const char smb[] = "\0\0\0\x45\xffSMB\x72\0\0\0\0\x18\x01\x28";
    uint8_t *noise = malloc(8 * MIB);
    ck_assert_ptr_nonnull(noise);
    memset(noise, 0, 8 * MIB); /* touched before the measurement */
    rdzv_server *s = net_open(NULL, &net_server_log);
    close(net_greet(net_port(s)));
    uint64_t random = 88172645463325252ull;
    uint64_t begun = clock_ms();
    long before = resident_bytes();
    unsigned closed = 0;
    for (unsigned round = 0; round < 30; round++) {
        send_until_closed(net_connect(net_port(s)), (const uint8_t *)http, sizeof http - 1);
        send_until_closed(net_connect(net_port(s)), (const uint8_t *)tls, sizeof tls - 1);
        send_until_closed(net_connect(net_port(s)), (const uint8_t *)smb, sizeof smb - 1);
        for (size_t i = 0; i < 8 * MIB; i += 8) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            memcpy(noise + i, &random, 8);
        }
        noise[0] = (uint8_t)(19 + round); /* no request of dialect C */
        send_until_closed(net_connect(net_port(s)), noise, 8 * MIB);
        send_until_closed(net_greet(net_port(s)), noise, 8 * MIB); /* after a hello, too */
        closed += 5;
    }
    NET_EXPECT_STAT(s, refused, closed);
    ck_assert_uint_eq(NET_STAT(s, buffer_bytes), 0);
    ck_assert_int_eq(net_count_keys(net_port(s)), 0);
    ck_assert_int_lt(resident_bytes() - before, FLAT_BYTES);
    rdzv_server_wait(s, 0);
    /* Four kinds of reason, each one line and one sum a second. */
    ck_assert_int_le(net_server_log.lines, 2 + 8 * (int)((clock_ms() - begun) / 1000 + 1));
    rdzv_server_close(s, NULL, NULL);
    free(noise);
}
END_TEST

START_TEST(half_a_request_hits_the_deadline)
{
    rdzv_server *s = open_with_deadline(200);
    int idle = net_greet(net_port(s));
    int silent = net_connect(net_port(s)); /* dialect A's second connection never says a word */
    int waiting = net_greet(net_port(s));
    wire_add(&w, "bis", RDZV__OP_WAIT, 1ll, "later");
    net_send(waiting, &w);
    int half[3] = {net_greet(net_port(s)), net_greet(net_port(s)), net_connect(net_port(s))};
    uint64_t begun = clock_ms();
    wire_add(&w, "bs", RDZV__OP_SET, "k"); /* no value follows */
    net_send(half[0], &w);
    wire_add(&w, "b", RDZV__OP_GET); /* the opcode alone */
    net_send(half[1], &w);
    wire_add(&w, "bbb", 0, 0xce, 0xf7); /* half a hello */
    net_send(half[2], &w);
    for (int i = 0; i < 3; i++) {
        net_read_all(half[i], &got);
        ck_assert_uint_eq(got.len, 0);
        close(half[i]);
    }
    ck_assert_uint_ge(clock_ms() - begun, 150);
    ck_assert_uint_lt(clock_ms() - begun, 3000);
    NET_EXPECT_STAT(s, refused, 3);
    net_expect_log(s, &net_server_log, "did not finish it within request_timeout_ms");
    usleep(500000);
    expect_served(idle); /* three deadlines of silence between requests are none of its business */
    wire_add(&w, "bss", RDZV__OP_SET, "later", "v");
    net_send(idle, &w);
    net_read(waiting, &got, 1);
    wire_expect(&got, "b", 0);
    wire_hello(&w);
    net_send(silent, &w);
    expect_served(silent);
    close(idle);
    close(silent);
    close(waiting);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(a_trickle_hits_the_deadline_and_hurts_nobody)
{
    rdzv_server *s = open_with_deadline(400);
    int other = net_greet(net_port(s));
    int slow = net_greet(net_port(s));
    wire_add(&w, "bsi", RDZV__OP_SET, "k", 1ll << 20);
    net_send(slow, &w);
    uint64_t begun = clock_ms();
    while (send(slow, "\x01", 1, MSG_NOSIGNAL) == 1) { /* each byte is progress, but not enough */
        expect_served(other);
        usleep(20000);
        ck_assert_uint_lt(clock_ms() - begun, 5000);
    }
    ck_assert_uint_ge(clock_ms() - begun, 300);
    net_expect_log(s, &net_server_log, "did not finish it");
    close(slow);
    close(other);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(the_deadline_is_of_each_request)
{
    rdzv_server *s = open_with_deadline(400);
    int fd = net_greet(net_port(s));
    wire_add(&w, "bs", RDZV__OP_GET, "k");
    size_t len = w.len;
    for (int i = 0; i < 10; i++) { /* never a moment without a begun request, for a second */
        wire_add(&w, "bs", RDZV__OP_GET, "k");
        size_t from = i == 0 ? 0 : len / 2;
        ck_assert_int_eq(send(fd, w.data + from, len + len / 2 - from, MSG_NOSIGNAL),
                         (ssize_t)(len + len / 2 - from));
        w.len = len;
        net_read(fd, &got, 8);
        wire_expect(&got, "s", "");
        usleep(100000);
    }
    close(fd);
    NET_EXPECT_STAT(s, connections, 0);
    ck_assert_uint_eq(NET_STAT(s, refused), 0);
    w.len = 0;
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(without_a_deadline_half_a_request_may_wait)
{
    rdzv_server *s = open_with_deadline(0);
    int fd = net_greet(net_port(s));
    wire_add(&w, "b", RDZV__OP_PING);
    net_send(fd, &w);
    usleep(300000);
    wire_add(&w, "u", 3u);
    net_send(fd, &w);
    net_read(fd, &got, 4);
    wire_expect(&got, "u", 3u);
    close(fd);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(ten_thousand_connects_that_close_at_once)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    int other = net_greet(net_port(s));
    for (int i = 0; i < 10000; i++) {
        int fd = net_connect(net_port(s));
        if (i % 4 == 1) {
            wire_hello(&w);
            net_send(fd, &w);
        } else if (i % 4 == 2) {
            wire_add(&w, "b", 0);
            net_send(fd, &w);
        }
        struct linger at_once = {1, 0};
        if (i % 2 == 0)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(fd);
        if (i % 1000 == 0)
            expect_served(other);
    }
    int last = net_greet(net_port(s)); /* accepted after all of them */
    expect_served(last);               /* and counted by now: from here on they get fewer */
    close(last);
    net_expect_stat(s, offsetof(rdzv_server_stats, connections), 1, NET_LOST_RESET_S);
    ck_assert_uint_eq(NET_STAT(s, refused), 0);
    ck_assert_uint_eq(NET_STAT(s, buffer_bytes), 0);
    expect_served(other);
    close(other);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(half_requests_are_bounded_together)
{
    enum { CLIENTS = 12, HALF = 900000, ALL = 4 << 20 };
    rdzv_server_options opt = net_options();
    opt.max_buffer_bytes = ALL;
    rdzv_server *s = net_open(&opt, &net_server_log);
    int other = net_greet(net_port(s));
    int fd[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = net_greet(net_port(s));
        net_set_begun(fd[i], "k", HALF);
        expect_served(other);
        ck_assert_uint_le(NET_STAT(s, buffer_bytes), ALL + CLIENTS * 65536);
    }
    ck_assert_uint_ge(NET_STAT(s, refused), CLIENTS / 2);
    net_expect_log(s, &net_server_log, "are max_buffer_bytes");
    for (int i = 0; i < CLIENTS; i++)
        close(fd[i]);
    NET_EXPECT_STAT(s, buffer_bytes, 0);
    close(other);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(readers_that_never_read_are_bounded_together)
{
    enum { CLIENTS = 24, VALUE = 1 << 20, ALL = 8 << 20, TIMES = 12 };
    rdzv_server_options opt = net_options();
    opt.max_buffer_bytes = ALL;
    rdzv_server *s = net_open(&opt, &net_server_log);
    int other = net_greet(net_port(s));
    wire_add(&w, "bs", RDZV__OP_SET, "k");
    wire_fill(&w, 'v', VALUE);
    net_send(other, &w);
    expect_served(other);
    int fd[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = net_greet(net_port(s));
        for (int t = 0; t < TIMES; t++) /* more than the system's buffers take */
            wire_add(&w, "bs", RDZV__OP_GET, "k");
        send(fd[i], w.data, w.len, MSG_NOSIGNAL);
        w.len = 0;
        expect_served(other);
        ck_assert_uint_le(NET_STAT(s, buffer_bytes), ALL + CLIENTS * 65536);
    }
    for (int i = 0; i < 2000 && NET_STAT(s, refused) == 0; i++)
        usleep(1000);
    ck_assert_uint_gt(NET_STAT(s, refused), 0);
    net_expect_log(s, &net_server_log, "are max_buffer_bytes");
    expect_served(other);
    for (int i = 0; i < CLIENTS; i++)
        close(fd[i]);
    NET_EXPECT_STAT(s, buffer_bytes, 0);
    close(other);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(one_client_too_many_is_told_by_closing)
{
    rdzv_server_options opt = net_options();
    opt.max_connections = 3;
    rdzv_server *s = net_open(&opt, &net_server_log);
    int fd[3] = {net_greet(net_port(s)), net_greet(net_port(s)), net_greet(net_port(s))};
    int late = net_connect(net_port(s));
    net_read_all(late, &got);
    ck_assert_uint_eq(got.len, 0);
    close(late);
    NET_EXPECT_STAT(s, refused, 1);
    net_expect_log(s, &net_server_log, "3 are connected, which is max_connections");
    for (int i = 0; i < 3; i++)
        expect_served(fd[i]);
    close(fd[0]); /* and there is room again */
    NET_EXPECT_STAT(s, connections, 2);
    fd[0] = net_greet(net_port(s));
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("hostile");
    TCase *t = net_tcase(s, "hostile", &w, &got);
    tcase_add_test(t, every_first_byte_that_is_no_request);
    tcase_add_test(t, nothing_behind_a_junk_first_byte_is_executed);
    tcase_add_test(t, noise_leaves_memory_flat_and_one_line);
    tcase_add_test(t, half_a_request_hits_the_deadline);
    tcase_add_test(t, a_trickle_hits_the_deadline_and_hurts_nobody);
    tcase_add_test(t, the_deadline_is_of_each_request);
    tcase_add_test(t, without_a_deadline_half_a_request_may_wait);
    tcase_add_test(t, ten_thousand_connects_that_close_at_once);
    tcase_add_test(t, half_requests_are_bounded_together);
    tcase_add_test(t, readers_that_never_read_are_bounded_together);
    tcase_add_test(t, one_client_too_many_is_told_by_closing);
    return s;
}
