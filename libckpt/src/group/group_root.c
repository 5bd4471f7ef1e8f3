/*
 * group_root.c: rank 0 of a group over a board: keeps the roster, collects the blobs of a turn,
 * answers all. group_board.c describes the protocol.
 */
#include "group/group.h"

#include "clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What rank r has on the board. Returns 1 when its nonce is not the roster's. */
static int look_at(struct ckpt__group *g, uint32_t r)
{
    struct ckpt__member *m = &g->members[r];
    char key[24];
    snprintf(key, sizeof key, "rank-%u", r);
    int64_t n = ckpt__group_read(g, key, CKPT__RANK_HEAD_BYTES + CKPT_MAX_BLOB_BYTES);
    struct ckpt__rank_record record;
    if (n < 0 || !ckpt__rank_record_decode(&record, g->buf, (size_t)n))
        return 0;
    if (record.world != g->world) { /* a leftover, or a rank that was started wrong */
        g->other_world = record.world;
        return 0;
    }
    if (memcmp(record.nonce, m->banned, CKPT__NONCE_BYTES) == 0)
        return 0; /* it has not noticed the last failure */
    if (memcmp(record.nonce, m->nonce, CKPT__NONCE_BYTES) != 0) {
        memcpy(m->nonce, record.nonce, CKPT__NONCE_BYTES);
        return 1;
    }
    if (!g->in_session || memcmp(record.session, g->session, CKPT__NONCE_BYTES) != 0 ||
        record.turn != g->turn)
        return 0;
    m->blob = malloc(record.blob.len_bytes + 1);
    if (m->blob == NULL)
        return 0; /* the next poll tries again */
    memcpy(m->blob, record.blob.bytes, record.blob.len_bytes);
    m->len = record.blob.len_bytes;
    return 0;
}

static int knows_nonce(const struct ckpt__member *m)
{
    static const uint8_t zeros[CKPT__NONCE_BYTES];
    return memcmp(m->nonce, zeros, sizeof zeros) != 0;
}

static int knows_all_nonces(const struct ckpt__group *g)
{
    for (uint32_t i = 0; i < g->world; i++) {
        if (!knows_nonce(&g->members[i]))
            return 0;
    }
    return 1;
}

static void new_session(struct ckpt__group *g)
{
    ckpt__group_forget(g);
    memcpy(g->members[0].nonce, g->nonce, CKPT__NONCE_BYTES);
    g->turn = 0;
    g->in_session = 0;
    if (!knows_all_nonces(g))
        return;
    int e = ckpt__random(g->session, sizeof g->session);
    int rc = e != 0 ? ckpt__code_of_errno(e)
                    : ckpt__group_put_root(g, CKPT__NO_TURN, CKPT_OK, (ckpt_blob){NULL, 0});
    if (rc != CKPT_OK)
        ckpt__group_fail(g, rc, "group: rank 0 cannot put its roster on the board");
    else
        g->in_session = 1;
}

static void answer_all(struct ckpt__group *g)
{
    ckpt_blob *blobs = calloc(g->world, sizeof *blobs);
    uint8_t *bytes = NULL;
    int rc = CKPT_ENOMEM;
    if (blobs != NULL) {
        blobs[0] = (ckpt_blob){g->blob, g->len};
        for (uint32_t i = 1; i < g->world; i++)
            blobs[i] = (ckpt_blob){g->members[i].blob, g->members[i].len};
        size_t len = ckpt__answer_bytes(blobs, g->world);
        bytes = malloc(len);
        if (bytes != NULL) {
            ckpt__answer_encode(blobs, g->world, bytes);
            rc = ckpt__group_put_root(g, g->turn, CKPT_OK, (ckpt_blob){bytes, len});
        }
    }
    free(bytes);
    if (rc != CKPT_OK)
        ckpt__group_fail(g, rc, "group: rank 0 cannot put its answer on the board");
    else
        ckpt__group_finish(g, blobs, &(ckpt_error){.code = CKPT_OK, .text = ""});
    free(blobs);
    if (g->done == NULL)
        ckpt__group_forget(g);
}

static void time_out_root(struct ckpt__group *g)
{
    char text[248];
    int used = snprintf(text, sizeof text, "group: within %d ms there was no word from rank",
                        g->timeout_ms);
    uint32_t missing = 0;
    for (uint32_t i = 1; i < g->world; i++) {
        /* Without a session nobody could give a blob; a nonce says that a rank is there. */
        if (g->in_session ? g->members[i].blob != NULL : knows_nonce(&g->members[i]))
            continue;
        if (missing++ < 8 && used < (int)sizeof text)
            used += snprintf(text + used, sizeof text - (size_t)used, " %u", i);
    }
    if (missing > 8 && used < (int)sizeof text)
        used += snprintf(text + used, sizeof text - (size_t)used, " and %u more", missing - 8);
    if (used < (int)sizeof text)
        used += snprintf(text + used, sizeof text - (size_t)used, " (world size %u)", g->world);
    if (g->other_world != 0 && used < (int)sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, "; one claims world size %u",
                 g->other_world);
    if (!g->in_session) { /* a session of those who are there, so that they get this answer */
        g->turn = 0;
        ckpt__random(g->session, sizeof g->session);
    }
    ckpt__group_put_root(g, g->turn, CKPT_ETIMEDOUT, (ckpt_blob){text, strlen(text)});
    ckpt__group_fail(g, CKPT_ETIMEDOUT, text);
    ckpt__group_forget(g);
}

void ckpt__group_poll_root(struct ckpt__group *g)
{
    if (g->must_put) { /* first poll of this exchange */
        g->must_put = 0;
        ckpt__group_forget(g);
        if (g->in_session == 0 && g->world == 1)
            new_session(g);
    }
    int changed = 0;
    uint32_t missing = 0;
    for (uint32_t i = 1; i < g->world; i++) {
        if (g->members[i].blob != NULL)
            continue;
        changed |= look_at(g, i);
        missing += g->members[i].blob == NULL;
    }
    if (changed || !g->in_session)
        new_session(g);
    else if (missing == 0)
        answer_all(g);
    if (g->done != NULL && clock_ms() >= g->deadline_ms)
        time_out_root(g);
}
