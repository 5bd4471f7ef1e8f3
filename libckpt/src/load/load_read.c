/*
 * load_read.c: brings the tensors that were asked for into the caller's memory. Reads the shards
 * one after another in aligned blocks, checks every 64 KiB piece against the index before a byte
 * of it is handed over, then scatters. The header is checked too, though nothing is taken from it.
 *
 * Invariant: a block is lent by the pool from its submission until its bytes have been scattered;
 * a shard's file is closed only when no block of it is in flight.
 */
#include "load/load.h"

#include "format/crc32c.h"
#include "container.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_READS 64u

static void next_shard(struct ckpt_load *l);

static int by_place(const void *a, const void *b)
{
    const struct ckpt__want *x = a, *y = b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->into.begin < y->into.begin ? -1 : x->into.begin > y->into.begin;
}

static struct ckpt__shard *shard_now(struct ckpt_load *l)
{
    return &l->shards[l->wants[l->want_at].shard];
}

static uint64_t leaf_floor(uint64_t off)
{
    return off / CKPT__LEAF_BYTES * CKPT__LEAF_BYTES;
}

static uint64_t leaf_ceil(uint64_t off)
{
    return leaf_floor(off + CKPT__LEAF_BYTES - 1);
}

/* ------------------------------------------------------------------------------------------ */
/* End of a shard, end of the read                                                              */

static void end_task(struct ckpt_load *l)
{
    if (l->result.code == CKPT_OK && l->file == NULL)
        memcpy(l->c->parent.b, l->info.digest, sizeof l->c->parent.b);
    ckpt__load_finish(l);
}

static void agreed(void *ctx, const struct ckpt__verdict *all, const ckpt_error *result)
{
    struct ckpt_load *l = ctx;
    l->exchanging = false;
    if (all != NULL)
        ckpt__agree_failure(l->c, all, &l->result);
    else
        l->result = l->error.code != CKPT_OK ? l->error : *result;
    end_task(l);
}

static void end_read(struct ckpt_load *l)
{
    ckpt__free(&l->c->env, l->reads);
    l->reads = NULL;
    ckpt__load_unreadable(&l->error);
    if (ckpt__load_is_shared(l)) {
        ckpt__load_exchange(l, CKPT__LOAD_READ, agreed);
        return;
    }
    l->result = l->error;
    end_task(l);
}

static void shard_closed(struct ckpt_load *l)
{
    l->want_at = l->want_end;
    next_shard(l);
}

static void close_shard(struct ckpt_load *l)
{
    l->pumping = false;
    ckpt__file_close(&l->data, ckpt__load_then(l, shard_closed));
}

/* ------------------------------------------------------------------------------------------ */
/* Blocks                                                                                       */

static const char *tensor_at(const struct ckpt_load *l, size_t want, uint64_t begin, uint64_t end)
{
    for (; want < l->want_end; want++) {
        const struct ckpt__entry *e = &l->wants[want].into;
        if (e->begin < end && e->begin + e->bytes > begin)
            return e->name;
    }
    return "none that was asked for";
}

/* All leaves of the block against the index. */
static bool verify(struct ckpt_load *l, const struct ckpt__read *r, uint64_t got)
{
    const struct ckpt__shard *shard = shard_now(l);
    if (shard->index.leaves == NULL)
        return true; /* a plain safetensors file has no checksums */
    for (uint64_t at = 0; at < got; at += CKPT__LEAF_BYTES) {
        uint64_t len = got - at < CKPT__LEAF_BYTES ? got - at : CKPT__LEAF_BYTES;
        uint64_t off = r->off + at;
        if (ckpt__crc32c(0, r->bytes + at, (size_t)len) ==
            shard->index.leaves[off / CKPT__LEAF_BYTES])
            continue;
        ckpt__fail(&l->error, CKPT_EUNREADABLE,
                   "%s: bytes %" PRIu64 " to %" PRIu64 " do not match their checksum (tensor %s)",
                   shard->path, off, off + len - 1,
                   ckpt__show_name(tensor_at(l, r->first_want, off, off + len)).text);
        return false;
    }
    return true;
}

static void hand_over(struct ckpt_load *l, const struct ckpt__read *r, uint64_t got)
{
    for (size_t i = r->first_want; i < l->want_end; i++) {
        const struct ckpt__entry *e = &l->wants[i].into;
        uint64_t begin = e->begin > r->off ? e->begin : r->off;
        uint64_t end = e->begin + e->bytes < r->off + got ? e->begin + e->bytes : r->off + got;
        if (e->begin >= r->off + got)
            break;
        if (begin < end)
            ckpt__scatter(e, begin - e->begin, r->bytes + (begin - r->off), (size_t)(end - begin));
    }
}

static void pump(struct ckpt_load *l);

