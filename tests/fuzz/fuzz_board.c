/*
 * fuzz_board.c: what other ranks and the dead leave for us to read: records on a board, answers,
 * and the owner text of a claim. What decodes encodes to the same bytes.
 */
#undef NDEBUG
#include "group/board_record.h"
#include "root/owner.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void try_rank(const uint8_t *bytes, size_t len)
{
    struct ckpt__rank_record r;
    if (!ckpt__rank_record_decode(&r, bytes, len))
        return;
    assert(ckpt__rank_record_bytes(&r) == len);
    uint8_t *again = malloc(len);
    ckpt__rank_record_encode(&r, again);
    assert(memcmp(again, bytes, len) == 0);
    free(again);
}

static void try_root(const uint8_t *bytes, size_t len)
{
    struct ckpt__root_record r;
    if (!ckpt__root_record_decode(&r, bytes, len))
        return;
    assert(ckpt__root_record_bytes(&r) == len);
    uint8_t *again = malloc(len);
    ckpt__root_record_encode(&r, again);
    assert(memcmp(again, bytes, len) == 0);
    free(again);
    ckpt_blob *blobs = calloc((size_t)r.world + 1, sizeof *blobs);
    if (blobs != NULL && ckpt__answer_decode(blobs, r.world, r.answer))
        assert(ckpt__answer_bytes(blobs, r.world) == r.answer.len_bytes);
    free(blobs);
}

static void try_owner(const uint8_t *bytes, size_t len)
{
    struct ckpt__owner o, again;
    char text[CKPT__OWNER_TEXT_BYTES];
    if (ckpt__owner_parse(&o, (const char *)bytes, len) != CKPT_OK)
        return;
    size_t n = ckpt__owner_format(&o, text);
    assert(ckpt__owner_parse(&again, text, n) == CKPT_OK);
    assert(strcmp(o.attempt, again.attempt) == 0 && o.pid == again.pid);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    try_rank(bytes, len);
    try_root(bytes, len);
    try_owner(bytes, len);
    return 0;
}
