/*
 * load.h: the inside of one load. load.c is the caller's side; load_open.c finds a checkpoint and
 * agrees on it, with load_verify.c; load_read.c brings tensors in and verifies them; load_file.c
 * opens a plain safetensors file.
 */
#ifndef CKPT_LOAD_H
#define CKPT_LOAD_H

#include "handle.h"

/* A committed checkpoint that may be loaded. */
struct ckpt__candidate {
    struct ckpt__step_dir dir;
    struct ckpt__commit commit;
    struct ckpt__digest digest; /* of its COMMIT */
    bool bad;                   /* did not verify, or was refused by another rank */
};

struct ckpt__shard {
    struct ckpt__index index;
    char *path; /* of the safetensors file */
};

/* A tensor that was asked for. into.begin is its place in the file. */
struct ckpt__want {
    int32_t shard;
    struct ckpt__entry into;
};

struct ckpt__read {
    struct ckpt__req req;
    uint8_t *bytes; /* lent by the pool while in flight */
    uint64_t off, len;
    size_t first_want; /* of the shard's wants, that may reach into the block */
};

struct ckpt_load {
    struct ckpt__task task; /* first: the working side knows a load by it */
    ckpt *c;
    struct ckpt_load *next; /* of the handle's open loads */
    bool listed;
    ckpt_load_options opt;
    char *file;
    ckpt_opened_fn opened;
    ckpt_loaded_fn loaded;
    void *ctx;
    struct letter start_letter, done_letter;
    bool reading; /* a start is running: caller's side */

    /* Known once open; then fixed. */
    ckpt_info info;
    char *path;
    char *run_id;
    struct ckpt__shard *shards;

    struct ckpt__want *wants;
    size_t want_count, want_capacity;

    /* Working side. */
    ckpt_error abort_error; /* why the caller gave up; code CKPT_OK: it did not */
    ckpt_error error;       /* of this rank */
    ckpt_error result;      /* what the caller is told */
    bool cancelled, exchanging;
    struct ckpt__req req;
    void (*then)(struct ckpt_load *l);

    /* load_open.c */
    struct ckpt__candidate *candidates; /* best first */
    size_t candidate_count;
    size_t others;                /* checkpoints of steps that were not asked for */
    struct ckpt__candidate other; /* another rank's choice, not among ours */
    struct ckpt__candidate *chosen;
    int32_t shard_at; /* whose index is being read */
    char *index_path;
    ckpt_error newest_bad; /* why the newest one was passed over */
    uint64_t newest_bad_sequence;
    void (*verified)(struct ckpt_load *l); /* l->error says how it went */

    /* load_read.c */
    struct ckpt__file data;
    struct ckpt__read *reads;
    uint32_t read_count, in_flight;
    size_t want_at, want_end; /* wants of the shard that is being read */
    uint64_t header_end;      /* read and checked first; 0 in a plain file */
    uint64_t read_off;        /* everything before it is read or in flight */
    bool pumping;
};

void ckpt__load_free(struct ckpt_load *l); /* takes NULL; unlists it */
void ckpt__load_drop_wants(struct ckpt_load *l);
void ckpt__load_drop_shards(struct ckpt_load *l);

/* The task of an open and of a read. */
void ckpt__load_run_open(struct ckpt__task *t);
void ckpt__load_run_read(struct ckpt__task *t);
void ckpt__load_cancel(struct ckpt__task *t);

/* Ends the task with l->result. */
void ckpt__load_finish(struct ckpt_load *l);

/* Prepares l->req so that its end, good or bad, leads to then. */
struct ckpt__req *ckpt__load_then(struct ckpt_load *l, void (*then)(struct ckpt_load *l));

/* Whether other ranks take part in it. */
static inline bool ckpt__load_is_shared(const struct ckpt_load *l)
{
    return l->c->has_group && !l->opt.alone && l->file == NULL;
}

/* Exchanges l->error with the other ranks, or with nobody; done sees l->result. */
void ckpt__load_exchange(struct ckpt_load *l, enum ckpt__phase phase, ckpt__agreed_fn done);

/* What cannot be read is unreadable, whatever the kernel calls it; memory and cancel stay. */
void ckpt__load_unreadable(ckpt_error *err);

/* Reads and checks what belongs to k, which becomes l->chosen and l->shards. verified finds the
 * outcome in l->error. */
void ckpt__load_verify(struct ckpt_load *l, struct ckpt__candidate *k,
                       void (*verified)(struct ckpt_load *l));

/* Fills l as one shard. Blocks while it reads the header. */
int ckpt__load_file(struct ckpt_load *l, ckpt_error *err);

#endif
