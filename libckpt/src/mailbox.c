/*
 * mailbox.c: letters under a mutex, announced by an eventfd. Knows nothing of saves and loads.
 * Invariant: whenever a letter waits, the eventfd is readable or deliver is running.
 */
#include "mailbox.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_WAITING_LINES 256u

int ckpt__mailbox_init(struct ckpt__mailbox *m, ckpt_error *err)
{
    m->head = NULL;
    m->tail = &m->head;
    m->lines = 0;
    m->dropped = 0;
    m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->fd < 0)
        return ckpt__fail_sys(err, errno, "eventfd for the handle's mailbox");
    pthread_mutex_init(&m->lock, NULL);
    return CKPT_OK;
}

void ckpt__mailbox_free(struct ckpt__mailbox *m)
{
    pthread_mutex_destroy(&m->lock);
    close(m->fd);
}

void ckpt__mailbox_wake(struct ckpt__mailbox *m)
{
    uint64_t one = 1;
    /* EAGAIN means that the counter is full, so the descriptor is readable: all that is wanted. */
    while (write(m->fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void ckpt__mailbox_post(struct ckpt__mailbox *m, struct ckpt__letter *letter)
{
    letter->next = NULL;
    pthread_mutex_lock(&m->lock);
    *m->tail = letter;
    m->tail = &letter->next;
    pthread_mutex_unlock(&m->lock);
    ckpt__mailbox_wake(m);
}

int ckpt__mailbox_deliver(struct ckpt__mailbox *m)
{
    uint64_t count;
    while (read(m->fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&m->lock);
    struct ckpt__letter *letter = m->head;
    m->head = NULL;
    m->tail = &m->head;
    pthread_mutex_unlock(&m->lock);
    int n = 0;
    while (letter != NULL) {
        struct ckpt__letter *next = letter->next;
        letter->deliver(letter);
        letter = next;
        n++;
    }
    return n;
}

struct line {
    struct ckpt__letter letter;
    struct ckpt__mailbox *box;
    const struct ckpt__env *env;
    ckpt_log_fn fn;
    void *fn_ctx;
    int level;
    uint32_t dropped_before;
    char text[];
};

static void deliver_line(struct ckpt__letter *letter)
{
    struct line *line = (struct line *)letter;
    pthread_mutex_lock(&line->box->lock);
    line->box->lines--;
    pthread_mutex_unlock(&line->box->lock);
    if (line->dropped_before > 0)
        line->fn(line->fn_ctx, CKPT_LOG_WARN, "log lines were dropped: nobody dispatched in time");
    line->fn(line->fn_ctx, line->level, line->text);
    ckpt__free(line->env, line);
}

void ckpt__mailbox_post_line(struct ckpt__mailbox *m, const struct ckpt__env *env, ckpt_log_fn fn,
                             void *fn_ctx, int level, const char *text)
{
    size_t len = strlen(text) + 1;
    struct line *line = ckpt__alloc(env, sizeof *line + len);
    pthread_mutex_lock(&m->lock);
    if (line == NULL || m->lines >= MAX_WAITING_LINES) {
        m->dropped++;
        pthread_mutex_unlock(&m->lock);
        ckpt__free(env, line);
        return;
    }
    m->lines++;
    uint32_t dropped = m->dropped;
    m->dropped = 0;
    pthread_mutex_unlock(&m->lock);
    *line = (struct line){.letter.deliver = deliver_line,
                          .box = m,
                          .env = env,
                          .fn = fn,
                          .fn_ctx = fn_ctx,
                          .level = level,
                          .dropped_before = dropped};
    memcpy(line->text, text, len);
    ckpt__mailbox_post(m, &line->letter);
}
