/*
 * test_jobs.c: one server, many jobs: nobody sees or wakes another job's clients. Server on its own
 * thread; test_job_limits.c has their shares, test_job_forget.c the end of their keys,
 * test_job_life.c opening and closing, test_job_loop.c the caller's loop.
 */
#include "jobs.h"
#include "runner.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct wire w;
static struct wire got;

START_TEST(equal_names_are_different_keys)
{
    struct jobs_three t = jobs_open_three(NULL);
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
    jobs_close_three(&t);
}
END_TEST

START_TEST(nobody_is_woken_by_another_job)
{
    struct jobs_three t = jobs_open_three(NULL);
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
    jobs_close_three(&t);
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

Suite *suite(void)
{
    Suite *s = suite_create("jobs");
    TCase *t = net_tcase(s, "jobs", &w, &got);
    tcase_add_test(t, equal_names_are_different_keys);
    tcase_add_test(t, nobody_is_woken_by_another_job);
    tcase_add_test(t, a_hundred_jobs);
    return s;
}
