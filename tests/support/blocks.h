/*
 * blocks.h: writes and reads a file of blocks through io.h, as a save and a load do: create,
 * reserve, all blocks at once from a pool, cut, sync, close.
 */
#ifndef TESTS_BLOCKS_H
#define TESTS_BLOCKS_H

#include "disk.h"
#include "disk/io.h"
#include "disk/pool.h"

#define BLOCKS 6
#define BLOCK_BYTES ((size_t)64 << 10)
#define FILE_BYTES ((BLOCKS - 1) * BLOCK_BYTES + 12345) /* the last block is short and odd */

struct blocks {
    struct disk *disk;
    struct ckpt__disk on;
    struct ckpt__pool pool;
    uint8_t content[BLOCKS * BLOCK_BYTES]; /* what the file holds; zeros behind FILE_BYTES */
    struct ckpt__file file;
    struct ckpt__req reqs[BLOCKS];
    int calls[BLOCKS]; /* of done, per req, since the last start */
    int done;          /* of all */
    ckpt_error error;  /* of the first failure of write_file or read_file */
    bool was_direct;   /* when the file was closed */
};

void blocks_init(struct blocks *b, struct disk *d, struct ckpt__engine *e);
void blocks_free(struct blocks *b);

/* Runs one operation that `start` begins on the first req; its result. */
int64_t blocks_run(struct blocks *b, void (*start)(struct blocks *b, void *arg), void *arg);

/* 0, or the first failure; the file is closed whatever happens. */
int64_t blocks_write_file(struct blocks *b, const char *path);

/* 0 and the same bytes (else the test fails), or the first failure. */
int64_t blocks_read_file(struct blocks *b, const char *path);

/* The file on disk is exactly the content. */
void blocks_check_file(struct blocks *b, const char *path);

#endif
