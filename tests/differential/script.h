/* script.h: one seeded case: who sends what, in steps, so that it can be cut down and printed. */
#ifndef TESTS_DIFFERENTIAL_SCRIPT_H
#define TESTS_DIFFERENTIAL_SCRIPT_H

#include "core/wire_c10d.h"
#include "wire.h"

#include <stdint.h>

enum { CLIENTS = 5, KEYS = 20, VALUES = 26, FIELDS = 5, STEP_OPS = 12, STEPS = 60 };

struct op {
    uint8_t code; /* RDZV__OP_* */
    uint8_t count;
    uint8_t key[FIELDS];   /* indexes into the script's keys */
    uint8_t value[FIELDS]; /* and values */
    int64_t number;        /* delta, world size */
};

enum {
    STEP_ASK,        /* sends the requests, pipelined, and reads the answers */
    STEP_SWEEP,      /* the same once for each place at which the bytes can be cut in two */
    STEP_HALF_CLOSE, /* sends the requests and closes its sending side */
    STEP_HANGUP,     /* closes the connection, after the first `cut` bytes of its requests */
    STEP_NONSENSE    /* sends number `cut` of the things that no server serves */
};

enum { CUT_NOWHERE = 0, CUT_EVERYWHERE = 0xffff };

struct step {
    uint8_t kind;
    uint8_t client;
    uint8_t ops;
    uint16_t cut; /* of ASK: after this byte, modulo the length */
    struct op op[STEP_OPS];
};

struct script {
    uint64_t seed;
    struct wire key[KEYS];
    struct wire value[VALUES];
    unsigned steps;
    struct step step[STEPS];
};

uint64_t random_next(uint64_t *state);

/* Makes the case of `seed`. What it held before is reused. */
void script_make(struct script *s, uint64_t seed);
void script_free(struct script *s);
void script_op_bytes(const struct script *s, const struct op *op, struct wire *w);
/* One request as text, without a newline. */
void script_print_op(const struct script *s, const struct op *op);
void script_print(const struct script *s);

/* Things that no server serves. The ones before NONSENSE_LIMITS are no requests at all; those up to
 * NONSENSE_STARTS announce too much; the rest are first bytes of a connection. */
enum { NONSENSE_LIMITS = 6, NONSENSE_STARTS = 12, NONSENSE_COUNT = 15 };
void script_nonsense(unsigned number, struct wire *w);

#endif
