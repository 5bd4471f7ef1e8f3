/*
 * load.c: the load generator's command line. One scenario per run, one thread but in a storm, its
 * result as one JSON object on standard output. Speaks c10d to any address; knows nothing of who
 * serves it.
 */
#include "load.h"

#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const struct {
    const char *name;
    void (*run)(const struct options *opt);
} scenarios[] = {
    {"ops", run_ops},   {"get", run_get},         {"storm", run_storm},
    {"hold", run_hold}, {"barrier", run_barrier}, {"wake", run_wake},
};

static void usage(void)
{
    fprintf(
        stderr,
        "usage: store_load SCENARIO --address HOST:PORT [option...]\n"
        "\n"
        "  ops      ADD as fast as it goes: --clients, --depth, --milliseconds\n"
        "  get      WAIT and GET of one key, blocking: --one-trip, --milliseconds\n"
        "  storm    connect and shake hands: --clients, --wave, --window, --sources, --threads\n"
        "  hold     connect --clients, then obey \"ping\" and \"wait\" lines until the end\n"
        "  barrier  --clients meet in a BARRIER\n"
        "  wake     --clients WAIT for a key, which is then SET\n"
        "\n"
        "  --echo: the server sends back what it gets (ops, storm)\n");
    exit(2);
}

static uint32_t number(const char *text, uint32_t max)
{
    char *end;
    errno = 0;
    unsigned long v = strtoul(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text || v == 0 || v > max)
        die("a number from 1 to %u is wanted, not \"%s\"", max, text);
    return (uint32_t)v;
}

static void parse_address(struct options *opt, char *text)
{
    char *colon = strrchr(text, ':');
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    if (colon == NULL)
        die("--address wants HOST:PORT, not \"%s\"", text);
    *colon = '\0';
    if (text[0] == '[' && colon[-1] == ']') {
        colon[-1] = '\0';
        text++;
    }
    if (getaddrinfo(text, colon + 1, &hints, &found) != 0)
        die("--address: \"%s\" is not a numeric address", text);
    memcpy(&opt->address, found->ai_addr, found->ai_addrlen);
    opt->address_len = found->ai_addrlen;
    freeaddrinfo(found);
}

static void parse_options(struct options *opt, int argc, char **argv)
{
    static const struct option names[] = {{"address", required_argument, NULL, 'a'},
                                          {"clients", required_argument, NULL, 'c'},
                                          {"wave", required_argument, NULL, 'w'},
                                          {"depth", required_argument, NULL, 'd'},
                                          {"sources", required_argument, NULL, 's'},
                                          {"milliseconds", required_argument, NULL, 't'},
                                          {"window", required_argument, NULL, 'n'},
                                          {"echo", no_argument, NULL, 'e'},
                                          {"one-trip", no_argument, NULL, 'o'},
                                          {"threads", required_argument, NULL, 'm'},
                                          {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (c == 'a')
            parse_address(opt, optarg);
        else if (c == 'c')
            opt->clients = number(optarg, 1000000);
        else if (c == 'w')
            opt->wave = number(optarg, 1000000);
        else if (c == 'n')
            opt->window = number(optarg, 1000000);
        else if (c == 'd')
            opt->depth = number(optarg, MAX_DEPTH);
        else if (c == 's')
            opt->sources = number(optarg, 254);
        else if (c == 'm')
            opt->threads = number(optarg, MAX_THREADS);
        else if (c == 't')
            opt->seconds = number(optarg, 1000000) / 1e3;
        else if (c == 'e')
            opt->echo = 1;
        else if (c == 'o')
            opt->one_trip = 1;
        else
            usage();
    }
    if (optind != argc || opt->address_len == 0)
        usage();
    if (opt->wave == 0 || opt->wave > opt->clients)
        opt->wave = opt->clients;
    if (opt->sources > 1 && opt->address.ss_family != AF_INET)
        die("--sources needs an IPv4 address to connect to");
}

int main(int argc, char **argv)
{
    struct options opt = {
        .clients = 1, .depth = 1, .window = 512, .sources = 1, .threads = 1, .seconds = 1};
    struct rlimit limit;
    if (argc < 2)
        usage();
    parse_options(&opt, argc - 1, argv + 1);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run(&opt);
            return 0;
        }
    }
    usage();
}
