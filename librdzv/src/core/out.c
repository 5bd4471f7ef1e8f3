/*
 * out.c: the output of a session, a chain of blocks, with marks that say which byte on waits for
 * which record. Invariant: marks grow in record and in position, and every mark's record is newer
 * than core->persisted; so a session without marks may send everything. Blocks are reused, so a
 * batch of short replies allocates nothing; and when one request releases thousands of waiters,
 * each holds a small block for its byte, not a page.
 */
#include "core/out.h"

#include "bytes.h"

#include <string.h>

enum {
    BLOCK_BYTES = 4096 - 2 * sizeof(void *) - 2 * sizeof(uint32_t),
    SMALL_BYTES = 100, /* with its head and malloc's, two cache lines */
    LARGE_BYTES = 65536,
    FIRST_MARKS = 8
};

enum { SPARE_SMALL, SPARE_WHOLE };

static const uint32_t max_spare[] = {[SPARE_SMALL] = 4096, [SPARE_WHOLE] = 256};

struct rdzv__block {
    struct rdzv__block *next;
    uint32_t start; /* sent up to here */
    uint32_t end;
    uint32_t cap;
    uint8_t data[];
};

struct mark {
    uint64_t record;
    uint64_t from; /* position in the output since open */
};

struct rdzv__marks {
    uint32_t cap;
    uint32_t first;
    uint32_t end;
    struct mark at[];
};

/* NULL = blocks of this size are not kept. */
static struct rdzv__spare *spare_of(struct rdzv__core *core, size_t cap)
{
    if (cap == LARGE_BYTES)
        return NULL;
    return &core->spare[cap == SMALL_BYTES ? SPARE_SMALL : SPARE_WHOLE];
}

static size_t choose_size(const struct rdzv__session *s, size_t wanted)
{
    if (wanted > BLOCK_BYTES)
        return LARGE_BYTES;
    int small =
        s->tail == NULL && wanted <= SMALL_BYTES && s->core->spare[SPARE_WHOLE].first == NULL;
    return small ? SMALL_BYTES : BLOCK_BYTES;
}

/* Returns RDZV__WHY_OK, or why there is none. */
static int add_block(struct rdzv__session *s, size_t wanted)
{
    struct rdzv__core *core = s->core;
    size_t cap = choose_size(s, wanted);
    struct rdzv__spare *spare = spare_of(core, cap);
    struct rdzv__block *b = spare != NULL ? spare->first : NULL;
    if (!rdzv__buffer_room(s, cap))
        return RDZV__WHY_BUFFERS_FULL;
    if (b != NULL) {
        spare->first = b->next;
        spare->count--;
    } else {
        b = rdzv__alloc(core->options.allocator, sizeof *b + cap);
        if (b == NULL)
            return RDZV__WHY_NO_MEMORY;
        b->cap = (uint32_t)cap;
    }
    core->buffer_bytes += cap;
    b->next = NULL;
    b->start = 0;
    b->end = 0;
    if (s->tail == NULL)
        s->head = b;
    else
        s->tail->next = b;
    s->tail = b;
    return RDZV__WHY_OK;
}

static void drop_block(struct rdzv__core *core, struct rdzv__block *b)
{
    core->buffer_bytes -= b->cap;
    struct rdzv__spare *spare = spare_of(core, b->cap);
    if (spare != NULL && spare->count < max_spare[spare - core->spare]) {
        b->next = spare->first;
        spare->first = b;
        spare->count++;
    } else {
        rdzv__free(core->options.allocator, b);
    }
}

void rdzv__out_free_spare(struct rdzv__core *core)
{
    for (size_t i = 0; i < sizeof core->spare / sizeof core->spare[0]; i++) {
        struct rdzv__spare *spare = &core->spare[i];
        while (spare->first != NULL) {
            struct rdzv__block *b = spare->first;
            spare->first = b->next;
            rdzv__free(core->options.allocator, b);
        }
        spare->count = 0;
    }
}

/* Ends the session at once, with its output. The first reason stays. */
static void fail(struct rdzv__session *s, int why)
{
    if (s->state == RDZV__SESSION_FAILED)
        return;
    s->state = RDZV__SESSION_FAILED;
    s->why = (uint8_t)why;
    rdzv__session_ready(s);
}

static struct rdzv__marks *grow_marks(struct rdzv__session *s)
{
    const rdzv_allocator *a = s->core->options.allocator;
    struct rdzv__marks *old = s->marks;
    uint32_t used = old != NULL ? old->end - old->first : 0;
    uint32_t cap = used < FIRST_MARKS / 2 ? FIRST_MARKS : 2 * used;
    struct rdzv__marks *m = rdzv__alloc(a, sizeof *m + cap * sizeof m->at[0]);
    if (m == NULL)
        return NULL;
    m->cap = cap;
    m->first = 0;
    m->end = used;
    if (used > 0)
        memcpy(m->at, old->at + old->first, used * sizeof m->at[0]);
    rdzv__free(a, old);
    s->marks = m;
    return m;
}

