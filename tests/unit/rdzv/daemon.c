/*
 * daemon.c: see daemon.h.
 */
#include "daemon.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PATIENCE_MS = 10000, STEP_MS = 20 };

struct stream {
    int fd;
    size_t len;
    char text[1 << 17];
};

static struct daemon {
    pid_t pid; /* 0 = none runs */
    struct stream out;
    struct stream log;
} d = {.out = {.fd = -1}, .log = {.fd = -1}};

/* Takes what is there, or comes within the time. Returns 0 at the end. */
static int stream_read(struct stream *s, int timeout_ms)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    if (poll(&p, 1, timeout_ms) <= 0)
        return 1;
    ck_assert_uint_lt(s->len, sizeof s->text - 1);
    ssize_t n = read(s->fd, s->text + s->len, sizeof s->text - 1 - s->len);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    s->len += (size_t)n;
    s->text[s->len] = '\0';
    return 1;
}

static void stream_expect(struct stream *s, const char *text)
{
    for (int waited = 0; strstr(s->text, text) == NULL; waited += STEP_MS) {
        int more = stream_read(s, STEP_MS);
        ck_assert_msg(strstr(s->text, text) != NULL || (more && waited < PATIENCE_MS),
                      "\"%s\" did not come, but:\n%s%s", text, d.out.text, d.log.text);
    }
}

static int log_kind = DAEMON_LOG_PIPE;

void daemon_open_log(int kind, int log[2])
{
    if (kind == DAEMON_LOG_PIPE) {
        ck_assert_int_eq(pipe2(log, O_CLOEXEC), 0);
    } else if (kind == DAEMON_LOG_SOCKET) {
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, log), 0);
    } else {
        log[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        ck_assert(log[0] >= 0 && grantpt(log[0]) == 0 && unlockpt(log[0]) == 0);
        log[1] = open(ptsname(log[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
        ck_assert_int_ge(log[1], 0);
    }
}

static void spawn(const char *const *argv)
{
    int out[2];
    int log[2];
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    daemon_open_log(log_kind, log);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, log[1], STDERR_FILENO);
    int error = posix_spawn(&d.pid, argv[0], &actions, NULL, (char **)(uintptr_t)argv, environ);
    ck_assert_msg(error == 0, "%s: %s", argv[0], strerror(error));
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(log[1]);
    d.out.fd = out[0];
    d.log.fd = log[0];
}

int daemon_end(void)
{
    int status = 0;
    while (stream_read(&d.log, -1))
        ;
    while (stream_read(&d.out, -1))
        ;
    ck_assert_int_eq(waitpid(d.pid, &status, 0), d.pid);
    d.pid = 0;
    ck_assert_msg(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void forget(void)
{
    if (d.pid > 0) {
        kill(d.pid, SIGKILL);
        waitpid(d.pid, NULL, 0);
    }
    if (d.out.fd >= 0) {
        close(d.out.fd);
        close(d.log.fd);
    }
    d = (struct daemon){.out = {.fd = -1}, .log = {.fd = -1}};
}

int daemon_run(const char *const *argv)
{
    forget();
    spawn(argv);
    return daemon_end();
}

void daemon_start(const char *const *argv)
{
    forget();
    spawn(argv);
    stream_expect(&d.out, "\n");
    ck_assert_msg(strncmp(d.out.text, "rdzvd ready on ", 15) == 0, "%s", d.out.text);
}

void daemon_stop(void)
{
    ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
    ck_assert_msg(daemon_end() == 0, "%s", d.log.text);
}

void daemon_stop_unread(void)
{
    int status = 0;
    ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
    for (int waited = 0; waitpid(d.pid, &status, WNOHANG) == 0; waited += STEP_MS) {
        ck_assert_msg(waited < PATIENCE_MS, "SIGTERM does not end it");
        usleep(STEP_MS * 1000);
    }
    d.pid = 0;
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
}

void daemon_log_to(int kind)
{
    log_kind = kind;
}

pid_t daemon_pid(void)
{
    return d.pid;
}

uint16_t daemon_port(const char *run_id)
{
    char line[300] = "rdzvd ready on ";
    if (run_id != NULL)
        snprintf(line, sizeof line, "rdzvd job %s on ", run_id);
    stream_expect(&d.out, line);
    const char *address = strstr(d.out.text, line) + strlen(line);
    size_t len = strcspn(address, "\n");
    ck_assert_msg(address[len] == '\n', "half a line: %s", address);
    while (len > 0 && address[len - 1] != ':')
        len--;
    return (uint16_t)strtoul(address + len, NULL, 10);
}

const char *daemon_out(void)
{
    return d.out.text;
}

const char *daemon_log(void)
{
    return d.log.text;
}

void daemon_expect_log(const char *text)
{
    stream_expect(&d.log, text);
}

void daemon_teardown(void)
{
    forget();
    log_kind = DAEMON_LOG_PIPE;
}
