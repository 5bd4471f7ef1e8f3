/*
 * group_member.c: every rank but 0 of a group over a board: joins the session whose roster holds
 * its nonce, puts its blob, takes rank 0's answer. group_board.c describes the protocol.
 */
#include "group/group.h"

#include "clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GRACE_MS 2000 /* members wait longer than rank 0: its answer names who is missing */

static const char left_behind[] = "group: the other ranks gave up waiting for this one and went on";

static void take_answer(struct ckpt__group *g, const struct ckpt__root_record *root)
{
    if (root->code != CKPT_OK) {
        char text[248];
        snprintf(text, sizeof text, "%.*s", (int)root->answer.len_bytes,
                 (const char *)root->answer.bytes);
        ckpt__group_fail(g, root->code, text);
        return;
    }
    ckpt_blob *blobs = calloc(g->world, sizeof *blobs);
    if (blobs == NULL)
        ckpt__group_fail(g, CKPT_ENOMEM, "group: no memory for the other ranks' blobs");
    else if (!ckpt__answer_decode(blobs, g->world, root->answer))
        ckpt__group_fail(g, CKPT_EIO, "group: rank 0's answer on the board is damaged");
    else
        ckpt__group_finish(g, blobs, &(ckpt_error){.code = CKPT_OK, .text = ""});
    free(blobs);
}

/* Reads rank 0's record: joins its session, or takes its answer. Returns 1 when the turn ended. */
static int look_at_root(struct ckpt__group *g)
{
    size_t max = (size_t)g->world * (CKPT__NONCE_BYTES + 4 + CKPT_MAX_BLOB_BYTES) + 4096;
    int64_t n = ckpt__group_read(g, "root", max);
    struct ckpt__root_record root;
    if (n < 0 || !ckpt__root_record_decode(&root, g->buf, (size_t)n))
        return 0;
    if (root.world != g->world) {
        g->other_world = root.world;
        return 0;
    }
    int other = !g->in_session || memcmp(root.session, g->session, CKPT__NONCE_BYTES) != 0;
    const uint8_t *nonce = root.nonces + (size_t)g->rank * CKPT__NONCE_BYTES;
    if (memcmp(nonce, g->nonce, CKPT__NONCE_BYTES) != 0) {
        if (!g->in_session)
            return 0; /* a leftover, or made before we were heard */
        ckpt__group_fail(g, CKPT_ETIMEDOUT, left_behind);
        return 1;
    }
    if (other) {
        memcpy(g->session, root.session, CKPT__NONCE_BYTES);
        g->in_session = 1;
        g->turn = 0;
        g->must_put = 1;
        return 0;
    }
    if (root.turn == CKPT__NO_TURN || root.turn < g->turn)
        return 0;
    if (root.turn > g->turn)
        ckpt__group_fail(g, CKPT_ETIMEDOUT, left_behind);
    else
        take_answer(g, &root);
    return 1;
}

static void time_out_other(struct ckpt__group *g)
{
    char text[248];
    if (g->other_world != 0)
        snprintf(text, sizeof text,
                 "group: rank 0 did not answer within %d ms; the board speaks of world size %u, "
                 "this rank of %u",
                 g->timeout_ms, g->other_world, g->world);
    else
        snprintf(text, sizeof text, "group: rank 0 did not answer within %d ms (world size %u)",
                 g->timeout_ms, g->world);
    ckpt__group_fail(g, CKPT_ETIMEDOUT, text);
}

void ckpt__group_poll_member(struct ckpt__group *g)
{
    for (int round = 0; round < 2; round++) { /* joining a session puts our blob at once */
        if (g->must_put) {
            int rc = ckpt__group_put_rank(g);
            if (rc != CKPT_OK) {
                ckpt__group_fail(g, rc, "group: this rank cannot put its blob on the board");
                return;
            }
            g->must_put = 0;
        }
        if (look_at_root(g))
            return;
        if (!g->must_put)
            break;
    }
    int grace_ms = g->timeout_ms < MAX_GRACE_MS ? g->timeout_ms : MAX_GRACE_MS;
    if (clock_ms() >= g->deadline_ms + (uint64_t)grace_ms)
        time_out_other(g);
}
