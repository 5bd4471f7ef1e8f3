/*
 * io.c: requests over an engine: retries, whole transfers, small files read and written whole,
 * names.
 *
 * Invariant: a request has exactly one io in the engine from its start until done. A request is a
 * chain of steps; each step looks at the result of the io before, and either issues the next one or
 * finishes. A descriptor that a chain has opened is closed before the chain ends. Knows nothing of
 * checkpoints. file.c has the steps of files of blocks.
 */
#include "disk/io_steps.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_RETRIES 1000u

/* ------------------------------------------------------------------------------------------ */
/* One request, one io at a time                                                                */

void ckpt__req_begin(struct ckpt__req *r, const struct ckpt__disk *d, const char *path)
{
    *r = (struct ckpt__req){.done = r->done, .ctx = r->ctx, .disk = d, .path = path, .fd = -1};
}

static void submit(struct ckpt__req *r)
{
    r->disk->engine->cls->submit(r->disk->engine, &r->io);
}

/* Close is never tried again: on Linux the descriptor is gone whatever close says. */
static bool try_again(struct ckpt__req *r)
{
    int64_t n = r->io.result;
    if ((n != -EINTR && n != -EAGAIN) || r->io.op == CKPT__CLOSE || r->retries == MAX_RETRIES)
        return false;
    if (r->retries++ == 0)
        ckpt__log(r->disk->env, CKPT_LOG_DEBUG, "%s of %s interrupted or busy; trying again",
                  ckpt__op_name(r->io.op), r->path);
    submit(r);
    return true;
}

static void io_done(struct ckpt__io *io)
{
    struct ckpt__req *r = io->ctx;
    if (!try_again(r))
        r->step(r);
}

void ckpt__req_issue(struct ckpt__req *r, void (*step)(struct ckpt__req *r), struct ckpt__io io)
{
    r->step = step;
    r->io = io;
    r->io.done = io_done;
    r->io.ctx = r;
    r->retries = 0;
    submit(r);
}

void ckpt__req_set(struct ckpt__req *r, int64_t result)
{
    r->result = result;
    if (result < 0)
        r->what = ckpt__op_name(r->io.op);
}

void ckpt__req_finish(struct ckpt__req *r, int64_t result)
{
    ckpt__req_set(r, result);
    r->done(r);
}

static void finish_as_is(struct ckpt__req *r)
{
    ckpt__req_finish(r, r->io.result);
}

/* A close after reading has nothing to lose. */
static void closed(struct ckpt__req *r)
{
    int64_t n = r->io.result;
    if (r->result >= 0 && n < 0 && n != -EINTR && r->op != CKPT__READ)
        ckpt__req_set(r, n);
    r->done(r);
}

void ckpt__req_close(struct ckpt__req *r)
{
    ckpt__req_issue(r, closed, (struct ckpt__io){.op = CKPT__CLOSE, .fd = r->fd});
}

int ckpt__req_error(const struct ckpt__req *r, ckpt_error *err)
{
    int sys_errno = (int)-r->result;
    if (r->io.op == CKPT__RENAME)
        return ckpt__fail_sys(err, sys_errno, "%s %s to %s", r->what, r->path, r->io.path2);
    if (r->what == ckpt__op_name(CKPT__WRITE) || r->what == ckpt__op_name(CKPT__READ))
        return ckpt__fail_sys(err, sys_errno, "%s %s at byte %" PRIu64, r->what, r->path,
                              r->off + r->high);
    return ckpt__fail_sys(err, sys_errno, "%s %s", r->what, r->path);
}

/* ------------------------------------------------------------------------------------------ */
/* Transfers                                                                                    */

static void transferred(struct ckpt__req *r);

static void transfer(struct ckpt__req *r)
{
    r->direct = r->file != NULL && r->file->direct;
    ckpt__req_issue(r, transferred,
                    (struct ckpt__io){.op = r->op,
                                      .fd = r->fd,
                                      .buf = r->buf + r->at,
                                      .len = r->len - r->at,
                                      .off = r->off + r->at});
}

void ckpt__req_transfer(struct ckpt__req *r, enum ckpt__op op, void (*after)(struct ckpt__req *r))
{
    assert(r->len > 0);
    r->op = op;
    r->after = after;
    r->at = r->high = 0;
    transfer(r);
}

/* A direct transfer that stopped between two aligned bytes is taken up at the last of them, where
 * that is ahead of where it began; else it needs the page cache. */
static void resume(struct ckpt__req *r)
{
    uint64_t began = r->io.off - r->off;
    if (r->direct) {
        assert(r->file != NULL);
        uint64_t aligned = r->at & ~(uint64_t)(r->file->align - 1);
        if (aligned == r->at || aligned > began)
            r->at = aligned;
        else
            ckpt__file_use_page_cache(r->file, ckpt__op_name(r->op), "it stops between blocks");
    }
    transfer(r);
}

static void transferred(struct ckpt__req *r)
{
    int64_t n = r->io.result;
    if (n < 0 && r->direct && ckpt__dio_refused((int)-n)) {
        ckpt__file_use_page_cache(r->file, ckpt__op_name(r->op), strerrordesc_np((int)-n));
        transfer(r);
        return;
    }
    if (n == 0 && r->op == CKPT__WRITE)
        n = -EIO;
    if (n < 0) {
        ckpt__req_set(r, n);
        r->after(r);
        return;
    }
    r->at += (uint64_t)n;
    if (r->at > r->high)
        r->high = r->at;
    bool ended = r->op == CKPT__READ && r->file != NULL && r->off + r->at >= r->file->bytes;
    if (n > 0 && r->at < r->len && !ended) {
        resume(r);
        return;
    }
    ckpt__req_set(r, (int64_t)r->high);
    r->after(r);
}

