/*
 * test_job_life.c: opening and closing jobs: beside clients of all kinds, while the server drains
 * or closes, from callbacks, in a child, without memory or descriptors. Server on its own thread;
 * test_job_loop.c has the caller's loop.
 */
#include "alloc_fault.h"
#include "jobs.h"
#include "runner.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct wire w;
static struct wire got;

START_TEST(bad_options_are_refused)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job *job = NULL;
    rdzv_error err;
    char id[RDZV_RUN_ID_BYTES + 2];
    memset(id, 'x', sizeof id);
    id[RDZV_RUN_ID_BYTES + 1] = '\0';
    const char *const bad[] = {NULL, "", id, "line\nbreak", "caf\xc3\xa9", "\x7f"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rdzv_job_options opt = jobs_options(bad[i]);
        ck_assert_int_eq(jobs_open_fails(s, &opt, &err), RDZV_EINVAL);
        ck_assert_msg(strstr(err.text, "run_id") != NULL, "%s", err.text);
    }
    rdzv_job_options opt = jobs_options("job");
    opt.host = "no.such.host";
    ck_assert_int_eq(jobs_open_fails(s, &opt, &err), RDZV_EINVAL);
    opt = jobs_options("job");
    opt.host = NULL;
    ck_assert_int_eq(jobs_open_fails(s, &opt, &err), RDZV_EINVAL);
    opt = jobs_options("job");
    opt.backlog = 0;
    ck_assert_int_eq(jobs_open_fails(s, &opt, &err), RDZV_EINVAL);
    opt = jobs_options("job");
    opt.port = net_port(s);
    ck_assert_int_eq(jobs_open_fails(s, &opt, &err), RDZV_EADDRINUSE);
    opt = jobs_options("job");
    opt.size = sizeof(size_t);
    ck_assert_int_eq(jobs_open_fails(s, &opt, &err), RDZV_EINVAL);
    opt.size = SIZE_MAX / 2; /* never set: nothing beyond the struct is read */
    ck_assert_int_eq(jobs_open_fails(s, &opt, &err), RDZV_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "rdzv_job_options_init"));
    struct {
        rdzv_job_options known;
        uint64_t unknown;
    } longer = {.known = jobs_options("job")};
    longer.known.size = sizeof longer;
    longer.unknown = 1;
    ck_assert_int_eq(jobs_open_fails(s, &longer.known, &err), RDZV_EINVAL);
    ck_assert_int_eq(rdzv_server_open_job(NULL, &job, &opt, NULL), RDZV_EINVAL);
    ck_assert_int_eq(rdzv_server_open_job(s, NULL, &opt, NULL), RDZV_EINVAL);
    ck_assert_int_eq(rdzv_server_open_job(s, &job, NULL, NULL), RDZV_EINVAL);
    id[RDZV_RUN_ID_BYTES] = '\0'; /* the longest */
    longer.known.run_id = id;
    longer.unknown = 0;
    ck_assert_int_eq(rdzv_server_open_job(s, &job, &longer.known, NULL), RDZV_OK);
    net_expect_log(s, &net_server_log, id);
    rdzv_job_close(job, NULL, NULL);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(a_run_id_is_open_once)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_error err;
    rdzv_job *other = jobs_open(s, "run-70", NULL);
    rdzv_job *job = jobs_open(s, "run-7", NULL);
    uint16_t port = jobs_port(job);
    rdzv_job_options opt = jobs_options("run-7");
    ck_assert_int_eq(jobs_open_fails(s, &opt, &err), RDZV_EBUSY);
    ck_assert_msg(strstr(err.text, "\"run-7\"") != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, rdzv_job_address(job, NULL)) != NULL, "%s", err.text);
    for (int i = 0; i < 5; i++) { /* again at once, on the same port, and empty */
        int fd = net_greet(port);
        net_set(fd, "k", 10);
        int closed = 0;
        rdzv_job_close(job, net_count_call, &closed);
        ck_assert_int_eq(closed, 1);
        net_expect_end(fd);
        opt.port = port;
        job = jobs_open(s, "run-7", &opt);
        ck_assert_int_eq(net_count_keys(port), 0);
    }
    net_expect_log(s, &net_server_log, "job \"run-7\": closed with 1 clients, 1 keys and queues");
    ck_assert_int_eq(net_count_keys(jobs_port(other)), 0);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

