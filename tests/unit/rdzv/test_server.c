/*
 * test_server.c: a real server on its own thread: what clients see over sockets, and the contract
 * of dispatch, wait, drain, close and fork.
 */
#include "alloc_fault.h"
#include "clock.h"
#include "net.h"
#include "runner.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static struct wire w;
static struct wire got;

static void replay(const char *version, size_t piece, size_t cut)
{
    struct wire asked = WIRE_INIT;
    struct wire told = WIRE_INIT;
    wire_load(&asked, version, "client_to_server");
    wire_load(&told, version, "server_to_client");
    rdzv_server *s = net_open(NULL, &net_server_log);
    int fd = net_connect(net_port(s));
    for (size_t at = 0; at < asked.len;) {
        size_t end = piece > 0 ? at + piece : at < cut ? cut : asked.len;
        if (end > asked.len)
            end = asked.len;
        ck_assert_int_eq(send(fd, asked.data + at, end - at, MSG_NOSIGNAL), (ssize_t)(end - at));
        at = end;
    }
    shutdown(fd, SHUT_WR);
    got.len = 0;
    ck_assert_int_eq(net_read_all(fd, &got), 0);
    ck_assert_uint_eq(got.len, told.len);
    if (version[0] == '2') {
        wire_sort_list(&got);
        wire_sort_list(&told);
    }
    ck_assert_mem_eq(got.data, told.data, told.len);
    close(fd);
    rdzv_server_close(s, NULL, NULL);
    wire_free(&asked);
    wire_free(&told);
}

START_TEST(replay_whole_and_in_pieces)
{
    const char *version = _i == 0 ? "2.13.0" : "1.13.1";
    replay(version, 0, 0);
    replay(version, 1, 0);
    for (size_t piece = 2; piece < 20; piece++)
        replay(version, piece, 0);
    size_t len = _i == 0 ? 1012 : 294;
    for (size_t cut = 1; cut < len; cut++)
        replay(version, 0, cut);
}
END_TEST

START_TEST(bad_starts_are_closed_and_counted)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *log;
    } starts[] = {{"GET / HTTP/1.1\r\n\r\n", 18, "not a c10d request"},
                  {"\0\xce\xf7\x85\x3d\x01\x01", 7, "not a c10d request"},
                  {"\0\0\0\0\0\0\0\0\0\0\0\0\0", 13, "not a c10d request"},
                  {"\x16\x03\x01\x02\x00\x01", 6, "TLS"},
                  {"\x80\x01", 2, "native protocol"},
                  {"\x0d\x11\x22\x33\x44", 5, "not a c10d request"}};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        rdzv_server *s = net_open(NULL, &net_server_log);
        int fd = net_connect(net_port(s));
        wire_bytes(&w, starts[i].bytes, starts[i].len);
        net_send(fd, &w);
        net_read_all(fd, &got);
        ck_assert_uint_eq(got.len, 0);
        close(fd);
        NET_EXPECT_STAT(s, refused, 1);
        ck_assert_uint_eq(NET_STAT(s, requests), 0);
        net_expect_log(s, &net_server_log, "closed client 127.0.0.1:");
        net_expect_log(s, &net_server_log, starts[i].log);
        ck_assert_int_eq(net_server_log.level, RDZV_LOG_WARN);
        memset(&net_server_log, 0, sizeof net_server_log);
        rdzv_server_close(s, NULL, NULL);
    }
}
END_TEST

