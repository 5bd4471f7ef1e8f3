/*
 * save.h: the inside of one save. save.c builds it on the caller's side; save_run.c takes it
 * through its phases on the working side, with save_stage.c for the data and save_publish.c for
 * what only rank 0 does.
 */
#ifndef CKPT_SAVE_H
#define CKPT_SAVE_H

#include "handle.h"
#include "root/removal.h"

#define CKPT__MAX_STAGE_BLOCKS 256u

struct ckpt__block {
    struct ckpt__req req;
    uint8_t *bytes; /* lent by the pool while in flight */
};

/* What a dead writer left: its staging (attempt, "" = none) and its claim (name, "" = none). */
struct ckpt__leftover {
    char attempt[33];
    char claim[CKPT__NAME_BYTES];
};

struct ckpt_save {
    struct ckpt__task task; /* first: the working side knows a save by it */
    ckpt *c;
    struct ckpt__index index; /* step, tensors, note; the rest as it becomes known */
    ckpt_staged_fn staged;
    ckpt_saved_fn done; /* NULL: aborted, nobody is told */
    void *ctx;
    struct letter start_letter, staged_letter, done_letter;
    bool aborted;

    /* Working side. */
    uint64_t begun_ns;
    ckpt_error error;  /* the first failure of this rank; code CKPT_OK so far */
    ckpt_error result; /* what the caller is told */
    bool cancelled;    /* the handle is closing */
    bool exchanging;   /* an exchange is running, which cancel may end */
    bool past_cancel;  /* being published: runs to its end */
    bool staged_told;
    struct ckpt__req req; /* of the step by step operations */
    void (*then)(struct ckpt_save *s);
    uint64_t sequence;
    struct ckpt__digest commit_digest;
    char *staging, *shard_path, *index_path;
    char *commit_path, *final_path, *claim_path;
    uint8_t *record; /* bytes of the index, then of COMMIT, while they are written */
    size_t record_bytes;
    struct ckpt__digest index_digest;
    struct ckpt__commit commit; /* rank 0 */

    /* Staging (save_stage.c). */
    struct ckpt__file file;
    struct ckpt__block *blocks;
    uint32_t block_count, in_flight;
    uint64_t next_off; /* of the image, that is not copied yet */
    bool pumping;

    /* Preparation, and removal of what is left over (save_publish.c). */
    uint32_t claim_tries;
    struct ckpt__leftover *leftovers;
    size_t leftover_count, leftover_capacity;
    struct ckpt__removal removal;
    void (*after)(struct ckpt_save *s); /* where save_stage or save_publish ends */

    uint64_t committed_ns;
};

void ckpt__save_free(struct ckpt_save *s); /* takes NULL */

/* Records the first failure. */
void ckpt__save_fail(struct ckpt_save *s, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Prepares s->req so that its end, good or bad, leads to then; a failure is recorded. */
struct ckpt__req *ckpt__save_then(struct ckpt_save *s, void (*then)(struct ckpt_save *s));

static inline bool ckpt__save_failed(const struct ckpt_save *s)
{
    return s->error.code != CKPT_OK;
}

static inline bool ckpt__save_leads(const struct ckpt_save *s)
{
    return s->c->group.rank == 0;
}

static inline uint64_t ckpt__save_elapsed(const struct ckpt_save *s, uint64_t now_ns)
{
    return now_ns - s->begun_ns;
}

/* save_stage.c: creates the shard and brings the whole image into it, cut to length and synced.
 * Ends in then, with the file closed, good or bad. `staged` goes out on the way. */
void ckpt__save_stage(struct ckpt_save *s, void (*then)(struct ckpt_save *s));
void ckpt__save_pump(struct ckpt_save *s);
void ckpt__save_tell_staged(struct ckpt_save *s);

/* save_publish.c, rank 0 only. prepare: fence, leftovers, sequence, staging directory. publish:
 * COMMIT to the synced root. discard: removes the staging directory and the claim. */
void ckpt__save_prepare(struct ckpt_save *s, void (*then)(struct ckpt_save *s));
void ckpt__save_publish(struct ckpt_save *s, void (*then)(struct ckpt_save *s));
void ckpt__save_discard(struct ckpt_save *s, void (*then)(struct ckpt_save *s));

/* save_run.c: the task's start, step and cancel. */
void ckpt__save_run(struct ckpt__task *t);
void ckpt__save_step(struct ckpt__task *t);
void ckpt__save_cancel(struct ckpt__task *t);

#endif
