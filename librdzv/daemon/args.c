/*
 * args.c: the command line of rdzvd: its flags and their bounds. Every value is checked here; the
 * library finds out whether an address can be listened on and a run id is given twice. A flag is
 * one row of a table: a new limit of the server needs nothing else.
 */
#include "args.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

enum { LEVELS = sizeof level_names / sizeof level_names[0] };

const char *args_level_name(int level)
{
    return level_names[level];
}

/* A whole decimal number up to `max`, and what comes behind it. */
static int parse_digits(const char *text, uint64_t max, uint64_t *ret, const char **ret_rest)
{
    char *end;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    *ret_rest = end;
    return text[0] >= '0' && text[0] <= '9' && errno == 0 && *ret <= max;
}

static int parse_number(const char *text, uint64_t max, uint64_t *ret)
{
    const char *rest;
    return parse_digits(text, max, ret, &rest) && *rest == '\0';
}

/* The parsers of values: `ret` is the field of struct args that the flag names. */
typedef int parse_fn(struct args *a, void *ret, const char *text);

/* ADDR:PORT; `host` has room for `size` bytes. */
static int parse_address(const char *text, char *host, size_t size, uint16_t *ret_port)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (colon == NULL || colon == text || !parse_number(colon + 1, UINT16_MAX, &port))
        return 0;
    size_t len = (size_t)(colon - text);
    if (len >= size)
        return 0;
    /* Without brackets, "::1:80" could mean either. */
    if (memchr(text, ':', len) != NULL && (text[0] != '[' || text[len - 1] != ']'))
        return 0;
    memcpy(host, text, len);
    host[len] = '\0';
    *ret_port = (uint16_t)port;
    return 1;
}

static int parse_listen(struct args *a, void *ret, const char *text)
{
    (void)ret;
    a->server.host = a->host;
    return parse_address(text, a->host, sizeof a->host, &a->server.port);
}

/* RUN_ID=ADDR:PORT; no address has an =, a run id may. */
static int parse_job(struct args *a, void *ret, const char *text)
{
    const char *equal = strrchr(text, '=');
    size_t len = equal != NULL ? (size_t)(equal - text) : 0;
    struct job_args job = {.port = 0};
    (void)ret;
    if (len == 0 || len >= sizeof job.run_id ||
        !parse_address(equal + 1, job.host, sizeof job.host, &job.port))
        return 0;
    /* As the library, which would find it out when --listen serves already. */
    for (size_t i = 0; i < len; i++)
        if (text[i] < ' ' || text[i] > '~')
            return 0;
    memcpy(job.run_id, text, len);
    a->jobs[a->job_count++] = job;
    return 1;
}

static int parse_level(struct args *a, void *ret, const char *text)
{
    (void)ret;
    for (int i = 0; i < (int)LEVELS; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            a->server.log_level = i;
            return 1;
        }
    }
    return 0;
}

/* Into 32 bits of milliseconds, with a sign or without. */
static int parse_seconds(struct args *a, void *ret, const char *text)
{
    uint64_t seconds;
    (void)a;
    if (!parse_number(text, 1000000, &seconds))
        return 0;
    uint32_t ms = (uint32_t)(seconds * 1000);
    memcpy(ret, &ms, sizeof ms);
    return 1;
}

static int parse_forget(struct args *a, void *ret, const char *text)
{
    return parse_seconds(a, ret, text) && parse_seconds(a, &a->each_job.forget_after_ms, text);
}

static int parse_count(struct args *a, void *ret, const char *text)
{
    uint64_t count;
    (void)a;
    if (!parse_number(text, 1073741824, &count) || count == 0)
        return 0;
    memcpy(ret, &count, sizeof count);
    return 1;
}

static int parse_size(struct args *a, void *ret, const char *text)
{
    static const char units[] = "KMG";
    const uint64_t max = UINT64_C(1) << 50;
    uint64_t size;
    const char *unit;
    (void)a;
    if (!parse_digits(text, max, &size, &unit) || size == 0)
        return 0;
    if (*unit != '\0') {
        const char *at = strchr(units, *unit);
        int shift = at != NULL ? 10 * (int)(at - units + 1) : 0;
        if (at == NULL || unit[1] != '\0' || size > max >> shift)
            return 0;
        size <<= shift;
    }
    memcpy(ret, &size, sizeof size);
    return 1;
}

#define WANTS_SECONDS "whole seconds, 0 to 1000000"
#define WANTS_COUNT "a whole number, 1 to 1073741824"
#define WANTS_SIZE                                                                                 \
    "a size such as 65536 or 512M (K, M, G: 1024, 1024^2, 1024^3 bytes), 1 to 1048576G"
