/* out.h: replies of a session, appended by the requests. Inside the core only. */
#ifndef RDZV_CORE_OUT_H
#define RDZV_CORE_OUT_H

#include "core/core.h"

void rdzv__out_mark(struct rdzv__session *s);
/* What follows depends on the store as it is now, so on the newest record. */
static inline void rdzv__out_depend(struct rdzv__session *s)
{
    if (s->core->recorded != s->core->persisted)
        rdzv__out_mark(s);
}
/* Appends reply bytes. Fails the session when memory or its patience is out. */
void rdzv__out_bytes(struct rdzv__session *s, const void *bytes, size_t len);
void rdzv__out_u8(struct rdzv__session *s, uint8_t v);
void rdzv__out_u64(struct rdzv__session *s, uint64_t v);
/* u64 length, then the bytes. */
void rdzv__out_vec(struct rdzv__session *s, const uint8_t *bytes, size_t len);

/* Forgets all output. */
void rdzv__out_clear(struct rdzv__session *s);
/* Lets go of the marks that `persisted` has overtaken. */
void rdzv__out_release(struct rdzv__session *s);
void rdzv__out_free_spare(struct rdzv__core *core);

/* Whether the session may buffer `more` bytes: all sessions share one allowance, of which each has
 * a little for itself, so that a few greedy ones do not starve the others. */
static inline int rdzv__buffer_room(const struct rdzv__session *s, size_t more)
{
    enum { ALWAYS_GRANTED = 65536 };
    uint64_t own = s->pending_cap + rdzv__session_unsent(s);
    uint64_t max = s->core->options.max.buffer_bytes;
    uint64_t all = s->core->buffer_bytes;
    return (all <= max && more <= max - all) || own + more <= ALWAYS_GRANTED;
}

/* Puts the session on the ready list. */
static inline void rdzv__session_ready(struct rdzv__session *s)
{
    if (queue_empty(&s->ready))
        queue_push(&s->core->ready, &s->ready);
}

#endif
