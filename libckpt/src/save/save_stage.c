/*
 * save_stage.c: brings the file image of this rank's shard onto the disk. One copy: from the
 * tensors into a pool block, checksummed in 64 KiB pieces while hot, written from there. When the
 * shard is larger than the pool, blocks flow; `staged` goes out when the last one was copied.
 *
 * Invariant: a block is lent by the pool from its copy until its write has ended; the file is
 * closed only when none is.
 */
#include "save/save.h"

#include "clock.h"
#include "format/crc32c.h"
#include "container.h"

#include <string.h>

static void close_file(struct ckpt_save *s);

void ckpt__save_tell_staged(struct ckpt_save *s)
{
    if (s->staged_told)
        return;
    s->staged_told = true;
    if (!s->aborted)
        mailbox_post(&s->c->out.mailbox, &s->staged_letter);
}

static void synced(struct ckpt_save *s)
{
    close_file(s);
}

static void cut(struct ckpt_save *s)
{
    if (ckpt__save_failed(s)) {
        close_file(s);
        return;
    }
    ckpt__file_sync(&s->file, ckpt__save_then(s, synced));
}

static void close_file(struct ckpt_save *s)
{
    s->pumping = false;
    void (*then)(struct ckpt_save *) = s->after;
    ckpt__file_close(&s->file, ckpt__save_then(s, then));
}

/* The last block has been written, or a failed save has let go of its blocks. */
static void all_written(struct ckpt_save *s)
{
    s->index.written_ns = ckpt__save_elapsed(s, clock_ns());
    s->pumping = false;
    if (ckpt__save_failed(s))
        close_file(s);
    else
        ckpt__file_truncate(&s->file, s->index.layout.file_bytes, ckpt__save_then(s, cut));
}

static void block_written(struct ckpt__req *req)
{
    struct ckpt_save *s = req->ctx;
    struct ckpt__block *block = CONTAINER_OF(req, struct ckpt__block, req);
    if (req->result < 0 && !ckpt__save_failed(s))
        ckpt__req_error(req, &s->error);
    ckpt__pool_put(&s->c->pool, block->bytes);
    block->bytes = NULL;
    s->in_flight--;
    ckpt__again(s->c);
}

/* Copies the next block of the image and its checksums. Returns its length. */
static size_t fill(struct ckpt_save *s, uint8_t *dst)
{
    const struct ckpt__layout *l = &s->index.layout;
    uint64_t left = l->file_bytes - s->next_off;
    size_t len = left < s->c->block_bytes ? (size_t)left : s->c->block_bytes;
    for (size_t at = 0; at < len; at += CKPT__LEAF_BYTES) {
        size_t piece = len - at < CKPT__LEAF_BYTES ? len - at : CKPT__LEAF_BYTES;
        uint64_t off = s->next_off + at;
        ckpt__layout_read(l, off, dst + at, piece);
        s->index.leaves[off / CKPT__LEAF_BYTES] = ckpt__crc32c(0, dst + at, piece);
    }
    return len;
}

/* One block a turn, so that the engine starts it before the next is copied. */
void ckpt__save_pump(struct ckpt_save *s)
{
    uint64_t total = s->index.layout.file_bytes;
    if (!s->pumping)
        return;
    if (s->in_flight == 0 && (s->next_off == total || ckpt__save_failed(s))) {
        all_written(s);
        return;
    }
    if (s->next_off == total || ckpt__save_failed(s) || s->in_flight == s->block_count)
        return;
    uint8_t *bytes = ckpt__pool_get(&s->c->pool);
    if (bytes == NULL)
        return; /* a write that ends wakes us */
    struct ckpt__block *block = s->blocks;
    while (block->bytes != NULL)
        block++;
    size_t len = fill(s, bytes);
    size_t padded = (size_t)ckpt__file_pad(&s->file, len);
    memset(bytes + len, 0, padded - len);
    *block = (struct ckpt__block){.bytes = bytes};
    block->req.done = block_written;
    block->req.ctx = s;
    ckpt__file_write(&s->file, bytes, padded, s->next_off, &block->req);
    s->in_flight++;
    s->next_off += len;
    if (s->next_off == total) {
        s->index.staged_ns = ckpt__save_elapsed(s, clock_ns());
        ckpt__save_tell_staged(s);
    }
    ckpt__again(s->c);
}

static void reserved(struct ckpt_save *s)
{
    s->pumping = true;
    ckpt__save_pump(s);
}

static void created(struct ckpt_save *s)
{
    if (ckpt__save_failed(s)) {
        s->after(s);
        return;
    }
    ckpt__file_reserve(&s->file, s->index.layout.file_bytes, ckpt__save_then(s, reserved));
}

void ckpt__save_stage(struct ckpt_save *s, void (*then)(struct ckpt_save *s))
{
    s->after = then;
    const struct ckpt__env *env = &s->c->env;
    uint64_t leaves = (s->index.layout.file_bytes + CKPT__LEAF_BYTES - 1) / CKPT__LEAF_BYTES;
    s->block_count =
        s->c->pool.count < CKPT__MAX_STAGE_BLOCKS ? s->c->pool.count : CKPT__MAX_STAGE_BLOCKS;
    s->blocks = ckpt__alloc_zero(env, s->block_count * sizeof *s->blocks);
    s->index.leaves = ckpt__alloc_array(env, (size_t)leaves, sizeof *s->index.leaves);
    s->index.leaf_count = leaves;
    if (s->blocks == NULL || s->index.leaves == NULL) {
        ckpt__save_fail(s, CKPT_ENOMEM, "save %s: out of memory", s->shard_path);
        then(s);
        return;
    }
    ckpt__file_create(&s->file, &s->c->disk, s->shard_path, 0666, ckpt__save_then(s, created));
}
