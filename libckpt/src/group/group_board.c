/*
 * group_board.c: makes a group of a board (named blobs, last writer wins).
 *
 * Each rank puts `rank-R`: its random nonce, world size, the session and turn it is in, its blob.
 * Rank 0 puts `root`: a random session, the roster of nonces, and the answer of a turn (all blobs).
 * A rank takes part in a session only when its roster holds the rank's own nonce; rank 0 makes a
 * new session whenever a rank that it waits for shows another nonce. So whatever a killed attempt
 * left under these names is either refused or overwritten. After any failure a rank takes a new
 * nonce, and rank 0 waits until it has seen a new one of everybody: so a rank that comes late finds
 * the failure and not the next exchange, and all are in step again after it.
 *
 * Invariant: a rank puts its blob of turn k + 1 only after it has read the answer of turn k, so
 * both records may be overwritten. Polls by a timer whose delay grows to MAX_DELAY_MS.
 */
#include "group/group.h"

#include "clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MAX_DELAY_MS 20
#define MAX_GROUP_WORLD 65536

static void arm(struct ckpt__group *g, int delay_ms)
{
    struct itimerspec at = {.it_value = {delay_ms / 1000, (long)(delay_ms % 1000) * 1000000L + 1}};
    timerfd_settime(g->timer_fd, 0, &at, NULL);
}

/* ------------------------------------------------------------------------------------------ */
/* End of an exchange                                                                           */

void ckpt__group_forget(struct ckpt__group *g)
{
    for (uint32_t i = 0; g->members != NULL && i < g->world; i++) {
        free(g->members[i].blob);
        g->members[i].blob = NULL;
    }
}

/* Rank 0 after a failure: what the others said before it must not be taken for what they say next.
 */
static void ban_nonces(struct ckpt__group *g)
{
    for (uint32_t i = 0; g->members != NULL && i < g->world; i++) {
        struct ckpt__member *m = &g->members[i];
        memcpy(m->banned, m->nonce, sizeof m->banned);
        memset(m->nonce, 0, sizeof m->nonce);
    }
}

void ckpt__group_finish(struct ckpt__group *g, const ckpt_blob *blobs, const ckpt_error *result)
{
    ckpt_exchanged_fn done = g->done;
    void *ctx = g->done_ctx;
    uint8_t *blob = g->blob;
    g->done = NULL;
    g->blob = NULL;
    g->turn++;
    if (result->code != CKPT_OK) {
        g->in_session = 0;
        ckpt__random(g->nonce, sizeof g->nonce);
        ban_nonces(g);
        blobs = NULL;
    }
    /* done may start the next exchange: nothing of this one may be in the way. What blobs points
     * to stays valid until then: members' blobs and buf are replaced only by the next poll. */
    done(ctx, blobs, result);
    free(blob);
}

void ckpt__group_fail(struct ckpt__group *g, int code, const char *text)
{
    ckpt_error error = {.code = code};
    snprintf(error.text, sizeof error.text, "%s", text);
    ckpt__group_finish(g, NULL, &error);
}

/* ------------------------------------------------------------------------------------------ */
/* The board                                                                                    */

int64_t ckpt__group_read(struct ckpt__group *g, const char *key, size_t max)
{
    for (;;) {
        int64_t n = g->board.get(g->board.ctx, key, g->buf, g->buf_bytes);
        if (n != CKPT_EINVAL || g->buf_bytes >= max)
            return n;
        size_t want = g->buf_bytes * 2 < max ? g->buf_bytes * 2 : max;
        uint8_t *bigger = realloc(g->buf, want);
        if (bigger == NULL)
            return CKPT_ENOMEM;
        g->buf = bigger;
        g->buf_bytes = want;
    }
}

int ckpt__group_put_rank(struct ckpt__group *g)
{
    struct ckpt__rank_record r = {.world = g->world,
                                  .nonce = g->nonce,
                                  .session = g->session,
                                  .turn = g->in_session ? g->turn : CKPT__NO_TURN,
                                  .blob = {g->blob, g->in_session ? g->len : 0}};
    size_t len = ckpt__rank_record_bytes(&r);
    uint8_t *bytes = malloc(len);
    if (bytes == NULL)
        return CKPT_ENOMEM;
    ckpt__rank_record_encode(&r, bytes);
    char key[24];
    snprintf(key, sizeof key, "rank-%u", g->rank);
    int rc = g->board.put(g->board.ctx, key, bytes, len);
    free(bytes);
    return rc;
}

