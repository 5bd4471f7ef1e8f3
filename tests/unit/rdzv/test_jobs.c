/*
 * test_jobs.c: one server, many jobs: nobody sees or wakes another job's clients, each is held to
 * its share and all to the server's, and a job's keys go when its time is over. Server on its own
 * thread; test_job_life.c has opening, closing and the caller's loop.
 */
#include "jobs.h"
#include "runner.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct wire w;
static struct wire got;

static void teardown(void)
{
    wire_free(&w);
    wire_free(&got);
    net_teardown();
}

/* A server with two jobs, and a client of each of the three name spaces. */
struct three {
    rdzv_server *s;
    rdzv_job *a;
    rdzv_job *b;
    int fd[3];
};

static struct three open_three(const rdzv_server_options *opt)
{
    struct three t;
    t.s = net_open(opt, &net_server_log);
    t.a = jobs_open(t.s, "run-a", NULL);
    t.b = jobs_open(t.s, "run-b", NULL);
    t.fd[0] = net_greet(net_port(t.s));
    t.fd[1] = net_greet(jobs_port(t.a));
    t.fd[2] = net_greet(jobs_port(t.b));
    return t;
}

static void close_three(struct three *t)
{
    for (int i = 0; i < 3; i++)
        close(t->fd[i]);
    rdzv_server_close(t->s, NULL, NULL);
}

START_TEST(equal_names_are_different_keys)
{
    struct three t = open_three(NULL);
    char text[2] = "0";
    for (int i = 0; i < 3; i++) {
        text[0] = (char)('0' + i);
        wire_add(&w, "bss", RDZV__OP_SET, "k", text);
        wire_add(&w, "bss", RDZV__OP_QUEUE_PUSH, "q", text);
        wire_add(&w, "bss", RDZV__OP_APPEND, "log", text);
        wire_add(&w, "bsi", RDZV__OP_ADD, "n", (long long)i);
        net_ask(t.fd[i], &w, &got, 8);
        wire_expect(&got, "i", (long long)i);
    }
    for (int i = 2; i >= 0; i--) {
        text[0] = (char)('0' + i);
        wire_add(&w, "bs", RDZV__OP_GET, "k");
        wire_add(&w, "bs", RDZV__OP_GET, "log");
        wire_add(&w, "bs", RDZV__OP_QUEUE_LEN, "q");
        wire_add(&w, "bs", RDZV__OP_QUEUE_POP, "q");
        wire_add(&w, "bs", RDZV__OP_QUEUE_POP, "q");
        wire_add(&w, "b", RDZV__OP_GETNUMKEYS);
        wire_add(&w, "bsi", RDZV__OP_ADD, "n", 1LL);
        net_ask(t.fd[i], &w, &got, 9 + 9 + 8 + 8 + 9 + 8 + 8 + 8);
        wire_expect(&got, "ssiisiii", text, text, 1LL, 1LL, text, 0LL, 3LL, i + 1LL);
    }
    wire_add(&w, "bs", RDZV__OP_DELETE_KEY, "k");
    wire_add(&w, "bsss", RDZV__OP_COMPARE_SET, "n", "2", "two");
    wire_add(&w, "bss", RDZV__OP_SET, "only-a", "");
    wire_add(&w, "b", RDZV__OP_LIST_KEYS);
    net_ask(t.fd[1], &w, &got, 8 + 11 + 8 + 11 + 9 + 14);
    wire_expect(&got, "isisss", 1LL, "two", 3LL, "log", "n", "only-a");
    wire_add(&w, "bs", RDZV__OP_GET, "k");
    wire_add(&w, "bs", RDZV__OP_GET, "n");
    wire_add(&w, "bis", RDZV__OP_CHECK, 1LL, "only-a");
    wire_add(&w, "biss", RDZV__OP_MULTI_GET, 2LL, "only-a", "k");
    net_ask(t.fd[2], &w, &got, 9 + 9 + 1 + 8 + 9);
    wire_expect(&got, "ssbss", "2", "3", 1, "", "2");
    JOB_EXPECT_STAT(t.a, keys, 3);
    JOB_EXPECT_STAT(t.b, keys, 3);
    NET_EXPECT_STAT(t.s, keys, 9);
    close_three(&t);
}
END_TEST

