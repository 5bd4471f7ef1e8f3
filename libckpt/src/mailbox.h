/*
 * mailbox.h: a queue between the two sides of a handle, behind an eventfd. Posting cannot fail:
 * whoever posts owns the letter's memory until it is delivered.
 */
#ifndef CKPT_MAILBOX_H
#define CKPT_MAILBOX_H

#include "env.h"

#include <pthread.h>

struct ckpt__letter {
    struct ckpt__letter *next;
    void (*deliver)(struct ckpt__letter *letter); /* may free the letter, may post */
};

struct ckpt__mailbox {
    pthread_mutex_t lock;
    struct ckpt__letter *head, **tail;
    int fd;           /* readable while something waits; a hint, not a count */
    uint32_t lines;   /* log lines waiting */
    uint32_t dropped; /* log lines that found no room since the last delivery */
};

int ckpt__mailbox_init(struct ckpt__mailbox *m, ckpt_error *err);
void ckpt__mailbox_free(struct ckpt__mailbox *m); /* must be empty */

/* Any thread. */
void ckpt__mailbox_post(struct ckpt__mailbox *m, struct ckpt__letter *letter);

/* Makes fd readable without a letter. Any thread. */
void ckpt__mailbox_wake(struct ckpt__mailbox *m);

/* Delivers what was there at the call; returns how many. One thread. */
int ckpt__mailbox_deliver(struct ckpt__mailbox *m);

/* Posts a copy of a log line for fn; at most a few hundred wait, more are counted and dropped. */
void ckpt__mailbox_post_line(struct ckpt__mailbox *m, const struct ckpt__env *env, ckpt_log_fn fn,
                             void *fn_ctx, int level, const char *line);

#endif