int ckpt__group_put_root(struct ckpt__group *g, uint64_t turn, int code, ckpt_blob answer)
{
    uint8_t *nonces = malloc((size_t)g->world * CKPT__NONCE_BYTES);
    struct ckpt__root_record r = {.world = g->world,
                                  .session = g->session,
                                  .nonces = nonces,
                                  .turn = turn,
                                  .code = code,
                                  .answer = answer};
    size_t len = ckpt__root_record_bytes(&r);
    uint8_t *bytes = nonces != NULL ? malloc(len) : NULL;
    int rc = CKPT_ENOMEM;
    if (bytes != NULL) {
        for (uint32_t i = 0; i < g->world; i++)
            memcpy(nonces + (size_t)i * CKPT__NONCE_BYTES, g->members[i].nonce, CKPT__NONCE_BYTES);
        ckpt__root_record_encode(&r, bytes);
        rc = g->board.put(g->board.ctx, "root", bytes, len);
    }
    free(bytes);
    free(nonces);
    return rc;
}

/* ------------------------------------------------------------------------------------------ */
/* The table                                                                                    */

static void group_exchange(void *ctx, const void *blob, size_t len, int32_t timeout_ms,
                           ckpt_exchanged_fn done, void *done_ctx)
{
    struct ckpt__group *g = ctx;
    g->done = done;
    g->done_ctx = done_ctx;
    g->timeout_ms = timeout_ms;
    g->deadline_ms = clock_in_ms(timeout_ms);
    g->must_put = 1;
    g->other_world = 0;
    g->delay_ms = 1;
    g->blob = len <= CKPT_MAX_BLOB_BYTES ? malloc(len + 1) : NULL;
    g->len = len;
    if (g->blob != NULL)
        memcpy(g->blob, blob, len);
    arm(g, 0);
}

static int group_fd(void *ctx)
{
    return ((struct ckpt__group *)ctx)->timer_fd;
}

static void group_dispatch(void *ctx)
{
    struct ckpt__group *g = ctx;
    uint64_t ticks;
    if (read(g->timer_fd, &ticks, sizeof ticks) < 0 || g->done == NULL)
        return;
    if (g->blob == NULL)
        ckpt__group_fail(g, g->len > CKPT_MAX_BLOB_BYTES ? CKPT_EINVAL : CKPT_ENOMEM,
                         "group: the blob is too large or there is no memory for it");
    else if (g->rank == 0)
        ckpt__group_poll_root(g);
    else
        ckpt__group_poll_member(g);
    if (g->done == NULL)
        return;
    arm(g, g->delay_ms);
    g->delay_ms = g->delay_ms * 3 / 2 + 1 < MAX_DELAY_MS ? g->delay_ms * 3 / 2 + 1 : MAX_DELAY_MS;
}

static void group_cancel(void *ctx)
{
    struct ckpt__group *g = ctx;
    if (g->done == NULL)
        return;
    /* The others need not wait in vain: they get what this rank had to say. */
    if (g->in_session && g->rank != 0 && g->must_put && g->blob != NULL)
        ckpt__group_put_rank(g);
    if (g->in_session && g->rank == 0)
        ckpt__group_put_root(g, g->turn, CKPT_EPEER, (ckpt_blob){"rank 0 gave up", 14});
    ckpt__group_fail(g, CKPT_ECANCELED, "group: the exchange was cancelled");
}

static void group_close(void *ctx)
{
    struct ckpt__group *g = ctx;
    if (g->board.close != NULL)
        g->board.close(g->board.ctx);
    ckpt__group_forget(g);
    free(g->members);
    free(g->buf);
    free(g->blob);
    close(g->timer_fd);
    free(g);
}

static struct ckpt__group *group_new(uint32_t rank, uint32_t world)
{
    struct ckpt__group *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    g->rank = rank;
    g->world = world;
    g->buf_bytes = 4096;
    g->buf = malloc(g->buf_bytes);
    g->members = rank == 0 ? calloc(world, sizeof *g->members) : NULL;
    g->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (g->buf == NULL || (rank == 0 && g->members == NULL) || g->timer_fd < 0 ||
        ckpt__random(g->nonce, sizeof g->nonce) != 0) {
        if (g->timer_fd >= 0)
            close(g->timer_fd);
        free(g->members);
        free(g->buf);
        free(g);
        return NULL;
    }
    return g;
}

int ckpt_group_board(ckpt_group *ret, const ckpt_board *board, int32_t rank, int32_t world_size,
                     ckpt_error *err)
{
    if (ret == NULL || board == NULL || board->size < sizeof *board || board->put == NULL ||
        board->get == NULL)
        return ckpt__fail(err, CKPT_EINVAL, "group: the board needs its size, put and get");
    if (world_size < 1 || world_size > MAX_GROUP_WORLD || rank < 0 || rank >= world_size)
        return ckpt__fail(err, CKPT_EINVAL, "group: rank %d of world size %d is out of range", rank,
                          world_size);
    struct ckpt__group *g = group_new((uint32_t)rank, (uint32_t)world_size);
    if (g == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "group: out of memory or descriptors");
    g->board = *board;
    *ret = (ckpt_group){.size = sizeof *ret,
                        .ctx = g,
                        .rank = rank,
                        .world_size = world_size,
                        .exchange = group_exchange,
                        .fd = group_fd,
                        .dispatch = group_dispatch,
                        .cancel = group_cancel,
                        .close = group_close};
    return CKPT_OK;
}
