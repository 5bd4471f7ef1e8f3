/*
 * test_daemon_jobs.c: one rdzvd for many jobs: --job, its share of the limits, --forget-after.
 */
#include "daemon.h"
#include "net.h"
#include "runner.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct wire w;
static struct wire got;

static void teardown(void)
{
    daemon_teardown();
    wire_free(&w);
    wire_free(&got);
}

static void set(int fd, const char *key, const char *value)
{
    wire_add(&w, "bss", RDZV__OP_SET, key, value);
    net_send(fd, &w);
    net_expect_served(fd);
}

static void expect_value(int fd, const char *key, const char *value)
{
    wire_add(&w, "bs", RDZV__OP_GET, key);
    net_send(fd, &w);
    net_read(fd, &got, 8 + strlen(value));
    wire_expect(&got, "s", value);
}

START_TEST(each_job_has_its_keys)
{
    DAEMON_START("--job", "llama=127.0.0.1:0", "--job", "b e=r=t=[::1]:0", "--job",
                 "third=127.0.0.1:0");
    static const char *const who[] = {NULL, "llama", "third"}; /* tests speak IPv4 */
    int fd[3];
    for (int i = 0; i < 3; i++)
        fd[i] = net_greet(daemon_port(who[i]));
    ck_assert_uint_ne(daemon_port("b e=r=t"), 0);
    set(fd[0], "k", "of nobody");
    set(fd[1], "k", "of llama");
    set(fd[2], "k", "of the third");
    set(fd[2], "another", "");
    expect_value(fd[0], "k", "of nobody");
    expect_value(fd[1], "k", "of llama");
    expect_value(fd[2], "k", "of the third");
    ck_assert_int_eq(net_count_keys(daemon_port(NULL)), 1);
    ck_assert_int_eq(net_count_keys(daemon_port("llama")), 1);
    ck_assert_int_eq(net_count_keys(daemon_port("third")), 2);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    daemon_stop();
}
END_TEST

START_TEST(standard_output_lists_the_jobs_in_order)
{
    DAEMON_START("--job", "z=127.0.0.1:0", "--job", "a=127.0.0.1:0");
    char want[200];
    snprintf(want, sizeof want,
             "rdzvd ready on 127.0.0.1:%u\nrdzvd job z on 127.0.0.1:%u\n"
             "rdzvd job a on 127.0.0.1:%u\n",
             daemon_port(NULL), daemon_port("z"), daemon_port("a"));
    daemon_stop();
    ck_assert_str_eq(daemon_out(), want);
}
END_TEST

START_TEST(bad_jobs_are_told_at_the_start)
{
    static const char *const bad[] = {"",
                                      "llama",
                                      "=127.0.0.1:0",
                                      "llama=",
                                      "llama=127.0.0.1",
                                      "llama=127.0.0.1:65536",
                                      "l\n=[::1]:0",
                                      "llama=::1:0",
                                      "l\xc3\xa4ma=127.0.0.1:0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(DAEMON_RUN("--job", bad[i]) == 2, "%s", bad[i]);
        ck_assert_ptr_nonnull(strstr(daemon_log(), "--job wants RUN_ID=ADDR:PORT"));
        ck_assert_ptr_nonnull(strstr(daemon_log(), bad[i]));
    }
    char id[300];
    memset(id, 'x', 256);
    strcpy(id + 256, "=127.0.0.1:0");
    ck_assert_int_eq(DAEMON_RUN("--job", id), 2);
    ck_assert_int_eq(
        DAEMON_RUN("--listen", "127.0.0.1:0", "--job", "a=127.0.0.1:0", "--job", "a=127.0.0.1:0"),
        2);
    ck_assert_ptr_nonnull(strstr(daemon_log(), "cannot start: --job: job \"a\" is open already"));
    ck_assert_str_eq(daemon_out(), ""); /* nobody was told to use the rest */
    ck_assert_int_eq(DAEMON_RUN("--listen", "127.0.0.1:0", "--job", "a=192.0.2.1:0"), 3);
    ck_assert_ptr_nonnull(strstr(daemon_log(), "ip -brief address"));
}
END_TEST

START_TEST(a_busy_port_names_the_flag)
{
    rdzv_server_options opt = net_options();
    rdzv_server *s = NULL;
    ck_assert_int_eq(rdzv_server_open(&s, &opt, NULL), RDZV_OK);
    char job[40];
    char want[80];
    snprintf(job, sizeof job, "a=127.0.0.1:%u", net_port(s));
    snprintf(want, sizeof want, "ss -ltnp 'sport = :%u'", net_port(s));
    ck_assert_int_eq(DAEMON_RUN("--listen", "127.0.0.1:0", "--job", job), 3);
    ck_assert_ptr_nonnull(strstr(daemon_log(), want));
    ck_assert_ptr_nonnull(strstr(daemon_log(), "choose another port with --job"));
    rdzv_server_close(s, NULL, NULL);
}
END_TEST

/* A port that is free now; another process may take it. */
static unsigned free_port(void)
{
    rdzv_server_options opt = net_options();
    rdzv_server *s = NULL;
    ck_assert_int_eq(rdzv_server_open(&s, &opt, NULL), RDZV_OK);
    unsigned port = net_port(s);
    rdzv_server_close(s, NULL, NULL);
    return port;
}

