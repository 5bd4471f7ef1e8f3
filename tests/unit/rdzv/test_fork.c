/*
 * test_fork.c: the embedding program has forked a child that holds copies of every descriptor, and
 * lives on. What the parent closes has to end all the same.
 */
#include "jobs.h"
#include "rdzv_client.h"
#include "runner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct net_log server_log;
static struct wire w;
static struct wire got;
static pid_t child;

static void setup(void)
{
    memset(&server_log, 0, sizeof server_log);
}

static void teardown(void)
{
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    child = 0;
    wire_free(&w);
    wire_free(&got);
}

static void hold_copies(void)
{
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child > 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        pause();
}

/* A client that the server serves. */
static int served(uint16_t port)
{
    int fd = net_connect(port);
    wire_hello(&w);
    wire_add(&w, "bu", RDZV__OP_PING, 7u);
    net_send(fd, &w);
    net_read(fd, &got, 4);
    wire_expect(&got, "u", 7u);
    return fd;
}

static void expect_end(int fd)
{
    net_read_all(fd, &got);
    ck_assert_uint_eq(got.len, 0);
    close(fd);
}

static void expect_refused(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(net_connect_socket(fd, port) != 0 && errno == ECONNREFUSED);
    close(fd);
}

START_TEST(clients_and_ports_end_with_their_job_and_server)
{
    rdzv_server *s = net_open(NULL, &server_log);
    rdzv_job *job = jobs_open(s, "a", NULL);
    uint16_t server_port = net_port(s);
    rdzv_job_options opt = jobs_options("a");
    rdzv_job_address(job, &opt.port);
    int of_job = served(opt.port);
    int of_server = served(server_port);
    int refused = served(server_port);
    hold_copies();

    wire_add(&w, "b", 0xEE);
    net_send(refused, &w);
    expect_end(refused);
    rdzv_job_close(job, NULL, NULL);
    expect_end(of_job);
    expect_refused(opt.port);
    jobs_open(s, "a", &opt);
    close(served(opt.port));
    rdzv_server_close(s, NULL, NULL);
    expect_end(of_server);
    expect_refused(server_port);
    expect_refused(opt.port);
}
END_TEST

/* Whoever handed it over, say a service manager, may go on with it. */
START_TEST(a_socket_that_was_given_listens_on_for_others)
{
    rdzv_server_options opt = net_options();
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    opt.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(opt.listen_fd, (struct sockaddr *)&addr, sizeof addr), 0);
    int other = dup(opt.listen_fd);
    rdzv_server *s = net_open(&opt, &server_log);
    uint16_t port = net_port(s);
    close(served(port));
    rdzv_server_close(s, NULL, NULL);
    close(net_connect(port));
    close(other);
    expect_refused(port);
}
END_TEST

static void on_reply(void *calls, const rdzv_reply *reply, const rdzv_error *result)
{
    (void)reply;
    (void)result;
    ++*(int *)calls;
}

static rdzv_client *open_client(uint16_t port, uint32_t drive)
{
    rdzv_client *c = NULL;
    rdzv_client_options opt;
    rdzv_client_options_init(&opt, sizeof opt);
    opt.port = port;
    opt.drive = drive;
    int calls = 0;
    ck_assert_int_eq(rdzv_client_open(&c, &opt, NULL), RDZV_OK);
    ck_assert_int_ge(rdzv_client_fd(c), 0); /* before the socket is connected */
    ck_assert_int_gt(rdzv_client_flush(c, -1, on_reply, &calls, NULL), 0);
    while (calls == 0)
        ck_assert_int_ge(rdzv_client_wait(c, 5000), 0);
    return c;
}

START_TEST(the_server_sees_a_client_close)
{
    static const uint32_t drives[] = {RDZV_DRIVE_THREAD, RDZV_DRIVE_CALLER};
    rdzv_server *s = net_open(NULL, &server_log);
    rdzv_client *c = open_client(net_port(s), drives[_i]);
    NET_EXPECT_STAT(s, connections, 1);
    hold_copies();
    rdzv_client_close(c, NULL, NULL);
    NET_EXPECT_STAT(s, connections, 0);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

/* The socket of the lost connection is ready for ever, and must not be seen in the poll set. */
START_TEST(a_lost_connection_leaves_the_descriptor_quiet)
{
    rdzv_server *s = net_open(NULL, &server_log);
    rdzv_client *c = open_client(net_port(s), RDZV_DRIVE_CALLER);
    int calls = 0;
    rdzv_client_get(c, (rdzv_bytes){"late", 4}, -1, on_reply, &calls, NULL);
    hold_copies();
    rdzv_server_close(s, NULL, NULL);
    struct pollfd p = {.fd = rdzv_client_fd(c), .events = POLLIN};
    while (calls == 0) {
        ck_assert_int_eq(poll(&p, 1, 10000), 1);
        ck_assert_int_ge(rdzv_client_dispatch(c), 0);
    }
    for (int i = 0; i < 20 && poll(&p, 1, 50) == 1; i++) /* a timer that was set may still come */
        ck_assert_int_ge(rdzv_client_dispatch(c), 0);
    ck_assert_int_eq(poll(&p, 1, 100), 0);
    rdzv_client_close(c, NULL, NULL);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("fork");
    TCase *t = tcase_create("fork");
    tcase_set_timeout(t, 60);
    tcase_add_unchecked_fixture(t, net_warm_up, NULL);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, clients_and_ports_end_with_their_job_and_server);
    tcase_add_test(t, a_socket_that_was_given_listens_on_for_others);
    tcase_add_loop_test(t, the_server_sees_a_client_close, 0, 2);
    tcase_add_test(t, a_lost_connection_leaves_the_descriptor_quiet);
    suite_add_tcase(s, t);
    return s;
}
