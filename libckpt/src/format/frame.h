/* frame.h: the envelope of index and COMMIT: magic, u32 length, u32 CRC32C, payload. Pure. */
#ifndef CKPT_FRAME_H
#define CKPT_FRAME_H

#include "env.h"

enum ckpt__frame_kind { CKPT__FRAME_INDEX, CKPT__FRAME_COMMIT };

#define CKPT__FRAME_HEAD_BYTES 16u

/* frame: CKPT__FRAME_HEAD_BYTES to fill, then the payload. */
void ckpt__frame_seal(enum ckpt__frame_kind kind, uint8_t *frame, size_t payload_len);

/* Largest payload of a kind, and its name for messages. */
size_t ckpt__frame_max(enum ckpt__frame_kind kind);
const char *ckpt__frame_name(enum ckpt__frame_kind kind);

/* *ret points into bytes. CKPT_EUNREADABLE. */
int ckpt__frame_open(enum ckpt__frame_kind kind, const uint8_t *bytes, size_t len,
                     const uint8_t **ret, size_t *ret_len, ckpt_error *err);

#endif
