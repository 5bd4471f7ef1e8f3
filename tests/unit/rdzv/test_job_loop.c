/*
 * test_job_loop.c: jobs of a server on the caller's loop: opened and closed at once, told later,
 * and nothing is left there.
 */
#include "jobs.h"
#include "runner.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

static struct net_log server_log;
static struct wire got;
static int fds_before;
static uv_loop_t loop;

static void setup(void)
{
    memset(&server_log, 0, sizeof server_log);
    fds_before = net_count_fds();
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static void teardown(void)
{
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(net_count_fds(), fds_before);
    net_expect_threads(0);
    wire_free(&got);
}

static rdzv_server *open_on_loop(void)
{
    rdzv_server_options opt = net_options();
    opt.loop = &loop;
    return net_open(&opt, &server_log);
}

/* Runs the loop until the job or the server has nothing more to do for its clients. */
static void run_until(rdzv_job *job, size_t offset, uint64_t want)
{
    for (int i = 0; i < 5000 && jobs_stat(job, offset) != want; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    ck_assert_uint_eq(jobs_stat(job, offset), want);
}

static void *set_and_leave(void *arg)
{
    int fd = net_greet(*(uint16_t *)arg);
    net_set(fd, "k", 100);
    close(fd);
    return NULL;
}

static void serve_one(rdzv_job *job)
{
    uint16_t port = jobs_port(job);
    pthread_t client;
    ck_assert_int_eq(pthread_create(&client, NULL, set_and_leave, &port), 0);
    while (pthread_tryjoin_np(client, NULL) != 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    run_until(job, offsetof(rdzv_server_stats, connections), 0);
}

START_TEST(close_is_told_later)
{
    rdzv_server *s = open_on_loop();
    rdzv_job_options opt = jobs_options("forgetful");
    opt.forget_after_ms = 50;
    rdzv_job *a = jobs_open(s, "a", NULL);
    rdzv_job *forgetful = jobs_open(s, "forgetful", &opt);
    serve_one(a);
    serve_one(forgetful);
    run_until(forgetful, offsetof(rdzv_server_stats, keys), 0);
    ck_assert_uint_eq(JOB_STAT(a, keys), 1);
    net_expect_threads(0);
    int closed = 0;
    uint16_t port = jobs_port(a);
    server_log.text[0] = '\0';
    rdzv_job_close(a, net_count_call, &closed);
    ck_assert_int_eq(closed, 0); /* only from uv_run, and so are lines */
    ck_assert_str_eq(server_log.text, "");
    net_expect_no_listener(port);
    opt = jobs_options("a");
    opt.port = port;
    a = jobs_open(s, "a", &opt); /* the run id and the port are free already */
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(closed, 1);
    ck_assert_ptr_nonnull(
        strstr(server_log.text, "job \"a\": closed with 0 clients, 1 keys and queues"));
    serve_one(a);
    ck_assert_uint_eq(JOB_STAT(a, keys), 1);
    rdzv_server_close(s, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
}
END_TEST

static rdzv_job *its_job;
static char order[8];

static void note_job(void *ctx)
{
    (void)ctx;
    strcat(order, "j");
}

static void note_server(void *ctx)
{
    (void)ctx;
    strcat(order, "s");
}

START_TEST(the_server_may_close_at_once)
{
    order[0] = '\0';
    rdzv_server *s = open_on_loop();
    rdzv_job *a = jobs_open(s, "a", NULL);
    rdzv_job *b = jobs_open(s, "b", NULL);
    jobs_open(s, "left open", NULL);
    int fd[3] = {net_connect(jobs_port(a)), net_connect(jobs_port(b)), net_connect(net_port(s))};
    run_until(a, offsetof(rdzv_server_stats, connections), 1);
    rdzv_job_close(a, note_job, NULL);
    rdzv_job_close(b, note_job, NULL);
    rdzv_server_close(s, note_server, NULL);
    rdzv_job_options opt = jobs_options("late");
    rdzv_error err;
    ck_assert_int_eq(jobs_open_fails(s, &opt, &err), RDZV_ESTATE);
    ck_assert_str_eq(order, "");
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_str_eq(order, "jjs");
    for (int i = 0; i < 3; i++) {
        net_read_all(fd[i], &got);
        close(fd[i]);
    }
}
END_TEST

static int reopened;

static void open_again(void *ctx)
{
    rdzv_server *s = ctx;
    if (++reopened < 4) {
        rdzv_job_close(jobs_open(s, "again", NULL), open_again, s);
        return;
    }
    rdzv_server_close(s, note_server, NULL);
}

START_TEST(a_closed_job_may_open_the_next_and_close_the_server)
{
    order[0] = '\0';
    reopened = 0;
    rdzv_server *s = open_on_loop();
    rdzv_job_close(jobs_open(s, "again", NULL), open_again, s);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(reopened, 4);
    ck_assert_str_eq(order, "s");
}
END_TEST

static void close_job_then_server(void *ctx)
{
    rdzv_server *s = ctx;
    rdzv_job_close(its_job, note_job, NULL);
    rdzv_server_close(s, note_server, NULL);
}

START_TEST(drained_may_close)
{
    order[0] = '\0';
    rdzv_server *s = open_on_loop();
    its_job = jobs_open(s, "job", NULL);
    int fd = net_connect(jobs_port(its_job));
    run_until(its_job, offsetof(rdzv_server_stats, connections), 1);
    ck_assert_int_eq(rdzv_server_drain(s, 50, close_job_then_server, s), RDZV_OK);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_str_eq(order, "js");
    net_expect_end(fd);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("job loop");
    TCase *t = tcase_create("borrowed loop");
    tcase_set_timeout(t, 60);
    tcase_add_unchecked_fixture(t, net_warm_up, NULL);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, close_is_told_later);
    tcase_add_test(t, the_server_may_close_at_once);
    tcase_add_test(t, a_closed_job_may_open_the_next_and_close_the_server);
    tcase_add_test(t, drained_may_close);
    suite_add_tcase(s, t);
    return s;
}