/* Not "another process listens there". */
START_TEST(a_port_that_this_process_has_is_told)
{
    int told[2] = {0, 0};
    for (int i = 0; i < 10 && !(told[0] && told[1]); i++) {
        unsigned port = free_port();
        char listen[40];
        char job[2][40];
        char want[80];
        snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
        snprintf(job[0], sizeof job[0], "a=127.0.0.1:%u", port);
        snprintf(job[1], sizeof job[1], "b=127.0.0.1:%u", port);
        snprintf(want, sizeof want, "this rdzvd listens on 127.0.0.1:%u itself", port);
        ck_assert_int_eq(DAEMON_RUN("--listen", listen, "--job", job[0]), 3);
        told[0] |= strstr(daemon_log(), want) != NULL;
        ck_assert_int_eq(DAEMON_RUN("--listen", "127.0.0.1:0", "--job", job[0], "--job", job[1]),
                         3);
        told[1] |= strstr(daemon_log(), want) != NULL;
    }
    ck_assert(told[0]);
    ck_assert(told[1]);
}
END_TEST

START_TEST(a_share_without_effect_is_told)
{
    DAEMON_START("--job-max-keys", "5");
    daemon_expect_log("warn --job-max-keys has no effect: there is no --job");
    daemon_stop();
    DAEMON_START("--job", "a=127.0.0.1:0", "--job-max-store-bytes", "8G", "--max-store-bytes", "1G",
                 "--job-max-keys", "5");
    daemon_expect_log("warn --job-max-store-bytes (8589934592) has no effect: --max-store-bytes "
                      "lets all jobs together have 1073741824");
    ck_assert_ptr_null(strstr(daemon_log(), "--job-max-keys"));
    daemon_stop();
}
END_TEST

START_TEST(a_job_that_takes_its_share_hurts_no_other)
{
    DAEMON_START("--job", "a=127.0.0.1:0", "--job", "b=127.0.0.1:0", "--job-max-keys", "2",
                 "--job-max-connections", "2");
    int b = net_greet(daemon_port("b"));
    int a[2] = {net_greet(daemon_port("a")), net_greet(daemon_port("a"))};
    int late = net_connect(daemon_port("a"));
    net_read_all(late, &got);
    ck_assert_uint_eq(got.len, 0);
    close(late);
    daemon_expect_log("job \"a\": closed a new client: 2 are connected, which is max_connections");
    set(a[0], "1", "");
    set(a[0], "2", "");
    wire_add(&w, "bss", RDZV__OP_SET, "3", "");
    net_send(a[0], &w);
    net_read_all(a[0], &got);
    daemon_expect_log("max_keys");
    net_expect_served(a[1]);
    set(b, "1", "");
    int unnamed = net_greet(daemon_port(NULL));
    set(unnamed, "1", "");
    set(unnamed, "2", "");
    set(unnamed, "3", "");
    close(unnamed);
    close(b);
    close(a[0]);
    close(a[1]);
    daemon_stop();
}
END_TEST

START_TEST(a_run_id_can_be_used_again)
{
    static const char *const who[] = {NULL, "a"};
    DAEMON_START("--job", "a=127.0.0.1:0", "--forget-after", "1");
    for (int i = 0; i < 2; i++) {
        int fd = net_greet(daemon_port(who[i]));
        set(fd, "rank 0 is at", "an address of the first run");
        int other = net_greet(daemon_port(who[i]));
        close(fd);
        usleep(1300000); /* somebody is there: nothing is forgotten */
        expect_value(other, "rank 0 is at", "an address of the first run");
        close(other);
    }
    daemon_expect_log("info forgot 1 keys and queues: no client for 1000 ms");
    daemon_expect_log("job \"a\": forgot 1 keys and queues: no client for 1000 ms");
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(net_count_keys(daemon_port(who[i])), 0);
    daemon_stop();
}
END_TEST

START_TEST(without_forget_after_keys_stay)
{
    DAEMON_START("--job", "a=127.0.0.1:0");
    int fd = net_greet(daemon_port("a"));
    set(fd, "k", "");
    close(fd);
    usleep(1300000);
    ck_assert_int_eq(net_count_keys(daemon_port("a")), 1);
    daemon_stop();
}
END_TEST

START_TEST(a_signal_drains_all_of_them)
{
    DAEMON_START("--job", "a=127.0.0.1:0", "--job", "b=127.0.0.1:0", "--drain-timeout", "30");
    static const char *const who[] = {NULL, "a", "b"};
    int fd[3];
    for (int i = 0; i < 3; i++)
        fd[i] = net_greet(daemon_port(who[i]));
    ck_assert_int_eq(kill(daemon_pid(), SIGTERM), 0);
    daemon_expect_log("no new clients");
    for (int i = 0; i < 3; i++) {
        for (int j = i; j < 3; j++)
            net_expect_served(fd[j]);
        net_expect_no_listener(daemon_port(who[i]));
        close(fd[i]);
    }
    ck_assert_int_eq(daemon_end(), 0);
    ck_assert_ptr_nonnull(strstr(daemon_log(), "drained: the last client has left"));
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("daemon_jobs");
    TCase *t = tcase_create("daemon_jobs");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, teardown);
    tcase_add_test(t, each_job_has_its_keys);
    tcase_add_test(t, standard_output_lists_the_jobs_in_order);
    tcase_add_test(t, bad_jobs_are_told_at_the_start);
    tcase_add_test(t, a_busy_port_names_the_flag);
    tcase_add_test(t, a_port_that_this_process_has_is_told);
    tcase_add_test(t, a_share_without_effect_is_told);
    tcase_add_test(t, a_job_that_takes_its_share_hurts_no_other);
    tcase_add_test(t, a_run_id_can_be_used_again);
    tcase_add_test(t, without_forget_after_keys_stay);
    tcase_add_test(t, a_signal_drains_all_of_them);
    suite_add_tcase(s, t);
    return s;
}
