/*
 * core.c: the store server as one object: which sessions have something to do, which record is open
 * and which is persisted. Invariant: a session is on the held list exactly while it has output that
 * waits for a record, and persisted <= recorded.
 */
#include "core/core.h"

#include "core/out.h"
#include "core/record.h"

#include <assert.h>
#include <string.h>

static const char *const why_texts[RDZV__WHY_COUNT] = {
#define RDZV__WHY_TEXT(name, text) text,
    RDZV__WHYS(RDZV__WHY_TEXT)
#undef RDZV__WHY_TEXT
};

const char *rdzv__why_text(int why)
{
    return why >= 0 && why < RDZV__WHY_COUNT ? why_texts[why] : "unknown reason";
}

void rdzv__core_init(struct rdzv__core *core, const struct rdzv__core_options *options)
{
    memset(core, 0, sizeof *core);
    core->options = *options;
    if (options->journal != NULL)
        core->journal = *options->journal;
    rdzv__store_init(&core->store, options->allocator, options->hash_seed);
    rdzv__core_limit(core, &options->max);
    queue_init(&core->ready);
    queue_init(&core->held);
}

void rdzv__core_free(struct rdzv__core *core)
{
    assert(queue_empty(&core->ready) && queue_empty(&core->held) && core->waiting == 0 &&
           core->buffer_bytes == 0);
    rdzv__store_clear(&core->store);
    rdzv__out_free_spare(core);
}

void rdzv__record_put(struct rdzv__core *core, int kind, struct rdzv__field key,
                      struct rdzv__field value)
{
    struct rdzv__change change = {kind, key, value};
    if (!core->record_open) {
        core->record_open = 1;
        core->recorded++;
    }
    core->journal.change(core->journal.ctx, core->recorded, &change);
}

void rdzv__record_end(struct rdzv__core *core)
{
    core->record_open = 0;
    core->journal.sealed(core->journal.ctx, core->recorded);
}

void rdzv__core_forget(struct rdzv__core *core)
{
    assert(core->waiting == 0 && core->buffer_bytes == 0);
    rdzv__out_free_spare(core);
    if (rdzv__store_names(&core->store) == 0)
        return;
    rdzv__store_clear(&core->store);
    struct rdzv__field none = {NULL, 0};
    rdzv__record_change(core, RDZV__CHANGE_FORGET, none, none);
    rdzv__record_seal(core);
}

struct rdzv__room rdzv__core_used(const struct rdzv__core *core)
{
    return (struct rdzv__room){core->store.bytes, rdzv__store_names(&core->store),
                               core->buffer_bytes};
}

void rdzv__core_limit(struct rdzv__core *core, const struct rdzv__room *max)
{
    assert(max->store_bytes >= core->store.bytes && max->names >= rdzv__store_names(&core->store));
    core->options.max = *max;
    core->store.max_bytes = max->store_bytes;
    core->store.max_names = max->names;
}

void rdzv__core_persisted(struct rdzv__core *core, uint64_t record)
{
    assert(record >= core->persisted && record <= core->recorded);
    core->persisted = record;
    struct queue *next;
    for (struct queue *at = core->held.next; at != &core->held; at = next) {
        next = at->next;
        rdzv__out_release(CONTAINER_OF(at, struct rdzv__session, held));
    }
}

struct rdzv__session *rdzv__core_next_ready(struct rdzv__core *core)
{
    if (queue_empty(&core->ready))
        return NULL;
    struct rdzv__session *s = CONTAINER_OF(core->ready.next, struct rdzv__session, ready);
    queue_remove(&s->ready);
    return s;
}
