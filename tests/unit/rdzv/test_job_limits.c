/*
 * test_job_limits.c: each job is held to its share, and all of them to the server's limits; what
 * one is refused another may still have.
 */
#include "jobs.h"
#include "runner.h"

#include <string.h>
#include <unistd.h>

static struct wire w;
static struct wire got;

/* A job of this limit beside one without. */
struct two {
    rdzv_server *s;
    rdzv_job *small;
    rdzv_job *large;
};

static struct two open_two(const rdzv_job_options *small)
{
    struct two t = {.s = net_open(NULL, &net_server_log)};
    t.small = jobs_open(t.s, "small", small);
    t.large = jobs_open(t.s, "large", NULL);
    return t;
}

START_TEST(a_job_is_full_of_bytes)
{
    rdzv_job_options opt = jobs_options(NULL);
    opt.max_store_bytes = 20000;
    struct two t = open_two(&opt);
    int fd = net_greet(jobs_port(t.small));
    int other = net_greet(jobs_port(t.large));
    net_set(fd, "a", 15000);
    net_set_refused(net_greet(jobs_port(t.small)), "b", 15000);
    net_expect_log(t.s, &net_server_log, "job \"small\": closed client 127.0.0.1:");
    net_expect_log(t.s, &net_server_log, "the store holds max_store_bytes (of this job)");
    JOB_EXPECT_STAT(t.small, refused, 1);
    ck_assert_uint_eq(JOB_STAT(t.large, refused), 0);
    net_set(other, "b", 15000);
    net_set(other, "c", 1500000);
    net_set(fd, "a", 100); /* and there is room again */
    net_set(fd, "b", 15000);
    ck_assert_uint_le(JOB_STAT(t.small, store_bytes), 20000);
    close(fd);
    close(other);
    rdzv_server_close(t.s, NULL, NULL);
}
END_TEST

START_TEST(a_job_is_full_of_keys)
{
    rdzv_job_options opt = jobs_options(NULL);
    opt.max_keys = 4;
    struct two t = open_two(&opt);
    int fd = net_greet(jobs_port(t.small));
    int waiter = net_greet(jobs_port(t.small));
    int other = net_greet(jobs_port(t.large));
    net_set(fd, "1", 1);
    net_set(fd, "2", 1);
    wire_add(&w, "bss", RDZV__OP_QUEUE_PUSH, "queue", "1");
    wire_add(&w, "bss", RDZV__OP_QUEUE_PUSH, "queue", "2"); /* one name, however long */
    net_send(fd, &w);
    wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "awaited");
    net_send(waiter, &w);
    JOB_EXPECT_STAT(t.small, waiting, 1);
    net_set_refused(net_greet(jobs_port(t.small)), "5", 1);
    net_expect_log(t.s, &net_server_log, "the store holds max_keys names (of this job)");
    wire_add(&w, "bis", RDZV__OP_WAIT, 1LL, "another");
    int late = net_greet(jobs_port(t.small));
    net_send(late, &w);
    net_read_all(late, &got);
    close(late);
    JOB_EXPECT_STAT(t.small, refused, 2);
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
    JOB_EXPECT_STAT(t.large, keys, 100);
    close(fd);
    close(waiter);
    close(other);
    rdzv_server_close(t.s, NULL, NULL);
}
END_TEST

START_TEST(a_job_is_full_of_clients)
{
    rdzv_job_options opt = jobs_options(NULL);
    opt.max_connections = 2;
    struct two t = open_two(&opt);
    int fd[2] = {net_greet(jobs_port(t.small)), net_greet(jobs_port(t.small))};
    int late = net_connect(jobs_port(t.small));
    net_read_all(late, &got);
    close(late);
    net_expect_log(t.s, &net_server_log,
                   "job \"small\": closed a new client: 2 are connected, which is "
                   "max_connections (of this job)");
    JOB_EXPECT_STAT(t.small, refused, 1);
    for (int i = 0; i < 5; i++)
        close(net_greet(jobs_port(t.large)));
    close(fd[0]);
    JOB_EXPECT_STAT(t.small, connections, 1);
    fd[0] = net_greet(jobs_port(t.small));
    close(fd[0]);
    close(fd[1]);
    rdzv_server_close(t.s, NULL, NULL);
}
END_TEST

