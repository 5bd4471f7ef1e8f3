/*
 * test_field.c: reports from the field that concern a store server, each as a test of what ours
 * does instead, with its siblings. docs/formats/c10d.md lists them with the reports' numbers.
 */
#include "net.h"
#include "runner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 4 };

static struct net_log server_log;
static struct wire w;
static struct wire got;
static rdzv_server *server;
static int fd[CLIENTS];

static void setup(void)
{
    memset(&server_log, 0, sizeof server_log);
    rdzv_server_options opt = net_options();
    opt.request_timeout_ms = 50;
    server = net_open(&opt, &server_log);
    for (int i = 0; i < CLIENTS; i++)
        fd[i] = net_greet(net_port(server));
}

static void teardown(void)
{
    for (int i = 0; i < CLIENTS; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    rdzv_server_close(server, NULL, NULL);
    wire_free(&w);
    wire_free(&got);
    net_expect_threads(0);
}

#define ASK(i, ...)                                                                                \
    do {                                                                                           \
        wire_add(&w, __VA_ARGS__);                                                                 \
        net_send(fd[i], &w);                                                                       \
    } while (0)

#define EXPECT(i, ...)                                                                             \
    do {                                                                                           \
        struct wire expected = WIRE_INIT;                                                          \
        wire_add(&expected, __VA_ARGS__);                                                          \
        net_read(fd[i], &got, expected.len);                                                       \
        wire_equal(&got, &expected);                                                               \
        wire_free(&expected);                                                                      \
    } while (0)

/* Nothing has come for this client. Everything sent before is done: the others were answered. */
static void expect_nothing(int i)
{
    char byte;
    ck_assert_int_eq(recv(fd[i], &byte, 1, MSG_DONTWAIT), -1);
    ck_assert_int_eq(errno, EAGAIN);
}

static void leave(int i)
{
    close(fd[i]);
    fd[i] = -1;
}

/* pytorch#118891, #69520: the store ended with the process that hosted it, which was not the last.
 */
START_TEST(row_6_the_store_serves_until_the_last_one_leaves)
{
    static const int orders[][CLIENTS] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}};
    ASK(0, "bss", RDZV__OP_SET, "k", "v");
    ASK(0, "bu", RDZV__OP_PING, 1u);
    EXPECT(0, "u", 1u);
    for (int i = 0; i + 1 < CLIENTS; i++) {
        leave(orders[_i][i]);
        usleep(100000); /* and idles for many times the deadline of a request */
        ASK(orders[_i][CLIENTS - 1], "bs", RDZV__OP_GET, "k");
        EXPECT(orders[_i][CLIENTS - 1], "s", "v");
    }
    leave(orders[_i][CLIENTS - 1]);
    NET_EXPECT_STAT(server, connections, 0);
    fd[0] = net_greet(net_port(server)); /* nobody was left, and still nothing is lost */
    ASK(0, "bs", RDZV__OP_GET, "k");
    EXPECT(0, "s", "v");
}
END_TEST

/* pytorch#191957: all were clients of an address where no store was, and waited half an hour. */
START_TEST(row_8_a_second_store_of_the_job_is_another_store)
{
    struct net_log log = {0};
    rdzv_server *second = net_open(NULL, &log);
    uint16_t port = net_port(second);
    ck_assert_uint_ne(port, net_port(server));
    ASK(0, "bss", RDZV__OP_SET, "MASTER_PORT", "1");
    ASK(0, "b", RDZV__OP_GETNUMKEYS);
    EXPECT(0, "i", 1ll);
    ck_assert_int_eq(net_count_keys(port), 0);
    rdzv_server_close(second, NULL, NULL);
    int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ne(net_connect_socket(late, port), 0); /* refused at once, not a hang */
    ck_assert_int_eq(errno, ECONNREFUSED);
    close(late);
    ASK(0, "b", RDZV__OP_GETNUMKEYS);
    EXPECT(0, "i", 1ll);
}
END_TEST