/* Clients in every state; returns how many. */
enum { STATES = 5 };
static void clients_in_every_state(uint16_t port, int fd[STATES])
{
    fd[0] = net_connect(port); /* has said nothing */
    fd[1] = net_greet(port);
    fd[2] = net_greet(port);
    wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "never");
    net_send(fd[2], &w);
    fd[3] = net_greet(port);
    wire_add(&w, "bsix", RDZV__OP_SET, "half", 1000LL, "these bytes");
    net_send(fd[3], &w);
    fd[4] = net_greet(port);
    wire_add(&w, "bs", RDZV__OP_SET, "k");
    wire_fill(&w, 'v', 4 << 20);
    for (int i = 0; i < 4; i++) /* more than the system's buffers take, and not read */
        wire_add(&w, "bs", RDZV__OP_GET, "k");
    net_send(fd[4], &w);
}

static void expect_ended(int fd[STATES])
{
    for (int i = 0; i < STATES; i++) {
        net_read_all(fd[i], &got);
        got.len = 0;
        close(fd[i]);
    }
}

START_TEST(close_with_clients_in_every_state)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job *job = jobs_open(s, "job", NULL);
    rdzv_job *other = jobs_open(s, "other", NULL);
    int parked = net_greet(jobs_port(other));
    wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "never");
    net_send(parked, &w);
    int fd[STATES];
    clients_in_every_state(jobs_port(job), fd);
    JOB_EXPECT_STAT(job, connections, STATES);
    JOB_EXPECT_STAT(job, waiting, 1);
    JOB_EXPECT_STAT(job, keys, 1);
    uint16_t port = jobs_port(job);
    rdzv_job_close(job, NULL, NULL);
    net_expect_no_listener(port);
    expect_ended(fd);
    NET_EXPECT_STAT(s, connections, 1);
    NET_EXPECT_STAT(s, waiting, 1);
    NET_EXPECT_STAT(s, keys, 0);
    NET_EXPECT_STAT(s, buffer_bytes, 0);
    ck_assert(!net_heard(parked, 0));
    int setter = net_greet(jobs_port(other));
    net_set(setter, "never", 1);
    net_read(parked, &got, 1);
    wire_expect(&got, "b", 0);
    close(setter);
    close(parked);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(close_of_the_server_closes_its_jobs)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job *job[3];
    uint16_t port[3];
    int fd[3][STATES];
    for (int i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + i), '\0'};
        job[i] = jobs_open(s, name, NULL);
        port[i] = jobs_port(job[i]);
        clients_in_every_state(port[i], fd[i]);
    }
    int closed = 0;
    rdzv_server_close(s, net_count_call, &closed);
    ck_assert_int_eq(closed, 1);
    for (int i = 0; i < 3; i++) {
        net_expect_no_listener(port[i]);
        expect_ended(fd[i]);
    }
}
END_TEST