static void block_read(struct ckpt__req *req)
{
    struct ckpt__read *r = CONTAINER_OF(req, struct ckpt__read, req);
    struct ckpt_load *l = req->ctx;
    uint64_t file_bytes = shard_now(l)->index.layout.file_bytes;
    uint64_t want = file_bytes - r->off < r->len ? file_bytes - r->off : r->len;
    if (l->error.code != CKPT_OK) {
        /* the first failure counts */
    } else if (req->result < 0) {
        ckpt__req_error(req, &l->error);
    } else if ((uint64_t)req->result < want) {
        ckpt__fail(&l->error, CKPT_EUNREADABLE, "%s ends at byte %" PRIu64 " of %" PRIu64,
                   shard_now(l)->path, r->off + (uint64_t)req->result, file_bytes);
    } else if (verify(l, r, want)) {
        hand_over(l, r, want);
    }
    ckpt__pool_put(&l->c->pool, r->bytes);
    r->bytes = NULL;
    l->in_flight--;
    pump(l);
}

/* The next block: from read_off on, the header and what is asked for, at most a pool block. */
static bool next_block(struct ckpt_load *l, uint64_t *off, uint64_t *len, size_t *first)
{
    size_t i = l->want_at;
    while (i < l->want_end && l->wants[i].into.begin + l->wants[i].into.bytes <= l->read_off)
        i++;
    bool header = l->read_off < l->header_end;
    if (!header && i == l->want_end)
        return false;
    uint64_t begin = header ? l->read_off : leaf_floor(l->wants[i].into.begin);
    begin = begin > l->read_off ? begin : l->read_off;
    uint64_t end = header ? l->header_end : begin;
    for (size_t k = i; k < l->want_end && l->wants[k].into.begin < begin + l->c->block_bytes; k++) {
        uint64_t want_end = l->wants[k].into.begin + l->wants[k].into.bytes;
        end = want_end > end ? want_end : end;
    }
    end = leaf_ceil(end);
    *off = begin;
    *len = end - begin < l->c->block_bytes ? end - begin : l->c->block_bytes;
    *first = i;
    return true;
}

static void pump(struct ckpt_load *l)
{
    uint64_t off, len;
    size_t first;
    while (l->pumping && l->error.code == CKPT_OK && l->in_flight < l->read_count &&
           next_block(l, &off, &len, &first)) {
        uint8_t *bytes = ckpt__pool_get(&l->c->pool);
        if (bytes == NULL)
            break; /* the next block that is done comes here again */
        struct ckpt__read *r = l->reads;
        while (r->bytes != NULL)
            r++;
        *r = (struct ckpt__read){.bytes = bytes, .off = off, .len = len, .first_want = first};
        r->req.done = block_read;
        r->req.ctx = l;
        l->in_flight++;
        l->read_off = off + len;
        ckpt__file_read(&l->data, bytes, len, off, &r->req);
    }
    if (l->pumping && l->in_flight == 0)
        close_shard(l);
}

/* ------------------------------------------------------------------------------------------ */
/* Shards                                                                                       */

static void shard_open(struct ckpt_load *l)
{
    uint64_t expected = shard_now(l)->index.layout.file_bytes;
    if (l->error.code != CKPT_OK) {
        end_read(l);
        return;
    }
    if (l->data.bytes != expected)
        ckpt__fail(&l->error, CKPT_EUNREADABLE, "%s has %" PRIu64 " bytes, its index says %" PRIu64,
                   shard_now(l)->path, l->data.bytes, expected);
    l->pumping = true;
    pump(l);
}

static void next_shard(struct ckpt_load *l)
{
    if (l->error.code != CKPT_OK || l->want_at == l->want_count) {
        end_read(l);
        return;
    }
    struct ckpt__shard *shard = shard_now(l);
    int32_t number = l->wants[l->want_at].shard;
    while (l->want_end < l->want_count && l->wants[l->want_end].shard == number)
        l->want_end++;
    l->read_off = 0;
    l->header_end = shard->index.leaves != NULL ? leaf_ceil(shard->index.layout.data_offset) : 0;
    ckpt__file_open(&l->data, &l->c->disk, shard->path, ckpt__load_then(l, shard_open));
}

void ckpt__load_run_read(struct ckpt__task *t)
{
    struct ckpt_load *l = (struct ckpt_load *)t;
    ckpt *c = l->c;
    l->error = l->abort_error;
    l->result = (ckpt_error){.code = CKPT_OK};
    size_t kept = 0;
    for (size_t i = 0; i < l->want_count; i++) {
        if (l->wants[i].into.bytes > 0)
            l->wants[kept++] = l->wants[i];
        else
            ckpt__free(&c->env, l->wants[i].into.shape); /* nothing to read */
    }
    l->want_count = kept;
    if (kept > 0)
        qsort(l->wants, kept, sizeof *l->wants, by_place);
    l->want_at = 0;
    l->want_end = 0;
    l->read_count = c->pool.count < MAX_READS ? c->pool.count : MAX_READS;
    l->reads = ckpt__alloc_zero(&c->env, l->read_count * sizeof *l->reads);
    if (l->reads == NULL)
        ckpt__fail(&l->error, CKPT_ENOMEM, "load from %s: out of memory", l->info.path);
    next_shard(l);
}
