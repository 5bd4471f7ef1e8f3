/*
 * args.c: the command line of rdzvd: its flags, their bounds, the help text. Every value is checked
 * here, except that the address can be listened on, which the library finds out.
 */
#include "args.h"

#include "rdzv.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_LISTEN "127.0.0.1:29400"

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

enum { LEVELS = sizeof level_names / sizeof level_names[0] };

const char *args_level_name(int level)
{
    return level_names[level];
}

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
        "SIGTERM, SIGINT, SIGHUP: no new clients, ends when the last one has left or the time\n"
        "is over; a second signal ends it at once. There is no authentication: whoever reaches\n"
        "the port can read and write every key.\n"
        "\n"
        "Exit codes: 0 ended as asked, 1 cut short by a second signal, 2 wrong command line,\n"
        "3 the address cannot be listened on, 4 anything else.\n"
        "\n"
        "Examples:\n"
        "  rdzvd\n"
        "  rdzvd --listen '[::1]:0' --log-level warn\n"
        "  rdzvd --listen 10.0.0.5:29400 --drain-timeout 60\n"
        "  torchrun --nnodes=1:2 --rdzv-backend=c10d --rdzv-conf=is_host=false \\\n"
        "           --rdzv-endpoint=127.0.0.1:29400 --rdzv-id=my-job-1 train.py\n"
        "(a new --rdzv-id for each job; rdzvd(8) has the settings for quick recovery)\n");
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

static int parse_listen(struct args *a, const char *text)
{
    const char *colon = strrchr(text, ':');
    unsigned long port;
    if (colon == NULL || colon == text || !parse_number(colon + 1, 65535, &port))
        return 0;
    size_t len = (size_t)(colon - text);
    if (len >= sizeof a->host)
        return 0;
    /* Without brackets, "::1:80" could mean either. */
    if (memchr(text, ':', len) != NULL && (text[0] != '[' || text[len - 1] != ']'))
        return 0;
    memcpy(a->host, text, len);
    a->host[len] = '\0';
    a->port = (uint16_t)port;
    return 1;
}

static int parse_level(struct args *a, const char *text)
{
    for (int i = 0; i < (int)LEVELS; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            a->log_level = i;
            return 1;
        }
    }
    return 0;
}

/* A reader that has gone away or a full disk is no success. */
static int printed(void)
{
    return fflush(stdout) == 0 && !ferror(stdout) ? EXIT_ENDED : EXIT_OTHER;
}

int args_parse(struct args *a, int argc, char **argv)
{
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"log-level", required_argument, NULL, 'v'},
                                            {"drain-timeout", required_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {NULL, 0, NULL, 0}};
    unsigned long seconds;
    int c;
    *a = (struct args){.log_level = RDZV_LOG_INFO, .drain_ms = 10000};
    parse_listen(a, DEFAULT_LISTEN);
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'h') {
            print_help();
            return printed();
        } else if (c == 'V') {
            int v = rdzv_version();
            printf("rdzvd %d.%d.%d\n", v / 10000, v / 100 % 100, v % 100);
            return printed();
        } else if (c == 'l') {
            if (!parse_listen(a, optarg))
                return usage_error(
                    "--listen wants ADDR:PORT, IPv6 in brackets, port 0 to 65535, not", optarg);
        } else if (c == 'v') {
            if (!parse_level(a, optarg))
                return usage_error("--log-level wants error, warn, info, debug or trace, not",
                                   optarg);
        } else if (c == 'd') {
            if (!parse_number(optarg, 1000000, &seconds))
                return usage_error("--drain-timeout wants whole seconds, 0 to 1000000, not",
                                   optarg);
            a->drain_ms = (int32_t)(seconds * 1000);
        } else {
            fputs("rdzvd: see rdzvd --help\n", stderr); /* getopt has said what is wrong */
            return EXIT_USAGE;
        }
    }
    return optind < argc ? usage_error("unknown argument", argv[optind]) : -1;
}