START_TEST(nobody_is_woken_by_another_job)
{
    struct three t = open_three(NULL);
    int parked[3];
    uint16_t ports[3] = {net_port(t.s), jobs_port(t.a), jobs_port(t.b)};
    int in_barrier[3];
    for (int i = 0; i < 3; i++) {
        parked[i] = net_greet(ports[i]);
        in_barrier[i] = net_greet(ports[i]);
        wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "go");
        net_send(parked[i], &w);
        wire_add(&w, "bsi", RDZV__OP_BARRIER, "all", 2LL);
        net_send(in_barrier[i], &w);
    }
    NET_EXPECT_STAT(t.s, waiting, 6);
    static const int order[3] = {1, 0, 2};
    for (int n = 0; n < 3; n++) {
        int i = order[n];
        wire_add(&w, "bss", n == 1 ? RDZV__OP_QUEUE_PUSH : RDZV__OP_SET, "go", "now");
        wire_add(&w, "bsi", RDZV__OP_BARRIER, "all", 2LL);
        net_ask(t.fd[i], &w, &got, 1);
        net_read(parked[i], &got, 1);
        net_read(in_barrier[i], &got, 1);
        wire_expect(&got, "bbb", 0, 0, 0);
        for (int later = n + 1; later < 3; later++) {
            ck_assert(!net_heard(parked[order[later]], 50));
            ck_assert(!net_heard(in_barrier[order[later]], 0));
        }
        NET_EXPECT_STAT(t.s, waiting, (uint64_t)(2 * (2 - n)));
    }
    for (int i = 0; i < 3; i++) {
        close(parked[i]);
        close(in_barrier[i]);
    }
    close_three(&t);
}
END_TEST

