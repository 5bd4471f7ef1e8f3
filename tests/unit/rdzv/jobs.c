/*
 * jobs.c: see jobs.h.
 */
#include "jobs.h"

#include <check.h>
#include <string.h>
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

struct jobs_three jobs_open_three(const rdzv_server_options *opt)
{
    struct jobs_three t;
    t.s = net_open(opt, &net_server_log);
    t.a = jobs_open(t.s, "run-a", NULL);
    t.b = jobs_open(t.s, "run-b", NULL);
    t.fd[0] = net_greet(net_port(t.s));
    t.fd[1] = net_greet(jobs_port(t.a));
    t.fd[2] = net_greet(jobs_port(t.b));
    return t;
}

void jobs_close_three(struct jobs_three *t)
{
    for (int i = 0; i < 3; i++)
        close(t->fd[i]);
    rdzv_server_close(t->s, NULL, NULL);
}
