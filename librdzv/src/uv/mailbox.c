/*
 * mailbox.c: letters under a mutex and an eventfd. Invariant: while a letter waits, the eventfd is
 * readable or a delivery is running. Log lines are bounded and counted when dropped; operations
 * bring their own letter and are never dropped. Knows nothing of servers and loops.
 */
#include "uv/mailbox.h"

#include "container.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MAX_LINES = 256 };

int rdzv__mailbox_init(struct rdzv__mailbox *m, const rdzv_allocator *allocator, rdzv_log_fn log,
                       void *log_ctx)
{
    *m = (struct rdzv__mailbox){.allocator = allocator, .log = log, .log_ctx = log_ctx};
    m->last = &m->first;
    m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->fd < 0)
        return errno;
    pthread_mutex_init(&m->lock, NULL);
    return 0;
}

void rdzv__mailbox_free(struct rdzv__mailbox *m)
{
    while (m->first != NULL) {
        struct rdzv__letter *letter = m->first;
        m->first = letter->next;
        if (letter->call == NULL)
            rdzv__free(m->allocator, CONTAINER_OF(letter, struct rdzv__line, letter));
    }
    pthread_mutex_destroy(&m->lock);
    close(m->fd);
}

static void ring(struct rdzv__mailbox *m)
{
    uint64_t one = 1;
    /* EAGAIN means that the counter is full, so the descriptor is readable: all that is wanted. */
    while (write(m->fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void append(struct rdzv__mailbox *m, struct rdzv__letter *letter)
{
    letter->next = NULL;
    *m->last = letter;
    m->last = &letter->next;
}

void rdzv__mailbox_post(struct rdzv__mailbox *m, struct rdzv__letter *letter)
{
    pthread_mutex_lock(&m->lock);
    append(m, letter);
    pthread_mutex_unlock(&m->lock);
    ring(m);
}

void rdzv__mailbox_log(struct rdzv__mailbox *m, int level, const char *line)
{
    if (m->log == NULL)
        return;
    size_t len = strlen(line) + 1;
    struct rdzv__line *copy = rdzv__alloc(m->allocator, sizeof *copy + len);
    pthread_mutex_lock(&m->lock);
    /* A flood of detail drops no warning. */
    uint32_t most = level > RDZV_LOG_INFO ? MAX_LINES / 2 : MAX_LINES;
    int room = copy != NULL && m->lines < most;
    if (room) {
        copy->letter.call = NULL;
        copy->level = level;
        memcpy(copy->text, line, len);
        append(m, &copy->letter);
        m->lines++;
    } else {
        m->dropped++;
    }
    pthread_mutex_unlock(&m->lock);
    if (!room)
        rdzv__free(m->allocator, copy);
    ring(m);
}

int rdzv__mailbox_deliver(struct rdzv__mailbox *m)
{
    uint64_t rung;
    while (read(m->fd, &rung, sizeof rung) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&m->lock);
    struct rdzv__letter *letter = m->first;
    uint64_t dropped = m->dropped;
    m->first = NULL;
    m->last = &m->first;
    m->lines = 0;
    m->dropped = 0;
    pthread_mutex_unlock(&m->lock);
    int count = 0;
    while (letter != NULL) {
        struct rdzv__letter *next = letter->next;
        if (letter->call != NULL) {
            letter->call(letter->ctx);
        } else {
            struct rdzv__line *line = CONTAINER_OF(letter, struct rdzv__line, letter);
            m->log(m->log_ctx, line->level, line->text);
            rdzv__free(m->allocator, line);
        }
        letter = next;
        count++;
    }
    if (dropped > 0) {
        char line[96];
        snprintf(line, sizeof line, "%llu log lines were dropped: the owner dispatched too late",
                 (unsigned long long)dropped);
        m->log(m->log_ctx, RDZV_LOG_WARN, line);
        count++;
    }
    return count;
}
