/*
 * main.c: c10d_differential: random cases against our server and PyTorch's until enough requests
 * were made or an answer differs. The same seed makes the same cases; a failing one has a seed of
 * its own.
 */
#include "shrink.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const difference_names[DIFFERENCE_COUNT] = {
#define DIFFERENCE_NAME(name, yardsticks, text) #name,
    DIFFERENCES(DIFFERENCE_NAME)
#undef DIFFERENCE_NAME
};

static int usage(void)
{
    printf(
        "usage: c10d_differential OURS THEIRS uv|old REQUESTS SEED [--case] [--whole]\n"
        "                         [--expose NAME]\n"
        "\n"
        "Sends the same random requests to two c10d servers on ports of 127.0.0.1 and compares\n"
        "every answer and every closing. --case plays the one case of SEED, --whole does not\n"
        "cut a failing case down, --expose takes the excuse from a difference that we keep:\n\n");
#define DIFFERENCE_LINE(name, yardsticks, text)                                                    \
    printf("  %-26s %s%s%s\n", #name, (yardsticks)&YARDSTICK_UV ? "uv " : "",                      \
           (yardsticks)&YARDSTICK_OLD ? "old " : "", text);
    DIFFERENCES(DIFFERENCE_LINE)
#undef DIFFERENCE_LINE
    printf("\nExit codes: 0 no difference, 1 a difference, 2 anything else.\n");
    return 2;
}

static int expose(struct play *p, const char *name)
{
    for (int i = 0; i < DIFFERENCE_COUNT; i++) {
        if (strcmp(name, difference_names[i]) == 0) {
            p->exposed |= 1u << i;
            return 1;
        }
    }
    return 0;
}

static int report(struct play *p, struct script *s, const char *yardstick, int whole)
{
    printf("case %" PRIu64 ", step %u, %" PRIu64 " requests in: %s\n", s->seed, p->at_step,
           p->asked, p->difference);
    play_close(p);
    uint64_t seed = s->seed;
    if (whole)
        printf("in whole:\n");
    else if (shrink(p, s))
        printf("cut down to %u steps: %s\n", s->steps, p->difference);
    else
        printf("the case alone, on new connections, makes no difference; in whole it was\n");
    script_print(s);
    printf("again: c10d_differential %u %u %s 1 %" PRIu64 " --case\n", p->port[OURS],
           p->port[THEIRS], yardstick, seed);
    return 1;
}

int main(int argc, char **argv)
{
    static struct play play;
    static struct script script;
    struct play *p = &play;
    struct script *s = &script;
    if (argc < 6)
        return usage();
    p->port[OURS] = (uint16_t)strtoul(argv[1], NULL, 10);
    p->port[THEIRS] = (uint16_t)strtoul(argv[2], NULL, 10);
    p->yardstick = strcmp(argv[3], "old") == 0 ? YARDSTICK_OLD : YARDSTICK_UV;
    uint64_t requests = strtoull(argv[4], NULL, 10);
    uint64_t seed = strtoull(argv[5], NULL, 10);
    int one_case = 0;
    int whole = 0;
    for (int i = 6; i < argc; i++) {
        if (strcmp(argv[i], "--case") == 0)
            one_case = 1;
        else if (strcmp(argv[i], "--whole") == 0)
            whole = 1;
        else if (strcmp(argv[i], "--expose") != 0 || i + 1 == argc || !expose(p, argv[++i]))
            return usage();
    }
    uint64_t state = seed;
    uint64_t cases = 0;
    int failed = 0;
    do {
        script_make(s, one_case ? seed : random_next(&state));
        if (cases++ == 0)
            play_open(p, s);
        failed = play_script(p, s);
    } while (!failed && !one_case && p->asked < requests);
    if (failed)
        failed = report(p, s, argv[3], whole);
    else
        printf("%" PRIu64 " requests in %" PRIu64 " cases, seed %" PRIu64 ", against %s: no "
               "difference\n",
               p->asked, cases, seed, argv[3]);
    if (!failed)
        play_close(p);
    script_free(s);
    return failed;
}
