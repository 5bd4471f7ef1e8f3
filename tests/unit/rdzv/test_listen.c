/*
 * test_listen.c: where a server can listen, and what it says when it cannot, or no longer can.
 */
#include "net.h"
#include "runner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int try_open(rdzv_server **s, const rdzv_server_options *opt, rdzv_error *err)
{
    memset(err, 0, sizeof *err);
    int code = rdzv_server_open(s, opt, err);
    if (code != RDZV_OK) {
        ck_assert_int_eq(err->code, code);
        ck_assert_int_gt((int)strlen(err->text), 10);
    }
    return code;
}

static void expect_failure(const rdzv_server_options *opt, int want, const char *text)
{
    rdzv_server *s = NULL;
    rdzv_error err;
    int fds = net_count_fds();
    ck_assert_int_eq(try_open(&s, opt, &err), want);
    ck_assert_ptr_null(s);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ck_assert_int_eq(net_count_fds(), fds);
    net_expect_threads(0);
}

START_TEST(forms_of_a_host)
{
    static const struct {
        const char *host;
        const char *address;
    } hosts[] = {{"127.0.0.1", "127.0.0.1:"}, {"127.0.0.9", "127.0.0.9:"},
                 {"localhost", "127.0.0.1:"}, {"::1", "[::1]:"},
                 {"[::1]", "[::1]:"},         {"[127.0.0.1]", "127.0.0.1:"}};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        rdzv_server_options opt = net_options();
        opt.host = hosts[i].host;
        rdzv_server *s = NULL;
        rdzv_error err;
        int code = try_open(&s, &opt, &err);
        if (strchr(hosts[i].address, '[') != NULL && code == RDZV_EADDRNOTAVAIL)
            continue; /* a machine without IPv6 on its loopback */
        ck_assert_msg(code == RDZV_OK, "%s", err.text);
        uint16_t port;
        const char *address = rdzv_server_address(s, &port);
        size_t len = strlen(hosts[i].address);
        ck_assert_msg(strncmp(address, hosts[i].address, len) == 0, "%s", address);
        ck_assert_int_eq(atoi(address + len), port);
        ck_assert_int_ne(port, 0);
        rdzv_server_close(s, NULL, NULL);
    }
}
END_TEST

START_TEST(no_name_is_looked_up)
{
    static const char *const hosts[] = {"", "example.org", "localhost.", "::1]", "1.2.3.4.5", "[]"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        rdzv_server_options opt = net_options();
        opt.host = hosts[i];
        expect_failure(&opt, RDZV_EINVAL, "not a numeric");
    }
}
END_TEST

START_TEST(port_in_use)
{
    rdzv_server_options opt = net_options();
    rdzv_server *s = NULL;
    ck_assert_int_eq(rdzv_server_open(&s, &opt, NULL), RDZV_OK);
    opt.port = net_port(s);
    rdzv_server *second = NULL;
    rdzv_error err;
    ck_assert_int_eq(try_open(&second, &opt, &err), RDZV_EADDRINUSE);
    ck_assert_int_eq(err.sys_errno, EADDRINUSE);
    ck_assert_ptr_nonnull(strstr(err.text, rdzv_server_address(s, NULL)));
    int fd = net_connect(opt.port); /* a connection of the old server must not block a new one */
    net_count_keys(opt.port);
    rdzv_server_close(s, NULL, NULL);
    ck_assert_int_eq(try_open(&second, &opt, &err), RDZV_OK);
    close(fd);
    rdzv_server_close(second, NULL, NULL);
}
END_TEST

START_TEST(address_of_another_machine)
{
    rdzv_server_options opt = net_options();
    opt.host = "192.0.2.1";
    expect_failure(&opt, RDZV_EADDRNOTAVAIL, "192.0.2.1:0");
}
END_TEST

static int bound_socket(int listening, uint16_t *ret_port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    socklen_t len = sizeof addr;
    getsockname(fd, (struct sockaddr *)&addr, &len);
    *ret_port = ntohs(addr.sin_port);
    if (listening)
        ck_assert_int_eq(listen(fd, 5), 0);
    return fd;
}