START_TEST(drain_is_of_all_jobs)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job *a = jobs_open(s, "a", NULL);
    rdzv_job *b = jobs_open(s, "b", NULL);
    uint16_t ports[3] = {net_port(s), jobs_port(a), jobs_port(b)};
    int fd[2] = {net_greet(ports[1]), net_greet(ports[2])};
    int drained = 0;
    rdzv_error err;
    rdzv_job_options opt = jobs_options("late");
    ck_assert_int_eq(rdzv_server_drain(s, -1, net_count_call, &drained), RDZV_OK);
    ck_assert_int_eq(jobs_open_fails(s, &opt, &err), RDZV_ESTATE);
    net_set(fd[0], "k", 10); /* still served */
    net_set(fd[1], "k", 10);
    for (int i = 0; i < 3; i++)
        net_expect_no_listener(ports[i]);
    close(fd[0]);
    NET_EXPECT_STAT(s, connections, 1);
    ck_assert_int_ge(rdzv_server_wait(s, 50), 0);
    ck_assert_int_eq(drained, 0);
    rdzv_job_close(b, NULL, NULL); /* its client was the last */
    net_expect_end(fd[1]);
    net_expect_log(s, &net_server_log, "drained: the last client has left");
    for (int i = 0; i < 100 && drained == 0; i++)
        ck_assert_int_ge(rdzv_server_wait(s, 50), 0);
    ck_assert_int_eq(drained, 1);
    ck_assert_int_eq(jobs_open_fails(s, &opt, &err), RDZV_ESTATE);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

static rdzv_server *called_back;
static rdzv_job *its_job;
static int busy_seen;

static void job_calls_from_callback(void *ctx, int level, const char *line)
{
    (void)level;
    net_log_line(ctx, level, line);
    rdzv_job *job = NULL;
    rdzv_job_options opt = jobs_options("from a callback");
    rdzv_error err = {0};
    int closed = 0;
    busy_seen += rdzv_server_open_job(called_back, &job, &opt, &err) == RDZV_EBUSY;
    rdzv_job_close(its_job, net_count_call, &closed);
    ck_assert_int_eq(closed, 0);
    ck_assert_int_eq(err.code, RDZV_EBUSY);
}

START_TEST(callbacks_may_not_open_or_close)
{
    rdzv_server_options opt = net_options();
    opt.log = job_calls_from_callback;
    opt.log_ctx = &net_server_log;
    busy_seen = 0;
    ck_assert_int_eq(rdzv_server_open(&called_back, &opt, NULL), RDZV_OK);
    its_job = jobs_open(called_back, "job", NULL);
    for (int i = 0; i < 100 && busy_seen < 2; i++)
        ck_assert_int_ge(rdzv_server_wait(called_back, 50), 0);
    ck_assert_int_ge(busy_seen, 2); /* the lines about listening */
    ck_assert_int_eq(net_count_keys(jobs_port(its_job)), 0);
    static const char *const told = "rdzv_job_close was called";
    for (int i = 0; i < 100 && strstr(net_server_log.text, told) == NULL; i++)
        ck_assert_int_ge(rdzv_server_wait(called_back, 50), 0);
    ck_assert_int_eq(rdzv_server_wait(called_back, 50), 0); /* once: it is called there, too */
    rdzv_job *mine = its_job;
    its_job = NULL; /* from here on the callback closes NULL */
    rdzv_job_close(mine, NULL, NULL);
    rdzv_server_close(called_back, NULL, NULL);
}
END_TEST

