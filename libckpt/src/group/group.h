/*
 * group.h: the inside of a group over a board. group_board.c is the table and what all ranks share,
 * group_root.c is rank 0, group_member.c the others.
 */
#ifndef CKPT_GROUP_H
#define CKPT_GROUP_H

#include "group/board_record.h"
#include "env.h"

struct ckpt__member {
    uint8_t nonce[CKPT__NONCE_BYTES];  /* zeros = not known */
    uint8_t banned[CKPT__NONCE_BYTES]; /* of before the last failure: it must show another */
    uint8_t *blob;                     /* of this turn, NULL = not there yet */
    size_t len;
};

struct ckpt__group {
    ckpt_board board;
    uint32_t rank, world;
    int timer_fd;
    uint8_t nonce[CKPT__NONCE_BYTES];
    uint8_t session[CKPT__NONCE_BYTES];
    int in_session; /* rank 0: the roster is complete; others: a roster held our nonce */
    uint64_t turn;
    uint32_t other_world;         /* a differing world size that was seen, for the error text */
    struct ckpt__member *members; /* rank 0 only */
    uint8_t *buf;                 /* what was last read */
    size_t buf_bytes;
    /* The exchange that is running; done == NULL: none. */
    ckpt_exchanged_fn done;
    void *done_ctx;
    uint8_t *blob;
    size_t len;
    int must_put; /* our record is not yet on the board as it should be */
    int32_t timeout_ms;
    uint64_t deadline_ms;
    int delay_ms;
};

/* Rank 0: drops the blobs of this turn. */
void ckpt__group_forget(struct ckpt__group *g);

/* Ends the exchange: calls done, which may start the next one. After a failure the rank takes a new
 * nonce. */
void ckpt__group_finish(struct ckpt__group *g, const ckpt_blob *blobs, const ckpt_error *result);
void ckpt__group_fail(struct ckpt__group *g, int code, const char *text);

/* Reads key into g->buf, which grows up to max. Length, or a negative code. */
int64_t ckpt__group_read(struct ckpt__group *g, const char *key, size_t max);

/* Put this rank's record; rank 0's. 0 or a negative code. */
int ckpt__group_put_rank(struct ckpt__group *g);
int ckpt__group_put_root(struct ckpt__group *g, uint64_t turn, int code, ckpt_blob answer);

/* One look at the board. */
void ckpt__group_poll_root(struct ckpt__group *g);
void ckpt__group_poll_member(struct ckpt__group *g);

#endif
