/*
 * ckpt.c: the life of a handle between open and close. Drives the working side (from its own thread
 * or from the caller's dispatch), delivers letters on the caller's side. Knows nothing of formats.
 *
 * Invariant: callbacks run only inside ckpt_dispatch, ckpt_wait and ckpt_close, on the caller's
 * thread, because only those deliver `out`.
 */
#include "handle.h"

#include "clock.h"
#include "container.h"
#include "load/load.h"
#include "save/save.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

int ckpt__check(const ckpt *c, ckpt_error *err)
{
    if (c->pid != getpid())
        return ckpt__fail(err, CKPT_ESTATE,
                          "%s was opened by process %ld; open it again after fork", c->root,
                          (long)c->pid);
    return CKPT_OK;
}

int ckpt__check_idle(const ckpt *c, ckpt_error *err)
{
    int rc = ckpt__check(c, err);
    if (rc == CKPT_OK && c->closing)
        rc = ckpt__fail(err, CKPT_ESTATE, "%s is being closed", c->root);
    else if (rc == CKPT_OK && c->busy)
        rc = ckpt__fail(err, CKPT_EBUSY, "%s: another operation of this handle has not called back",
                        c->root);
    return rc;
}

void ckpt__again(ckpt *c)
{
    mailbox_wake(&c->in);
}

/* ------------------------------------------------------------------------------------------ */
/* Working side                                                                                 */

static void turn(ckpt *c)
{
    uint64_t ticks;
    mailbox_deliver(&c->in);
    if (c->tick_fd >= 0 && read(c->tick_fd, &ticks, sizeof ticks) < 0)
        ticks = 0; /* it only wakes */
    if (c->has_group)
        c->group.dispatch(c->group.ctx);
    if (c->task != NULL && c->task->step != NULL)
        c->task->step(c->task);
    c->disk.engine->cls->reap(c->disk.engine);
}

static void start_task(ckpt *c, struct ckpt__task *t)
{
    c->task = t;
    t->start(t);
    if (c->stopping && c->task == t)
        t->cancel(t);
}

void ckpt__task_begin(ckpt *c, struct ckpt__task *t)
{
    t->next = NULL;
    if (c->task == NULL) {
        start_task(c, t);
        return;
    }
    struct ckpt__task **end = &c->waiting;
    while (*end != NULL)
        end = &(*end)->next;
    *end = t;
}

void ckpt__task_over(ckpt *c)
{
    struct ckpt__task *next = c->waiting;
    c->task = NULL;
    if (next == NULL)
        return;
    c->waiting = next->next;
    start_task(c, next);
}

static void stop(struct letter *letter)
{
    ckpt *c = CONTAINER_OF(letter, ckpt, stop);
    c->stopping = true;
    if (c->task != NULL)
        c->task->cancel(c->task);
}

void ckpt__run(ckpt *c)
{
    while (!c->stopping || c->task != NULL) {
        struct epoll_event events[4];
        if (epoll_wait(c->epoll_fd, events, 4, -1) < 0 && errno != EINTR)
            break; /* cannot happen with our own descriptor; never spin */
        turn(c);
    }
}

/* ------------------------------------------------------------------------------------------ */
/* Caller's side                                                                                */

int ckpt_fd(const ckpt *c)
{
    int rc = ckpt__check(c, NULL);
    return rc != CKPT_OK ? rc : c->own_thread ? c->out.mailbox.fd : c->epoll_fd;
}

const char *ckpt_engine_name(const ckpt *c)
{
    return c->disk.engine->cls->name;
}

static int deliver(ckpt *c)
{
    c->in_callback = true;
    int n = mailbox_deliver(&c->out.mailbox);
    c->in_callback = false;
    return n;
}

int ckpt_dispatch(ckpt *c)
{
    int rc = ckpt__check(c, NULL);
    if (rc != CKPT_OK)
        return rc;
    if (c->in_callback)
        return CKPT_EBUSY;
    if (!c->own_thread)
        turn(c);
    return deliver(c);
}

int ckpt_wait(ckpt *c, int timeout_ms)
{
    uint64_t end = clock_end_ms(timeout_ms);
    for (;;) {
        int n = ckpt_dispatch(c);
        uint64_t now = clock_ms();
        if (n != 0 || now >= end)
            return n;
        struct pollfd p = {.fd = ckpt_fd(c), .events = POLLIN};
        if (poll(&p, 1, clock_poll_ms(now, end)) < 0)
            return errno == EINTR ? 0 : CKPT_EIO;
    }
}

void ckpt_close(ckpt *c)
{
    if (c == NULL || ckpt__check(c, NULL) != CKPT_OK || c->in_callback)
        return;
    c->closing = true;
    c->stop.deliver = stop;
    mailbox_post(&c->in, &c->stop);
    if (c->own_thread)
        pthread_join(c->thread, NULL);
    else
        ckpt__run(c);
    deliver(c);
    ckpt__save_free(c->begun);
    while (c->loads != NULL)
        ckpt__load_free(c->loads);
    ckpt__release(c);
}