START_TEST(a_child_after_fork_gets_estate)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job *job = jobs_open(s, "job", NULL);
    pid_t child = fork();
    if (child == 0) {
        rdzv_server_stats st = {.size = sizeof st};
        rdzv_job *second = NULL;
        rdzv_job_options opt = jobs_options("second");
        int closed = 0;
        int ok = rdzv_job_get_stats(job, &st) == RDZV_ESTATE &&
                 rdzv_server_open_job(s, &second, &opt, NULL) == RDZV_ESTATE && second == NULL;
        rdzv_job_close(job, net_count_call, &closed);
        _exit(ok && closed == 0 ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_int_eq(net_count_keys(jobs_port(job)), 0);
    rdzv_job_close(NULL, NULL, NULL);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(a_given_socket_is_used)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    rdzv_job_options opt = jobs_options("job");
    rdzv_error err;
    opt.listen_fd = fd;
    ck_assert_int_eq(jobs_open_fails(s, &opt, &err),
                     RDZV_EINVAL); /* not bound; and it stays open */
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    rdzv_job *job = jobs_open(s, "job", &opt);
    ck_assert_int_eq(net_count_keys(jobs_port(job)), 0);
    rdzv_job_close(job, NULL, NULL); /* and the socket with it: teardown counts */
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(out_of_descriptors)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job *job = jobs_open(s, "job", NULL);
    int fd = net_greet(jobs_port(job));
    int waiting = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct rlimit before;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit now = before;
    now.rlim_cur = (rlim_t)waiting + 1;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &now), 0);
    rdzv_error err;
    rdzv_job_options opt = jobs_options("second");
    int code = jobs_open_fails(s, &opt, &err);
    ck_assert_int_eq(net_connect_socket(waiting, jobs_port(job)), 0);
    net_expect_log(s, &net_server_log, "cannot accept clients on 127.0.0.1:");
    net_set(fd, "k", 10);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert_int_eq(code, RDZV_EIO);
    wire_hello(&w);
    wire_add(&w, "b", RDZV__OP_GETNUMKEYS);
    net_ask(waiting, &w, &got, 8); /* accepting came back by itself */
    wire_expect(&got, "i", 1LL);
    close(waiting);
    close(fd);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(memory_runs_out)
{
    struct alloc_fault fault = ALLOC_FAULT_INIT;
    rdzv_allocator allocator = {alloc_fault_alloc, alloc_fault_free, &fault};
    int opened = 0;
    int failed = 0;
    while (alloc_fault_next(&fault)) {
        rdzv_server_options server_opt = net_options();
        server_opt.allocator = &allocator;
        rdzv_server *s = NULL;
        if (rdzv_server_open(&s, &server_opt, NULL) != RDZV_OK)
            continue;
        for (int i = 0; i < 2; i++) {
            rdzv_job_options opt = jobs_options("job");
            rdzv_job *job = NULL;
            rdzv_error err = {0};
            int code = rdzv_server_open_job(s, &job, &opt, &err);
            if (code != RDZV_OK) {
                ck_assert_int_eq(code, RDZV_ENOMEM);
                failed++;
                continue;
            }
            int fd = net_connect(jobs_port(job));
            wire_hello(&w);
            wire_add(&w, "bss", RDZV__OP_SET, "k", "v");
            send(fd, w.data, w.len, MSG_NOSIGNAL); /* it may be closed already */
            w.len = 0;
            shutdown(fd, SHUT_WR);
            net_read_all(fd, &got);
            close(fd);
            rdzv_job_close(job, NULL, NULL);
            opened++;
        }
        rdzv_server_close(s, NULL, NULL);
    }
    ck_assert_int_ge(failed, 2);
    ck_assert_int_gt(opened, 10);
}
END_TEST

static atomic_long live; /* blocks */

static void *count_alloc(void *ctx, size_t len, size_t align)
{
    void *p = NULL;
    (void)ctx;
    if (posix_memalign(&p, align, len) != 0)
        return NULL;
    atomic_fetch_add(&live, 1);
    return p;
}

static void count_free(void *ctx, void *p)
{
    (void)ctx;
    atomic_fetch_sub(&live, p != NULL);
    free(p);
}

START_TEST(a_closed_job_leaves_nothing)
{
    rdzv_allocator allocator = {count_alloc, count_free, NULL};
    rdzv_server_options opt = net_options();
    opt.allocator = &allocator;
    rdzv_server *s = net_open(&opt, &net_server_log);
    ck_assert_int_eq(net_count_keys(net_port(s)), 0);
    NET_EXPECT_STAT(s, connections, 0);
    long before = 0;
    int fds = net_count_fds();
    for (int i = 0; i < 50; i++) {
        ck_assert_int_ge(rdzv_server_dispatch(s), 0); /* lines are memory, too */
        if (i == 0)
            before = atomic_load(&live);
        ck_assert_int_eq(atomic_load(&live), before);
        int fd[STATES];
        rdzv_job *job = jobs_open(s, "job", NULL);
        clients_in_every_state(jobs_port(job), fd);
        JOB_EXPECT_STAT(job, connections, STATES);
        JOB_EXPECT_STAT(job, waiting, 1);
        rdzv_job_close(job, NULL, NULL);
        expect_ended(fd);
        ck_assert_int_eq(net_count_fds(), fds);
    }
    rdzv_server_close(s, NULL, NULL);
    ck_assert_int_eq(atomic_load(&live), 0);
}
END_TEST

