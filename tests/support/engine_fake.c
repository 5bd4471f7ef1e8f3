/*
 * engine_fake.c: see engine_fake.h. Each io travels as a shadow, a copy that the real engine works
 * on; the test's io is touched only when its completion is announced.
 *
 * A shadow is with the real engine, or on `ready` (may be announced), or on `late` (counts reaps).
 */
#include "engine_fake.h"

#include "event.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MAX_FD 4096
#define NO_EVENT SIZE_MAX

struct fake {
    struct ckpt__engine base;
    struct ckpt__engine *real;
    int poll; /* of the real engine's descriptor and of event */
    int event;
    bool reverse, keep_data;
    struct fake_rule *rules[FAKE_MAX_RULES];
    size_t rule_count;
    struct shadow *ready, *late;
    uint64_t with_real, outstanding, submitted, tick;
    struct fake_event *log;
    size_t log_count, log_capacity;
    char *paths[MAX_FD];
};

struct shadow {
    struct ckpt__io io; /* first: what the real engine hands back */
    struct ckpt__io *of;
    struct fake *fake;
    size_t event;
    uint32_t reaps;
    int64_t at_most; /* what a short transfer says */
    struct shadow *next;
};

static const struct ckpt__engine_class fake_class;

static struct fake *self(const struct ckpt__engine *e)
{
    return (struct fake *)(uintptr_t)e;
}

/* ------------------------------------------------------------------------------------------ */
/* Log                                                                                          */

static char *copy(const char *s)
{
    return s != NULL ? strdup(s) : NULL;
}

static const char *path_of(const struct fake *f, const struct ckpt__io *io)
{
    if (io->path != NULL)
        return io->path;
    return io->fd >= 0 && io->fd < MAX_FD ? f->paths[io->fd] : NULL;
}

static size_t log_io(struct fake *f, const struct ckpt__io *io)
{
    if (io->op == CKPT__READ || io->op == CKPT__CLOSE)
        return NO_EVENT;
    if (f->log_count == f->log_capacity) {
        f->log_capacity = f->log_capacity * 2 + 64;
        f->log = realloc(f->log, f->log_capacity * sizeof *f->log);
        assert(f->log != NULL);
    }
    struct fake_event *e = &f->log[f->log_count];
    *e = (struct fake_event){.op = io->op,
                             .path = copy(path_of(f, io)),
                             .path2 = copy(io->path2),
                             .flags = io->flags,
                             .mode = io->mode,
                             .off = io->off,
                             .len = io->len,
                             .submitted = ++f->tick};
    if (io->op == CKPT__WRITE && f->keep_data) {
        e->data = malloc(io->len);
        assert(e->data != NULL);
        memcpy(e->data, io->buf, io->len);
    }
    return f->log_count++;
}

static void log_done(struct fake *f, const struct shadow *s)
{
    if (s->io.op == CKPT__OPEN && s->io.result >= 0 && s->io.result < MAX_FD) {
        free(f->paths[s->io.result]);
        f->paths[s->io.result] = copy(s->io.path);
    }
    if (s->event == NO_EVENT)
        return;
    f->log[s->event].result = s->io.result;
    f->log[s->event].completed = ++f->tick;
}

/* ------------------------------------------------------------------------------------------ */
/* Rules                                                                                        */

static bool is_direct(const struct ckpt__io *io)
{
    int flags = io->op == CKPT__OPEN ? io->flags : fcntl(io->fd, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) != 0;
}

static bool matches(const struct fake *f, const struct fake_rule *r, const struct ckpt__io *io)
{
    if (r->op != FAKE_ANY_OP && r->op != (int)io->op)
        return false;
    if (r->direct && !is_direct(io))
        return false;
    const char *path = path_of(f, io);
    return r->path == NULL || (path != NULL && strstr(path, r->path) != NULL);
}

/* The first rule that fires on this io; all that match count it. */
static struct fake_rule *fire(struct fake *f, const struct ckpt__io *io)
{
    struct fake_rule *found = NULL;
    for (size_t i = 0; i < f->rule_count; i++) {
        struct fake_rule *r = f->rules[i];
        if (!matches(f, r, io))
            continue;
        uint64_t n = r->seen++;
        if (found == NULL && (n == r->nth || (r->forever && n > r->nth))) {
            r->fired++;
            found = r;
        }
    }
    return found;
}

/* ------------------------------------------------------------------------------------------ */
/* The engine                                                                                   */

static void make_ready(struct shadow *s)
{
    struct fake *f = s->fake;
    struct shadow **list = s->reaps > 0 ? &f->late : &f->ready;
    if (f->reverse || s->reaps > 0) {
        s->next = *list;
        *list = s;
    } else {
        while (*list != NULL)
            list = &(*list)->next;
        s->next = NULL;
        *list = s;
    }
    event_set(f->event);
}

static void real_done(struct ckpt__io *io)
{
    struct shadow *s = (struct shadow *)(void *)io;
    s->fake->with_real--;
    if (io->result > s->at_most)
        io->result = s->at_most;
    make_ready(s);
}

