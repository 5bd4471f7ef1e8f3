/*
 * mailbox.h: what a handle's own thread has to tell its owner: log lines and finished operations,
 * announced by a descriptor and delivered on the owner's thread.
 */
#ifndef RDZV_UV_MAILBOX_H
#define RDZV_UV_MAILBOX_H

#include "alloc.h"

#include <pthread.h>

struct rdzv__letter {
    struct rdzv__letter *next;
    rdzv_closed_fn call; /* NULL: it is the letter of a struct rdzv__line */
    void *ctx;
};

/* A log line; the mailbox owns its memory. */
struct rdzv__line {
    struct rdzv__letter letter;
    int level;
    char text[];
};

struct rdzv__mailbox {
    const rdzv_allocator *allocator;
    rdzv_log_fn log;
    void *log_ctx;
    pthread_mutex_t lock;
    struct rdzv__letter *first;
    struct rdzv__letter **last;
    uint32_t lines;   /* log lines inside */
    uint64_t dropped; /* log lines that found no room */
    int fd;           /* readable while there is something to deliver */
};

/* Returns 0 or an errno. */
int rdzv__mailbox_init(struct rdzv__mailbox *m, const rdzv_allocator *allocator, rdzv_log_fn log,
                       void *log_ctx);
/* Drops what is left. */
void rdzv__mailbox_free(struct rdzv__mailbox *m);
/* Any thread. The letter stays with its owner until its call has run. */
void rdzv__mailbox_post(struct rdzv__mailbox *m, struct rdzv__letter *letter);
void rdzv__mailbox_log(struct rdzv__mailbox *m, int level, const char *line);
/* Owner's thread: runs everything that is there; returns how many. */
int rdzv__mailbox_deliver(struct rdzv__mailbox *m);

#endif
