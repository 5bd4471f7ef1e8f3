/*
 * board_record.c: encoding and checked decoding of the blobs on a board. Pure.
 */
#include "group/board_record.h"

#include "bytes.h"

#include <string.h>

#define RANK_MAGIC 0x52475052u /* "RPGR" */
#define ROOT_MAGIC 0x41475052u /* "RPGA" */
#define ROOT_FIXED_BYTES 40u   /* all but the nonces and the answer */

size_t ckpt__rank_record_bytes(const struct ckpt__rank_record *r)
{
    return CKPT__RANK_HEAD_BYTES + r->blob.len_bytes;
}

void ckpt__rank_record_encode(const struct ckpt__rank_record *r, uint8_t *dst)
{
    bytes_put_u32(dst, RANK_MAGIC);
    bytes_put_u32(dst + 4, r->world);
    memcpy(dst + 8, r->nonce, CKPT__NONCE_BYTES);
    memcpy(dst + 24, r->session, CKPT__NONCE_BYTES);
    bytes_put_u64(dst + 40, r->turn);
    bytes_put_u32(dst + 48, (uint32_t)r->blob.len_bytes);
    if (r->blob.len_bytes > 0)
        memcpy(dst + CKPT__RANK_HEAD_BYTES, r->blob.bytes, r->blob.len_bytes);
}

bool ckpt__rank_record_decode(struct ckpt__rank_record *r, const uint8_t *bytes, size_t len)
{
    if (len < CKPT__RANK_HEAD_BYTES || bytes_get_u32(bytes) != RANK_MAGIC)
        return false;
    uint32_t blob_len = bytes_get_u32(bytes + 48);
    if (blob_len > CKPT_MAX_BLOB_BYTES || blob_len != len - CKPT__RANK_HEAD_BYTES)
        return false;
    *r = (struct ckpt__rank_record){
        .world = bytes_get_u32(bytes + 4),
        .nonce = bytes + 8,
        .session = bytes + 24,
        .turn = bytes_get_u64(bytes + 40),
        .blob = {bytes + CKPT__RANK_HEAD_BYTES, blob_len},
    };
    return true;
}

size_t ckpt__root_record_bytes(const struct ckpt__root_record *r)
{
    return ROOT_FIXED_BYTES + (size_t)r->world * CKPT__NONCE_BYTES + r->answer.len_bytes;
}

void ckpt__root_record_encode(const struct ckpt__root_record *r, uint8_t *dst)
{
    size_t nonces = (size_t)r->world * CKPT__NONCE_BYTES;
    bytes_put_u32(dst, ROOT_MAGIC);
    bytes_put_u32(dst + 4, r->world);
    memcpy(dst + 8, r->session, CKPT__NONCE_BYTES);
    memcpy(dst + 24, r->nonces, nonces);
    dst += 24 + nonces;
    bytes_put_u64(dst, r->turn);
    bytes_put_u32(dst + 8, (uint32_t)r->code);
    bytes_put_u32(dst + 12, (uint32_t)r->answer.len_bytes);
    if (r->answer.len_bytes > 0)
        memcpy(dst + 16, r->answer.bytes, r->answer.len_bytes);
}

bool ckpt__root_record_decode(struct ckpt__root_record *r, const uint8_t *bytes, size_t len)
{
    if (len < ROOT_FIXED_BYTES || bytes_get_u32(bytes) != ROOT_MAGIC)
        return false;
    uint32_t world = bytes_get_u32(bytes + 4);
    uint64_t nonces = (uint64_t)world * CKPT__NONCE_BYTES;
    if (nonces > len - ROOT_FIXED_BYTES)
        return false;
    const uint8_t *rest = bytes + 24 + nonces;
    uint32_t answer_len = bytes_get_u32(rest + 12);
    if (answer_len != len - ROOT_FIXED_BYTES - nonces)
        return false;
    *r = (struct ckpt__root_record){
        .world = world,
        .session = bytes + 8,
        .nonces = bytes + 24,
        .turn = bytes_get_u64(rest),
        .code = (int32_t)bytes_get_u32(rest + 8),
        .answer = {rest + 16, answer_len},
    };
    return r->code <= 0;
}

size_t ckpt__answer_bytes(const ckpt_blob *blobs, uint32_t world)
{
    size_t total = 0;
    for (uint32_t i = 0; i < world; i++)
        total += 4 + blobs[i].len_bytes;
    return total;
}

void ckpt__answer_encode(const ckpt_blob *blobs, uint32_t world, uint8_t *dst)
{
    for (uint32_t i = 0; i < world; i++) {
        bytes_put_u32(dst, (uint32_t)blobs[i].len_bytes);
        if (blobs[i].len_bytes > 0)
            memcpy(dst + 4, blobs[i].bytes, blobs[i].len_bytes);
        dst += 4 + blobs[i].len_bytes;
    }
}

bool ckpt__answer_decode(ckpt_blob *blobs, uint32_t world, ckpt_blob answer)
{
    const uint8_t *p = answer.bytes;
    size_t left = answer.len_bytes;
    for (uint32_t i = 0; i < world; i++) {
        if (left < 4)
            return false;
        uint32_t len = bytes_get_u32(p);
        if (len > CKPT_MAX_BLOB_BYTES || len > left - 4)
            return false;
        blobs[i] = (ckpt_blob){p + 4, len};
        p += 4 + len;
        left -= 4 + (size_t)len;
    }
    return left == 0;
}