START_TEST(a_flood_of_bad_clients_is_no_flood_of_lines)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    enum { BAD = 60 };
    for (int i = 0; i < BAD; i++) {
        int fd = net_connect(net_port(s));
        wire_add(&w, "x", "junk");
        net_send(fd, &w);
        net_read_all(fd, &got);
        close(fd);
    }
    NET_EXPECT_STAT(s, refused, BAD);
    net_expect_log(s, &net_server_log, "more like this within a second");
    ck_assert_int_le(net_server_log.lines, 6); /* listening, and two per second */
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(a_slow_reader_is_closed)
{
    rdzv_server_options opt = net_options();
    opt.max_unread_bytes = 1 << 20;
    rdzv_server *s = net_open(&opt, &net_server_log);
    int fd = net_connect(net_port(s));
    wire_hello(&w);
    wire_add(&w, "bs", RDZV__OP_SET, "k");
    wire_fill(&w, 'v', 200000);
    net_send(fd, &w);
    for (int i = 0;; i++) { /* the system's own buffers take a few megabytes first */
        ck_assert_int_lt(i, 1000);
        wire_add(&w, "bs", RDZV__OP_GET, "k");
        if (send(fd, w.data, w.len, MSG_NOSIGNAL) < 0)
            break;
        w.len = 0;
        usleep(1000);
    }
    ck_assert(errno == EPIPE || errno == ECONNRESET);
    close(fd);
    net_expect_log(s, &net_server_log, "does not read its answers");
    ck_assert_int_eq(net_count_keys(net_port(s)), 1);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(large_answers_arrive_in_whole)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    int fd = net_connect(net_port(s));
    enum { LEN = 8 << 20, TIMES = 40 }; /* 320 MiB in all: more than max_unread_bytes */
    wire_hello(&w);
    wire_add(&w, "bs", RDZV__OP_SET, "k");
    wire_fill(&w, 'v', LEN);
    for (int i = 0; i < 4; i++)
        wire_add(&w, "bs", RDZV__OP_GET, "k");
    net_send(fd, &w);
    for (int i = 0; i < TIMES; i++) {
        got.len = 0;
        net_read(fd, &got, 8 + LEN);
        ck_assert_int_eq(got.data[8 + LEN - 1], 'v');
        if (i + 4 < TIMES) {
            wire_add(&w, "bs", RDZV__OP_GET, "k");
            net_send(fd, &w);
        }
    }
    close(fd);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(waits_across_connections)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    enum { WAITERS = 200 };
    int fd[WAITERS];
    for (int i = 0; i < WAITERS; i++) {
        fd[i] = net_connect(net_port(s));
        wire_hello(&w);
        wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "go");
        net_send(fd[i], &w);
    }
    NET_EXPECT_STAT(s, waiting, WAITERS);
    NET_EXPECT_STAT(s, connections, WAITERS);
    for (int i = 0; i < WAITERS; i += 2)
        close(fd[i]);
    NET_EXPECT_STAT(s, waiting, WAITERS / 2);
    int setter = net_connect(net_port(s));
    wire_hello(&w);
    wire_add(&w, "bss", RDZV__OP_SET, "go", "now");
    net_send(setter, &w);
    for (int i = 1; i < WAITERS; i += 2) {
        net_read(fd[i], &got, 1);
        wire_expect(&got, "b", 0);
        close(fd[i]);
    }
    close(setter);
    NET_EXPECT_STAT(s, connections, 0);
    NET_EXPECT_STAT(s, waiting, 0);
    NET_EXPECT_STAT(s, accepted, WAITERS + 1);
    NET_EXPECT_STAT(s, keys, 1);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(the_thread_is_named_and_takes_no_signals)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    ck_assert_int_eq(net_count_keys(net_port(s)), 0); /* so it runs */
    char blocked[64];
    net_thread_status("rdzv-server", "SigBlk", blocked, sizeof blocked);
    /* Signals 1 to 31 but KILL (9) and STOP (19); the C library keeps 32 and 33 for itself. */
    unsigned long long mask = strtoull(blocked, NULL, 16);
    ck_assert_uint_eq(mask & 0x7fffffff, 0x7fffffffull & ~(1ull << 8) & ~(1ull << 18));
    net_expect_threads(1);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(sockets_have_nodelay_and_keepalive)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    int fd = net_connect(net_port(s));
    wire_hello(&w);
    wire_add(&w, "bu", RDZV__OP_PING, 1u);
    net_send(fd, &w);
    net_read(fd, &got, 4);
    int found = 0;
    for (int other = 3; other < 64; other++) { /* the server's end is in this process */
        struct sockaddr_storage a;
        struct sockaddr_storage b;
        socklen_t la = sizeof a;
        socklen_t lb = sizeof b;
        if (other == fd || getpeername(other, (struct sockaddr *)&a, &la) != 0 ||
            getsockname(fd, (struct sockaddr *)&b, &lb) != 0 || memcmp(&a, &b, 8) != 0)
            continue;
        int on = 0;
        socklen_t len = sizeof on;
        ck_assert_int_eq(getsockopt(other, IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
        ck_assert_int_ne(on, 0);
        ck_assert_int_eq(getsockopt(other, SOL_SOCKET, SO_KEEPALIVE, &on, &len), 0);
        ck_assert_int_ne(on, 0);
        found++;
    }
    ck_assert_int_eq(found, 1);
    close(fd);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(out_of_descriptors_pauses_accepting)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    enum { CLIENTS = 5 };
    int fd[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit none = before;
    none.rlim_cur = (rlim_t)fd[CLIENTS - 1] + 1;
    setrlimit(RLIMIT_NOFILE, &none);
    for (int i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(net_connect_socket(fd[i], net_port(s)), 0);
    net_expect_log(s, &net_server_log, "cannot accept clients");
    ck_assert_int_le(net_server_log.lines, 3);
    setrlimit(RLIMIT_NOFILE, &before);
    for (int i = 0; i < CLIENTS; i++) { /* it comes back by itself */
        wire_hello(&w);
        wire_add(&w, "bu", RDZV__OP_PING, (unsigned)i);
        net_send(fd[i], &w);
        net_read(fd[i], &got, 4);
        wire_expect(&got, "u", (unsigned)i);
        close(fd[i]);
    }
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(drain_ends_with_the_last_client)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    int drained = 0;
    int closed = 0;
    int fd = net_connect(net_port(s));
    wire_hello(&w);
    wire_add(&w, "bsi", RDZV__OP_ADD, "n", 1LL);
    net_send(fd, &w);
    net_read(fd, &got, 8);
    ck_assert_int_eq(rdzv_server_drain(s, -2, net_count_call, &drained), RDZV_EINVAL);
    ck_assert_int_eq(rdzv_server_drain(s, -1, net_count_call, &drained), RDZV_OK);
    ck_assert_int_eq(rdzv_server_drain(s, -1, net_count_call, &drained), RDZV_EBUSY);
    int refused = 0;
    for (int i = 0; i < 500 && !refused; i++) { /* the listening socket closes soon */
        int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        refused = net_connect_socket(late, net_port(s)) != 0;
        close(late);
        usleep(1000);
    }
    ck_assert(refused);
    wire_add(&w, "bsi", RDZV__OP_ADD, "n", 1LL); /* the one that is in is served */
    net_send(fd, &w);
    got.len = 0;
    net_read(fd, &got, 8);
    wire_expect(&got, "i", 2LL);
    rdzv_server_dispatch(s);
    ck_assert_int_eq(drained, 0);
    close(fd);
    for (int i = 0; i < 100 && drained == 0; i++)
        rdzv_server_wait(s, 100);
    ck_assert_int_eq(drained, 1);
    rdzv_server_close(s, net_count_call, &closed);
    ck_assert_int_eq(drained, 1);
    ck_assert_int_eq(closed, 1);
}
END_TEST

START_TEST(drain_ends_when_its_time_is_over)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    int drained = 0;
    int fd = net_connect(net_port(s));
    NET_EXPECT_STAT(s, connections, 1);
    ck_assert_int_eq(rdzv_server_drain(s, 50, net_count_call, &drained), RDZV_OK);
    for (int i = 0; i < 100 && drained == 0; i++)
        rdzv_server_wait(s, 100);
    ck_assert_int_eq(drained, 1);
    ck_assert_uint_eq(NET_STAT(s, connections), 1);
    rdzv_server_close(s, NULL, NULL);
    close(fd);
}
END_TEST

START_TEST(close_ends_a_drain)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    int drained = 0;
    int closed = 0;
    int fd = net_connect(net_port(s));
    NET_EXPECT_STAT(s, connections, 1);
    ck_assert_int_eq(rdzv_server_drain(s, -1, net_count_call, &drained), RDZV_OK);
    rdzv_server_close(s, net_count_call, &closed);
    ck_assert_int_eq(drained, 1);
    ck_assert_int_eq(closed, 1);
    net_read_all(fd, &got);
    close(fd);
}
END_TEST

static void on_signal(int number)
{
    (void)number;
}

START_TEST(wait_goes_on_until_one_ran)
{
    enum { WAIT_MS = 200 };
    static const uint64_t one = 1;
    rdzv_server *s = net_open(NULL, &net_server_log);
    net_expect_log(s, &net_server_log, "listening");
    uint64_t before_ms = clock_ms();
    /* As when a line was taken before it was announced. */
    ck_assert_int_eq(write(rdzv_server_fd(s), &one, sizeof one), (ssize_t)sizeof one);
    ck_assert_int_eq(rdzv_server_wait(s, WAIT_MS), 0);
    ck_assert_uint_ge(clock_ms() - before_ms, WAIT_MS);
    int fd = net_connect(net_port(s));
    wire_add(&w, "x", "junk");
    net_send(fd, &w);
    ck_assert_int_eq(write(rdzv_server_fd(s), &one, sizeof one), (ssize_t)sizeof one);
    ck_assert_int_eq(rdzv_server_wait(s, -1), 1); /* a line about it */
    net_expect_end(fd);
    struct sigaction was;
    struct sigaction action = {.sa_handler = on_signal};
    struct itimerval soon = {.it_value.tv_usec = 1000, .it_interval.tv_usec = 50000};
    ck_assert_int_eq(sigaction(SIGALRM, &action, &was), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &soon, NULL), 0);
    ck_assert_int_eq(rdzv_server_wait(s, -1), 0);
    soon = (struct itimerval){.it_value.tv_usec = 0};
    ck_assert_int_eq(setitimer(ITIMER_REAL, &soon, NULL), 0);
    ck_assert_int_eq(sigaction(SIGALRM, &was, NULL), 0);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

static rdzv_server *called_back;
static int busy_seen;
static int ignored_said;

static void call_from_callback(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    busy_seen += rdzv_server_dispatch(called_back) == RDZV_EBUSY;
    busy_seen += rdzv_server_wait(called_back, 0) == RDZV_EBUSY;
    rdzv_server_close(called_back, net_count_call, &busy_seen);
    ignored_said += strcmp(line, "rdzv_server_close was called from a callback: ignored") == 0;
}

START_TEST(callbacks_may_not_dispatch_wait_or_close)
{
    rdzv_server_options opt = net_options();
    opt.log = call_from_callback;
    busy_seen = 0;
    ignored_said = 0;
    ck_assert_int_eq(rdzv_server_open(&called_back, &opt, NULL), RDZV_OK);
    struct pollfd p = {.fd = rdzv_server_fd(called_back), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 5000), 1); /* the line about listening */
    ck_assert_int_eq(rdzv_server_dispatch(called_back), 1);
    ck_assert_int_eq(busy_seen, 2);
    ck_assert_int_eq(rdzv_server_dispatch(called_back), 1); /* and the one about close: once */
    ck_assert_int_eq(rdzv_server_wait(called_back, 50), 0);
    ck_assert_int_eq(ignored_said, 1);
    ck_assert_int_eq(net_count_keys(net_port(called_back)), 0);
    rdzv_server_close(called_back, NULL, NULL);
}
END_TEST

