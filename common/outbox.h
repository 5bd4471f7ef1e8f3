/*
 * outbox.h: what the working side of a handle has to tell its owner: letters, and log lines, of
 * which only so many may wait; what finds no room is counted, and the count told.
 */
#ifndef COMMON_OUTBOX_H
#define COMMON_OUTBOX_H

#include "container.h"
#include "mailbox.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { OUTBOX_WARN = 1, OUTBOX_INFO = 2 }; /* levels, as the public headers number them */
enum { OUTBOX_LINES = 256 };               /* that wait for a thread to come */

/* Where the memory of the lines comes from, and where they go. */
struct outbox_hooks {
    void *(*alloc)(void *ctx, size_t len_bytes, size_t align);
    void (*free)(void *ctx, void *ptr);
    void *alloc_ctx;
    void (*log)(void *ctx, int level, const char *line); /* NULL = silent */
    void *log_ctx;
};

struct outbox {
    struct mailbox mailbox;
    struct outbox_hooks hooks;
    uint32_t lines_most;                         /* that may wait; half of them of detail */
    void (*deliver_line)(struct letter *letter); /* one address, whichever file posts */
    uint32_t waiting;             /* lines; under the mailbox's lock, as is the next */
    uint64_t dropped;             /* lines */
    struct letter dropped_letter; /* posted while dropped is not 0 */
};

struct outbox_line {
    struct letter letter;
    struct outbox *outbox;
    int level;
    char text[];
};

static inline void outbox_deliver_line(struct letter *letter)
{
    struct outbox_line *line = CONTAINER_OF(letter, struct outbox_line, letter);
    struct outbox *o = line->outbox;
    pthread_mutex_lock(&o->mailbox.lock);
    o->waiting--;
    pthread_mutex_unlock(&o->mailbox.lock);
    o->hooks.log(o->hooks.log_ctx, line->level, line->text);
    o->hooks.free(o->hooks.alloc_ctx, line);
}

static inline void outbox_deliver_dropped(struct letter *letter)
{
    struct outbox *o = CONTAINER_OF(letter, struct outbox, dropped_letter);
    char text[96];
    pthread_mutex_lock(&o->mailbox.lock);
    unsigned long long dropped = o->dropped;
    o->dropped = 0;
    pthread_mutex_unlock(&o->mailbox.lock);
    snprintf(text, sizeof text,
             "%llu log lines were dropped: nobody dispatched in time, or no memory", dropped);
    o->hooks.log(o->hooks.log_ctx, OUTBOX_WARN, text);
}

/* Returns 0 or an errno. */
static inline int outbox_init(struct outbox *o, const struct outbox_hooks *hooks,
                              uint32_t lines_most)
{
    *o = (struct outbox){.hooks = *hooks,
                         .lines_most = lines_most,
                         .deliver_line = outbox_deliver_line,
                         .dropped_letter.deliver = outbox_deliver_dropped};
    return mailbox_init(&o->mailbox);
}

/* Lines that nobody took go with it. */
static inline void outbox_free(struct outbox *o)
{
    for (struct letter *letter = mailbox_take(&o->mailbox), *next; letter != NULL; letter = next) {
        next = letter->next;
        if (letter->deliver == o->deliver_line)
            o->hooks.free(o->hooks.alloc_ctx, CONTAINER_OF(letter, struct outbox_line, letter));
    }
    mailbox_free(&o->mailbox);
}

/* Room for a line of that level? A flood of detail leaves some for what matters. */
static inline int outbox_reserve(struct outbox *o, int level)
{
    uint32_t most = level > OUTBOX_INFO ? o->lines_most / 2 : o->lines_most;
    pthread_mutex_lock(&o->mailbox.lock);
    int room = o->waiting < most;
    o->waiting += room ? 1 : 0;
    pthread_mutex_unlock(&o->mailbox.lock);
    return room;
}

/* One line less; `reserved` says that there was room for it. */
static inline void outbox_drop(struct outbox *o, int reserved)
{
    pthread_mutex_lock(&o->mailbox.lock);
    int tell = o->dropped++ == 0;
    o->waiting -= reserved ? 1 : 0;
    pthread_mutex_unlock(&o->mailbox.lock);
    if (tell)
        mailbox_post(&o->mailbox, &o->dropped_letter);
}

/* Any thread: posts a copy. */
static inline void outbox_log(struct outbox *o, int level, const char *text)
{
    if (o->hooks.log == NULL)
        return;
    int room = outbox_reserve(o, level);
    size_t len = strlen(text) + 1;
    struct outbox_line *line = NULL;
    if (room)
        line = o->hooks.alloc(o->hooks.alloc_ctx, sizeof *line + len, _Alignof(max_align_t));
    if (line == NULL) {
        outbox_drop(o, room);
        return;
    }
    *line = (struct outbox_line){{NULL, o->deliver_line}, o, level};
    memcpy(line->text, text, len);
    mailbox_post(&o->mailbox, &line->letter);
}

#endif
