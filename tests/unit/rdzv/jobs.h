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
/* A client that has said hello. */
int jobs_greet(uint16_t port);
/* Sends `w` and reads `len` bytes of answer into `got`. */
void jobs_ask(int fd, struct wire *w, struct wire *got, size_t len);
/* A client that sets a key to `len` bytes, and the server has done it. */
void jobs_set(int fd, const char *key, size_t len);
/* The same, but the server closes it. */
void jobs_set_refused(int fd, const char *key, size_t len);
/* Whether bytes or an end have come within the time. */
int jobs_heard(int fd, int within_ms);

/* The server ends this client, which has nothing more to read; closes it. */
void jobs_expect_end(int fd);
/* Nobody listens there any more. */
void jobs_expect_no_listener(uint16_t port);

uint64_t jobs_stat(const rdzv_job *job, size_t offset);
void jobs_expect_stat(const rdzv_job *job, size_t offset, uint64_t want);
#define JOB_STAT(job, field) jobs_stat((job), offsetof(rdzv_server_stats, field))
#define JOB_EXPECT_STAT(job, field, want)                                                          \
    jobs_expect_stat((job), offsetof(rdzv_server_stats, field), (want))

#endif
