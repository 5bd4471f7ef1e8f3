/*
 * engine.h: the one door to the disk. Everything that changes the file system goes through it, so
 * that a fake engine can record, fail, delay and reorder it.
 *
 * An engine belongs to one thread at a time. submit never blocks on a device and never fails: it
 * queues, and every submitted io calls done exactly once, from inside reap or close, with result
 * set. Nothing is promised about the order of two ios in flight. An io may complete short; whoever
 * submitted it resumes (io.h does). The io and what it points to are borrowed until done; done may
 * submit, also the same io again, but not reap, cancel or close. Nothing may be called in a child
 * after fork.
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

/* One transfer is cut to this; a multiple of every alignment, and what fits the kernel's counters.
 */
#define CKPT__MAX_TRANSFER_BYTES (1u << 30)

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
    uint32_t queue_depth; /* in flight at once, 1 to 64; more is queued inside */
    void *pool;           /* staging memory to register, or NULL; outlives the engine */
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
    /* What is not started ends with -ECANCELED, from reap (but a CLOSE is always done); what has
     * started runs to its end. */
    void (*cancel)(struct ckpt__engine *e);
    /* Cancels, then waits until nothing is left, what done submits included; frees. */
    void (*close)(struct ckpt__engine *e);
};

extern const struct ckpt__engine_class ckpt__engine_uring;
extern const struct ckpt__engine_class ckpt__engine_sync;

/* kind: CKPT_ENGINE_*. AUTO falls back to sync and logs one line that says why. */
int ckpt__engine_open(struct ckpt__engine **ret, uint32_t kind,
                      const struct ckpt__engine_config *config, ckpt_error *err);

const char *ckpt__op_name(enum ckpt__op op); /* "fallocate" */

/* ------------------------------------------------------------------------------------------ */
/* For engines                                                                                  */

/* First in, first out, linked through io->next. */
struct ckpt__ios {
    struct ckpt__io *head, *last;
};

static inline void ckpt__ios_push(struct ckpt__ios *q, struct ckpt__io *io)
{
    io->next = NULL;
    if (q->head == NULL)
        q->head = io;
    else
        q->last->next = io;
    q->last = io;
}

static inline struct ckpt__io *ckpt__ios_pop(struct ckpt__ios *q)
{
    struct ckpt__io *io = q->head;
    if (io != NULL)
        q->head = io->next;
    return io;
}

/* Moves what can be cancelled from one list to the other; returns how many. */
int ckpt__ios_cancel(struct ckpt__ios *from, struct ckpt__ios *to);

/* Runs done of a whole list, which new completions do not join; returns how many. */
int ckpt__ios_finish(struct ckpt__ios done);

/* Does one io by a plain system call: result. */
int64_t ckpt__io_run(const struct ckpt__io *io);

#endif
