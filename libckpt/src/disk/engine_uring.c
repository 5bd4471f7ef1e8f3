/*
 * engine_uring.c: io_uring. One ring, an eventfd for completions, registered buffers over the
 * staging pool, the plain system call for an opcode that the kernel lacks.
 *
 * Invariant: prepared and in-flight ios together never exceed the depth, which never exceeds the
 * submission ring, so the completion ring (twice as large) cannot overflow. SQPOLL and deferred
 * task run stay off: the first burns a core of the trainer, the second ties reaping to one thread.
 * Must not know what an io is for.
 */
#include "disk/engine.h"
#include "env.h"
#include "event.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIN_ENTRIES 4u
#define REGION_BYTES (1u << 30) /* the kernel registers at most this much as one buffer */
#define MAX_REGIONS 256u
#define MAX_STALLS 1000u /* submissions in a row that the kernel has no memory for */

/* Linux 6.9; liburing's header names it from 2.6 on, the number is the kernel's for ever. */
#define OP_FTRUNCATE 55

/* Opcode of each op; the kernel may lack it. */
static const uint8_t opcodes[CKPT__OP_COUNT] = {
    [CKPT__OPEN] = IORING_OP_OPENAT,         [CKPT__CLOSE] = IORING_OP_CLOSE,
    [CKPT__FALLOCATE] = IORING_OP_FALLOCATE, [CKPT__TRUNCATE] = OP_FTRUNCATE,
    [CKPT__WRITE] = IORING_OP_WRITE,         [CKPT__READ] = IORING_OP_READ,
    [CKPT__FDATASYNC] = IORING_OP_FSYNC,     [CKPT__FSYNC] = IORING_OP_FSYNC,
    [CKPT__MKDIR] = IORING_OP_MKDIRAT,       [CKPT__RENAME] = IORING_OP_RENAMEAT,
    [CKPT__UNLINK] = IORING_OP_UNLINKAT,     [CKPT__RMDIR] = IORING_OP_UNLINKAT,
};

struct uring_engine {
    struct ckpt__engine base;
    const struct ckpt__env *env;
    struct io_uring ring;
    int event;
    uint32_t depth;
    uint32_t in_flight;        /* with the kernel */
    uint32_t prepared_count;   /* in the submission ring, the kernel has not taken them */
    uint32_t stalls;           /* times in a row that it took none while it had none */
    struct ckpt__ios queued;   /* not started */
    struct ckpt__ios prepared; /* in the order of the submission ring */
    struct ckpt__ios finished; /* ended without the ring */
    uint64_t outstanding;      /* submitted, done has not run */
    bool refused; /* the kernel takes no more submissions: plain system calls from here on */
    bool supported[CKPT__OP_COUNT];
    uint8_t *pool; /* registered memory, or NULL */
    size_t pool_bytes;
};

static struct uring_engine *self(const struct ckpt__engine *e)
{
    return (struct uring_engine *)(uintptr_t)e;
}

/* ------------------------------------------------------------------------------------------ */
/* Open                                                                                         */

static int refuse(ckpt_error *err, int sys_errno, const char *by)
{
    ckpt__fail_sys(err, sys_errno, "io_uring refused by %s", by);
    if (err != NULL)
        err->code = CKPT_ENOTSUP;
    return CKPT_ENOTSUP;
}

/* Older kernels charge the ring to the memlock limit: a smaller one may still fit. */
static int set_up_ring(struct uring_engine *u, uint32_t depth, ckpt_error *err)
{
    uint32_t entries = MIN_ENTRIES;
    while (entries < depth)
        entries *= 2;
    int rc = io_uring_queue_init(entries, &u->ring, 0);
    while (rc == -ENOMEM && entries > MIN_ENTRIES) {
        entries /= 2;
        rc = io_uring_queue_init(entries, &u->ring, 0);
    }
    if (rc < 0)
        return refuse(err, -rc, "io_uring_setup");
    u->depth = depth < entries ? depth : entries;
    return CKPT_OK;
}

static int probe_opcodes(struct uring_engine *u, ckpt_error *err)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(&u->ring);
    if (probe == NULL)
        return refuse(err, ENOSYS, "its probe of opcodes");
    for (int op = 0; op < CKPT__OP_COUNT; op++)
        u->supported[op] = io_uring_opcode_supported(probe, opcodes[op]);
    io_uring_free_probe(probe);
    if (!u->supported[CKPT__WRITE] || !u->supported[CKPT__READ])
        return refuse(err, EOPNOTSUPP, "its probe of read and write");
    return CKPT_OK;
}

