/*
 * group_board.c: makes a group of a board (named blobs, last writer wins).
 *
 * Each rank puts `rank-R`: its random nonce, world size, the session and turn it is in, its blob.
 * Rank 0 puts `root`: a random session, the roster of nonces, and the answer of a turn (all blobs).
 * A rank takes part in a session only when its roster holds the rank's own nonce; rank 0 makes a
 * new session whenever a rank that it waits for shows another nonce. So whatever a killed attempt
 * left under these names is either refused or overwritten. After any failure a rank takes a new
 * nonce, which brings all ranks into step again at the next exchange.
 *
 * Invariant: a rank puts its blob of turn k + 1 only after it has read the answer of turn k, so
 * both records may be overwritten. Polls by a timer whose delay grows to MAX_DELAY_MS.
 */
#include "board_record.h"
#include "clock.h"
#include "env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MAX_DELAY_MS 20
#define MAX_GRACE_MS 2000 /* others wait longer than rank 0: its answer names who is missing */
#define MAX_GROUP_WORLD 65536

struct member {
    uint8_t nonce[CKPT__NONCE_BYTES];
    uint8_t *blob; /* of this turn, NULL = not there yet */
    size_t len;
};

struct group {
    ckpt_board board;
    uint32_t rank, world;
    int timer_fd;
    uint8_t nonce[CKPT__NONCE_BYTES];
    uint8_t session[CKPT__NONCE_BYTES];
    int in_session; /* rank 0: the roster is complete; others: a roster held our nonce */
    uint64_t turn;
    uint32_t other_world;   /* a differing world size that was seen, for the error text */
    struct member *members; /* rank 0 only */
    uint8_t *buf;           /* what was last read */
    size_t buf_bytes;
    /* The exchange that is running; done == NULL: none. */
    ckpt_exchanged_fn done;
    void *done_ctx;
    uint8_t *blob;
    size_t len;
    int must_put; /* our record is not yet on the board as it should be */
    int32_t timeout_ms;
    int64_t deadline_ms;
    int delay_ms;
};

static int random_bytes(uint8_t *dst, size_t len)
{
    while (len > 0) {
        ssize_t n = getrandom(dst, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        dst += n;
        len -= (size_t)n;
    }
    return 0;
}

static void arm(struct group *g, int delay_ms)
{
    struct itimerspec at = {.it_value = {delay_ms / 1000, (long)(delay_ms % 1000) * 1000000L + 1}};
    timerfd_settime(g->timer_fd, 0, &at, NULL);
}

/* ------------------------------------------------------------------------------------------ */
/* End of an exchange                                                                           */

static void forget_blobs(struct group *g)
{
    for (uint32_t i = 0; g->members != NULL && i < g->world; i++) {
        free(g->members[i].blob);
        g->members[i].blob = NULL;
    }
}

static void finish(struct group *g, const ckpt_blob *blobs, const ckpt_error *result)
{
    ckpt_exchanged_fn done = g->done;
    void *ctx = g->done_ctx;
    uint8_t *blob = g->blob;
    g->done = NULL;
    g->blob = NULL;
    g->turn++;
    if (result->code != CKPT_OK) {
        g->in_session = 0;
        random_bytes(g->nonce, sizeof g->nonce);
        blobs = NULL;
    }
    /* done may start the next exchange: nothing of this one may be in the way. What blobs points
     * to stays valid until then: members' blobs and buf are replaced only by the next poll. */
    done(ctx, blobs, result);
    free(blob);
}

static void fail(struct group *g, int code, const char *text)
{
    ckpt_error error = {.code = code};
    snprintf(error.text, sizeof error.text, "%s", text);
    finish(g, NULL, &error);
}

/* ------------------------------------------------------------------------------------------ */
/* The board                                                                                    */

/* Reads key into g->buf, which grows up to max. Length, or a negative code. */
static int64_t read_key(struct group *g, const char *key, size_t max)
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

static int put_rank_record(struct group *g)
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

static int put_root_record(struct group *g, uint64_t turn, int code, ckpt_blob answer)
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
/* Rank 0                                                                                       */

/* What rank r has on the board. Returns 1 when its nonce is not the roster's. */
static int look_at(struct group *g, uint32_t r)
{
    struct member *m = &g->members[r];
    char key[24];
    snprintf(key, sizeof key, "rank-%u", r);
    int64_t n = read_key(g, key, CKPT__RANK_HEAD_BYTES + CKPT_MAX_BLOB_BYTES);
    struct ckpt__rank_record record;
    if (n < 0 || !ckpt__rank_record_decode(&record, g->buf, (size_t)n))
        return 0;
    if (record.world != g->world) { /* a leftover, or a rank that was started wrong */
        g->other_world = record.world;
        return 0;
    }
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

static int knows_all_nonces(const struct group *g)
{
    static const uint8_t zeros[CKPT__NONCE_BYTES];
    for (uint32_t i = 0; i < g->world; i++) {
        if (memcmp(g->members[i].nonce, zeros, sizeof zeros) == 0)
            return 0;
    }
    return 1;
}

static void new_session(struct group *g)
{
    forget_blobs(g);
    memcpy(g->members[0].nonce, g->nonce, CKPT__NONCE_BYTES);
    g->turn = 0;
    g->in_session = 0;
    if (!knows_all_nonces(g))
        return;
    int e = random_bytes(g->session, sizeof g->session);
    int rc = e != 0 ? ckpt__code_of_errno(e)
                    : put_root_record(g, CKPT__NO_TURN, CKPT_OK, (ckpt_blob){NULL, 0});
    if (rc != CKPT_OK)
        fail(g, rc, "group: rank 0 cannot put its roster on the board");
    else
        g->in_session = 1;
}

static void answer_all(struct group *g)
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
            rc = put_root_record(g, g->turn, CKPT_OK, (ckpt_blob){bytes, len});
        }
    }
    free(bytes);
    if (rc != CKPT_OK)
        fail(g, rc, "group: rank 0 cannot put its answer on the board");
    else
        finish(g, blobs, &(ckpt_error){.code = CKPT_OK, .text = ""});
    free(blobs);
    if (g->done == NULL)
        forget_blobs(g);
}