#define WANTS_ADDRESS "ADDR:PORT, IPv6 in brackets, port 0 to 65535"
#define WANTS_JOB "RUN_ID=ADDR:PORT, 1 to 255 printable ASCII characters and an address as --listen"
#define SERVER(field) offsetof(struct args, server.field)
#define EACH_JOB(field) offsetof(struct args, each_job.field)

static const struct flag {
    const char *name;
    parse_fn *parse;
    size_t at; /* in struct args, for those that need no more than a place */
    const char *wants;
} flags[] = {
    {"listen", parse_listen, 0, WANTS_ADDRESS},
    {"job", parse_job, 0, WANTS_JOB},
    {"forget-after", parse_forget, SERVER(forget_after_ms), WANTS_SECONDS},
    {"log-level", parse_level, 0, "error, warn, info, debug or trace"},
    {"drain-timeout", parse_seconds, offsetof(struct args, drain_ms), WANTS_SECONDS},
    {"max-connections", parse_count, SERVER(max_connections), WANTS_COUNT},
    {"max-keys", parse_count, SERVER(max_keys), WANTS_COUNT},
    {"max-store-bytes", parse_size, SERVER(max_store_bytes), WANTS_SIZE},
    {"max-buffer-bytes", parse_size, SERVER(max_buffer_bytes), WANTS_SIZE},
    {"max-unread-bytes", parse_size, SERVER(max_unread_bytes), WANTS_SIZE},
    {"max-request-bytes", parse_size, SERVER(max_request_bytes), WANTS_SIZE},
    {"max-value-bytes", parse_size, SERVER(max_value_bytes), WANTS_SIZE},
    {"request-timeout", parse_seconds, SERVER(request_timeout_ms), WANTS_SECONDS},
    {"job-max-connections", parse_count, EACH_JOB(max_connections), WANTS_COUNT},
    {"job-max-keys", parse_count, EACH_JOB(max_keys), WANTS_COUNT},
    {"job-max-store-bytes", parse_size, EACH_JOB(max_store_bytes), WANTS_SIZE},
    {"job-max-buffer-bytes", parse_size, EACH_JOB(max_buffer_bytes), WANTS_SIZE},
};

enum { FLAGS = sizeof flags / sizeof flags[0], FIRST_FLAG = 256 /* beyond getopt's letters */ };

/* A reader that has gone away or a full disk is no success. */
static int printed(void)
{
    return fflush(stdout) == 0 && !ferror(stdout) ? EXIT_ENDED : EXIT_OTHER;
}

static int print_help(void)
{
    help_print();
    return printed();
}

static int print_version(void)
{
    int v = rdzv_version();
    printf("rdzvd %d.%d.%d\n", v / 10000, v / 100 % 100, v % 100);
    return printed();
}

/* -1 = the value of the flag is taken over. */
static int take_flag(struct args *a, const struct flag *f, const char *text)
{
    if (f->parse(a, (char *)a + f->at, text))
        return -1;
    fprintf(stderr, "rdzvd: --%s wants %s, not \"%s\"; see rdzvd --help\n", f->name, f->wants,
            text);
    return EXIT_USAGE;
}

int args_parse(struct args *a, int argc, char **argv)
{
    struct option options[FLAGS + 3] = {{"help", no_argument, NULL, 'h'},
                                        {"version", no_argument, NULL, 'V'}};
    for (int i = 0; i < (int)FLAGS; i++)
        options[i + 2] = (struct option){flags[i].name, required_argument, NULL, FIRST_FLAG + i};
    *a = (struct args){.drain_ms = 10000};
    rdzv_server_options_init(&a->server, sizeof a->server);
    rdzv_job_options_init(&a->each_job, sizeof a->each_job);
    parse_listen(a, NULL, DEFAULT_LISTEN);
    a->jobs = calloc((size_t)argc + 1, sizeof *a->jobs); /* there cannot be more of them */
    if (a->jobs == NULL) {
        fputs("rdzvd: out of memory\n", stderr);
        return EXIT_OTHER;
    }
    int c;
    int print = 0;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'h' || c == 'V') {
            print = c; /* once the whole line is known to be right */
            continue;
        }
        if (c < FIRST_FLAG) {
            fputs("rdzvd: see rdzvd --help\n", stderr); /* getopt has said what is wrong */
            return EXIT_USAGE;
        }
        int code = take_flag(a, &flags[c - FIRST_FLAG], optarg);
        if (code >= 0)
            return code;
    }
    if (optind < argc) {
        fprintf(stderr, "rdzvd: unknown argument \"%s\"; see rdzvd --help\n", argv[optind]);
        return EXIT_USAGE;
    }
    if (print == 'h')
        return print_help();
    return print == 'V' ? print_version() : -1;
}

void args_free(struct args *a)
{
    free(a->jobs);
}