static void register_pool(struct uring_engine *u, const struct ckpt__engine_config *config)
{
    struct iovec regions[MAX_REGIONS];
    uint8_t *base = config->pool;
    size_t bytes = config->pool_bytes;
    if (base == NULL || bytes > (uint64_t)MAX_REGIONS * REGION_BYTES)
        return;
    uint32_t count = 0;
    for (size_t at = 0; at < bytes; at += REGION_BYTES) {
        size_t len = bytes - at < REGION_BYTES ? bytes - at : REGION_BYTES;
        regions[count++] = (struct iovec){.iov_base = base + at, .iov_len = len};
    }
    int rc = io_uring_register_buffers(&u->ring, regions, count);
    if (rc == 0) {
        u->pool = base;
        u->pool_bytes = bytes;
        return;
    }
    struct rlimit limit = {0, 0};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    ckpt__log(u->env, CKPT_LOG_INFO,
              "registered buffers refused by io_uring_register of %zu KiB (memlock limit %llu "
              "KiB): %s; writing without them",
              bytes / 1024, (unsigned long long)(limit.rlim_cur / 1024), strerrordesc_np(-rc));
}

static int uring_open(struct ckpt__engine **ret, const struct ckpt__engine_config *config,
                      ckpt_error *err)
{
    assert(config->queue_depth > 0); /* else nothing would ever start */
    struct uring_engine *u = ckpt__alloc_zero(config->env, sizeof *u);
    if (u == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "no memory for the io_uring engine");
    u->base.cls = &ckpt__engine_uring;
    u->env = config->env;
    u->event = event_open();
    int rc;
    if (u->event < 0) {
        rc = ckpt__fail_sys(err, -u->event, "eventfd for the io_uring engine");
        goto free_engine;
    }
    rc = set_up_ring(u, config->queue_depth, err);
    if (rc < 0)
        goto close_event;
    rc = probe_opcodes(u, err);
    if (rc < 0)
        goto exit_ring;
    rc = io_uring_register_eventfd(&u->ring, u->event);
    if (rc < 0) {
        rc = refuse(err, -rc, "io_uring_register of an eventfd");
        goto exit_ring;
    }
    register_pool(u, config);
    *ret = &u->base;
    return CKPT_OK;

exit_ring:
    io_uring_queue_exit(&u->ring);
close_event:
    close(u->event);
free_engine:
    ckpt__free(config->env, u);
    return rc;
}

/* ------------------------------------------------------------------------------------------ */
/* Start                                                                                        */

/* Index of the registered region that holds all of [buf, buf + len), or -1. */
static int region_of(const struct uring_engine *u, const void *buf, size_t len)
{
    uintptr_t at = (uintptr_t)buf - (uintptr_t)u->pool;
    if (u->pool == NULL || (uintptr_t)buf < (uintptr_t)u->pool || at >= u->pool_bytes ||
        len > u->pool_bytes - at || len == 0)
        return -1;
    size_t first = at / REGION_BYTES, last = (at + len - 1) / REGION_BYTES;
    return first == last ? (int)first : -1;
}

static void prepare_transfer(const struct uring_engine *u, struct io_uring_sqe *sqe,
                             const struct ckpt__io *io)
{
    unsigned len =
        io->len < CKPT__MAX_TRANSFER_BYTES ? (unsigned)io->len : CKPT__MAX_TRANSFER_BYTES;
    int region = region_of(u, io->buf, len);
    if (io->op == CKPT__WRITE && region >= 0)
        io_uring_prep_write_fixed(sqe, io->fd, io->buf, len, io->off, region);
    else if (io->op == CKPT__WRITE)
        io_uring_prep_write(sqe, io->fd, io->buf, len, io->off);
    else if (region >= 0)
        io_uring_prep_read_fixed(sqe, io->fd, io->buf, len, io->off, region);
    else
        io_uring_prep_read(sqe, io->fd, io->buf, len, io->off);
}

static void prepare(const struct uring_engine *u, struct io_uring_sqe *sqe,
                    const struct ckpt__io *io)
{
    switch (io->op) {
    case CKPT__OPEN:
        io_uring_prep_openat(sqe, AT_FDCWD, io->path, io->flags | O_CLOEXEC, io->mode);
        break;
    case CKPT__CLOSE:
        io_uring_prep_close(sqe, io->fd);
        break;
    case CKPT__FALLOCATE:
        io_uring_prep_fallocate(sqe, io->fd, 0, 0, 0);
        sqe->off = io->off; /* signed arguments in liburing 2.3, unsigned in 2.9 */
        sqe->addr = io->len;
        break;
    case CKPT__TRUNCATE:
        io_uring_prep_rw(OP_FTRUNCATE, sqe, io->fd, NULL, 0, io->len);
        break;
    case CKPT__WRITE:
    case CKPT__READ:
        prepare_transfer(u, sqe, io);
        break;
    case CKPT__FDATASYNC:
        io_uring_prep_fsync(sqe, io->fd, IORING_FSYNC_DATASYNC);
        break;
    case CKPT__FSYNC:
        io_uring_prep_fsync(sqe, io->fd, 0);
        break;
    case CKPT__MKDIR:
        io_uring_prep_mkdirat(sqe, AT_FDCWD, io->path, io->mode);
        break;
    case CKPT__RENAME:
        io_uring_prep_renameat(sqe, AT_FDCWD, io->path, AT_FDCWD, io->path2, 0);
        break;
    case CKPT__UNLINK:
        io_uring_prep_unlinkat(sqe, AT_FDCWD, io->path, 0);
        break;
    case CKPT__RMDIR:
        io_uring_prep_unlinkat(sqe, AT_FDCWD, io->path, AT_REMOVEDIR);
        break;
    default:
        assert(false && "unknown op");
    }
    io_uring_sqe_set_data(sqe, (void *)(uintptr_t)io);
}

