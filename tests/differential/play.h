/* play.h: plays scripts against both servers in lockstep. */
#ifndef TESTS_DIFFERENTIAL_PLAY_H
#define TESTS_DIFFERENTIAL_PLAY_H

#include "differences.h"
#include "pair.h"
#include "script.h"

struct play {
    uint16_t port[SIDES];
    int yardstick;    /* YARDSTICK_UV or _OLD */
    unsigned exposed; /* bits: differences that are not excused */
    uint64_t asked;   /* requests sent to each server, fences and cleaning not counted */

    const struct script *script;
    struct pair client[CLIENTS];
    const struct op *parked[CLIENTS]; /* the WAIT or BARRIER that has no answer yet */
    int pushed[CLIENTS];              /* released by a push since it connected */
    int queued[KEYS];                 /* was pushed to in this case */
    struct pair control; /* whose PINGs say that a server has seen what was sent before */
    unsigned nonce;
    struct wire out;
    const struct op *sent[2 * STEP_OPS]; /* requests in `out` */
    unsigned sents;
    unsigned at_step; /* where the first difference was */
    char difference[600];
};

static inline int play_anybody_waits(const struct play *p)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        if (p->parked[i] != NULL)
            return 1;
    return 0;
}

/* Connects all clients anew and empties both stores of what a case of `s` can leave. */
void play_open(struct play *p, const struct script *s);
void play_close(struct play *p);
/* Plays one script and empties both stores. Returns 0 when every answer and every closing was the
 * same; else p->difference says what was not, and p must be closed and opened again. */
int play_script(struct play *p, const struct script *s);

#endif