START_TEST(already_bound_socket)
{
    for (int listening = 0; listening < 2; listening++) {
        uint16_t port;
        int fds = net_count_fds();
        rdzv_server_options opt = net_options();
        opt.listen_fd = bound_socket(listening, &port);
        opt.host = NULL;
        rdzv_server *s = NULL;
        rdzv_error err;
        ck_assert_msg(try_open(&s, &opt, &err) == RDZV_OK, "%s", err.text);
        ck_assert_int_eq(net_port(s), port);
        ck_assert_int_eq(net_count_keys(port), 0);
        ck_assert_int_eq(fcntl(opt.listen_fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        rdzv_server_close(s, NULL, NULL); /* and with it the socket */
        ck_assert_int_eq(net_count_fds(), fds);
    }
}
END_TEST

START_TEST(sockets_that_do_not_fit_stay_the_callers)
{
    int pipes[2];
    ck_assert_int_eq(pipe(pipes), 0);
    uint16_t port;
    int fds[] = {pipes[0], socket(AF_INET, SOCK_STREAM, 0), socket(AF_UNIX, SOCK_STREAM, 0),
                 socket(AF_INET, SOCK_DGRAM, 0), bound_socket(1, &port)};
    fds[4] = net_connect(port); /* connected: cannot listen */
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        rdzv_server_options opt = net_options();
        opt.listen_fd = fds[i];
        expect_failure(&opt, i == 4 ? RDZV_EIO : RDZV_EINVAL, "listen_fd");
        ck_assert_int_ge(fcntl(fds[i], F_GETFD), 0);
        close(fds[i]);
    }
    close(pipes[1]);
}
END_TEST

/* Somebody who has the socket, too, shuts it down and later lets it listen again. */
START_TEST(a_socket_that_listens_no_more_is_said_once_and_costs_nothing)
{
    static struct net_log log;
    memset(&log, 0, sizeof log);
    uint16_t port;
    rdzv_server_options opt = net_options();
    opt.listen_fd = bound_socket(1, &port);
    int shared = dup(opt.listen_fd);
    rdzv_server *s = net_open(&opt, &log);
    int client = net_connect(port);
    NET_EXPECT_STAT(s, connections, 1);
    ck_assert_int_eq(shutdown(shared, SHUT_RDWR), 0);
    net_expect_log(s, &log, "cannot accept clients on 127.0.0.1:");
    ck_assert_msg(strstr(log.text, "Invalid argument (the socket listens no more") != NULL, "%s",
                  log.text);

    int lines = log.lines;
    clock_t begun = clock();
    for (int i = 0; i < 25; i++)
        ck_assert_int_ge(rdzv_server_wait(s, 100), 0);
    double used = (double)(clock() - begun) / CLOCKS_PER_SEC;
    ck_assert_msg(used < 0.25, "%.2f s of CPU in 2.5 s", used);
    ck_assert_msg(log.lines == lines, "%s", log.text);

    ck_assert_int_eq(listen(shared, 5), 0);
    struct sockaddr_in addr = {.sin_port = 0};
    socklen_t len = sizeof addr;
    ck_assert_int_eq(getsockname(shared, (struct sockaddr *)&addr, &len), 0);
    ck_assert_int_eq(net_count_keys(ntohs(addr.sin_port)), 0);
    close(client);
    close(shared);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(wrong_options)
{
    struct {
        rdzv_server_options opt;
        char later[16];
    } newer;
    memset(&newer, 0, sizeof newer);
    rdzv_server *s = NULL;
    rdzv_server_options_init(&newer.opt, sizeof newer);
    ck_assert_uint_eq(newer.opt.size, sizeof newer);
    newer.opt.port = 0;
    ck_assert_int_eq(rdzv_server_open(&s, &newer.opt, NULL), RDZV_OK); /* zeros ask for nothing */
    rdzv_server_close(s, NULL, NULL);
    newer.later[3] = 1;
    expect_failure(&newer.opt, RDZV_EINVAL, "does not know");

    rdzv_server_options opt = {0};
    expect_failure(&opt, RDZV_EINVAL, "rdzv_server_options_init");
    opt = net_options();
    opt.max_key_bytes = 0;
    expect_failure(&opt, RDZV_EINVAL, "limit");
    opt = net_options();
    opt.max_key_bytes = 1ull << 40;
    expect_failure(&opt, RDZV_EINVAL, "max_key_bytes");
    opt = net_options();
    opt.host = NULL;
    expect_failure(&opt, RDZV_EINVAL, "host");
    opt = net_options();
    opt.log_level = RDZV_LOG_TRACE + 1;
    expect_failure(&opt, RDZV_EINVAL, "log_level");
    rdzv_allocator half = {0};
    opt = net_options();
    opt.allocator = &half;
    expect_failure(&opt, RDZV_EINVAL, "allocator");
    opt = net_options();
    ck_assert_int_eq(rdzv_server_open(NULL, &opt, NULL), RDZV_EINVAL);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("listen");
    TCase *t = tcase_create("listen");
    tcase_add_unchecked_fixture(t, net_warm_up, NULL);
    tcase_add_test(t, forms_of_a_host);
    tcase_add_test(t, no_name_is_looked_up);
    tcase_add_test(t, port_in_use);
    tcase_add_test(t, address_of_another_machine);
    tcase_add_test(t, already_bound_socket);
    tcase_add_test(t, sockets_that_do_not_fit_stay_the_callers);
    tcase_add_test(t, a_socket_that_listens_no_more_is_said_once_and_costs_nothing);
    tcase_add_test(t, wrong_options);
    suite_add_tcase(s, t);
    return s;
}
