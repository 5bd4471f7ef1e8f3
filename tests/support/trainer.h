/*
 * trainer.h: a stand-in for a training loop over the public API: saves a state that follows from
 * (step, salt, rank), loads one and checks every byte of every shard against what it must be.
 * Blocking; the handle may be driven either way.
 */
#ifndef TESTS_TRAINER_H
#define TESTS_TRAINER_H

#include "ckpt.h"

#include <stdbool.h>

struct trainer_loaded {
    int64_t step;
    uint64_t sequence, generation;
    uint64_t salt;
    int32_t world_size, skipped;
    char path[512];
    uint8_t digest[16], parent[16];
};

struct trainer_saved {
    bool staged_first; /* staged came once, before done */
    uint64_t sequence;
    char path[512];
};

/* Size of the largest tensor in bytes; the default is 3 MiB and some. Process-wide. */
void trainer_set_bytes(size_t bytes);

/* Saves; 0 or the code, with err filled. Time-out of a minute fails the test. ret may be NULL. */
int trainer_save(ckpt *c, int32_t rank, int64_t step, uint64_t salt, struct trainer_saved *ret,
                 ckpt_error *err);

/* The same in two halves: start returns at once, finish waits for done. */
struct trainer_pending;
struct trainer_pending *trainer_start(ckpt *c, int32_t rank, int64_t step, uint64_t salt,
                                      ckpt_error *err);
int trainer_finish(struct trainer_pending *p, struct trainer_saved *ret, ckpt_error *err);

/* Opens what opt says (NULL = newest), reads every tensor of every shard, compares. A wrong byte is
 * a failed check: the library must never hand over one. */
int trainer_load(ckpt *c, const ckpt_load_options *opt, struct trainer_loaded *ret,
                 ckpt_error *err);

#endif
