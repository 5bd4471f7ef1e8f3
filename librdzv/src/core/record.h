/* record.h: what a request changes, on its way to the journal. Inside the core only. */
#ifndef RDZV_CORE_RECORD_H
#define RDZV_CORE_RECORD_H

#include "core/core.h"

void rdzv__record_put(struct rdzv__core *core, int kind, struct rdzv__field key,
                      struct rdzv__field value);
void rdzv__record_end(struct rdzv__core *core);

/* Puts a change into the open record; the first one of a request opens it. */
static inline void rdzv__record_change(struct rdzv__core *core, int kind, struct rdzv__field key,
                                       struct rdzv__field value)
{
    if (core->journal.change != NULL)
        rdzv__record_put(core, kind, key, value);
}

/* Seals the record, if the request has opened one. */
static inline void rdzv__record_seal(struct rdzv__core *core)
{
    if (core->record_open)
        rdzv__record_end(core);
}

#endif