START_TEST(a_hundred_jobs)
{
    enum { JOBS = 100 };
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job *job[JOBS];
    int fd[JOBS];
    char name[16];
    for (int i = 0; i < JOBS; i++) {
        snprintf(name, sizeof name, "run-%d", i);
        job[i] = jobs_open(s, name, NULL);
        for (int other = 0; other < i; other++)
            ck_assert_uint_ne(jobs_port(job[i]), jobs_port(job[other]));
        fd[i] = net_greet(jobs_port(job[i]));
    }
    for (int round = 1; round <= 3; round++)
        for (int i = 0; i < JOBS; i++) {
            wire_add(&w, "bsi", RDZV__OP_ADD, "n", i + 1LL);
            net_ask(fd[i], &w, &got, 8);
            wire_expect(&got, "i", round * (i + 1LL));
        }
    NET_EXPECT_STAT(s, connections, JOBS);
    NET_EXPECT_STAT(s, keys, JOBS);
    NET_EXPECT_STAT(s, requests, JOBS * (2 + 3));
    JOB_EXPECT_STAT(job[7], requests, 2 + 3);
    for (int i = 0; i < JOBS; i += 2)
        rdzv_job_close(job[i], NULL, NULL);
    for (int i = 1; i < JOBS; i += 2) {
        snprintf(name, sizeof name, "%d", 3 * (i + 1));
        wire_add(&w, "bs", RDZV__OP_GET, "n");
        net_ask(fd[i], &w, &got, 8 + strlen(name));
        wire_expect(&got, "s", name);
    }
    NET_EXPECT_STAT(s, connections, JOBS / 2);
    NET_EXPECT_STAT(s, keys, JOBS / 2);
    NET_EXPECT_STAT(s, accepted, JOBS); /* also those of closed jobs */
    NET_EXPECT_STAT(s, requests, JOBS * (2 + 3) + JOBS / 2);
    for (int i = 0; i < JOBS; i++)
        close(fd[i]);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

/* A job of this limit beside one without. */
static void open_small(rdzv_server *s, const rdzv_job_options *opt, rdzv_job **small,
                       rdzv_job **large)
{
    *small = jobs_open(s, "small", opt);
    *large = jobs_open(s, "large", NULL);
}

START_TEST(a_job_is_full_of_bytes)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job_options opt = jobs_options("small");
    opt.max_store_bytes = 20000;
    rdzv_job *small;
    rdzv_job *large;
    open_small(s, &opt, &small, &large);
    int fd = net_greet(jobs_port(small));
    int other = net_greet(jobs_port(large));
    net_set(fd, "a", 15000);
    net_set_refused(net_greet(jobs_port(small)), "b", 15000);
    net_expect_log(s, &net_server_log, "job \"small\": closed client 127.0.0.1:");
    net_expect_log(s, &net_server_log, "the store holds max_store_bytes (of this job)");
    JOB_EXPECT_STAT(small, refused, 1);
    ck_assert_uint_eq(JOB_STAT(large, refused), 0);
    net_set(other, "b", 15000);
    net_set(other, "c", 1500000);
    net_set(fd, "a", 100); /* and there is room again */
    net_set(fd, "b", 15000);
    ck_assert_uint_le(JOB_STAT(small, store_bytes), 20000);
    close(fd);
    close(other);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(a_job_is_full_of_keys)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job_options opt = jobs_options("small");
    opt.max_keys = 4;
    rdzv_job *small;
    rdzv_job *large;
    open_small(s, &opt, &small, &large);
    int fd = net_greet(jobs_port(small));
    int waiter = net_greet(jobs_port(small));
    int other = net_greet(jobs_port(large));
    net_set(fd, "1", 1);
    net_set(fd, "2", 1);
    wire_add(&w, "bss", RDZV__OP_QUEUE_PUSH, "queue", "1");
    wire_add(&w, "bss", RDZV__OP_QUEUE_PUSH, "queue", "2"); /* one name, however long */
    net_send(fd, &w);
    wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "awaited");
    net_send(waiter, &w);
    JOB_EXPECT_STAT(small, waiting, 1);
    net_set_refused(net_greet(jobs_port(small)), "5", 1);
    net_expect_log(s, &net_server_log, "the store holds max_keys names (of this job)");
    wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "another");
    int late = net_greet(jobs_port(small));
    net_send(late, &w);
    net_read_all(late, &got);
    close(late);
    JOB_EXPECT_STAT(small, refused, 2);
    net_set(fd, "awaited", 1); /* a name that is there costs nothing */
    net_read(waiter, &got, 1);
    wire_expect(&got, "b", 0);
    net_set(fd, "1", 100);
    wire_add(&w, "bs", RDZV__OP_DELETE_KEY, "2");
    net_ask(fd, &w, &got, 8);
    wire_expect(&got, "i", 1LL);
    net_set(fd, "5", 1);
    for (int i = 0; i < 100; i++) {
        char key[4] = {(char)('a' + i / 26), (char)('a' + i % 26), 0, 0};
        net_set(other, key, 1);
    }
    JOB_EXPECT_STAT(large, keys, 100);
    close(fd);
    close(waiter);
    close(other);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(a_job_is_full_of_clients)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job_options opt = jobs_options("small");
    opt.max_connections = 2;
    rdzv_job *small;
    rdzv_job *large;
    open_small(s, &opt, &small, &large);
    int fd[2] = {net_greet(jobs_port(small)), net_greet(jobs_port(small))};
    int late = net_connect(jobs_port(small));
    net_read_all(late, &got);
    close(late);
    net_expect_log(s, &net_server_log,
                   "job \"small\": closed a new client: 2 are connected, which is "
                   "max_connections (of this job)");
    JOB_EXPECT_STAT(small, refused, 1);
    for (int i = 0; i < 5; i++)
        close(net_greet(jobs_port(large)));
    close(fd[0]);
    JOB_EXPECT_STAT(small, connections, 1);
    fd[0] = net_greet(jobs_port(small));
    close(fd[0]);
    close(fd[1]);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

/* Half of a SET of 1 MiB; the server may close on the way. */
static void send_half(int fd, size_t len)
{
    wire_add(&w, "bsi", RDZV__OP_SET, "k", 1ll << 20);
    net_send(fd, &w);
    wire_fill(&w, 'v', len);
    for (size_t at = 8; at < w.len;) {
        ssize_t n = send(fd, w.data + at, w.len - at, MSG_NOSIGNAL);
        if (n < 0)
            break;
        at += (size_t)n;
    }
    w.len = 0;
}

