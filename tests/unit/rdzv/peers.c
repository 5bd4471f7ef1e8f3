/*
 * peers.c: see peers.h.
 */
#include "peers.h"

#include <check.h>
#include <string.h>

struct rdzv__core_options peers_options(void)
{
    return (struct rdzv__core_options){
        .allocator = &rdzv__allocator_libc,
        .limits = {8192, 8 << 20, 131072, 256 << 20},
        .max = {.store_bytes = 4ull << 30, .names = 1 << 30, .buffer_bytes = 4ull << 30},
        .max_unread_bytes = 256 << 20,
        .hash_seed = 42,
    };
}

void peers_open(struct peers *p, const struct rdzv__core_options *options)
{
    memset(p, 0, sizeof *p);
    rdzv__core_init(&p->core, options);
    for (int i = 0; i < PEERS; i++)
        peers_connect(p, i);
}

void peers_connect(struct peers *p, int i)
{
    rdzv__session_open(&p->s[i], &p->core);
    p->open[i] = 1;
    p->why[i] = 0;
    p->got[i].len = 0;
}

void peers_disconnect(struct peers *p, int i)
{
    rdzv__session_close(&p->s[i]);
    p->open[i] = 0;
}

void peers_close(struct peers *p)
{
    for (int i = 0; i < PEERS; i++) {
        if (p->open[i])
            peers_disconnect(p, i);
        wire_free(&p->got[i]);
    }
    rdzv__core_free(&p->core);
    ck_assert_uint_eq(p->core.store.bytes, 0);
    ck_assert_uint_eq(p->core.waiting, 0);
}

static void settle_one(struct peers *p, int i)
{
    struct rdzv__session *s = &p->s[i];
    struct rdzv__field spans[3];
    size_t n;
    if (s->state != RDZV__SESSION_FAILED) {
        while ((n = rdzv__session_output(s, spans, 3)) > 0) {
            for (size_t j = 0; j < n; j++) {
                wire_bytes(&p->got[i], spans[j].data, spans[j].len);
                rdzv__session_sent(s, spans[j].len);
            }
        }
    }
    int over = s->state == RDZV__SESSION_FAILED ||
               (s->state != RDZV__SESSION_OPEN && rdzv__session_unsent(s) == 0);
    if (!over)
        return;
    p->why[i] = s->state == RDZV__SESSION_ENDING ? -1 : s->why;
    peers_disconnect(p, i);
}

void peers_settle(struct peers *p)
{
    struct rdzv__session *s;
    while ((s = rdzv__core_next_ready(&p->core)) != NULL)
        settle_one(p, (int)(s - p->s));
}

void peers_send(struct peers *p, int i, const void *bytes, size_t len)
{
    const uint8_t *from = bytes;
    while (len > 0 && p->open[i]) {
        size_t used = rdzv__session_feed(&p->s[i], from, len);
        ck_assert_uint_gt(used, 0);
        from += used;
        len -= used;
        peers_settle(p);
    }
}

void peers_send_wire(struct peers *p, int i, struct wire *w)
{
    peers_send(p, i, w->data, w->len);
    w->len = 0;
}

void peers_eof(struct peers *p, int i)
{
    rdzv__session_eof(&p->s[i]);
    peers_settle(p);
}
