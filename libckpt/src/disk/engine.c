/*
 * engine.c: chooses an engine, and what engines share: one io by a plain system call, lists of ios.
 *
 * No state. Knows nothing of rings and threads.
 */
#include "disk/engine.h"
#include "env.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int ckpt__engine_open(struct ckpt__engine **ret, uint32_t kind,
                      const struct ckpt__engine_config *config, ckpt_error *err)
{
    if (kind > CKPT_ENGINE_SYNC)
        return ckpt__fail(err, CKPT_EINVAL, "engine %u is not one of CKPT_ENGINE_*", kind);
    if (kind == CKPT_ENGINE_SYNC)
        return ckpt__engine_sync.open(ret, config, err);
    ckpt_error refused;
    int rc = ckpt__engine_uring.open(ret, config, &refused);
    if (rc == CKPT_ENOTSUP && kind == CKPT_ENGINE_AUTO) {
        ckpt__log(config->env, CKPT_LOG_WARN, "%s; using system calls on a worker thread",
                  refused.text);
        return ckpt__engine_sync.open(ret, config, err);
    }
    if (rc < 0 && err != NULL)
        *err = refused;
    return rc;
}

const char *ckpt__op_name(enum ckpt__op op)
{
    static const char *const names[CKPT__OP_COUNT] = {
        [CKPT__OPEN] = "open",           [CKPT__CLOSE] = "close",   [CKPT__FALLOCATE] = "fallocate",
        [CKPT__TRUNCATE] = "ftruncate",  [CKPT__WRITE] = "write",   [CKPT__READ] = "read",
        [CKPT__FDATASYNC] = "fdatasync", [CKPT__FSYNC] = "fsync",   [CKPT__MKDIR] = "mkdir",
        [CKPT__RENAME] = "rename",       [CKPT__UNLINK] = "unlink", [CKPT__RMDIR] = "rmdir",
    };
    assert(op < CKPT__OP_COUNT);
    return names[op];
}

static int64_t run(const struct ckpt__io *io)
{
    size_t len = io->len < CKPT__MAX_TRANSFER_BYTES ? (size_t)io->len : CKPT__MAX_TRANSFER_BYTES;
    switch (io->op) {
    case CKPT__OPEN:
        return open(io->path, io->flags | O_CLOEXEC, io->mode);
    case CKPT__CLOSE:
        return close(io->fd);
    case CKPT__FALLOCATE:
        return fallocate(io->fd, 0, (off_t)io->off, (off_t)io->len);
    case CKPT__TRUNCATE:
        return ftruncate(io->fd, (off_t)io->len);
    case CKPT__WRITE:
        return pwrite(io->fd, io->buf, len, (off_t)io->off);
    case CKPT__READ:
        return pread(io->fd, io->buf, len, (off_t)io->off);
    case CKPT__FDATASYNC:
        return fdatasync(io->fd);
    case CKPT__FSYNC:
        return fsync(io->fd);
    case CKPT__MKDIR:
        return mkdir(io->path, io->mode);
    case CKPT__RENAME:
        return rename(io->path, io->path2);
    case CKPT__UNLINK:
        return unlink(io->path);
    case CKPT__RMDIR:
        return rmdir(io->path);
    default:
        assert(false && "unknown op");
        return -1;
    }
}

int64_t ckpt__io_run(const struct ckpt__io *io)
{
    int64_t result = run(io);
    return result < 0 ? -errno : result;
}

int ckpt__ios_cancel(struct ckpt__ios *from, struct ckpt__ios *to)
{
    struct ckpt__ios keep = {NULL, NULL};
    struct ckpt__io *io;
    int moved = 0;
    while ((io = ckpt__ios_pop(from)) != NULL) {
        if (io->op == CKPT__CLOSE) {
            ckpt__ios_push(&keep, io);
            continue;
        }
        io->result = -ECANCELED;
        ckpt__ios_push(to, io);
        moved++;
    }
    *from = keep;
    return moved;
}

int ckpt__ios_finish(struct ckpt__ios done)
{
    struct ckpt__io *io;
    int count = 0;
    while ((io = ckpt__ios_pop(&done)) != NULL) {
        io->done(io);
        count++;
    }
    return count;
}
