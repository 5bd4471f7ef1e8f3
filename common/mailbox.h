/*
 * mailbox.h: a queue between the two sides of a handle, announced by an eventfd. Posting cannot
 * fail: whoever posts owns the letter's memory until it is delivered, and no post may be under way
 * when the mailbox is freed. Invariant: while a letter waits, the descriptor is readable, or a
 * delivery is running, or a post is about to make it so.
 */
#ifndef COMMON_MAILBOX_H
#define COMMON_MAILBOX_H

#include "event.h"

#include <pthread.h>
#include <stddef.h>

struct letter {
    struct letter *next;
    void (*deliver)(struct letter *letter); /* may free the letter, may post */
};

struct mailbox {
    pthread_mutex_t lock;
    struct letter *first;
    struct letter **last;
    int fd; /* readable while something waits; a hint, not a count */
};

/* Returns 0 or an errno. */
static inline int mailbox_init(struct mailbox *m)
{
    m->first = NULL;
    m->last = &m->first;
    m->fd = event_open();
    if (m->fd < 0)
        return -m->fd;
    pthread_mutex_init(&m->lock, NULL);
    return 0;
}

static inline void mailbox_free(struct mailbox *m)
{
    pthread_mutex_destroy(&m->lock);
    close(m->fd);
}

/* Makes the descriptor readable. Any thread. */
static inline void mailbox_wake(struct mailbox *m)
{
    event_set(m->fd);
}

/* Any thread. */
static inline void mailbox_post(struct mailbox *m, struct letter *letter)
{
    letter->next = NULL;
    pthread_mutex_lock(&m->lock);
    *m->last = letter;
    m->last = &letter->next;
    pthread_mutex_unlock(&m->lock);
    mailbox_wake(m);
}

/* Empties the mailbox. Returns the first letter; the rest hang on its `next`. */
static inline struct letter *mailbox_take(struct mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    struct letter *first = m->first;
    m->first = NULL;
    m->last = &m->first;
    pthread_mutex_unlock(&m->lock);
    return first;
}

/* One thread: delivers what was there at the call; returns how many. */
static inline int mailbox_deliver(struct mailbox *m)
{
    event_drain(m->fd);
    int n = 0;
    for (struct letter *letter = mailbox_take(m), *next; letter != NULL; letter = next, n++) {
        next = letter->next;
        letter->deliver(letter);
    }
    return n;
}

#endif
