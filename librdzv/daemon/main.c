/*
 * main.c: rdzvd, a process around one rdzv_server: descriptors, signals, log lines, exit code. Uses
 * rdzv.h and libc only; everything about the store and the network is the library's.
 */
#include "advice.h"
#include "args.h"
#include "log.h"

#include "rdzv.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { LOOK_ROUND_MS = 10000 };

struct daemon {
    struct args args;
    rdzv_server *server; /* NULL until it is open */
    struct log log;
    int drained;
};

/* Each client is a descriptor; the soft limit is often 1024. */
static void raise_descriptor_limit(struct daemon *d)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        log_say(&d->log, RDZV_LOG_WARN, "cannot raise the limit of open files: %s",
                strerror(errno));
}

static void on_drained(void *ctx)
{
    ((struct daemon *)ctx)->drained = 1;
}

/* When the last client has left, what it took goes back to the system, which malloc would keep. */
static void give_memory_back(const rdzv_server *s, uint64_t *accepted)
{
    rdzv_server_stats now = {.size = sizeof now};
    if (rdzv_server_get_stats(s, &now) != RDZV_OK || now.connections > 0 ||
        now.accepted == *accepted)
        return;
    *accepted = now.accepted;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* Serves until it has drained or a second signal came; returns the exit code. */
static int serve(struct daemon *d, rdzv_server *s, int signals)
{
    int asked = 0;
    uint64_t accepted = 0;
    while (!d->drained) {
        struct pollfd fds[] = {{.fd = rdzv_server_fd(s), .events = POLLIN},
                               {.fd = signals, .events = POLLIN}};
        int ready = poll(fds, 2, LOOK_ROUND_MS);
        if (ready < 0 && errno != EINTR) {
            log_say(&d->log, RDZV_LOG_ERROR, "poll: %s", strerror(errno));
            return EXIT_OTHER;
        }
        if (ready == 0)
            give_memory_back(s, &accepted);
        rdzv_server_dispatch(s);
        struct signalfd_siginfo info;
        if (read(signals, &info, sizeof info) != (ssize_t)sizeof info)
            continue;
        if (asked++ > 0) {
            log_say(&d->log, RDZV_LOG_WARN, "second signal: ending at once");
            return EXIT_CUT;
        }
        log_say(&d->log, RDZV_LOG_INFO, "%s: no new clients, up to %d s for the others to leave",
                strsignal((int)info.ssi_signo), d->args.drain_ms / 1000);
        rdzv_server_drain(s, d->args.drain_ms, on_drained, d);
    }
    return EXIT_ENDED;
}

/* Whoever started it may close the standard descriptors or stop reading: no descriptor of ours may
 * land on theirs, and no write may end the process. */
static void guard_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
    signal(SIGPIPE, SIG_IGN);
}

/* Blocks the signals that end the server; returns a descriptor that reads them. It would read
 * those, too, that whoever started it has set to be ignored, as nohup does with SIGHUP and a script
 * with the SIGINT of what it runs in the background: so these are left as they are. */
static int open_signals(void)
{
    static const int unless_ignored[] = {SIGINT, SIGHUP};
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    for (size_t i = 0; i < sizeof unless_ignored / sizeof unless_ignored[0]; i++) {
        struct sigaction was;
        if (sigaction(unless_ignored[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
            sigaddset(&mask, unless_ignored[i]);
    }
    sigprocmask(SIG_BLOCK, &mask, NULL);
    return signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Writes a line to standard output, which may have to be read before there is room; a signal ends
 * the wait. Returns whether it is written, else sets errno. */
__attribute__((format(printf, 2, 3))) static int print_line(int signals, const char *format, ...)
{
    char line[RDZV_RUN_ID_BYTES + 128];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    struct pollfd fds[] = {{.fd = STDOUT_FILENO, .events = POLLOUT},
                           {.fd = signals, .events = POLLIN}};
    if (poll(fds, 2, -1) < 0)
        return 0;
    errno = EINTR;
    return fds[0].revents != 0 && write(STDOUT_FILENO, line, strlen(line)) == (ssize_t)strlen(line);
}

/* Says on standard output where it serves. Every job is open by then, so who has read the first
 * line may rely on the others. Returns 0 when nobody can read that. */
static int print_ready(struct daemon *d, const rdzv_server *s, int signals)
{
    int ok = print_line(signals, "rdzvd ready on %s\n", rdzv_server_address(s, NULL));
    for (size_t i = 0; ok && i < d->args.job_count; i++) {
        const struct job_args *job = &d->args.jobs[i];
        ok = print_line(signals, "rdzvd job %s on %s\n", job->run_id,
                        rdzv_job_address(job->handle, NULL));
    }
    if (!ok)
        log_say(&d->log, RDZV_LOG_ERROR, "cannot write the ready line: %s",
                errno == EINTR ? "a signal came, and nobody reads it" : strerror(errno));
    return ok;
}

/* Opens the jobs, serves, and returns the exit code. */
static int run(struct daemon *d, int signals)
{
    rdzv_server *s = d->server;
    advise_address(&d->log, rdzv_server_address(s, NULL));
    for (size_t i = 0; i < d->args.job_count; i++) {
        struct job_args *job = &d->args.jobs[i];
        rdzv_job_options opt = d->args.each_job;
        rdzv_error err;
        opt.run_id = job->run_id;
        opt.host = job->host;
        opt.port = job->port;
        int code = rdzv_server_open_job(s, &job->handle, &opt, &err);
        rdzv_server_dispatch(s); /* its log lines come before ours */
        if (code != RDZV_OK)
            return advise_open(&d->log, &d->args, d->server, code, &err, "--job", job->port);
        advise_address(&d->log, rdzv_job_address(job->handle, NULL));
    }
    return print_ready(d, s, signals) ? serve(d, s, signals) : EXIT_OTHER;
}

static int open_and_run(struct daemon *d, int signals)
{
    rdzv_error err;
    d->args.server.log = log_line;
    d->args.server.log_ctx = &d->log;
    int code = rdzv_server_open(&d->server, &d->args.server, &err);
    if (code != RDZV_OK)
        return advise_open(&d->log, &d->args, NULL, code, &err, "--listen", d->args.server.port);
    code = run(d, signals);
    rdzv_server_close(d->server, NULL, NULL);
    return code;
}

int main(int argc, char **argv)
{
    guard_standard_descriptors();
    struct daemon d = {.drained = 0};
    int code = args_parse(&d.args, argc, argv);
    int signals = code < 0 ? open_signals() : -1;
    log_open(&d.log, d.args.server.log_level);
    if (code < 0 && signals < 0) {
        log_say(&d.log, RDZV_LOG_ERROR, "signalfd: %s", strerror(errno));
        code = EXIT_OTHER;
    }
    if (code < 0) {
        raise_descriptor_limit(&d);
        advise_limits(&d.log, &d.args);
        code = open_and_run(&d, signals);
        close(signals);
    }
    args_free(&d.args);
    return code;
}
