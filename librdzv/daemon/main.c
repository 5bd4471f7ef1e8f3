/*
 * main.c: rdzvd, a process around one rdzv_server: flags, signals, log lines, exit code. Uses
 * rdzv.h and libc only; everything about the store and the network is the library's.
 */
#include "rdzv.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_LISTEN "127.0.0.1:29400"

enum {
    EXIT_ENDED = 0,  /* asked to end, and drained or gave up draining in time */
    EXIT_CUT = 1,    /* a second signal ended it at once */
    EXIT_USAGE = 2,  /* wrong command line */
    EXIT_LISTEN = 3, /* the address cannot be listened on */
    EXIT_OTHER = 4   /* memory, descriptors, a failing system call */
};

struct daemon {
    char host[80];
    uint16_t port;
    int log_level;
    int32_t drain_ms;
    int colour;
    int drained;
};

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

enum { LEVELS = sizeof level_names / sizeof level_names[0] };

static void print_help(void)
{
    printf(
        "usage: rdzvd [--listen ADDR:PORT] [--log-level LEVEL] [--drain-timeout SECONDS]\n"
        "\n"
        "Serves a c10d store: unmodified PyTorch processes use it as their TCPStore.\n"
        "\n"
        "  --listen ADDR:PORT       numeric IPv4 address, IPv6 address in brackets, localhost, or\n"
        "                           * for all; port 0 takes a free one (default " DEFAULT_LISTEN
        ")\n"
        "  --log-level LEVEL        error, warn, info, debug or trace (default info)\n"
        "  --drain-timeout SECONDS  how long a SIGTERM waits for clients to leave (default 10)\n"
        "  --help, --version\n"
        "\n"
        "When it serves, it prints one line on standard output: rdzvd ready on ADDR:PORT\n"
        "SIGTERM or SIGINT: no new clients, ends when the last one has left or the time is over;\n"
        "a second signal ends it at once. There is no authentication: whoever reaches the port\n"
        "can read and write every key.\n"
        "\n"
        "Exit codes: 0 ended as asked, 1 cut short by a second signal, 2 wrong command line,\n"
        "3 the address cannot be listened on, 4 anything else.\n"
        "\n"
        "Examples:\n"
        "  rdzvd\n"
        "  rdzvd --listen '[::1]:0' --log-level warn\n"
        "  rdzvd --listen 10.0.0.5:29400 --drain-timeout 60\n"
        "  torchrun --nnodes=1:2 --rdzv-backend=c10d --rdzv-conf=is_host=false \\\n"
        "           --rdzv-endpoint=127.0.0.1:29400 train.py\n");
}

static void log_line(void *ctx, int level, const char *line)
{
    static const char *const colours[] = {"\033[31m", "\033[33m", "", "\033[2m", "\033[2m"};
    const struct daemon *d = ctx;
    if (level > d->log_level)
        return;
    struct timespec now;
    struct tm utc;
    char when[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &utc);
    const char *start = d->colour ? colours[level] : "";
    fprintf(stderr, "%s.%03ldZ %s%s%s %s\n", when, now.tv_nsec / 1000000, start, level_names[level],
            *start != '\0' ? "\033[0m" : "", line);
}

__attribute__((format(printf, 3, 4))) static void say(struct daemon *d, int level,
                                                      const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log_line(d, level, line);
}

static int usage_error(const char *what, const char *value)
{
    fprintf(stderr, "rdzvd: %s \"%s\"; see rdzvd --help\n", what, value);
    return EXIT_USAGE;
}

/* A whole decimal number up to `max`. */
static int parse_number(const char *text, unsigned long max, unsigned long *ret)
{
    char *end;
    errno = 0;
    *ret = strtoul(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *ret <= max;
}

static int parse_listen(struct daemon *d, const char *text)
{
    const char *colon = strrchr(text, ':');
    unsigned long port;
    if (colon == NULL || colon == text || !parse_number(colon + 1, 65535, &port))
        return 0;
    size_t len = (size_t)(colon - text);
    if (len >= sizeof d->host)
        return 0;
    /* Without brackets, "::1:80" could mean either. */
    if (memchr(text, ':', len) != NULL && (text[0] != '[' || text[len - 1] != ']'))
        return 0;
    memcpy(d->host, text, len);
    d->host[len] = '\0';
    d->port = (uint16_t)port;
    return 1;
}

static int parse_level(struct daemon *d, const char *text)
{
    for (int i = 0; i < (int)LEVELS; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            d->log_level = i;
            return 1;
        }
    }
    return 0;
}

