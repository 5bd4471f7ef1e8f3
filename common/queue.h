/*
 * queue.h: intrusive doubly linked list. A link that is in no list points to itself, so removing
 * it again is harmless and "is it queued?" needs no flag.
 */
#ifndef COMMON_QUEUE_H
#define COMMON_QUEUE_H

#include "container.h" /* for whoever walks a list */

struct queue {
    struct queue *next;
    struct queue *prev;
};

static inline void queue_init(struct queue *q)
{
    q->next = q;
    q->prev = q;
}

/* Of a list: has no member. Of a link: is in no list. */
static inline int queue_empty(const struct queue *q)
{
    return q->next == q;
}

static inline void queue_push(struct queue *list, struct queue *link)
{
    link->next = list;
    link->prev = list->prev;
    list->prev->next = link;
    list->prev = link;
}

static inline void queue_remove(struct queue *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    queue_init(link);
}

#endif