static void fake_submit(struct ckpt__engine *e, struct ckpt__io *io)
{
    struct fake *f = self(e);
    struct shadow *s = calloc(1, sizeof *s);
    assert(s != NULL);
    s->io = *io;
    s->io.done = real_done;
    s->of = io;
    s->fake = f;
    s->at_most = INT64_MAX;
    s->event = log_io(f, io);
    f->submitted++;
    f->outstanding++;
    struct fake_rule *r = fire(f, io);
    bool transfer = io->op == CKPT__WRITE || io->op == CKPT__READ;
    if (r != NULL && r->action == FAKE_FAIL) {
        if (io->op == CKPT__CLOSE)
            close(io->fd);
        s->io.result = -r->sys_errno;
        make_ready(s);
        return;
    }
    if (r != NULL && r->action == FAKE_DELAY)
        s->reaps = r->reaps;
    if (r != NULL && r->action == FAKE_SHORT && transfer && r->len < io->len) {
        s->at_most = (int64_t)r->len;
        uint64_t moved = (r->len + 4095) & ~(uint64_t)4095;
        s->io.len = moved < io->len ? moved : io->len;
        if (r->len == 0) {
            s->io.result = 0;
            make_ready(s);
            return;
        }
    }
    f->with_real++;
    f->real->cls->submit(f->real, &s->io);
}

static void age_late(struct fake *f)
{
    struct shadow *s = f->late;
    f->late = NULL;
    while (s != NULL) {
        struct shadow *next = s->next;
        s->reaps--;
        make_ready(s); /* back to late unless it is time */
        s = next;
    }
}

static int fake_reap(struct ckpt__engine *e)
{
    struct fake *f = self(e);
    event_drain(f->event);
    f->real->cls->reap(f->real);
    age_late(f);
    if (f->reverse && f->with_real > 0)
        return 0;
    struct shadow *s = f->ready;
    f->ready = NULL;
    int count = 0;
    while (s != NULL) {
        struct shadow *next = s->next;
        log_done(f, s);
        s->of->result = s->io.result;
        f->outstanding--;
        struct ckpt__io *io = s->of;
        free(s);
        io->done(io);
        count++;
        s = next;
    }
    return count;
}

static int fake_fd(const struct ckpt__engine *e)
{
    return self(e)->poll;
}

static void fake_cancel(struct ckpt__engine *e)
{
    struct fake *f = self(e);
    f->real->cls->cancel(f->real);
}

static void fake_close_engine(struct ckpt__engine *e)
{
    struct fake *f = self(e);
    fake_cancel(e);
    while (f->outstanding > 0) {
        struct epoll_event got;
        (void)epoll_wait(f->poll, &got, 1, -1);
        fake_reap(e);
    }
    f->real->cls->close(f->real);
    close(f->poll);
    close(f->event);
    for (size_t i = 0; i < f->log_count; i++) {
        free(f->log[i].path);
        free(f->log[i].path2);
        free(f->log[i].data);
    }
    free(f->log);
    for (size_t i = 0; i < MAX_FD; i++)
        free(f->paths[i]);
    free(f);
}

static int fake_open_engine(struct ckpt__engine **ret, const struct ckpt__engine_config *config,
                            ckpt_error *err)
{
    struct fake *f = calloc(1, sizeof *f);
    assert(f != NULL);
    int rc = ckpt__engine_sync.open(&f->real, config, err);
    if (rc < 0) {
        free(f);
        return rc;
    }
    f->base.cls = &fake_class;
    f->event = event_open();
    f->poll = epoll_create1(EPOLL_CLOEXEC);
    assert(f->event >= 0 && f->poll >= 0);
    int fds[] = {f->event, f->real->cls->fd(f->real)};
    for (int i = 0; i < 2; i++) {
        struct epoll_event ev = {.events = EPOLLIN};
        rc = epoll_ctl(f->poll, EPOLL_CTL_ADD, fds[i], &ev);
        assert(rc == 0);
    }
    *ret = &f->base;
    return CKPT_OK;
}

static const struct ckpt__engine_class fake_class = {
    .name = "fake",
    .open = fake_open_engine,
    .submit = fake_submit,
    .reap = fake_reap,
    .fd = fake_fd,
    .cancel = fake_cancel,
    .close = fake_close_engine,
};

/* ------------------------------------------------------------------------------------------ */
/* For tests                                                                                    */

struct ckpt__engine *fake_open(const struct ckpt__env *env, uint32_t queue_depth)
{
    struct ckpt__engine *e;
    struct ckpt__engine_config config = {.env = env, .queue_depth = queue_depth};
    int rc = fake_class.open(&e, &config, NULL);
    assert(rc == CKPT_OK);
    (void)rc;
    return e;
}

void fake_close(struct ckpt__engine *e)
{
    fake_close_engine(e);
}

void fake_add_rule(struct ckpt__engine *e, struct fake_rule *rule)
{
    struct fake *f = self(e);
    assert(f->rule_count < FAKE_MAX_RULES);
    rule->seen = rule->fired = 0;
    f->rules[f->rule_count++] = rule;
}

void fake_reverse(struct ckpt__engine *e)
{
    self(e)->reverse = true;
}

void fake_keep_data(struct ckpt__engine *e)
{
    self(e)->keep_data = true;
}

const struct fake_event *fake_log(const struct ckpt__engine *e, size_t *count)
{
    *count = self(e)->log_count;
    return self(e)->log;
}

uint64_t fake_submitted(const struct ckpt__engine *e)
{
    return self(e)->submitted;
}

uint64_t fake_count(const struct ckpt__engine *e, enum ckpt__op op)
{
    const struct fake *f = self(e);
    uint64_t count = 0;
    for (size_t i = 0; i < f->log_count; i++)
        count += f->log[i].op == op;
    return count;
}
