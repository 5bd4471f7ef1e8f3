/*
 * excuses.c: keeps the driver clear of the differences that we keep, unless one is exposed.
 */
#include "excuses.h"

#include "op.h"

static const int yardsticks[DIFFERENCE_COUNT] = {
#define DIFFERENCE_YARDSTICKS(name, yardsticks, text) yardsticks,
    DIFFERENCES(DIFFERENCE_YARDSTICKS)
#undef DIFFERENCE_YARDSTICKS
};

/* Whether the driver has to keep clear of this difference. */
int excused(const struct play *p, int difference)
{
    return (yardsticks[difference] & p->yardstick) != 0 && (p->exposed >> difference & 1) == 0;
}

/* Whether a WAIT for several names and a queue meet. */
static int queue_among_awaited(const struct play *p, const struct op *op)
{
    if (op->code == RDZV__OP_WAIT && op->count > 1) {
        for (unsigned i = 0; i < op->count; i++)
            if (p->queued[op->key[i]])
                return 1;
    }
    for (unsigned i = 0; i < CLIENTS && op->code == RDZV__OP_QUEUE_PUSH; i++)
        if (p->parked[i] != NULL && p->parked[i]->code == RDZV__OP_WAIT && p->parked[i]->count > 1)
            return 1;
    return 0;
}

/* Leaves out what would meet a difference that we keep. */
int excuses_usable(const struct play *p, const struct op *op)
{
    if (op_is_queue(op->code) && excused(p, DIFFERENT_no_queues))
        return 0;
    if (queue_among_awaited(p, op) && excused(p, DIFFERENT_queue_among_awaited))
        return 0;
    if (op->code != RDZV__OP_COMPARE_SET || !play_anybody_waits(p))
        return 1;
    if (excused(p, DIFFERENT_compare_set_wakes_nobody))
        return 0;
    return p->script->value[op->value[0]].len == 0 ||
           !excused(p, DIFFERENT_failed_compare_set_wakes);
}
