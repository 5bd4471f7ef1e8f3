/*
 * blocks.c: see blocks.h.
 */
#include "blocks.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void count_done(struct ckpt__req *r)
{
    struct blocks *b = r->ctx;
    b->calls[r - b->reqs]++;
    b->done++;
}

void blocks_init(struct blocks *b, struct disk *d, struct ckpt__engine *e)
{
    memset(b, 0, sizeof *b);
    b->disk = d;
    b->on = (struct ckpt__disk){.env = &d->env, .engine = e};
    disk_fill(b->content, FILE_BYTES, 11);
    ck_assert_int_eq(ckpt__pool_init(&b->pool, &d->env, BLOCKS, BLOCK_BYTES, NULL), CKPT_OK);
}

void blocks_free(struct blocks *b)
{
    ckpt__pool_free(&b->pool);
}

static void expect_none(struct blocks *b)
{
    memset(b->calls, 0, sizeof b->calls);
    b->done = 0;
    for (int i = 0; i < BLOCKS; i++) {
        b->reqs[i].done = count_done;
        b->reqs[i].ctx = b;
        b->reqs[i].result = INT64_MIN;
    }
}

static void wait_for(struct blocks *b, int count)
{
    ck_assert_int_eq(b->done, 0); /* done never runs inside the call */
    disk_wait(b->on.engine, &b->done, count);
    for (int i = 0; i < BLOCKS; i++) {
        ck_assert_int_eq(b->calls[i], i < count ? 1 : 0);
        if (i < count && b->reqs[i].result < 0 && b->error.code == 0)
            ckpt__req_error(&b->reqs[i], &b->error);
    }
}

int64_t blocks_run(struct blocks *b, void (*start)(struct blocks *b, void *arg), void *arg)
{
    expect_none(b);
    start(b, arg);
    wait_for(b, 1);
    return b->reqs[0].result;
}

static void create(struct blocks *b, void *path)
{
    ckpt__file_create(&b->file, &b->on, path, 0644, &b->reqs[0]);
}

static void open_it(struct blocks *b, void *path)
{
    ckpt__file_open(&b->file, &b->on, path, &b->reqs[0]);
}

static void reserve(struct blocks *b, void *arg)
{
    (void)arg;
    ckpt__file_reserve(&b->file, FILE_BYTES, &b->reqs[0]);
}

static void cut(struct blocks *b, void *arg)
{
    (void)arg;
    ckpt__file_truncate(&b->file, FILE_BYTES, &b->reqs[0]);
}

static void sync_it(struct blocks *b, void *arg)
{
    (void)arg;
    ckpt__file_sync(&b->file, &b->reqs[0]);
}

static void close_it(struct blocks *b, void *arg)
{
    (void)arg;
    b->was_direct = b->file.direct;
    ckpt__file_close(&b->file, &b->reqs[0]);
}

static size_t bytes_of(const struct blocks *b, int i)
{
    size_t len = i < BLOCKS - 1 ? BLOCK_BYTES : FILE_BYTES - (BLOCKS - 1) * BLOCK_BYTES;
    return ckpt__file_pad(&b->file, len);
}

/* All at once; 0 or the first failure. Nothing may be allocated meanwhile. */
static int64_t move_blocks(struct blocks *b, bool writing)
{
    void *blocks[BLOCKS];
    uint64_t allocations = b->disk->allocations;
    expect_none(b);
    for (int i = 0; i < BLOCKS; i++) {
        size_t at = (size_t)i * BLOCK_BYTES, len = bytes_of(b, i);
        blocks[i] = ckpt__pool_get(&b->pool);
        ck_assert_ptr_nonnull(blocks[i]);
        if (writing) {
            memcpy(blocks[i], b->content + at, len);
            ckpt__file_write(&b->file, blocks[i], len, at, &b->reqs[i]);
        } else {
            memset(blocks[i], 0xee, BLOCK_BYTES);
            ckpt__file_read(&b->file, blocks[i], len, at, &b->reqs[i]);
        }
    }
    wait_for(b, BLOCKS);
    ck_assert_uint_eq(b->disk->allocations, allocations);
    int64_t failure = 0;
    for (int i = 0; i < BLOCKS; i++) {
        size_t at = (size_t)i * BLOCK_BYTES, len = bytes_of(b, i);
        int64_t n = b->reqs[i].result;
        if (n < 0)
            failure = failure < 0 ? failure : n;
        else if (writing)
            ck_assert_int_eq(n, (int64_t)len);
        else
            ck_assert_int_eq(n, (int64_t)(at + len < FILE_BYTES ? len : FILE_BYTES - at));
        if (n >= 0 && !writing)
            ck_assert_mem_eq(blocks[i], b->content + at, (size_t)n);
        ckpt__pool_put(&b->pool, blocks[i]);
    }
    return failure;
}

int64_t blocks_write_file(struct blocks *b, const char *path)
{
    memset(&b->error, 0, sizeof b->error);
    int64_t n = blocks_run(b, create, (void *)(uintptr_t)path);
    if (n < 0)
        return n;
    n = blocks_run(b, reserve, NULL);
    if (n == 0)
        n = move_blocks(b, true);
    if (n == 0)
        n = blocks_run(b, cut, NULL);
    if (n == 0)
        n = blocks_run(b, sync_it, NULL);
    int64_t closed = blocks_run(b, close_it, NULL);
    return n < 0 ? n : closed;
}

int64_t blocks_read_file(struct blocks *b, const char *path)
{
    memset(&b->error, 0, sizeof b->error);
    int64_t n = blocks_run(b, open_it, (void *)(uintptr_t)path);
    if (n < 0)
        return n;
    ck_assert_uint_eq(b->file.bytes, FILE_BYTES);
    n = move_blocks(b, false);
    int64_t closed = blocks_run(b, close_it, NULL);
    return n < 0 ? n : closed;
}

void blocks_check_file(struct blocks *b, const char *path)
{
    size_t len;
    uint8_t *bytes = disk_read(path, &len);
    ck_assert_uint_eq(len, FILE_BYTES);
    ck_assert_mem_eq(bytes, b->content, len);
    free(bytes);
}