static void time_out_root(struct group *g)
{
    char text[248];
    int used = snprintf(text, sizeof text, "group: within %d ms there was no word from rank",
                        g->timeout_ms);
    uint32_t missing = 0;
    for (uint32_t i = 1; i < g->world; i++) {
        if (g->members[i].blob != NULL)
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
    if (g->in_session)
        put_root_record(g, g->turn, CKPT_ETIMEDOUT, (ckpt_blob){text, strlen(text)});
    fail(g, CKPT_ETIMEDOUT, text);
    forget_blobs(g);
}

static void poll_root(struct group *g)
{
    if (g->must_put) { /* first poll of this exchange */
        g->must_put = 0;
        forget_blobs(g);
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
    if (g->done != NULL && ckpt__now_ms() >= g->deadline_ms)
        time_out_root(g);
}

/* ------------------------------------------------------------------------------------------ */
/* The other ranks                                                                              */

static void take_answer(struct group *g, const struct ckpt__root_record *root)
{
    if (root->code != CKPT_OK) {
        char text[248];
        snprintf(text, sizeof text, "%.*s", (int)root->answer.len_bytes,
                 (const char *)root->answer.bytes);
        fail(g, root->code, text);
        return;
    }
    ckpt_blob *blobs = calloc(g->world, sizeof *blobs);
    if (blobs == NULL)
        fail(g, CKPT_ENOMEM, "group: no memory for the other ranks' blobs");
    else if (!ckpt__answer_decode(blobs, g->world, root->answer))
        fail(g, CKPT_EIO, "group: rank 0's answer on the board is damaged");
    else
        finish(g, blobs, &(ckpt_error){.code = CKPT_OK, .text = ""});
    free(blobs);
}

/* Reads rank 0's record: joins its session, or takes its answer. Returns 1 when the turn ended. */
static int look_at_root(struct group *g)
{
    size_t max = (size_t)g->world * (CKPT__NONCE_BYTES + 4 + CKPT_MAX_BLOB_BYTES) + 4096;
    int64_t n = read_key(g, "root", max);
    struct ckpt__root_record root;
    if (n < 0 || !ckpt__root_record_decode(&root, g->buf, (size_t)n))
        return 0;
    if (root.world != g->world) {
        g->other_world = root.world;
        return 0;
    }
    if (memcmp(root.nonces + (size_t)g->rank * CKPT__NONCE_BYTES, g->nonce, CKPT__NONCE_BYTES) != 0)
        return 0; /* a leftover, or made before we were heard */
    if (!g->in_session || memcmp(root.session, g->session, CKPT__NONCE_BYTES) != 0) {
        memcpy(g->session, root.session, CKPT__NONCE_BYTES);
        g->in_session = 1;
        g->turn = 0;
        g->must_put = 1;
        return 0;
    }
    if (root.turn == CKPT__NO_TURN || root.turn < g->turn)
        return 0;
    if (root.turn > g->turn)
        fail(g, CKPT_ETIMEDOUT, "group: the other ranks gave up waiting for this one and went on");
    else
        take_answer(g, &root);
    return 1;
}

static void time_out_other(struct group *g)
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
    fail(g, CKPT_ETIMEDOUT, text);
}

static void poll_other(struct group *g)
{
    for (int round = 0; round < 2; round++) { /* joining a session puts our blob at once */
        if (g->must_put) {
            int rc = put_rank_record(g);
            if (rc != CKPT_OK) {
                fail(g, rc, "group: this rank cannot put its blob on the board");
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
    if (ckpt__now_ms() >= g->deadline_ms + grace_ms)
        time_out_other(g);
}

/* ------------------------------------------------------------------------------------------ */
/* The table                                                                                    */

static void group_exchange(void *ctx, const void *blob, size_t len, int32_t timeout_ms,
                           ckpt_exchanged_fn done, void *done_ctx)
{
    struct group *g = ctx;
    g->done = done;
    g->done_ctx = done_ctx;
    g->timeout_ms = timeout_ms;
    g->deadline_ms = ckpt__now_ms() + timeout_ms;
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
    return ((struct group *)ctx)->timer_fd;
}

static void group_dispatch(void *ctx)
{
    struct group *g = ctx;
    uint64_t ticks;
    if (read(g->timer_fd, &ticks, sizeof ticks) < 0 || g->done == NULL)
        return;
    if (g->blob == NULL)
        fail(g, g->len > CKPT_MAX_BLOB_BYTES ? CKPT_EINVAL : CKPT_ENOMEM,
             "group: the blob is too large or there is no memory for it");
    else if (g->rank == 0)
        poll_root(g);
    else
        poll_other(g);
    if (g->done == NULL)
        return;
    arm(g, g->delay_ms);
    g->delay_ms = g->delay_ms * 3 / 2 + 1 < MAX_DELAY_MS ? g->delay_ms * 3 / 2 + 1 : MAX_DELAY_MS;
}

static void group_cancel(void *ctx)
{
    struct group *g = ctx;
    if (g->done == NULL)
        return;
    /* The others need not wait in vain: they get what this rank had to say. */
    if (g->in_session && g->rank != 0 && g->must_put && g->blob != NULL)
        put_rank_record(g);
    if (g->in_session && g->rank == 0)
        put_root_record(g, g->turn, CKPT_EPEER, (ckpt_blob){"rank 0 gave up", 14});
    fail(g, CKPT_ECANCELED, "group: the exchange was cancelled");
}

static void group_close(void *ctx)
{
    struct group *g = ctx;
    if (g->board.close != NULL)
        g->board.close(g->board.ctx);
    forget_blobs(g);
    free(g->members);
    free(g->buf);
    free(g->blob);
    close(g->timer_fd);
    free(g);
}

static struct group *group_new(uint32_t rank, uint32_t world)
{
    struct group *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    g->rank = rank;
    g->world = world;
    g->buf_bytes = 4096;
    g->buf = malloc(g->buf_bytes);
    g->members = rank == 0 ? calloc(world, sizeof *g->members) : NULL;
    g->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (g->buf == NULL || (rank == 0 && g->members == NULL) || g->timer_fd < 0 ||
        random_bytes(g->nonce, sizeof g->nonce) != 0) {
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
    if (ret == NULL || board == NULL || board->size != sizeof *board || board->put == NULL ||
        board->get == NULL)
        return ckpt__fail(err, CKPT_EINVAL, "group: the board needs its size, put and get");
    if (world_size < 1 || world_size > MAX_GROUP_WORLD || rank < 0 || rank >= world_size)
        return ckpt__fail(err, CKPT_EINVAL, "group: rank %d of world size %d is out of range", rank,
                          world_size);
    struct group *g = group_new((uint32_t)rank, (uint32_t)world_size);
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
