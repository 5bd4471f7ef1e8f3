/*
 * main.c: rdzvd, a process around one rdzv_server: descriptors, signals, log lines, exit code. Uses
 * rdzv.h and libc only; everything about the store and the network is the library's.
 */
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

__attribute__((format(printf, 3, 4))) static void say(struct daemon *d, int level,
                                                      const char *format, ...)
{
    char line[512];
    va_list args;
    if (level > d->args.server.log_level)
        return; /* as the library does with its own */
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log_line(&d->log, level, line);
}

/* Each client is a descriptor; the soft limit is often 1024. */
static void raise_descriptor_limit(struct daemon *d)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        say(d, RDZV_LOG_WARN, "cannot raise the limit of open files: %s", strerror(errno));
}

/* Where this process listens on `port` already, else NULL. */
static const char *own_address(const struct daemon *d, unsigned port)
{
    uint16_t own;
    const char *address = d->server != NULL ? rdzv_server_address(d->server, &own) : NULL;
    if (address == NULL || own == port)
        return address;
    for (size_t i = 0; i < d->args.job_count && d->args.jobs[i].handle != NULL; i++) {
        address = rdzv_job_address(d->args.jobs[i].handle, &own);
        if (own == port)
            return address;
    }
    return NULL;
}

static void explain_in_use(struct daemon *d, const char *flag, unsigned port)
{
    const char *own = own_address(d, port);
    if (own != NULL)
        say(d, RDZV_LOG_ERROR,
            "this rdzvd listens on %s itself: --listen (default " DEFAULT_LISTEN
            ") and each --job need a port of their own",
            own);
    else
        say(d, RDZV_LOG_ERROR,
            "another process listens there; to see which one: ss -ltnp 'sport = :%u'; end it, or "
            "choose another port with %s",
            port, flag);
}

/* Why `flag` could not be done, and what to do; returns the exit code. */
static int explain_open(struct daemon *d, int code, const rdzv_error *err, const char *flag,
                        unsigned port)
{
    say(d, RDZV_LOG_ERROR, "cannot start: %s: %s", flag, err->text);
    switch (code) {
    case RDZV_EADDRINUSE:
        explain_in_use(d, flag, port);
        return EXIT_LISTEN;
    case RDZV_EADDRNOTAVAIL:
        say(d, RDZV_LOG_ERROR, "to see this machine's addresses: ip -brief address");
        return EXIT_LISTEN;
    case RDZV_EACCES:
        say(d, RDZV_LOG_ERROR, "ports below 1024 need privileges; choose a higher one");
        return EXIT_LISTEN;
    case RDZV_EINVAL:
    case RDZV_EBUSY: /* a run id given twice */
        return EXIT_USAGE;
    default:
        return EXIT_OTHER;
    }
}

static void warn_beyond_loopback(struct daemon *d, const char *address)
{
    if (strncmp(address, "127.", 4) != 0 && strncmp(address, "[::1]", 5) != 0 &&
        strncmp(address, "[::ffff:127.", 12) != 0)
        say(d, RDZV_LOG_WARN,
            "%s is reachable from other machines and the protocol has no authentication: keep it "
            "on a trusted network",
            address);
}

/* What has no effect was meant to have one. */
static void check_shares(struct daemon *d)
{
    const rdzv_server_options *all = &d->args.server;
    const rdzv_job_options *each = &d->args.each_job;
    const struct {
        const char *name;
        uint64_t share;
        uint64_t all;
    } shares[] = {{"connections", each->max_connections, all->max_connections},
                  {"keys", each->max_keys, all->max_keys},
                  {"store-bytes", each->max_store_bytes, all->max_store_bytes},
                  {"buffer-bytes", each->max_buffer_bytes, all->max_buffer_bytes}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        const char *name = shares[i].name;
        if (shares[i].share != 0 && d->args.job_count == 0)
            say(d, RDZV_LOG_WARN, "--job-max-%s has no effect: there is no --job", name);
        else if (shares[i].share > shares[i].all)
            say(d, RDZV_LOG_WARN,
                "--job-max-%s (%llu) has no effect: --max-%s lets all jobs together have %llu",
                name, (unsigned long long)shares[i].share, name, (unsigned long long)shares[i].all);
    }
}

/* Limits that do not go together would be found out by a client, late. */
static void check_limits(struct daemon *d)
{
    const rdzv_server_options *o = &d->args.server;
    unsigned long long value = o->max_value_bytes;
    if (value > o->max_request_bytes)
        say(d, RDZV_LOG_WARN,
            "a value of --max-value-bytes (%llu) is longer than --max-request-bytes (%llu) lets a "
            "request be",
            value, (unsigned long long)o->max_request_bytes);
    if (value > o->max_unread_bytes)
        say(d, RDZV_LOG_WARN,
            "a value of --max-value-bytes (%llu) is longer than --max-unread-bytes (%llu) lets an "
            "answer be",
            value, (unsigned long long)o->max_unread_bytes);
}

static void on_drained(void *ctx)
{
    ((struct daemon *)ctx)->drained = 1;
}

/* Serves until it has drained or a second signal came; returns the exit code. */
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

static int serve(struct daemon *d, rdzv_server *s, int signals)
{
    int asked = 0;
    uint64_t accepted = 0;
    while (!d->drained) {
        struct pollfd fds[] = {{.fd = rdzv_server_fd(s), .events = POLLIN},
                               {.fd = signals, .events = POLLIN}};
        int ready = poll(fds, 2, LOOK_ROUND_MS);
        if (ready < 0 && errno != EINTR) {
            say(d, RDZV_LOG_ERROR, "poll: %s", strerror(errno));
            return EXIT_OTHER;
        }
        if (ready == 0)
            give_memory_back(s, &accepted);
        rdzv_server_dispatch(s);
        struct signalfd_siginfo info;
        if (read(signals, &info, sizeof info) != (ssize_t)sizeof info)
            continue;
        if (asked++ > 0) {
            say(d, RDZV_LOG_WARN, "second signal: ending at once");
            return EXIT_CUT;
        }
        say(d, RDZV_LOG_INFO, "%s: no new clients, up to %d s for the others to leave",
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

/* Blocks the signals that end the server; returns a descriptor that reads them. */
static int open_signals(void)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGHUP); /* a terminal that is closed; under nohup it is ignored */
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
        say(d, RDZV_LOG_ERROR, "cannot write the ready line: %s",
            errno == EINTR ? "a signal came, and nobody reads it" : strerror(errno));
    return ok;
}

/* Opens the jobs, serves, and returns the exit code. */
static int run(struct daemon *d, int signals)
{
    rdzv_server *s = d->server;
    warn_beyond_loopback(d, rdzv_server_address(s, NULL));
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
            return explain_open(d, code, &err, "--job", job->port);
        warn_beyond_loopback(d, rdzv_job_address(job->handle, NULL));
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
        return explain_open(d, code, &err, "--listen", d->args.server.port);
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
        say(&d, RDZV_LOG_ERROR, "signalfd: %s", strerror(errno));
        code = EXIT_OTHER;
    }
    if (code < 0) {
        raise_descriptor_limit(&d);
        check_limits(&d);
        check_shares(&d);
        code = open_and_run(&d, signals);
        close(signals);
    }
    args_free(&d.args);
    return code;
}
