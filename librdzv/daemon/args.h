/*
 * args.h: what the command line of rdzvd asks for, and its exit codes.
 */
#ifndef RDZVD_ARGS_H
#define RDZVD_ARGS_H

#include "rdzv.h"

#include <stdint.h>

enum {
    EXIT_ENDED = 0,  /* asked to end, and drained or gave up draining in time */
    EXIT_CUT = 1,    /* a second signal ended it at once */
    EXIT_USAGE = 2,  /* wrong command line */
    EXIT_LISTEN = 3, /* the address cannot be listened on */
    EXIT_OTHER = 4   /* memory, descriptors, a failing system call */
};

struct job_args {
    char run_id[RDZV_RUN_ID_BYTES + 1];
    char host[80];
    uint16_t port;
    rdzv_job *handle; /* NULL until it is open; ends with the server */
};

struct args {
    char host[80];
    rdzv_server_options server; /* its `host` is the one above, so args stay where they are */
    rdzv_job_options each_job;  /* what is common to all */
    struct job_args *jobs;
    size_t job_count;
    int32_t drain_ms;
};

/* Fills a. Returns -1 to go on, else the exit code: it has printed what was asked for or what is
 * wrong. */
int args_parse(struct args *a, int argc, char **argv);
void args_free(struct args *a);

/* Name of a log level, as in --log-level. */
const char *args_level_name(int level);

/* help.c: what --help prints. */
void help_print(void);

#define DEFAULT_LISTEN "127.0.0.1:29400"

#endif /* RDZVD_ARGS_H */
