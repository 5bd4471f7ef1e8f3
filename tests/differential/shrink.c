/*
 * shrink.c: cuts a failing script down to what still fails: first steps by halves, then single
 * requests. Each try starts from new connections and empty stores.
 */
#include "shrink.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECONDS = 60 };

static int fails(struct play *p, const struct script *s)
{
    uint64_t asked = p->asked;
    play_open(p, s);
    int failed = play_script(p, s);
    play_close(p);
    p->asked = asked;
    return failed;
}

/* Keys and values stay shared with the original. */
static void drop_steps(struct script *s, unsigned at, unsigned count)
{
    memmove(&s->step[at], &s->step[at + count], (s->steps - at - count) * sizeof s->step[0]);
    s->steps -= count;
}

static void drop_op(struct step *step, unsigned at)
{
    memmove(&step->op[at], &step->op[at + 1], (step->ops - at - 1u) * sizeof step->op[0]);
    step->ops--;
}

static void shrink_steps(struct play *p, struct script *s, struct script *tried, time_t end)
{
    for (unsigned count = s->steps / 2; count > 0; count /= 2) {
        for (unsigned at = 0; at + count <= s->steps && time(NULL) < end;) {
            *tried = *s;
            drop_steps(tried, at, count);
            if (fails(p, tried))
                *s = *tried;
            else
                at += count;
        }
    }
}

static void shrink_ops(struct play *p, struct script *s, struct script *tried, time_t end)
{
    for (unsigned at = 0; at < s->steps; at++) {
        for (unsigned op = 0; op < s->step[at].ops && s->step[at].ops > 1 && time(NULL) < end;) {
            *tried = *s;
            drop_op(&tried->step[at], op);
            if (fails(p, tried))
                *s = *tried;
            else
                op++;
        }
    }
}

int shrink(struct play *p, struct script *s)
{
    if (!fails(p, s))
        return 0;
    struct script *tried = malloc(sizeof *tried);
    if (tried == NULL)
        abort();
    time_t end = time(NULL) + SECONDS;
    if (p->at_step + 1 < s->steps) {
        *tried = *s;
        tried->steps = p->at_step + 1;
        if (fails(p, tried))
            *s = *tried;
    }
    shrink_steps(p, s, tried, end);
    shrink_ops(p, s, tried, end);
    free(tried);
    return fails(p, s);
}