START_TEST(a_job_is_full_of_half_requests)
{
    enum { CLIENTS = 6, HALF = 900000 };
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job_options opt = jobs_options("small");
    opt.max_buffer_bytes = 2 << 20;
    rdzv_job *small;
    rdzv_job *large;
    open_small(s, &opt, &small, &large);
    int fd[CLIENTS];
    int other[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = net_greet(jobs_port(small));
        other[i] = net_greet(jobs_port(large));
        send_half(fd[i], HALF);
        send_half(other[i], HALF);
        ck_assert_uint_le(JOB_STAT(small, buffer_bytes), (2 << 20) + CLIENTS * 65536);
    }
    net_expect_log(s, &net_server_log, "of all clients are max_buffer_bytes (of this job)");
    for (int i = 0; i < 10000 && JOB_STAT(small, refused) == 0; i++)
        usleep(1000);
    ck_assert_uint_gt(JOB_STAT(small, refused), 0);
    ck_assert_uint_eq(JOB_STAT(large, refused), 0);
    for (int i = 0; i < CLIENTS; i++) { /* the other half of the other job's */
        wire_fill(&w, 'v', (1 << 20) - HALF);
        memmove(w.data, w.data + 8, w.len - 8);
        w.len -= 8;
        wire_add(&w, "b", RDZV__OP_GETNUMKEYS);
        net_ask(other[i], &w, &got, 8);
        wire_expect(&got, "i", 1LL);
        close(fd[i]);
        close(other[i]);
    }
    NET_EXPECT_STAT(s, buffer_bytes, 0);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(the_servers_limits_are_of_all_jobs)
{
    rdzv_server_options opt = net_options();
    opt.max_store_bytes = 100000;
    opt.max_keys = 6;
    opt.max_connections = 5;
    struct three t = open_three(&opt);
    for (int i = 0; i < 3; i++)
        net_set(t.fd[i], "large", 25000);
    net_set_refused(net_greet(jobs_port(t.b)), "more", 30000);
    net_expect_log(t.s, &net_server_log, "job \"run-b\": closed client 127.0.0.1:");
    net_expect_log(t.s, &net_server_log,
                   "the store holds max_store_bytes (of the server, all jobs together)");
    net_set(t.fd[0], "large", 100);
    net_set(t.fd[2], "more", 30000); /* what one gives back another may take */
    net_set(t.fd[1], "5", 1);
    net_set(t.fd[1], "6", 1);
    net_set_refused(net_greet(net_port(t.s)), "7", 1);
    net_expect_log(t.s, &net_server_log,
                   "the store holds max_keys names (of the server, all jobs together)");
    rdzv_job_close(t.a, NULL, NULL); /* takes three names and a client along */
    net_set(t.fd[0], "7", 20000);
    NET_EXPECT_STAT(t.s, connections, 2);
    int fd[3];
    for (int i = 0; i < 3; i++)
        fd[i] = net_greet(i == 1 ? jobs_port(t.b) : net_port(t.s));
    int late = net_connect(jobs_port(t.b));
    net_read_all(late, &got);
    close(late);
    net_expect_log(t.s, &net_server_log,
                   "job \"run-b\": closed a new client: 5 are connected, which is "
                   "max_connections (of the server, all jobs together)");
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    close_three(&t);
}
END_TEST

START_TEST(half_requests_of_all_jobs_are_bounded_together)
{
    enum { CLIENTS = 6, HALF = 900000, ALL = 4 << 20 };
    rdzv_server_options opt = net_options();
    opt.max_buffer_bytes = ALL;
    struct three t = open_three(&opt);
    uint16_t ports[3] = {net_port(t.s), jobs_port(t.a), jobs_port(t.b)};
    int fd[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) { /* no job would have more than 2 MiB */
        fd[i] = net_greet(ports[i % 3]);
        send_half(fd[i], HALF);
        net_set(t.fd[0], "k", 10);
        ck_assert_uint_le(NET_STAT(t.s, buffer_bytes), ALL + CLIENTS * 65536);
    }
    net_expect_log(t.s, &net_server_log, "are max_buffer_bytes (of the server, all jobs together)");
    for (int i = 0; i < CLIENTS; i++)
        close(fd[i]);
    NET_EXPECT_STAT(t.s, buffer_bytes, 0);
    send_half(t.fd[1], HALF); /* and there is room again */
    JOB_EXPECT_STAT(t.a, connections, 1);
    net_set(t.fd[2], "k", 10);
    ck_assert_uint_eq(JOB_STAT(t.a, connections), 1);
    close_three(&t);
}
END_TEST

START_TEST(a_request_that_expires_gives_its_room_to_others)
{
    enum { HALF = 900000 };
    rdzv_server_options opt = net_options();
    opt.max_buffer_bytes = 2 << 20;
    opt.request_timeout_ms = 300;
    struct three t = open_three(&opt);
    send_half(t.fd[1], HALF);
    while (!net_heard(t.fd[1], 5)) /* its time ends while another job is served */
        net_set(t.fd[2], "k", 10);
    net_read_all(t.fd[1], &got);
    net_expect_log(t.s, &net_server_log, "job \"run-a\": closed client");
    JOB_EXPECT_STAT(t.a, refused, 1);
    JOB_EXPECT_STAT(t.a, buffer_bytes, 0);
    wire_add(&w, "bs", RDZV__OP_SET, "k");
    wire_fill(&w, 'v', HALF);
    wire_add(&w, "b", RDZV__OP_GETNUMKEYS);
    net_ask(t.fd[2], &w, &got, 8);
    wire_expect(&got, "i", 1LL);
    close_three(&t);
}
END_TEST

START_TEST(each_full_job_has_its_own_line)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job_options opt = jobs_options(NULL);
    opt.max_store_bytes = 10000;
    rdzv_job *a = jobs_open(s, "run-a", &opt);
    rdzv_job *b = jobs_open(s, "run-b", &opt);
    for (int i = 0; i < 5; i++) {
        net_set_refused(net_greet(jobs_port(a)), "k", 20000);
        net_set_refused(net_greet(jobs_port(b)), "k", 20000);
    }
    net_expect_log(s, &net_server_log, "job \"run-a\": closed client");
    net_expect_log(s, &net_server_log, "job \"run-b\": closed client");
    net_expect_log(s, &net_server_log, "job \"run-a\": 4 more like this within a second");
    net_expect_log(s, &net_server_log, "job \"run-b\": 4 more like this within a second");
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

/* Leaves a key and a queue behind. */
enum { VISIT_REQUESTS = 5 };
static void visit(uint16_t port)
{
    int fd = net_greet(port);
    wire_add(&w, "bss", RDZV__OP_QUEUE_PUSH, "queue", "element");
    net_send(fd, &w);
    net_set(fd, "k", 100);
    close(fd);
}

START_TEST(keys_are_forgotten_when_nobody_comes_back)
{
    rdzv_server_options server_opt = net_options();
    server_opt.forget_after_ms = 150;
    rdzv_server *s = net_open(&server_opt, &net_server_log);
    rdzv_job_options opt = jobs_options(NULL);
    opt.forget_after_ms = 150;
    rdzv_job *short_lived = jobs_open(s, "short-lived", &opt);
    rdzv_job *kept = jobs_open(s, "kept", NULL);
    for (int round = 0; round < 3; round++) {
        visit(jobs_port(short_lived));
        visit(net_port(s));
        visit(jobs_port(kept));
        uint64_t requests = (uint64_t)round * (VISIT_REQUESTS + 4) + VISIT_REQUESTS;
        JOB_EXPECT_STAT(short_lived, requests, requests); /* it knows of the visit */
        JOB_EXPECT_STAT(short_lived, store_bytes, 0);
        NET_EXPECT_STAT(s, keys, 1);
        int fd = net_greet(jobs_port(short_lived)); /* the next run, on the same port */
        wire_add(&w, "b", RDZV__OP_GETNUMKEYS);
        wire_add(&w, "bs", RDZV__OP_QUEUE_LEN, "queue");
        net_ask(fd, &w, &got, 16);
        wire_expect(&got, "ii", 0LL, 0LL);
        close(fd);
    }
    net_expect_log(s, &net_server_log,
                   "job \"short-lived\": forgot 2 keys and queues: no client for 150 ms");
    net_expect_log(s, &net_server_log, "\nforgot 2 keys and queues: no client for 150 ms");
    ck_assert_int_eq(net_count_keys(jobs_port(kept)), 1);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

START_TEST(a_client_that_comes_back_stops_the_clock)
{
    enum { AFTER_MS = 400 };
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job_options opt = jobs_options(NULL);
    opt.forget_after_ms = AFTER_MS;
    rdzv_job *job = jobs_open(s, "job", &opt);
    int first = net_greet(jobs_port(job));
    visit(jobs_port(job));
    ck_assert(!net_heard(first, 2 * AFTER_MS)); /* a silent client is one, too */
    ck_assert_uint_eq(JOB_STAT(job, keys), 1);
    close(first);
    JOB_EXPECT_STAT(job, connections, 0);
    int second = net_greet(jobs_port(job));
    ck_assert(!net_heard(second, 2 * AFTER_MS));
    wire_add(&w, "b", RDZV__OP_GETNUMKEYS);
    net_ask(second, &w, &got, 8);
    wire_expect(&got, "i", 1LL);
    uint64_t left_ms = now_ms();
    close(second); /* and now all of it begins again */
    uint64_t keys;
    do {
        keys = JOB_STAT(job, keys);
        ck_assert(keys == 1 || now_ms() >= left_ms + AFTER_MS);
        usleep(1000);
    } while (keys > 0 && now_ms() < left_ms + 10000);
    ck_assert_uint_eq(keys, 0);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(a_probe_of_the_port_does_not_stop_the_clock)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job_options opt = jobs_options(NULL);
    opt.forget_after_ms = 300;
    rdzv_job *job = jobs_open(s, "job", &opt);
    visit(jobs_port(job));
    JOB_EXPECT_STAT(job, requests, VISIT_REQUESTS);
    for (int i = 0; i < 200 && JOB_STAT(job, keys) > 0; i++) { /* at least one per 300 ms */
        close(net_connect(jobs_port(job)));
        usleep(20000);
    }
    ck_assert_uint_eq(JOB_STAT(job, keys), 0);
    visit(jobs_port(job));
    int probe = net_connect(jobs_port(job)); /* while it is there, nothing is forgotten */
    ck_assert(!net_heard(probe, 600));
    ck_assert_uint_eq(JOB_STAT(job, keys), 1);
    close(probe);
    JOB_EXPECT_STAT(job, keys, 0);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("jobs");
    TCase *t = tcase_create("jobs");
    tcase_set_timeout(t, 60);
    tcase_add_unchecked_fixture(t, net_warm_up, NULL);
    tcase_add_checked_fixture(t, net_setup, teardown);
    tcase_add_test(t, equal_names_are_different_keys);
    tcase_add_test(t, nobody_is_woken_by_another_job);
    tcase_add_test(t, a_hundred_jobs);
    tcase_add_test(t, a_job_is_full_of_bytes);
    tcase_add_test(t, a_job_is_full_of_keys);
    tcase_add_test(t, a_job_is_full_of_clients);
    tcase_add_test(t, a_job_is_full_of_half_requests);
    tcase_add_test(t, the_servers_limits_are_of_all_jobs);
    tcase_add_test(t, half_requests_of_all_jobs_are_bounded_together);
    tcase_add_test(t, a_request_that_expires_gives_its_room_to_others);
    tcase_add_test(t, each_full_job_has_its_own_line);
    tcase_add_test(t, keys_are_forgotten_when_nobody_comes_back);
    tcase_add_test(t, a_client_that_comes_back_stops_the_clock);
    tcase_add_test(t, a_probe_of_the_port_does_not_stop_the_clock);
    suite_add_tcase(s, t);
    return s;
}