/* pytorch#191560: "in use" was recognised by its text, whose case had changed. */
START_TEST(row_9_a_busy_port_has_a_code_and_an_address)
{
    rdzv_server_options opt = net_options();
    rdzv_server *second = NULL;
    rdzv_error err = {0};
    opt.port = net_port(server);
    for (int i = 0; i < 20 && second == NULL; i++) { /* what a caller with a range of ports does */
        int code = rdzv_server_open(&second, &opt, &err);
        if (i == 0) {
            ck_assert_int_eq(code, RDZV_EADDRINUSE);
            ck_assert_int_eq(err.sys_errno, EADDRINUSE);
            ck_assert_ptr_nonnull(strstr(err.text, rdzv_server_address(server, NULL)));
        } else if (code != RDZV_OK) {
            ck_assert_int_eq(code, RDZV_EADDRINUSE);
        }
        opt.port = i == 18 ? 0 : (uint16_t)(1024 + opt.port % 60000);
    }
    ck_assert_ptr_nonnull(second);
    ck_assert_int_eq(net_count_keys(net_port(second)), 0);
    rdzv_server_close(second, NULL, NULL);
}
END_TEST

/* pytorch#169142: between choosing a free port and listening on it another process took it. */
START_TEST(row_11_a_bound_socket_has_no_window)
{
    int on = 1;
    int bound = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    ck_assert_int_eq(bind(bound, (struct sockaddr *)&addr, sizeof addr), 0);
    getsockname(bound, (struct sockaddr *)&addr, &len);
    int thief = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* it comes before we listen */
    setsockopt(thief, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ck_assert_int_ne(bind(thief, (struct sockaddr *)&addr, sizeof addr), 0);
    close(thief);
    rdzv_server_options opt = net_options();
    opt.host = NULL;
    opt.listen_fd = bound;
    rdzv_server *second = net_open(&opt, &server_log);
    ck_assert_uint_eq(net_port(second), ntohs(addr.sin_port));
    ck_assert_int_eq(net_count_keys(net_port(second)), 0);
    rdzv_server_close(second, NULL, NULL);
}
END_TEST

/* pytorch#150532: a host name that only its own machine can resolve was published. */
START_TEST(row_13_addresses_are_numbers)
{
    char host[64];
    struct in_addr parsed;
    const char *address = rdzv_server_address(server, NULL);
    size_t len = strcspn(address, ":");
    ck_assert_uint_lt(len, sizeof host);
    memcpy(host, address, len);
    host[len] = '\0';
    ck_assert_int_eq(inet_pton(AF_INET, host, &parsed), 1);
    rdzv_server_options opt = net_options();
    rdzv_server *second = NULL;
    opt.host = "node-that-only-i-know";
    ck_assert_int_eq(rdzv_server_open(&second, &opt, NULL), RDZV_EINVAL);
    ASK(0, "b", 255); /* what we say of a peer is the address that we saw */
    net_expect_log(server, &server_log, "closed client 127.0.0.1:");
}
END_TEST

/* pytorch#53840: a wait hung although some of its keys were there. */
START_TEST(row_20_wait_for_what_is_there_and_what_is_not)
{
    ASK(0, "bss", RDZV__OP_SET, "set", "v");
    ASK(0, "biss", RDZV__OP_WAIT, 2ll, _i ? "unset" : "set", _i ? "set" : "unset");
    NET_EXPECT_STAT(server, waiting, 1);
    ASK(1, "bsi", RDZV__OP_ADD, "other", 1ll);
    EXPECT(1, "i", 1ll);
    expect_nothing(0);
    ASK(1, "bss", RDZV__OP_SET, "unset", "w");
    EXPECT(0, "b", 0);
    ASK(0, "bs", RDZV__OP_GET, "unset");
    EXPECT(0, "s", "w");
}
END_TEST

/* pytorch#100594: after a wait that timed out, the next answer was the wait's. */
START_TEST(row_20_a_timed_out_wait_leaves_the_connection_in_step)
{
    for (int i = 0; i < 50; i++) {
        char key[2] = {(char)('0' + i), '\0'};
        ASK(0, "bis", RDZV__OP_WAIT, 1ll, key);
        NET_EXPECT_STAT(server, waiting, 1);
        if (_i == 0) { /* the key comes first, then the cancellation: both are answered */
            ASK(1, "bss", RDZV__OP_SET, key, "v");
            EXPECT(0, "b", 0);
            ASK(0, "b", RDZV__OP_CANCEL_WAIT);
            EXPECT(0, "b", 1);
        } else { /* the cancellation comes first: the key wakes nobody */
            ASK(0, "b", RDZV__OP_CANCEL_WAIT);
            EXPECT(0, "b", 1);
            ASK(1, "bss", RDZV__OP_SET, key, "v");
            ASK(1, "bu", RDZV__OP_PING, 5u);
            EXPECT(1, "u", 5u);
        }
        ASK(0, "bs", RDZV__OP_GET, key);
        EXPECT(0, "s", "v");
    }
}
END_TEST

/* The two race for real: whatever is answered, 1 is the last byte of it. */
START_TEST(row_20_a_cancellation_races_with_its_key)
{
    for (int i = 0; i < 200; i++) {
        ASK(0, "bis", RDZV__OP_WAIT, 1ll, "k");
        ASK(1, "bss", RDZV__OP_SET, "k", "v");
        ASK(0, "b", RDZV__OP_CANCEL_WAIT);
        do {
            got.len = 0;
            net_read(fd[0], &got, 1);
        } while (got.data[0] == 0);
        wire_expect(&got, "b", 1);
        ASK(1, "bu", RDZV__OP_PING, 2u); /* the SET is done */
        EXPECT(1, "u", 2u);
        ASK(0, "bs", RDZV__OP_GET, "k");
        EXPECT(0, "s", "v");
        ASK(0, "bs", RDZV__OP_DELETE_KEY, "k");
        EXPECT(0, "i", 1ll);
    }
}
END_TEST

/* pytorch#111805: "ready" although clients were missing, and nobody could say which. */
START_TEST(row_21_a_barrier_says_how_many_came)
{
    for (int i = 0; i < 3; i++)
        ASK(i, "bsi", RDZV__OP_BARRIER, "b", 4ll);
    NET_EXPECT_STAT(server, waiting, 3);
    for (int i = 0; i < 3; i++) { /* their deadline */
        expect_nothing(i);
        ASK(i, "b", RDZV__OP_CANCEL_WAIT);
        EXPECT(i, "b", 1);
    }
    ASK(0, "bs", RDZV__OP_GET, "b");
    EXPECT(0, "s", "3");
    ASK(3, "bsi", RDZV__OP_BARRIER, "b", 4ll); /* too late for them, but it is not stuck */
    EXPECT(3, "b", 0);
}
END_TEST

/* The same with keys of their own: CHECK names who is missing. */
START_TEST(row_21_keys_say_who_is_missing)
{
    static const char *const names[CLIENTS] = {"rank0", "rank1", "rank2", "rank3"};
    for (int i = 0; i < 3; i++) {
        ASK(i, "bss", RDZV__OP_SET, names[i], "here");
        ASK(i, "bu", RDZV__OP_PING, 1u);
        EXPECT(i, "u", 1u);
    }
    for (int i = 0; i < CLIENTS; i++) {
        ASK(0, "bis", RDZV__OP_CHECK, 1ll, names[i]);
        EXPECT(0, "b", i < 3 ? 0 : 1);
    }
    ASK(1, "bissss", RDZV__OP_WAIT, 4ll, "rank0", "rank1", "rank2", "rank3");
    NET_EXPECT_STAT(server, waiting, 1);
    expect_nothing(1);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("field");
    TCase *t = tcase_create("reports");
    tcase_set_timeout(t, 60);
    tcase_add_unchecked_fixture(t, net_warm_up, NULL);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, row_6_the_store_serves_until_the_last_one_leaves, 0, 3);
    tcase_add_test(t, row_8_a_second_store_of_the_job_is_another_store);
    tcase_add_test(t, row_9_a_busy_port_has_a_code_and_an_address);
    tcase_add_test(t, row_11_a_bound_socket_has_no_window);
    tcase_add_test(t, row_13_addresses_are_numbers);
    tcase_add_loop_test(t, row_20_wait_for_what_is_there_and_what_is_not, 0, 2);
    tcase_add_loop_test(t, row_20_a_timed_out_wait_leaves_the_connection_in_step, 0, 2);
    tcase_add_test(t, row_20_a_cancellation_races_with_its_key);
    tcase_add_test(t, row_21_a_barrier_says_how_many_came);
    tcase_add_test(t, row_21_keys_say_who_is_missing);
    suite_add_tcase(s, t);
    return s;
}
