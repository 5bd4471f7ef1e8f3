/*
 * engine_sync.c: plain system calls on one worker thread, for kernels and sandboxes without
 * io_uring, or to compare with.
 *
 * Invariant: an io is in exactly one place: queued, with the worker, finished, or its submitter's.
 * The lists and `stop` are under the lock; everything else belongs to the engine's thread. The
 * worker never calls out: done runs in reap and close. Must not know what an io is for.
 */
#include "disk/engine.h"
#include "env.h"
#include "event.h"
#include "thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

struct sync_engine {
    struct ckpt__engine base;
    const struct ckpt__env *env;
    int event;
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct ckpt__ios queued, finished;
    bool stop;
    uint64_t outstanding; /* submitted, done has not run; of the engine's thread */
};

static struct sync_engine *self(const struct ckpt__engine *e)
{
    return (struct sync_engine *)(uintptr_t)e;
}

/* Under the lock. An earlier entry that reap has not taken yet has already set the event. */
static void finish_one(struct sync_engine *s, struct ckpt__io *io)
{
    if (s->finished.head == NULL)
        event_set(s->event);
    ckpt__ios_push(&s->finished, io);
}

static void *work(void *arg)
{
    struct sync_engine *s = arg;
    pthread_setname_np(pthread_self(), "ckpt-io");
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        struct ckpt__io *io = ckpt__ios_pop(&s->queued);
        if (io == NULL) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        io->result = ckpt__io_run(io);
        pthread_mutex_lock(&s->lock);
        finish_one(s, io);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int sync_open(struct ckpt__engine **ret, const struct ckpt__engine_config *config,
                     ckpt_error *err)
{
    struct sync_engine *s = ckpt__alloc_zero(config->env, sizeof *s);
    if (s == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "no memory for the sync engine");
    s->base.cls = &ckpt__engine_sync;
    s->env = config->env;
    int rc;
    s->event = event_open();
    if (s->event < 0) {
        rc = ckpt__fail_sys(err, -s->event, "eventfd for the sync engine");
        goto free_engine;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    rc = thread_start(&s->worker, work, s);
    if (rc != 0) {
        rc = ckpt__fail_sys(err, rc, "starting the thread of the sync engine");
        goto close_event;
    }
    *ret = &s->base;
    return CKPT_OK;

close_event:
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    close(s->event);
free_engine:
    ckpt__free(config->env, s);
    return rc;
}

static void sync_submit(struct ckpt__engine *e, struct ckpt__io *io)
{
    struct sync_engine *s = self(e);
    s->outstanding++;
    pthread_mutex_lock(&s->lock);
    ckpt__ios_push(&s->queued, io);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static int sync_reap(struct ckpt__engine *e)
{
    struct sync_engine *s = self(e);
    event_drain(s->event); /* before looking: what comes later sets it again */
    pthread_mutex_lock(&s->lock);
    struct ckpt__ios done = s->finished;
    s->finished = (struct ckpt__ios){NULL, NULL};
    pthread_mutex_unlock(&s->lock);
    int count = ckpt__ios_finish(done);
    s->outstanding -= (uint64_t)count;
    return count;
}

static int sync_fd(const struct ckpt__engine *e)
{
    return self(e)->event;
}

static void sync_cancel(struct ckpt__engine *e)
{
    struct sync_engine *s = self(e);
    pthread_mutex_lock(&s->lock);
    if (ckpt__ios_cancel(&s->queued, &s->finished) > 0)
        event_set(s->event);
    pthread_mutex_unlock(&s->lock);
}

static void sync_close(struct ckpt__engine *e)
{
    struct sync_engine *s = self(e);
    sync_cancel(e);
    while (s->outstanding > 0) {
        event_wait(s->event);
        sync_reap(e);
    }
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->worker, NULL);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    close(s->event);
    ckpt__free(s->env, s);
}

const struct ckpt__engine_class ckpt__engine_sync = {
    .name = "sync",
    .open = sync_open,
    .submit = sync_submit,
    .reap = sync_reap,
    .fd = sync_fd,
    .cancel = sync_cancel,
    .close = sync_close,
};
