/* op.h: what the driver has to know of each kind of request. */
#ifndef TESTS_DIFFERENTIAL_OP_H
#define TESTS_DIFFERENTIAL_OP_H

#include "script.h"

static inline int op_is_answered(const struct op *op)
{
    if (op->code == RDZV__OP_MULTI_GET)
        return op->count > 0;
    return op->code != RDZV__OP_VALIDATE && op->code != RDZV__OP_SET &&
           op->code != RDZV__OP_APPEND && op->code != RDZV__OP_MULTI_SET &&
           op->code != RDZV__OP_QUEUE_PUSH;
}

static inline int op_blocks(uint8_t code)
{
    return code == RDZV__OP_WAIT || code == RDZV__OP_BARRIER;
}

static inline int op_is_queue(uint8_t code)
{
    return code == RDZV__OP_QUEUE_PUSH || code == RDZV__OP_QUEUE_POP || code == RDZV__OP_QUEUE_LEN;
}

static inline int op_reads_key(uint8_t code)
{
    return code == RDZV__OP_GET || code == RDZV__OP_MULTI_GET;
}

/* Closes when the value is no number. */
static inline int op_counts(uint8_t code)
{
    return code == RDZV__OP_ADD || code == RDZV__OP_BARRIER;
}

#endif