void rdzv__out_mark(struct rdzv__session *s)
{
    struct rdzv__core *core = s->core;
    if (s->state == RDZV__SESSION_FAILED)
        return;
    struct rdzv__marks *m = s->marks;
    if (m != NULL && m->at[m->end - 1].record == core->recorded)
        return;
    if (m == NULL || m->end == m->cap)
        m = grow_marks(s);
    if (m == NULL) {
        fail(s, RDZV__WHY_NO_MEMORY);
        return;
    }
    if (queue_empty(&s->held))
        queue_push(&core->held, &s->held);
    m->at[m->end++] = (struct mark){core->recorded, s->out_made};
}

static void clear_marks(struct rdzv__session *s)
{
    rdzv__free(s->core->options.allocator, s->marks);
    s->marks = NULL;
    queue_remove(&s->held);
}

void rdzv__out_release(struct rdzv__session *s)
{
    struct rdzv__marks *m = s->marks;
    uint32_t first = m->first;
    while (m->first < m->end && m->at[m->first].record <= s->core->persisted)
        m->first++;
    if (m->first != first)
        rdzv__session_ready(s);
    if (m->first == m->end)
        clear_marks(s);
}

/* Whether `len` more bytes may be appended; fails the session that has too much. */
static inline int admit(struct rdzv__session *s, size_t len)
{
    if (s->state == RDZV__SESSION_FAILED)
        return 0;
    uint64_t max = s->core->options.max_unread_bytes;
    if (rdzv__session_unsent(s) > max || len > max - rdzv__session_unsent(s)) {
        fail(s, RDZV__WHY_UNREAD);
        return 0;
    }
    rdzv__session_ready(s);
    return 1;
}

void rdzv__out_bytes(struct rdzv__session *s, const void *bytes, size_t len)
{
    const uint8_t *from = bytes;
    if (!admit(s, len))
        return;
    while (len > 0) {
        struct rdzv__block *b = s->tail;
        if (b == NULL || b->end == b->cap) {
            int why = add_block(s, len);
            if (why != RDZV__WHY_OK) {
                fail(s, why);
                return;
            }
            b = s->tail;
        }
        size_t part = len < b->cap - b->end ? len : b->cap - b->end;
        memcpy(b->data + b->end, from, part);
        b->end += (uint32_t)part;
        s->out_made += part;
        from += part;
        len -= part;
    }
}

void rdzv__out_u8(struct rdzv__session *s, uint8_t v)
{
    rdzv__out_bytes(s, &v, 1);
}

/* Most replies are one of these, and most find room. */
void rdzv__out_u64(struct rdzv__session *s, uint64_t v)
{
    struct rdzv__block *b = s->tail;
    if (b != NULL && b->cap - b->end >= sizeof v && admit(s, sizeof v)) {
        bytes_put_u64(b->data + b->end, v);
        b->end += (uint32_t)sizeof v;
        s->out_made += sizeof v;
        return;
    }
    uint8_t wire[8];
    bytes_put_u64(wire, v);
    rdzv__out_bytes(s, wire, sizeof wire);
}

void rdzv__out_vec(struct rdzv__session *s, const uint8_t *bytes, size_t len)
{
    rdzv__out_u64(s, len);
    rdzv__out_bytes(s, bytes, len);
}

void rdzv__out_clear(struct rdzv__session *s)
{
    while (s->head != NULL) {
        struct rdzv__block *b = s->head;
        s->head = b->next;
        drop_block(s->core, b);
    }
    s->tail = NULL;
    s->out_sent = s->out_made;
    if (s->marks != NULL)
        clear_marks(s);
}

size_t rdzv__session_output(const struct rdzv__session *s, struct rdzv__field *spans, size_t max)
{
    uint64_t end = s->marks != NULL ? s->marks->at[s->marks->first].from : s->out_made;
    uint64_t left = end - s->out_sent;
    size_t n = 0;
    for (const struct rdzv__block *b = s->head; b != NULL && left > 0 && n < max; b = b->next) {
        size_t len = b->end - b->start;
        if (len > left)
            len = (size_t)left;
        spans[n++] = (struct rdzv__field){b->data + b->start, len};
        left -= len;
    }
    return n;
}

void rdzv__session_sent(struct rdzv__session *s, size_t len)
{
    s->out_sent += len;
    while (s->head != NULL) {
        struct rdzv__block *b = s->head;
        size_t part = len < b->end - b->start ? len : b->end - b->start;
        b->start += (uint32_t)part;
        len -= part;
        if (b->start < b->end)
            return;
        s->head = b->next;
        if (s->head == NULL)
            s->tail = NULL;
        drop_block(s->core, b);
    }
}
