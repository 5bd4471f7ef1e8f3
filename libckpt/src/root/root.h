/*
 * root.h: what lies in a root directory, by name. Only reads.
 *
 *   step-SSSSSSSSSSSSSSSSS.QQQQQ/   committed (or damaged) checkpoints: step and sequence
 *   .sequence-QQQQQ                 claim of a sequence number; its text is the owner (owner.h)
 *   .staging-AAAA...                a save in flight, by attempt (32 hex digits)
 */
#ifndef CKPT_ROOT_H
#define CKPT_ROOT_H

#include "format/manifest.h"
#include "root/owner.h"

#include <stdbool.h>

#define CKPT__NAME_BYTES 64                           /* every name above fits */
#define CKPT__MAX_SEQUENCE UINT64_C(1000000000000000) /* names beyond are not ours */

struct ckpt__step_dir {
    int64_t step;
    uint64_t sequence;
    char name[CKPT__NAME_BYTES];
};

struct ckpt__claim {
    uint64_t sequence;
    bool known;   /* the owner could be read */
    bool expired; /* by the file system's own clock: a day, or minutes without an owner in it */
    struct ckpt__owner owner;
};

struct ckpt__scan {
    const struct ckpt__env *env;
    struct ckpt__step_dir *steps; /* unsorted */
    size_t step_count, step_capacity;
    struct ckpt__claim *claims;
    size_t claim_count, claim_capacity;
    char (*stagings)[33]; /* attempts */
    size_t staging_count, staging_capacity;
    uint64_t max_sequence; /* of steps and claims; 0 = none */
};

int ckpt__scan_root(struct ckpt__scan *scan, const struct ckpt__env *env, const char *root,
                    ckpt_error *err);
void ckpt__scan_free(struct ckpt__scan *scan);

void ckpt__step_name(char name[CKPT__NAME_BYTES], int64_t step, uint64_t sequence);
void ckpt__claim_name(char name[CKPT__NAME_BYTES], uint64_t sequence);
void ckpt__shard_name(char name[CKPT__NAME_BYTES], int32_t rank, int32_t world, const char *ending);

/* Makes the directory when only it is missing. Returns 1 when it made it, 0 when something of that
 * name was there, or an error: a missing parent is EINVAL, as it may be a mount that is missing. */
int ckpt__make_directory(const char *path, ckpt_error *err);

/* printf into a new string; NULL when out of memory. */
char *ckpt__path(const struct ckpt__env *env, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads and decodes the COMMIT of a step directory; digest of the file into *digest. Blocks on
 * metadata and one small read. CKPT_EUNREADABLE, CKPT_ENOTSUP, with the path in the text. */
int ckpt__commit_read(struct ckpt__commit *ret, struct ckpt__digest *digest,
                      const struct ckpt__env *env, const char *root, const char *name,
                      ckpt_error *err);

#endif
