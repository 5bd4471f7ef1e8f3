/*
 * test_job_end.c: what the end of a job leaves behind: callbacks on the owner's thread while the
 * loop's thread looks at other jobs, and log lines that tell all.
 */
#include "jobs.h"
#include "runner.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct wire w;
static struct wire got;

struct churn {
    uint16_t port;
    atomic_int stop;
    long done;
};

/* Clients that come, ask and leave: each time, the loop has something to forget a moment later. */
static void *churn(void *arg)
{
    struct churn *c = arg;
    struct wire out = WIRE_INIT;
    struct wire in = WIRE_INIT;
    do {
        int fd = net_connect(c->port);
        wire_hello(&out);
        wire_add(&out, "bsi", RDZV__OP_ADD, "n", 1LL);
        net_send(fd, &out);
        net_read(fd, &in, 8);
        in.len = 0;
        close(fd);
        usleep(300);
        c->done++;
    } while (!atomic_load(&c->stop));
    wire_free(&out);
    wire_free(&in);
    return NULL;
}

struct closings {
    pthread_t owner;
    int calls;
    int elsewhere;
};

static void on_closed(void *ctx)
{
    struct closings *c = ctx;
    c->calls++;
    c->elsewhere += !pthread_equal(pthread_self(), c->owner);
}

START_TEST(closed_runs_on_the_owners_thread)
{
    enum { ROUNDS = 2000 };
    rdzv_server_options opt = net_options();
    opt.forget_after_ms = 1;
    rdzv_server *s = net_open(&opt, &net_server_log);
    struct churn c = {.port = net_port(s)};
    struct closings closings = {.owner = pthread_self()};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, churn, &c), 0);
    for (int i = 0; i < ROUNDS; i++) {
        rdzv_job *job = jobs_open(s, "passing", NULL);
        rdzv_job_close(job, on_closed, &closings);
        ck_assert_int_eq(closings.calls, i + 1);
        ck_assert_int_ge(rdzv_server_dispatch(s), 0);
    }
    atomic_store(&c.stop, 1);
    pthread_join(thread, NULL);
    ck_assert_int_gt(c.done, 0);
    ck_assert_int_eq(closings.elsewhere, 0);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(awaited_names_are_not_counted)
{
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job *job = jobs_open(s, "job", NULL);
    int fd = net_connect(jobs_port(job));
    wire_hello(&w);
    wire_add(&w, "bsi", RDZV__OP_ADD, "n", 1LL);
    wire_add(&w, "biss", RDZV__OP_WAIT, 2LL, "never", "neither");
    net_send(fd, &w);
    net_read(fd, &got, 8);
    JOB_EXPECT_STAT(job, waiting, 1);
    rdzv_job_close(job, NULL, NULL);
    net_expect_log(s, &net_server_log, "job \"job\": closed with 1 clients, 1 keys and queues");
    close(fd);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

/* How many clients the lines say were refused, one by one or in sum. */
static long told(void)
{
    long sum = 0;
    for (const char *at = net_server_log.text; (at = strstr(at, "closed client")) != NULL; at++)
        sum++;
    for (const char *at = net_server_log.text; (at = strstr(at, " more like this")) != NULL; at++) {
        const char *digits = at;
        while (digits > net_server_log.text && digits[-1] >= '0' && digits[-1] <= '9')
            digits--;
        sum += strtol(digits, NULL, 10);
    }
    return sum;
}

static void refuse(uint16_t port)
{
    int fd = net_connect(port);
    wire_bytes(&w, "GET / HTTP/1.1", 14);
    net_send(fd, &w);
    net_read_all(fd, &got);
    close(fd);
}

START_TEST(refusals_that_were_left_out_are_told_at_the_end)
{
    enum { REFUSED = 5 };
    rdzv_server *s = net_open(NULL, &net_server_log);
    rdzv_job *job = jobs_open(s, "job", NULL);
    for (int i = 0; i < REFUSED; i++)
        refuse(jobs_port(job));
    JOB_EXPECT_STAT(job, refused, REFUSED);
    rdzv_job_close(job, NULL, NULL);
    net_expect_log(s, &net_server_log, "job \"job\": closed with");
    ck_assert_int_eq(told(), REFUSED);
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

START_TEST(also_at_the_end_of_the_server)
{
    enum { REFUSED = 5 };
    rdzv_server *s = net_open(NULL, &net_server_log);
    for (int i = 0; i < REFUSED; i++)
        refuse(net_port(s));
    NET_EXPECT_STAT(s, refused, REFUSED);
    rdzv_server_close(s, NULL, NULL);
    ck_assert_int_eq(told(), REFUSED);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("job end");
    TCase *t = net_tcase(s, "own thread", &w, &got);
    tcase_add_test(t, closed_runs_on_the_owners_thread);
    tcase_add_test(t, awaited_names_are_not_counted);
    tcase_add_test(t, refusals_that_were_left_out_are_told_at_the_end);
    tcase_add_test(t, also_at_the_end_of_the_server);
    return s;
}