/* Returns -1 to go on, else the exit code. */
static int parse_args(struct daemon *d, int argc, char **argv)
{
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"log-level", required_argument, NULL, 'v'},
                                            {"drain-timeout", required_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {NULL, 0, NULL, 0}};
    unsigned long seconds;
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'h') {
            print_help();
            return EXIT_ENDED;
        } else if (c == 'V') {
            int v = rdzv_version();
            printf("rdzvd %d.%d.%d\n", v / 10000, v / 100 % 100, v % 100);
            return EXIT_ENDED;
        } else if (c == 'l') {
            if (!parse_listen(d, optarg))
                return usage_error("--listen wants ADDR:PORT (IPv6 in brackets), not", optarg);
        } else if (c == 'v') {
            if (!parse_level(d, optarg))
                return usage_error("--log-level knows no", optarg);
        } else if (c == 'd') {
            if (!parse_number(optarg, 1000000, &seconds))
                return usage_error("--drain-timeout wants whole seconds, not", optarg);
            d->drain_ms = (int32_t)(seconds * 1000);
        } else {
            return EXIT_USAGE; /* getopt has said what is wrong */
        }
    }
    return optind < argc ? usage_error("unknown argument", argv[optind]) : -1;
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

static int explain_open(struct daemon *d, int code, const rdzv_error *err)
{
    say(d, RDZV_LOG_ERROR, "cannot start: %s", err->text);
    switch (code) {
    case RDZV_EADDRINUSE:
        say(d, RDZV_LOG_ERROR,
            "another process listens there; to see which one: ss -ltnp 'sport = :%u'; end it, or "
            "choose another port with --listen",
            (unsigned)d->port);
        return EXIT_LISTEN;
    case RDZV_EADDRNOTAVAIL:
        say(d, RDZV_LOG_ERROR, "to see this machine's addresses: ip -brief address");
        return EXIT_LISTEN;
    case RDZV_EACCES:
        say(d, RDZV_LOG_ERROR, "ports below 1024 need privileges; choose a higher one");
        return EXIT_LISTEN;
    case RDZV_EINVAL:
        return EXIT_USAGE;
    default:
        return EXIT_OTHER;
    }
}

static int is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0 ||
           strncmp(address, "[::ffff:127.", 12) == 0;
}

static void on_drained(void *ctx)
{
    ((struct daemon *)ctx)->drained = 1;
}

/* Serves until it has drained or a second signal came; returns the exit code. */
static int serve(struct daemon *d, rdzv_server *s, int signals)
{
    int asked = 0;
    while (!d->drained) {
        struct pollfd fds[] = {{.fd = rdzv_server_fd(s), .events = POLLIN},
                               {.fd = signals, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            say(d, RDZV_LOG_ERROR, "poll: %s", strerror(errno));
            return EXIT_OTHER;
        }
        rdzv_server_dispatch(s);
        struct signalfd_siginfo info;
        if (read(signals, &info, sizeof info) != (ssize_t)sizeof info)
            continue;
        if (asked++ > 0) {
            say(d, RDZV_LOG_WARN, "second signal: ending at once");
            return EXIT_CUT;
        }
        say(d, RDZV_LOG_INFO, "%s: no new clients, up to %d s for the others to leave",
            strsignal((int)info.ssi_signo), d->drain_ms / 1000);
        rdzv_server_drain(s, d->drain_ms, on_drained, d);
    }
    return EXIT_ENDED;
}

int main(int argc, char **argv)
{
    struct daemon d = {.log_level = RDZV_LOG_INFO, .drain_ms = 10000};
    parse_listen(&d, DEFAULT_LISTEN);
    d.colour = isatty(STDERR_FILENO) && getenv("NO_COLOR") == NULL;
    int code = parse_args(&d, argc, argv);
    if (code >= 0)
        return code;
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0) {
        say(&d, RDZV_LOG_ERROR, "signalfd: %s", strerror(errno));
        return EXIT_OTHER;
    }
    raise_descriptor_limit(&d);

    rdzv_server_options opt;
    rdzv_server_options_init(&opt, sizeof opt);
    opt.host = d.host;
    opt.port = d.port;
    opt.log = log_line;
    opt.log_ctx = &d;
    rdzv_server *s = NULL;
    rdzv_error err;
    code = rdzv_server_open(&s, &opt, &err);
    if (code != RDZV_OK)
        return explain_open(&d, code, &err);
    const char *address = rdzv_server_address(s, NULL);
    if (!is_loopback(address))
        say(&d, RDZV_LOG_WARN,
            "%s is reachable from other machines and the protocol has no authentication: keep it "
            "on a trusted network",
            address);
    printf("rdzvd ready on %s\n", address);
    fflush(stdout);
    code = serve(&d, s, signals);
    rdzv_server_close(s, NULL, NULL);
    close(signals);
    return code;
}
