/*
 * board_record.h: the two kinds of blobs that group_board.c puts on a board. Little-endian.
 *
 *   rank-R  magic "RPGR", u32 world, nonce[16], session[16], u64 turn, u32 len, blob
 *   root    magic "RPGA", u32 world, session[16], nonce[16] x world, u64 turn, i32 code,
 *           u32 len, then (code 0) world x { u32 len, blob }, or (code < 0) text
 *
 * A board is written by others and by the dead: decoding checks every length.
 */
#ifndef CKPT_BOARD_RECORD_H
#define CKPT_BOARD_RECORD_H

#include "ckpt.h"

#include <stdbool.h>

#define CKPT__NONCE_BYTES 16
#define CKPT__RANK_HEAD_BYTES 52u
#define CKPT__NO_TURN UINT64_MAX

struct ckpt__rank_record {
    uint32_t world;
    const uint8_t *nonce, *session; /* 16 bytes each */
    uint64_t turn;
    ckpt_blob blob;
};

struct ckpt__root_record {
    uint32_t world;
    const uint8_t *session;
    const uint8_t *nonces; /* world x 16 bytes */
    uint64_t turn;         /* that the answer is for, CKPT__NO_TURN = none yet */
    int32_t code;
    ckpt_blob answer;
};

/* Bytes that an encoded record takes. */
size_t ckpt__rank_record_bytes(const struct ckpt__rank_record *r);
size_t ckpt__root_record_bytes(const struct ckpt__root_record *r);

void ckpt__rank_record_encode(const struct ckpt__rank_record *r, uint8_t *dst);
void ckpt__root_record_encode(const struct ckpt__root_record *r, uint8_t *dst);

/* Pointers in *r go into bytes. False when it is not a whole, well-formed record. */
bool ckpt__rank_record_decode(struct ckpt__rank_record *r, const uint8_t *bytes, size_t len);
bool ckpt__root_record_decode(struct ckpt__root_record *r, const uint8_t *bytes, size_t len);

/* The answer of code 0: world blobs, each with its length in front. */
size_t ckpt__answer_bytes(const ckpt_blob *blobs, uint32_t world);
void ckpt__answer_encode(const ckpt_blob *blobs, uint32_t world, uint8_t *dst);
bool ckpt__answer_decode(ckpt_blob *blobs, uint32_t world, ckpt_blob answer);

#endif
