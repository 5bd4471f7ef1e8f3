/*
 * engine.h: the one door to the disk. Everything that changes the file system goes through it, so
 * that a fake engine can record, fail, delay and reorder it.
 *
 * An engine belongs to one thread. submit never blocks on a device and never fails: it queues, and
 * every submitted io calls done exactly once, from inside reap or close, with result set. An io may
 * complete short; whoever submitted it resumes (io.h does). The io and what it points to are
 * borrowed until done.
 */
#ifndef CKPT_ENGINE_H
#define CKPT_ENGINE_H

#include "ckpt.h"

#include <stdint.h>
#include <sys/types.h>

struct ckpt__env; /* allocator and log, env.h */

enum ckpt__op {
    CKPT__OPEN,      /* path, flags, mode -> result = fd */
    CKPT__CLOSE,     /* fd */
    CKPT__FALLOCATE, /* fd, off, len: allocates and moves the size */
    CKPT__TRUNCATE,  /* fd, len */
    CKPT__WRITE,     /* fd, buf, len, off -> result = bytes */
    CKPT__READ,      /* fd, buf, len, off -> result = bytes, 0 at the end of the file */
    CKPT__FDATASYNC, /* fd */
    CKPT__FSYNC,     /* fd */
    CKPT__MKDIR,     /* path, mode */
    CKPT__RENAME,    /* path -> path2 */
    CKPT__UNLINK,    /* path */
    CKPT__RMDIR,     /* path */
    CKPT__OP_COUNT
};

struct ckpt__io {
    enum ckpt__op op;
    int fd;
    int flags;
    mode_t mode;
    const char *path;
    const char *path2;
    void *buf;
    uint64_t len;
    uint64_t off;
    int64_t result; /* >= 0, or -errno; -ECANCELED after cancel */
    void (*done)(struct ckpt__io *io);
    void *ctx;             /* of the submitter */
    struct ckpt__io *next; /* of the engine, while submitted */
};

struct ckpt__engine_config {
    const struct ckpt__env *env;
    uint32_t queue_depth; /* in flight at once; more is queued inside */
    void *pool;           /* staging memory to register, or NULL */
    size_t pool_bytes;
};

struct ckpt__engine {
    const struct ckpt__engine_class *cls;
};

/* The six functions. */
struct ckpt__engine_class {
    const char *name;
    int (*open)(struct ckpt__engine **ret, const struct ckpt__engine_config *config,
                ckpt_error *err);
    void (*submit)(struct ckpt__engine *e, struct ckpt__io *io);
    /* Starts what is queued, runs done of what has completed; returns how many ran. */
    int (*reap)(struct ckpt__engine *e);
    int (*fd)(const struct ckpt__engine *e); /* readable when reap has something to do */
    void (*cancel)(struct ckpt__engine *e);  /* asks; every io still calls done, from reap */
    void (*close)(struct ckpt__engine *e);   /* waits for what is in flight, runs its done; frees */
};

extern const struct ckpt__engine_class ckpt__engine_uring;
extern const struct ckpt__engine_class ckpt__engine_sync;

/* kind: CKPT_ENGINE_*. AUTO falls back to sync and logs one line that says why. */
int ckpt__engine_open(struct ckpt__engine **ret, uint32_t kind,
                      const struct ckpt__engine_config *config, ckpt_error *err);

#endif