START_TEST(a_child_after_fork_gets_estate)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    pid_t child = fork();
    if (child == 0) {
        rdzv_server_stats st = {.size = sizeof st};
        int closed = 0;
        int ok = rdzv_server_get_stats(s, &st) == RDZV_ESTATE &&
                 rdzv_server_drain(s, 0, NULL, NULL) == RDZV_ESTATE &&
                 rdzv_server_fd(s) == RDZV_ESTATE && rdzv_server_dispatch(s) == RDZV_ESTATE &&
                 rdzv_server_wait(s, 0) == RDZV_ESTATE;
        rdzv_server_close(s, net_count_call, &closed);
        _exit(ok && closed == 0 ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_int_eq(net_count_keys(net_port(s)), 0);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(nothing_survives_exec)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    int fd = net_connect(net_port(s));
    NET_EXPECT_STAT(s, connections, 1);
    pid_t child = fork();
    if (child == 0) { /* 0, 1, 2 and the folder that ls itself opens */
        execl("/bin/sh", "sh", "-c",
              "for f in /proc/self/fd/*; do [ ${f##*/} -lt 3 ] || "
              "case $(readlink $f) in socket:*|*eventpoll*|*eventfd*) exit 1;; esac; done",
              NULL);
        _exit(2);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(fd);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(memory_runs_out_in_the_shell)
{
    struct alloc_fault fault = ALLOC_FAULT_INIT;
    rdzv_allocator allocator = {alloc_fault_alloc, alloc_fault_free, &fault};
    int served = 0;
    while (alloc_fault_next(&fault)) {
        rdzv_server_options opt = net_options();
        opt.allocator = &allocator;
        opt.log = net_log_line;
        opt.log_ctx = &net_server_log;
        rdzv_server *s = NULL;
        rdzv_error err = {0};
        int code = rdzv_server_open(&s, &opt, &err);
        if (code != RDZV_OK) {
            ck_assert_int_eq(code, RDZV_ENOMEM);
            ck_assert_int_eq(err.code, RDZV_ENOMEM);
            continue;
        }
        for (int i = 0; i < 3; i++) { /* at most one of them is let go */
            int fd = net_connect(net_port(s));
            wire_hello(&w);
            wire_add(&w, "bss", RDZV__OP_SET, "k", "v");
            wire_add(&w, "bs", RDZV__OP_GET, "k");
            got.len = 0;
            send(fd, w.data, w.len, MSG_NOSIGNAL); /* it may be closed already */
            w.len = 0;
            shutdown(fd, SHUT_WR);
            net_read_all(fd, &got);
            if (got.len > 0) {
                wire_expect(&got, "s", "v");
                served++;
            }
            close(fd);
        }
        rdzv_server_close(s, NULL, NULL);
    }
    ck_assert_int_gt(served, 10);
}
END_TEST

START_TEST(twenty_servers_at_once)
{
    rdzv_server *s[20];
    for (int i = 0; i < 20; i++)
        s[i] = net_open(NULL, &net_server_log);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(net_count_keys(net_port(s[i])), 0);
    for (int i = 0; i < 20; i++)
        rdzv_server_close(s[i], NULL, NULL);
    rdzv_server_close(NULL, NULL, NULL);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("server");
    TCase *t = net_tcase(s, "own thread", &w, &got);
    tcase_add_loop_test(t, replay_whole_and_in_pieces, 0, 2);
    tcase_add_test(t, bad_starts_are_closed_and_counted);
    tcase_add_test(t, a_flood_of_bad_clients_is_no_flood_of_lines);
    tcase_add_test(t, a_slow_reader_is_closed);
    tcase_add_test(t, large_answers_arrive_in_whole);
    tcase_add_test(t, waits_across_connections);
    tcase_add_test(t, the_thread_is_named_and_takes_no_signals);
    tcase_add_test(t, sockets_have_nodelay_and_keepalive);
    tcase_add_test(t, out_of_descriptors_pauses_accepting);
    tcase_add_test(t, drain_ends_with_the_last_client);
    tcase_add_test(t, drain_ends_when_its_time_is_over);
    tcase_add_test(t, close_ends_a_drain);
    tcase_add_test(t, wait_goes_on_until_one_ran);
    tcase_add_test(t, callbacks_may_not_dispatch_wait_or_close);
    tcase_add_test(t, a_child_after_fork_gets_estate);
    tcase_add_test(t, nothing_survives_exec);
    tcase_add_test(t, memory_runs_out_in_the_shell);
    tcase_add_test(t, twenty_servers_at_once);
    return s;
}
