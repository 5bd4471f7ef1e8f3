/* net.h: plain blocking clients of a real server, and what the process has open. */
#ifndef TESTS_RDZV_NET_H
#define TESTS_RDZV_NET_H

#include "rdzv.h"
#include "wire.h"

#include <check.h>

/* Options for a server on a free port of 127.0.0.1. */
rdzv_server_options net_options(void);
/* Connected to 127.0.0.1:port; reads time out after 10 s. */
int net_connect(uint16_t port);
/* Connects `fd` and returns what connect returned. */
int net_connect_socket(int fd, uint16_t port);
uint16_t net_port(const rdzv_server *s);
void net_send(int fd, struct wire *w); /* and empties w */
/* As much as the server takes: it may close on the way. */
void net_send_some(int fd, const uint8_t *bytes, size_t len);
/* Appends exactly `len` bytes to `got`. */
void net_read(int fd, struct wire *got, size_t len);
/* Appends everything up to the end. Returns 0 after an orderly end, ECONNRESET after a reset. */
int net_read_all(int fd, struct wire *got);
/* A client that has said hello, and the server has seen it. */
int net_greet(uint16_t port);
/* It still gets answers. */
void net_expect_served(int fd);
/* Sends `w` and reads `len` bytes of answer into `got`. */
void net_ask(int fd, struct wire *w, struct wire *got, size_t len);
/* A client that sets a key to `len` bytes, and the server has done it. */
void net_set(int fd, const char *key, size_t len);
/* The same, but the server closes it. */
void net_set_refused(int fd, const char *key, size_t len);
/* A SET of 1 MiB of which only so many bytes come; the server may close on the way. */
void net_set_begun(int fd, const char *key, size_t len);
/* Whether bytes or an end have come within the time. */
int net_heard(int fd, int within_ms);
/* The server ends this client, which has nothing more to read; closes it. */
void net_expect_end(int fd);
/* Nobody listens there any more. Waits for it: a line that says so comes a moment before. */
void net_expect_no_listener(uint16_t port);
/* Asks for the number of keys over a new connection, so that the server has done all before it. */
long long net_count_keys(uint16_t port);

/* libuv opens descriptors of its own with a process's first loop and never closes them, and a
 * sanitizer may run a thread: after this, counts before and after a test compare. */
void net_warm_up(void);
int net_count_fds(void);
/* There are so many threads beyond those that net_warm_up found. Waits for it: one that was joined
 * is in the system's list a moment longer. */
void net_expect_threads(int want);
/* Value of `field` ("SigBlk") of the thread named `thread`, as text; "" when there is none. */
void net_thread_status(const char *thread, const char *field, char *ret, size_t size);

/* Log lines of a server, kept. */
struct net_log {
    int lines;
    int level; /* of the last */
    char text[8192];
};
extern struct net_log net_server_log;
/* Adds a case with this fixture: at the start of a test nothing is in net_server_log, at its end
 * what it opened is gone, and both wires are empty. */
TCase *net_tcase(Suite *s, const char *name, struct wire *w, struct wire *got);
void net_log_line(void *log, int level, const char *line);
/* An open server that logs into `log`; `given` may be NULL. */
rdzv_server *net_open(const rdzv_server_options *given, struct net_log *log);
/* Runs what is ready until `text` was logged. */
void net_expect_log(rdzv_server *s, struct net_log *log, const char *text);
uint64_t net_stat(const rdzv_server *s, size_t offset);
/* Waits for it: stats are published after the answers went out. A client that closed by reset may
 * take NET_LOST_RESET_S: a busy kernel drops packets even on loopback, a reset is never sent again,
 * and then it is the server's keep-alive that finds out. */
enum { NET_LOST_RESET_S = 110 };
void net_expect_stat(const rdzv_server *s, size_t offset, uint64_t want, int within_s);
#define NET_STAT(s, field) net_stat((s), offsetof(rdzv_server_stats, field))
#define NET_EXPECT_STAT(s, field, want)                                                            \
    net_expect_stat((s), offsetof(rdzv_server_stats, field), (want), 10)

void net_count_call(void *count); /* an rdzv_closed_fn: adds 1 to an int */

#endif
