/*
 * wait.c: WAIT and BARRIER. A wait is one block with a link per missing name, each hanging in that
 * name's list in order of arrival; nobody ever scans names or sessions. Invariant: wait->missing is
 * the number of its links that still hang in a list, and it is above 0. A name that is awaited
 * twice in one request has one link, so one appearance counts it off.
 */
#include "core/wait.h"

#include "core/out.h"

enum { STOP_WAITING = 0 };

struct link {
    struct queue in_name;
    struct rdzv__wait *wait;
    struct rdzv__name *name; /* NULL once counted off */
};

struct rdzv__wait {
    struct rdzv__session *session;
    uint64_t missing;
    uint64_t links; /* allocated */
    uint64_t used;
    struct link link[];
};

static struct rdzv__wait *new_wait(struct rdzv__session *s, uint64_t links)
{
    struct rdzv__wait *w =
        rdzv__store_alloc(&s->core->store, sizeof *w + (size_t)links * sizeof w->link[0]);
    if (w == NULL)
        return NULL;
    w->session = s;
    w->missing = 0;
    w->links = links;
    w->used = 0;
    s->wait = w;
    s->core->waiting++;
    return w;
}

static void free_wait(struct rdzv__session *s)
{
    struct rdzv__wait *w = s->wait;
    s->wait = NULL;
    s->core->waiting--;
    rdzv__store_release(&s->core->store, w, sizeof *w + (size_t)w->links * sizeof w->link[0]);
}

static void hang(struct rdzv__wait *w, struct rdzv__name *name)
{
    struct queue *list = &name->waiters;
    /* A link of this very wait can only be the newest of the list. */
    if (!queue_empty(list) && CONTAINER_OF(list->prev, struct link, in_name)->wait == w)
        return;
    struct link *link = &w->link[w->used++];
    link->wait = w;
    link->name = name;
    queue_push(list, &link->in_name);
    w->missing++;
}

static void answer(struct rdzv__session *s)
{
    rdzv__out_depend(s);
    rdzv__out_u8(s, STOP_WAITING);
}

int rdzv__wait_keys(struct rdzv__session *s, const uint8_t *keys, uint64_t count)
{
    struct rdzv__store *st = &s->core->store;
    s->core->visits += count;
    uint64_t missing = 0;
    const uint8_t *cursor = keys;
    for (uint64_t i = 0; i < count; i++) {
        struct rdzv__field key = rdzv__take_string(&cursor);
        struct rdzv__name *name = rdzv__store_find(st, key.data, key.len);
        missing += name == NULL || !rdzv__name_ready(name);
    }
    if (missing == 0) {
        answer(s);
        return RDZV__WHY_OK;
    }
    struct rdzv__wait *w = new_wait(s, missing);
    if (w == NULL)
        return st->why;
    cursor = keys;
    for (uint64_t i = 0; i < count; i++) {
        struct rdzv__field key = rdzv__take_string(&cursor);
        struct rdzv__name *name = rdzv__store_name(st, key.data, key.len);
        if (name == NULL) {
            int why = st->why;
            rdzv__wait_drop(s);
            return why;
        }
        if (!rdzv__name_ready(name))
            hang(w, name);
    }
    return RDZV__WHY_OK;
}

int rdzv__wait_name(struct rdzv__session *s, struct rdzv__name *name)
{
    struct rdzv__wait *w = new_wait(s, 1);
    if (w == NULL)
        return s->core->store.why;
    hang(w, name);
    return RDZV__WHY_OK;
}

void rdzv__wait_end(struct rdzv__session *s)
{
    struct rdzv__wait *w = s->wait;
    for (uint64_t i = 0; i < w->used; i++) {
        struct link *link = &w->link[i];
        if (link->name == NULL)
            continue;
        queue_remove(&link->in_name);
        rdzv__store_settle(&s->core->store, link->name);
    }
    free_wait(s);
}

static void count_off(struct link *link)
{
    struct rdzv__wait *w = link->wait;
    queue_remove(&link->in_name);
    link->name = NULL;
    if (--w->missing > 0)
        return;
    struct rdzv__session *s = w->session;
    free_wait(s);
    answer(s);
}

void rdzv__wake_longest(struct rdzv__name *name)
{
    struct queue *list = &name->waiters;
    if (!queue_empty(list))
        count_off(CONTAINER_OF(list->next, struct link, in_name));
}
