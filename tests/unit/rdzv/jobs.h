/* jobs.h: jobs of a real server, for the tests. */
#ifndef TESTS_RDZV_JOBS_H
#define TESTS_RDZV_JOBS_H

#include "net.h"

rdzv_job_options jobs_options(const char *run_id);
/* An open job; `given` may be NULL. */
rdzv_job *jobs_open(rdzv_server *s, const char *run_id, const rdzv_job_options *given);
/* A job that cannot be opened; returns the code and fills err. */
int jobs_open_fails(rdzv_server *s, const rdzv_job_options *opt, rdzv_error *err);
uint16_t jobs_port(const rdzv_job *job);

uint64_t jobs_stat(const rdzv_job *job, size_t offset);
void jobs_expect_stat(const rdzv_job *job, size_t offset, uint64_t want);
#define JOB_STAT(job, field) jobs_stat((job), offsetof(rdzv_server_stats, field))
#define JOB_EXPECT_STAT(job, field, want)                                                          \
    jobs_expect_stat((job), offsetof(rdzv_server_stats, field), (want))

/* A server with two jobs beside the unnamed one, and a client of each of the three. */
struct jobs_three {
    rdzv_server *s;
    rdzv_job *a;
    rdzv_job *b;
    int fd[3];
};
struct jobs_three jobs_open_three(const rdzv_server_options *opt);
void jobs_close_three(struct jobs_three *t);

#endif
