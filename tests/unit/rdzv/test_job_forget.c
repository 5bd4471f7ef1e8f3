/*
 * test_job_forget.c: a job's keys go when nobody has been there for its time, and only then.
 */
#include "clock.h"
#include "jobs.h"
#include "runner.h"

#include <unistd.h>

static struct wire w;
static struct wire got;

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
    uint64_t left_ms = clock_ms();
    close(second); /* and now all of it begins again */
    uint64_t keys;
    do {
        keys = JOB_STAT(job, keys);
        ck_assert(keys == 1 || clock_ms() >= left_ms + AFTER_MS);
        usleep(1000);
    } while (keys > 0 && clock_ms() < left_ms + 10000);
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
    Suite *s = suite_create("job_forget");
    TCase *t = net_tcase(s, "job_forget", &w, &got);
    tcase_add_test(t, keys_are_forgotten_when_nobody_comes_back);
    tcase_add_test(t, a_client_that_comes_back_stops_the_clock);
    tcase_add_test(t, a_probe_of_the_port_does_not_stop_the_clock);
    return s;
}
