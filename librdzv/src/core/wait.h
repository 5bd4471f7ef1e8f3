/* wait.h: connections that wait for names. Inside the core only. */
#ifndef RDZV_CORE_WAIT_H
#define RDZV_CORE_WAIT_H

#include "core/core.h"

/* The session waits until each of `count` names at `keys` (wire strings, one after the other) that
 * is not ready now has appeared once; it is answered at once when none is missing. */
int rdzv__wait_keys(struct rdzv__session *s, const uint8_t *keys, uint64_t count);
/* The session waits for one name, be it ready or not. */
int rdzv__wait_name(struct rdzv__session *s, struct rdzv__name *name);
/* Drops the pending wait, if any, without an answer. Linear in this wait's own names. */
void rdzv__wait_end(struct rdzv__session *s);
static inline void rdzv__wait_drop(struct rdzv__session *s)
{
    if (s->wait != NULL)
        rdzv__wait_end(s);
}
/* The key of this name has appeared or changed: counts it off for all, or for the one that has
 * waited longest, and answers those that miss nothing more. */
void rdzv__wake_longest(struct rdzv__name *name);
static inline void rdzv__wake_all(struct rdzv__name *name)
{
    while (!queue_empty(&name->waiters))
        rdzv__wake_longest(name);
}

#endif
