/*
 * handle.h: the inside of a handle, shared by the modules that make up saves and loads.
 *
 * Two sides. The caller's side builds operations and runs callbacks; the working side drives the
 * engine and the group. In CKPT_DRIVE_THREAD the working side is the handle's thread, else both are
 * the caller's. They talk only through a mailbox, `in` (to the working side), and an outbox.
 */
#ifndef CKPT_HANDLE_H
#define CKPT_HANDLE_H

#include "disk/engine.h"
#include "disk/io.h"
#include "disk/pool.h"
#include "format/manifest.h"
#include "outbox.h"
#include "root/root.h"

#include <pthread.h>
#include <stdbool.h>

/* An operation of the working side; one runs, others wait their turn. */
struct ckpt__task {
    struct ckpt__task *next; /* of the handle, while waiting */
    void (*start)(struct ckpt__task *t);
    void (*step)(struct ckpt__task *t);   /* every turn; may be NULL */
    void (*cancel)(struct ckpt__task *t); /* ends early, through its usual end */
};

/* What a rank tells the others in one exchange (agree.c). */
enum ckpt__phase {
    CKPT__SAVE_BEGIN = 1, /* attempt and sequence come from rank 0 */
    CKPT__SAVE_WRITTEN,   /* digest of my index */
    CKPT__SAVE_PUBLISHED, /* digest of COMMIT, from rank 0 */
    CKPT__LOAD_OFFER,     /* the newest that I can read */
    CKPT__LOAD_CHECK,     /* whether I can read the one that was chosen */
    CKPT__LOAD_READ       /* whether my tensors verified */
};

struct ckpt__verdict {
    uint32_t phase;
    int64_t step;
    uint64_t generation, sequence;
    struct ckpt__digest attempt, digest;
    ckpt_error error; /* code CKPT_OK: this rank is fine */
};

/* all: one verdict per rank, or NULL with result->code < 0. */
typedef void (*ckpt__agreed_fn)(void *ctx, const struct ckpt__verdict *all,
                                const ckpt_error *result);

struct ckpt__agreement {
    struct letter letter;
    struct ckpt__verdict mine;
    ckpt__agreed_fn done;
    void *ctx;
};

struct ckpt {
    struct ckpt__env env;
    char *root;
    char *run_id;
    uint64_t generation;
    uint32_t block_bytes;
    int32_t timeout_ms;
    bool own_thread;
    pid_t pid; /* of the process that opened it */

    struct mailbox in;
    struct outbox out;
    struct ckpt__disk disk;
    struct ckpt__pool pool;
    ckpt_group group; /* rank 0 of 1 when alone */
    bool has_group;
    int epoll_fd; /* of the working side; also the caller's descriptor when it drives */
    int tick_fd;  /* timer for a group without a descriptor, else -1 */
    pthread_t thread;

    /* Caller's side. */
    bool in_callback;
    bool closing;
    bool busy;               /* an operation was accepted and has not called back */
    struct ckpt_save *begun; /* a save that was begun and not committed */
    struct ckpt_load *loads; /* open ones */

    /* Working side. */
    bool stopping;
    struct letter stop;
    struct ckpt__task *task; /* NULL = idle */
    struct ckpt__task *waiting;
    struct ckpt__agreement agreement;
    char last_attempt[33];      /* of this handle; "" = none yet */
    struct ckpt__digest parent; /* COMMIT that the next save descends from; zeros = none */
};

/* ckpt_open over an engine of the caller's making: the one place where tests put a disk that
 * breaks. make NULL: what opt says. */
typedef struct ckpt__engine *(*ckpt__engine_maker)(void *ctx, const struct ckpt__env *env,
                                                   uint32_t queue_depth);
int ckpt__open(ckpt **ret, const ckpt_options *opt, ckpt__engine_maker make, void *make_ctx,
               ckpt_error *err);

/* Working side until stopped and idle. */
void ckpt__run(ckpt *c);

/* Frees a handle that nobody works for any more, or that was not opened to the end. */
void ckpt__release(ckpt *c);

/* CKPT_ESTATE in a child after fork. */
int ckpt__check(const ckpt *c, ckpt_error *err);
/* The same, and CKPT_EBUSY while an operation is running. */
int ckpt__check_idle(const ckpt *c, ckpt_error *err);

/* Working side: starts t now or after the running one. The running one ends with task_over, as the
 * last thing that it does. */
void ckpt__task_begin(ckpt *c, struct ckpt__task *t);
void ckpt__task_over(ckpt *c);

/* Another turn of the working side soon, though no descriptor says so. */
void ckpt__again(ckpt *c);

/* agree.c: one exchange of verdicts. Working side; done runs later, from a turn. */
void ckpt__agree(ckpt *c, const struct ckpt__verdict *mine, ckpt__agreed_fn done, void *ctx);

/* The failure that all ranks report, if a verdict holds one: this rank's own as it is, else the
 * first other one with its rank in front. CKPT_OK when all are fine. */
int ckpt__agree_failure(const ckpt *c, const struct ckpt__verdict *all, ckpt_error *err);

#endif