/* ------------------------------------------------------------------------------------------ */
/* Small files, whole                                                                           */

static void whole_synced(struct ckpt__req *r)
{
    if (r->io.result < 0)
        ckpt__req_set(r, r->io.result);
    ckpt__req_close(r);
}

static void whole_written(struct ckpt__req *r)
{
    if (r->result < 0)
        ckpt__req_close(r);
    else
        ckpt__req_issue(r, whole_synced, (struct ckpt__io){.op = CKPT__FSYNC, .fd = r->fd});
}

static void whole_created(struct ckpt__req *r)
{
    if (r->io.result < 0) {
        ckpt__req_finish(r, r->io.result);
        return;
    }
    r->fd = (int)r->io.result;
    if (r->len == 0)
        whole_written(r);
    else
        ckpt__req_transfer(r, CKPT__WRITE, whole_written);
}

void ckpt__write_whole(const struct ckpt__disk *d, const char *path, mode_t mode, const void *buf,
                       uint64_t len, struct ckpt__req *r)
{
    ckpt__req_begin(r, d, path);
    r->buf = (uint8_t *)(uintptr_t)buf;
    r->len = len;
    ckpt__req_issue(r, whole_created,
                    (struct ckpt__io){.op = CKPT__OPEN,
                                      .path = path,
                                      .flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                      .mode = mode});
}

/* Opens for reading are O_NONBLOCK until here, so that a pipe in the place of a file cannot hold
 * us up; with the flag on, the ring would answer EAGAIN instead of waiting for the device. */
int ckpt__req_check_regular(const struct ckpt__req *r, uint64_t *bytes)
{
    struct stat st;
    if (fstat(r->fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    *bytes = (uint64_t)st.st_size;
    int flags = fcntl(r->fd, F_GETFL);
    if (flags < 0 || fcntl(r->fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return -errno;
    return 0;
}

static void whole_read(struct ckpt__req *r)
{
    if (r->result < 0) {
        ckpt__free(r->disk->env, r->buf);
        r->buf = NULL;
    }
    ckpt__req_close(r);
}

static void whole_opened(struct ckpt__req *r)
{
    if (r->io.result < 0) {
        ckpt__req_finish(r, r->io.result);
        return;
    }
    r->fd = (int)r->io.result;
    int rc = ckpt__req_check_regular(r, &r->len);
    if (rc == 0 && r->len > r->cap)
        rc = -EFBIG;
    if (rc == 0) {
        r->buf = ckpt__alloc(r->disk->env, r->len);
        rc = r->buf != NULL ? 0 : -ENOMEM;
    }
    ckpt__req_set(r, rc);
    if (rc < 0 || r->len == 0)
        whole_read(r);
    else
        ckpt__req_transfer(r, CKPT__READ, whole_read);
}

void ckpt__read_whole(const struct ckpt__disk *d, const char *path, uint64_t cap,
                      struct ckpt__req *r)
{
    ckpt__req_begin(r, d, path);
    r->op = CKPT__READ;
    r->cap = cap < SIZE_MAX ? cap : SIZE_MAX;
    ckpt__req_issue(r, whole_opened,
                    (struct ckpt__io){.op = CKPT__OPEN,
                                      .path = path,
                                      .flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC});
}

/* ------------------------------------------------------------------------------------------ */
/* Names                                                                                        */

static void dir_synced(struct ckpt__req *r)
{
    int64_t n = r->io.result;
    if (n == -EINVAL) {
        ckpt__log(
            r->disk->env, CKPT_LOG_WARN,
            "fsync of directory %s: the file system has none; its own rules decide when names "
            "are durable",
            r->path);
        n = 0;
    }
    ckpt__req_set(r, n);
    ckpt__req_close(r);
}

static void dir_opened(struct ckpt__req *r)
{
    if (r->io.result < 0) {
        ckpt__req_finish(r, r->io.result);
        return;
    }
    r->fd = (int)r->io.result;
    ckpt__req_issue(r, dir_synced, (struct ckpt__io){.op = CKPT__FSYNC, .fd = r->fd});
}

void ckpt__sync_dir(const struct ckpt__disk *d, const char *path, struct ckpt__req *r)
{
    ckpt__req_begin(r, d, path);
    ckpt__req_issue(r, dir_opened,
                    (struct ckpt__io){.op = CKPT__OPEN,
                                      .path = path,
                                      .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC});
}

void ckpt__mkdir(const struct ckpt__disk *d, const char *path, mode_t mode, struct ckpt__req *r)
{
    ckpt__req_begin(r, d, path);
    ckpt__req_issue(r, finish_as_is,
                    (struct ckpt__io){.op = CKPT__MKDIR, .path = path, .mode = mode});
}

void ckpt__rename(const struct ckpt__disk *d, const char *from, const char *to, struct ckpt__req *r)
{
    ckpt__req_begin(r, d, from);
    ckpt__req_issue(r, finish_as_is,
                    (struct ckpt__io){.op = CKPT__RENAME, .path = from, .path2 = to});
}

void ckpt__unlink(const struct ckpt__disk *d, const char *path, struct ckpt__req *r)
{
    ckpt__req_begin(r, d, path);
    ckpt__req_issue(r, finish_as_is, (struct ckpt__io){.op = CKPT__UNLINK, .path = path});
}

void ckpt__rmdir(const struct ckpt__disk *d, const char *path, struct ckpt__req *r)
{
    ckpt__req_begin(r, d, path);
    ckpt__req_issue(r, finish_as_is, (struct ckpt__io){.op = CKPT__RMDIR, .path = path});
}