struct hammer {
    uint16_t port;
    atomic_int stop;
    long done;
};

static void *hammer(void *arg)
{
    struct hammer *h = arg;
    struct wire out = WIRE_INIT;
    struct wire in = WIRE_INIT;
    int fd = net_greet(h->port);
    do {                         /* once at least, however busy the machine is */
        if (h->done % 64 == 0) { /* comes and goes, too */
            close(fd);
            fd = net_greet(h->port);
        }
        wire_add(&out, "bsi", RDZV__OP_ADD, "n", 1LL);
        wire_add(&out, "bss", RDZV__OP_SET, "k", "a value that is longer than a counter");
        wire_add(&out, "bs", RDZV__OP_DELETE_KEY, "k");
        net_ask(fd, &out, &in, 16);
        wire_expect(&in, "ii", h->done + 1LL, 1LL);
        h->done++;
    } while (!atomic_load(&h->stop));
    close(fd);
    wire_free(&out);
    wire_free(&in);
    return NULL;
}

START_TEST(jobs_come_and_go_beside_a_busy_one)
{
    enum { ROUNDS = 300 };
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job *busy = jobs_open(s, "busy", NULL);
    struct hammer h[2] = {{.port = jobs_port(busy)}, {.port = net_port(s)}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, hammer, &h[i]), 0);
    for (int i = 0; i < ROUNDS; i++) {
        rdzv_job *job = jobs_open(s, "passing", NULL);
        int fd = net_greet(jobs_port(job));
        wire_add(&w, "bsi", RDZV__OP_ADD, "n", 1LL);
        if (i % 3 == 0)
            wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "never");
        net_ask(fd, &w, &got, 8);
        wire_expect(&got, "i", 1LL); /* a job without keys */
        JOB_EXPECT_STAT(job, connections, 1);
        rdzv_job_close(job, NULL, NULL);
        net_expect_end(fd);
        ck_assert_int_ge(rdzv_server_dispatch(s), 0);
    }
    for (int i = 0; i < 2; i++) {
        atomic_store(&h[i].stop, 1);
        pthread_join(threads[i], NULL);
    }
    NET_EXPECT_STAT(s, connections, 0);
    NET_EXPECT_STAT(s, keys, 2);
    /* A hello and a PING in each greeting. */
    uint64_t greetings = 2 * ROUNDS;
    uint64_t asked = ROUNDS + (ROUNDS + 2) / 3;
    for (int i = 0; i < 2; i++) {
        greetings += 2 * (uint64_t)(1 + (h[i].done + 63) / 64);
        asked += 3 * (uint64_t)h[i].done;
    }
    NET_EXPECT_STAT(s, requests, greetings + asked);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("job life");
    TCase *t = net_tcase(s, "own thread", &w, &got);
    tcase_add_test(t, bad_options_are_refused);
    tcase_add_test(t, a_run_id_is_open_once);
    tcase_add_test(t, close_with_clients_in_every_state);
    tcase_add_test(t, close_of_the_server_closes_its_jobs);
    tcase_add_test(t, drain_is_of_all_jobs);
    tcase_add_test(t, callbacks_may_not_open_or_close);
    tcase_add_test(t, a_child_after_fork_gets_estate);
    tcase_add_test(t, a_given_socket_is_used);
    tcase_add_test(t, out_of_descriptors);
    tcase_add_test(t, memory_runs_out);
    tcase_add_test(t, a_closed_job_leaves_nothing);
    tcase_add_test(t, jobs_come_and_go_beside_a_busy_one);
    return s;
}
