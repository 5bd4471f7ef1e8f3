/*
 * engine_fake.h: an engine that does everything through a real one, remembers it, and breaks what
 * its rules say.
 *
 * Rules: the nth io that matches fails without reaching the disk, is cut short, or is announced
 * late. Order: completions can be handed out last first. Log: every op but reads and closes, with
 * two ticks, so that a test can say what was on its way to the disk at any moment.
 */
#ifndef TESTS_ENGINE_FAKE_H
#define TESTS_ENGINE_FAKE_H

#include "disk/engine.h"
#include "env.h"

#include <stdbool.h>

#define FAKE_ANY_OP (-1)
#define FAKE_MAX_RULES 16

enum fake_action {
    FAKE_FAIL,  /* result = -sys_errno, nothing done; but a descriptor is closed, as by Linux */
    FAKE_SHORT, /* says at most len bytes; what follows up to a multiple of 4096 may be moved too,
                   so that a direct one is taken */
    FAKE_DELAY  /* done, but announced `reaps` reaps later */
};

/* Owned by the test; lives as long as the fake. */
struct fake_rule {
    int op;           /* enum ckpt__op or FAKE_ANY_OP */
    bool direct;      /* only with O_DIRECT on the descriptor, or in the flags of an open */
    const char *path; /* only where the path contains it; NULL = any */
    uint64_t nth;     /* which of the ios that match, from 0 */
    bool forever;     /* and all after it */
    enum fake_action action;
    int sys_errno;
    uint64_t len;
    uint32_t reaps;
    uint64_t seen, fired; /* counted by the fake */
};

struct fake_event {
    enum ckpt__op op;
    char *path;  /* of operations on a descriptor too: what it was opened as */
    char *path2; /* of a rename */
    int flags;
    mode_t mode;
    uint64_t off, len;
    uint8_t *data;                 /* of a write with fake_keep_data: len bytes */
    int64_t result;                /* valid once completed */
    uint64_t submitted, completed; /* ticks from 1; completed is 0 until announced */
};

struct ckpt__engine *fake_open(const struct ckpt__env *env, uint32_t queue_depth);
void fake_close(struct ckpt__engine *e); /* also frees the log; cls->close does the same */

void fake_add_rule(struct ckpt__engine *e, struct fake_rule *rule);
void fake_reverse(struct ckpt__engine *e); /* waits until all in flight are done, then last first */
void fake_keep_data(struct ckpt__engine *e);

/* The log so far; borrowed until the next submit or reap. */
const struct fake_event *fake_log(const struct ckpt__engine *e, size_t *count);
uint64_t fake_submitted(const struct ckpt__engine *e);               /* ios so far, of any op */
uint64_t fake_count(const struct ckpt__engine *e, enum ckpt__op op); /* of the log */

#endif
