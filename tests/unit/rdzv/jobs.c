/*
 * jobs.c: see jobs.h.
 */
#include "jobs.h"

#include <check.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

rdzv_job_options jobs_options(const char *run_id)
{
    rdzv_job_options opt;
    rdzv_job_options_init(&opt, sizeof opt);
    opt.run_id = run_id;
    return opt;
}

rdzv_job *jobs_open(rdzv_server *s, const char *run_id, const rdzv_job_options *given)
{
    rdzv_job_options opt = given != NULL ? *given : jobs_options(run_id);
    opt.run_id = run_id;
    rdzv_job *job = NULL;
    rdzv_error err = {0};
    ck_assert_msg(rdzv_server_open_job(s, &job, &opt, &err) == RDZV_OK, "%s", err.text);
    return job;
}

int jobs_open_fails(rdzv_server *s, const rdzv_job_options *opt, rdzv_error *err)
{
    rdzv_job *job = NULL;
    memset(err, 0, sizeof *err);
    int code = rdzv_server_open_job(s, &job, opt, err);
    ck_assert_int_eq(err->code, code);
    ck_assert(code < 0 && job == NULL);
    return code;
}

uint16_t jobs_port(const rdzv_job *job)
{
    uint16_t port;
    rdzv_job_address(job, &port);
    return port;
}

int jobs_greet(uint16_t port)
{
    struct wire w = WIRE_INIT;
    struct wire got = WIRE_INIT;
    int fd = net_connect(port);
    wire_hello(&w);
    wire_add(&w, "bu", RDZV__OP_PING, 7u);
    jobs_ask(fd, &w, &got, 4);
    wire_free(&w);
    wire_free(&got);
    return fd;
}

void jobs_ask(int fd, struct wire *w, struct wire *got, size_t len)
{
    net_send(fd, w);
    net_read(fd, got, len);
}

static void send_set(int fd, const char *key, size_t len)
{
    struct wire w = WIRE_INIT;
    wire_add(&w, "bs", RDZV__OP_SET, key);
    wire_fill(&w, 'v', len);
    wire_add(&w, "bu", RDZV__OP_PING, 7u);
    net_send(fd, &w);
    wire_free(&w);
}

void jobs_set(int fd, const char *key, size_t len)
{
    struct wire got = WIRE_INIT;
    send_set(fd, key, len);
    net_read(fd, &got, 4);
    wire_free(&got);
}

void jobs_set_refused(int fd, const char *key, size_t len)
{
    struct wire got = WIRE_INIT;
    send_set(fd, key, len);
    net_read_all(fd, &got);
    ck_assert_uint_eq(got.len, 0);
    wire_free(&got);
    close(fd);
}

int jobs_heard(int fd, int within_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, within_ms) == 1;
}

void jobs_expect_end(int fd)
{
    struct wire got = WIRE_INIT;
    net_read_all(fd, &got);
    ck_assert_uint_eq(got.len, 0);
    wire_free(&got);
    close(fd);
}

void jobs_expect_no_listener(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(net_connect_socket(fd, port), -1);
    close(fd);
}

uint64_t jobs_stat(const rdzv_job *job, size_t offset)
{
    rdzv_server_stats st = {.size = sizeof st};
    ck_assert_int_eq(rdzv_job_get_stats(job, &st), RDZV_OK);
    uint64_t v;
    memcpy(&v, (char *)&st + offset, sizeof v);
    return v;
}

void jobs_expect_stat(const rdzv_job *job, size_t offset, uint64_t want)
{
    for (int i = 0; i < 10000 && jobs_stat(job, offset) != want; i++)
        usleep(1000);
    ck_assert_uint_eq(jobs_stat(job, offset), want);
}