static void finish(struct uring_engine *u, struct ckpt__io *io, int64_t result)
{
    io->result = result;
    ckpt__ios_push(&u->finished, io);
    event_set(u->event);
}

/* A filter or a limit that came after open; nothing may be lost by it. */
static void stop_using_ring(struct uring_engine *u, int sys_errno)
{
    u->refused = true;
    ckpt__log(u->env, CKPT_LOG_WARN,
              "io_uring refused by io_uring_enter: %s; using plain system calls",
              strerrordesc_np(sys_errno));
    struct ckpt__io *io;
    while ((io = ckpt__ios_pop(&u->prepared)) != NULL)
        finish(u, io, ckpt__io_run(io));
    u->prepared_count = 0;
}

/* Hands the kernel what is prepared. It may take a part: the rest is tried again by the next reap,
 * which a completion or the event brings about. */
static void enter(struct uring_engine *u)
{
    int taken;
    do {
        taken = io_uring_submit(&u->ring);
    } while (taken == -EINTR);
    for (int i = 0; i < taken; i++) {
        ckpt__ios_pop(&u->prepared);
        u->prepared_count--;
        u->in_flight++;
    }
    bool stalled = u->prepared_count > 0 && u->in_flight == 0;
    u->stalls = stalled ? u->stalls + 1 : 0;
    bool busy = taken >= 0 || taken == -EAGAIN || taken == -EBUSY || taken == -ENOMEM;
    if (!busy || u->stalls > MAX_STALLS)
        stop_using_ring(u, taken < 0 ? -taken : EAGAIN);
    else if (stalled)
        event_set(u->event);
}

static void start(struct uring_engine *u)
{
    while (u->queued.head != NULL && u->prepared_count + u->in_flight < u->depth) {
        struct ckpt__io *io = ckpt__ios_pop(&u->queued);
        if (u->refused || !u->supported[io->op]) {
            finish(u, io, ckpt__io_run(io));
            continue;
        }
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        assert(sqe != NULL); /* by the invariant */
        prepare(u, sqe, io);
        ckpt__ios_push(&u->prepared, io);
        u->prepared_count++;
    }
    if (u->prepared_count > 0)
        enter(u);
}

/* ------------------------------------------------------------------------------------------ */
/* The other functions of the class                                                             */

static void uring_submit(struct ckpt__engine *e, struct ckpt__io *io)
{
    struct uring_engine *u = self(e);
    u->outstanding++;
    ckpt__ios_push(&u->queued, io);
    start(u);
}

/* At most what is there now: ios that done starts may complete at once, without an end. */
static int reap_ring(struct uring_engine *u)
{
    struct io_uring_cqe *cqe;
    int count = 0;
    for (unsigned left = io_uring_cq_ready(&u->ring);
         left > 0 && io_uring_peek_cqe(&u->ring, &cqe) == 0; left--) {
        struct ckpt__io *io = io_uring_cqe_get_data(cqe);
        io->result = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        u->in_flight--;
        start(u); /* what waits; done may take long, and the device would idle */
        io->done(io);
        count++;
    }
    return count;
}

static int uring_reap(struct ckpt__engine *e)
{
    struct uring_engine *u = self(e);
    event_drain(u->event); /* before looking: what comes later sets it again */
    struct ckpt__ios done = u->finished;
    u->finished = (struct ckpt__ios){NULL, NULL};
    int count = ckpt__ios_finish(done) + reap_ring(u);
    u->outstanding -= (uint64_t)count;
    start(u);
    return count;
}

static int uring_fd(const struct ckpt__engine *e)
{
    return self(e)->event;
}

static void uring_cancel(struct ckpt__engine *e)
{
    struct uring_engine *u = self(e);
    if (ckpt__ios_cancel(&u->queued, &u->finished) > 0)
        event_set(u->event);
}

/* A forked child may hold the ring's descriptor, so closing it is not enough: buffers and eventfd
 * are taken back by name. */
static void uring_close(struct ckpt__engine *e)
{
    struct uring_engine *u = self(e);
    uring_cancel(e);
    while (u->outstanding > 0) {
        event_wait(u->event);
        uring_reap(e);
    }
    if (u->pool != NULL)
        io_uring_unregister_buffers(&u->ring);
    io_uring_unregister_eventfd(&u->ring);
    io_uring_queue_exit(&u->ring);
    close(u->event);
    ckpt__free(u->env, u);
}

const struct ckpt__engine_class ckpt__engine_uring = {
    .name = "io_uring",
    .open = uring_open,
    .submit = uring_submit,
    .reap = uring_reap,
    .fd = uring_fd,
    .cancel = uring_cancel,
    .close = uring_close,
};
