/*
 * frame.c: seals and opens the envelope around index and COMMIT records. A frame that opens has the
 * right kind, is whole, has nothing behind it, and holds the bytes that were sealed. Knows nothing
 * of what is inside.
 */
#include "format/frame.h"

#include "bytes.h"
#include "format/crc32c.h"
#include "format/manifest.h"

#include <string.h>

static const struct {
    char magic[9];
    const char *name;
    size_t max;
} kinds[] = {
    [CKPT__FRAME_INDEX] = {"RPCKIDX1", "index", CKPT__MAX_INDEX_BYTES - CKPT__FRAME_HEAD_BYTES},
    [CKPT__FRAME_COMMIT] = {"RPCKCMT1", "COMMIT", CKPT__MAX_COMMIT_BYTES - CKPT__FRAME_HEAD_BYTES},
};

size_t ckpt__frame_max(enum ckpt__frame_kind kind)
{
    return kinds[kind].max;
}

const char *ckpt__frame_name(enum ckpt__frame_kind kind)
{
    return kinds[kind].name;
}

void ckpt__frame_seal(enum ckpt__frame_kind kind, uint8_t *frame, size_t payload_len)
{
    const uint8_t *payload = frame + CKPT__FRAME_HEAD_BYTES;
    memcpy(frame, kinds[kind].magic, 8);
    bytes_put_u32(frame + 8, (uint32_t)payload_len);
    bytes_put_u32(frame + 12, ckpt__crc32c(0, payload, payload_len));
}

int ckpt__frame_open(enum ckpt__frame_kind kind, const uint8_t *bytes, size_t len,
                     const uint8_t **ret, size_t *ret_len, ckpt_error *err)
{
    const char *name = kinds[kind].name;
    if (len < CKPT__FRAME_HEAD_BYTES)
        return ckpt__fail(err, CKPT_EUNREADABLE, "%zu bytes are too few for the frame of an %s",
                          len, name);
    if (memcmp(bytes, kinds[kind].magic, 8) != 0)
        return ckpt__fail(err, CKPT_EUNREADABLE,
                          "not an %s of a checkpoint: it does not start with \"%s\"", name,
                          kinds[kind].magic);
    uint32_t payload_len = bytes_get_u32(bytes + 8);
    uint32_t crc = bytes_get_u32(bytes + 12);
    const uint8_t *payload = bytes + CKPT__FRAME_HEAD_BYTES;
    if (payload_len > kinds[kind].max)
        return ckpt__fail(err, CKPT_EUNREADABLE, "the %s claims %u bytes, at most %zu are possible",
                          name, payload_len, kinds[kind].max);
    if (payload_len != len - CKPT__FRAME_HEAD_BYTES)
        return ckpt__fail(err, CKPT_EUNREADABLE, "the %s has %zu bytes, its frame says %zu", name,
                          len, (size_t)payload_len + CKPT__FRAME_HEAD_BYTES);
    uint32_t found = ckpt__crc32c(0, payload, payload_len);
    if (found != crc)
        return ckpt__fail(err, CKPT_EUNREADABLE,
                          "the %s was altered: its CRC32C is %08x, its frame says %08x", name,
                          found, crc);
    *ret = payload;
    *ret_len = payload_len;
    return CKPT_OK;
}
