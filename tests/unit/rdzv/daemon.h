/* daemon.h: the rdzvd that is installed, as a process of its own, one at a time. */
#ifndef TESTS_RDZV_DAEMON_H
#define TESTS_RDZV_DAEMON_H

#include <stdint.h>
#include <sys/types.h>

/* A fixture: ends what a failed test has left. */
void daemon_teardown(void);

/* Runs rdzvd with these flags to its end; returns its exit code. */
#define DAEMON_RUN(...) daemon_run((const char *const[]){RDZVD, __VA_ARGS__, NULL})
int daemon_run(const char *const *argv);
/* Starts rdzvd on a free port and waits until it serves. */
#define DAEMON_START(...)                                                                          \
    daemon_start((const char *const[]){RDZVD, "--listen", "127.0.0.1:0", __VA_ARGS__, NULL})
void daemon_start(const char *const *argv);
/* What its standard error is, from the next start on. */
enum { DAEMON_LOG_PIPE, DAEMON_LOG_SOCKET, DAEMON_LOG_TERMINAL, DAEMON_LOG_KINDS };
void daemon_log_to(int kind);
/* Opens one: the end that reads and the one that is written to. */
void daemon_open_log(int kind, int log[2]);
pid_t daemon_pid(void);
/* Where the job is served; NULL = what --listen says. */
uint16_t daemon_port(const char *run_id);
/* Reads the rest of what it says; returns its exit code. */
int daemon_end(void);
/* SIGTERM, and it must end with 0. */
void daemon_stop(void);
/* The same, and what it says is not read meanwhile. */
void daemon_stop_unread(void);

/* What it has said so far, and all of it once it has ended. */
const char *daemon_out(void);
const char *daemon_log(void);
void daemon_expect_log(const char *text);

#endif