START_TEST(a_job_is_full_of_half_requests)
{
    enum { CLIENTS = 6, HALF = 900000 };
    rdzv_job_options opt = jobs_options(NULL);
    opt.max_buffer_bytes = 2 << 20;
    struct two t = open_two(&opt);
    int fd[CLIENTS];
    int other[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = net_greet(jobs_port(t.small));
        other[i] = net_greet(jobs_port(t.large));
        net_set_begun(fd[i], "k", HALF);
        net_set_begun(other[i], "k", HALF);
        ck_assert_uint_le(JOB_STAT(t.small, buffer_bytes), (2 << 20) + CLIENTS * 65536);
    }
    net_expect_log(t.s, &net_server_log, "of all clients are max_buffer_bytes (of this job)");
    for (int i = 0; i < 10000 && JOB_STAT(t.small, refused) == 0; i++)
        usleep(1000);
    ck_assert_uint_gt(JOB_STAT(t.small, refused), 0);
    ck_assert_uint_eq(JOB_STAT(t.large, refused), 0);
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
    NET_EXPECT_STAT(t.s, buffer_bytes, 0);
    rdzv_server_close(t.s, NULL, NULL);
}
END_TEST

START_TEST(the_servers_limits_are_of_all_jobs)
{
    rdzv_server_options opt = net_options();
    opt.max_store_bytes = 100000;
    opt.max_keys = 6;
    opt.max_connections = 5;
    struct jobs_three t = jobs_open_three(&opt);
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
    jobs_close_three(&t);
}
END_TEST

START_TEST(half_requests_of_all_jobs_are_bounded_together)
{
    enum { CLIENTS = 6, HALF = 900000, ALL = 4 << 20 };
    rdzv_server_options opt = net_options();
    opt.max_buffer_bytes = ALL;
    struct jobs_three t = jobs_open_three(&opt);
    uint16_t ports[3] = {net_port(t.s), jobs_port(t.a), jobs_port(t.b)};
    int fd[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) { /* no job would have more than 2 MiB */
        fd[i] = net_greet(ports[i % 3]);
        net_set_begun(fd[i], "k", HALF);
        net_set(t.fd[0], "k", 10);
        ck_assert_uint_le(NET_STAT(t.s, buffer_bytes), ALL + CLIENTS * 65536);
    }
    net_expect_log(t.s, &net_server_log, "are max_buffer_bytes (of the server, all jobs together)");
    for (int i = 0; i < CLIENTS; i++)
        close(fd[i]);
    NET_EXPECT_STAT(t.s, buffer_bytes, 0);
    net_set_begun(t.fd[1], "k", HALF); /* and there is room again */
    JOB_EXPECT_STAT(t.a, connections, 1);
    net_set(t.fd[2], "k", 10);
    ck_assert_uint_eq(JOB_STAT(t.a, connections), 1);
    jobs_close_three(&t);
}
END_TEST

START_TEST(a_request_that_expires_gives_its_room_to_others)
{
    enum { HALF = 900000 };
    rdzv_server_options opt = net_options();
    opt.max_buffer_bytes = 2 << 20;
    opt.request_timeout_ms = 300;
    struct jobs_three t = jobs_open_three(&opt);
    net_set_begun(t.fd[1], "k", HALF);
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
    jobs_close_three(&t);
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

Suite *suite(void)
{
    Suite *s = suite_create("job_limits");
    TCase *t = net_tcase(s, "job_limits", &w, &got);
    tcase_add_test(t, a_job_is_full_of_bytes);
    tcase_add_test(t, a_job_is_full_of_keys);
    tcase_add_test(t, a_job_is_full_of_clients);
    tcase_add_test(t, a_job_is_full_of_half_requests);
    tcase_add_test(t, the_servers_limits_are_of_all_jobs);
    tcase_add_test(t, half_requests_of_all_jobs_are_bounded_together);
    tcase_add_test(t, a_request_that_expires_gives_its_room_to_others);
    tcase_add_test(t, each_full_job_has_its_own_line);
    return s;
}
