/*
 * stride.c: moves windows of a tensor's dense (C order) bytes to or from its strided memory.
 * Dimensions that lie back to back are merged first, so that a contiguous tensor is one memcpy and
 * everything else is rows of equal pieces, walked like an odometer. Checks nothing:
 * ckpt__tensor_check has seen to it that shapes and strides cannot overflow. Knows nothing of
 * files.
 */
#include "format/layout.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum direction { GATHER, SCATTER };

/* Merged dimensions, outermost first; at least one. `piece` bytes are contiguous in memory. */
struct walk {
    int n;
    size_t piece;
    int64_t dim[CKPT_MAX_DIMS];
    int64_t stride[CKPT_MAX_DIMS];
};

static void merge_dimensions(const struct ckpt__entry *e, struct walk *w)
{
    w->piece = ckpt_dtype_size(e->dtype);
    w->n = 0;
    for (int32_t i = 0; i < e->ndim; i++) {
        int64_t dim = e->shape[i];
        int64_t stride = e->strides_bytes[i];
        if (dim == 1)
            continue;
        if (w->n > 0 && w->stride[w->n - 1] == dim * stride) {
            w->dim[w->n - 1] *= dim;
            w->stride[w->n - 1] = stride;
        } else {
            w->dim[w->n] = dim;
            w->stride[w->n] = stride;
            w->n++;
        }
    }
    if (w->n > 0 && w->stride[w->n - 1] == (int64_t)w->piece) {
        w->n--;
        w->piece *= (size_t)w->dim[w->n];
    }
    if (w->n == 0) {
        w->dim[0] = 1;
        w->stride[0] = 0;
        w->n = 1;
    }
}

static inline __attribute__((always_inline)) void copy_bytes(uint8_t *memory, uint8_t *dense,
                                                             size_t len, enum direction way)
{
    if (way == GATHER)
        memcpy(dense, memory, len);
    else
        memcpy(memory, dense, len);
}

static inline __attribute__((always_inline)) void copy_items(uint8_t *memory, int64_t stride,
                                                             uint8_t *dense, size_t item,
                                                             int64_t count, enum direction way)
{
    for (int64_t i = 0; i < count; i++)
        copy_bytes(memory + i * stride, dense + (size_t)i * item, item, way);
}

/* `count` whole pieces of one row. Constant sizes become single moves. */
static inline __attribute__((always_inline)) void copy_row(uint8_t *memory, int64_t stride,
                                                           uint8_t *dense, size_t piece,
                                                           int64_t count, enum direction way)
{
    switch (piece) {
    case 1:
        copy_items(memory, stride, dense, 1, count, way);
        break;
    case 2:
        copy_items(memory, stride, dense, 2, count, way);
        break;
    case 4:
        copy_items(memory, stride, dense, 4, count, way);
        break;
    case 8:
        copy_items(memory, stride, dense, 8, count, way);
        break;
    case 16:
        copy_items(memory, stride, dense, 16, count, way);
        break;
    default:
        copy_items(memory, stride, dense, piece, count, way);
    }
}

/* Memory that is near for neighbouring rows and far for neighbouring columns (a transposed matrix,
 * channels last) goes through a tile, one cache line wide and high: then every line of either side
 * is used whole while it is there, also where all of them fall into one cache set. */
#define TILE_BYTES 64

struct plane {
    int64_t row_stride, column_stride; /* in memory */
    size_t dense_row;                  /* bytes */
};

static inline __attribute__((always_inline)) void copy_tile(uint8_t *memory, uint8_t *dense,
                                                            const struct plane *p, int64_t rows,
                                                            int64_t columns, size_t item,
                                                            enum direction way)
{
    uint8_t tile[TILE_BYTES][TILE_BYTES];
    size_t width = (size_t)columns * item;
    if (way == SCATTER) {
        for (int64_t r = 0; r < rows; r++)
            memcpy(tile[r], dense + (size_t)r * p->dense_row, width);
    }
    for (int64_t c = 0; c < columns; c++) {
        for (int64_t r = 0; r < rows; r++)
            copy_bytes(memory + r * p->row_stride + c * p->column_stride,
                       tile[r] + (size_t)c * item, item, way);
    }
    if (way == GATHER) {
        for (int64_t r = 0; r < rows; r++)
            memcpy(dense + (size_t)r * p->dense_row, tile[r], width);
    }
}

static inline __attribute__((always_inline)) void copy_tiles(uint8_t *memory, uint8_t *dense,
                                                             const struct plane *p, int64_t rows,
                                                             int64_t columns, size_t item,
                                                             enum direction way)
{
    const int64_t side = (int64_t)(TILE_BYTES / item);
    for (int64_t c = 0; c < columns; c += side) {
        int64_t width = columns - c < side ? columns - c : side;
        for (int64_t r = 0; r < rows; r += side) {
            int64_t height = rows - r < side ? rows - r : side;
            copy_tile(memory + r * p->row_stride + c * p->column_stride,
                      dense + (size_t)r * p->dense_row + (size_t)c * item, p, height, width, item,
                      way);
        }
    }
}

static inline __attribute__((always_inline)) void copy_plane(uint8_t *memory, uint8_t *dense,
                                                             const struct plane *p, int64_t rows,
                                                             int64_t columns, size_t item,
                                                             enum direction way)
{
    switch (item) {
    case 1:
        copy_tiles(memory, dense, p, rows, columns, 1, way);
        break;
    case 2:
        copy_tiles(memory, dense, p, rows, columns, 2, way);
        break;
    case 4:
        copy_tiles(memory, dense, p, rows, columns, 4, way);
        break;
    case 8:
        copy_tiles(memory, dense, p, rows, columns, 8, way);
        break;
    default:
        copy_tiles(memory, dense, p, rows, columns, item, way);
    }
}

/* Where a walk stands: index per dimension, and the byte offset in memory that they add up to. */
struct place {
    int64_t index[CKPT_MAX_DIMS];
    int64_t at;
};

static void place_of(const struct walk *w, uint64_t piece_number, struct place *p)
{
    p->at = 0;
    for (int i = w->n - 1; i >= 0; i--) {
        p->index[i] = (int64_t)(piece_number % (uint64_t)w->dim[i]);
        piece_number /= (uint64_t)w->dim[i];
        p->at += p->index[i] * w->stride[i];
    }
}

/* Goes `count` ahead in dimension i, at most to its end, and carries. */
static void advance(const struct walk *w, struct place *p, int i, int64_t count)
{
    p->index[i] += count;
    p->at += count * w->stride[i];
    while (i > 0 && p->index[i] == w->dim[i]) {
        p->index[i] = 0;
        p->at -= w->dim[i] * w->stride[i];
        i--;
        p->index[i]++;
        p->at += w->stride[i];
    }
}

/* How many whole rows from here are better copied in tiles; 0 or 1 = none. */
static int64_t rows_for_tiles(const struct walk *w, const struct place *p, size_t len)
{
    if (w->n < 2 || w->piece > 16 || p->index[w->n - 1] != 0 || w->dim[w->n - 1] < 4 ||
        llabs(w->stride[w->n - 2]) >= llabs(w->stride[w->n - 1]))
        return 0;
    int64_t left = w->dim[w->n - 2] - p->index[w->n - 2];
    int64_t whole = (int64_t)(len / w->piece) / w->dim[w->n - 1];
    return whole < left ? whole : left;
}

static inline __attribute__((always_inline)) void
move(const struct ckpt__entry *e, uint64_t off, uint8_t *dense, size_t len, enum direction way)
{
    assert(off <= e->bytes && len <= e->bytes - off);
    if (len == 0)
        return;
    if (e->strides_bytes == NULL) {
        copy_bytes(e->data + off, dense, len, way);
        return;
    }
    struct walk w;
    struct place p;
    merge_dimensions(e, &w);
    place_of(&w, off / w.piece, &p);
    const int last = w.n - 1;

    size_t within = (size_t)(off % w.piece);
    if (within > 0) {
        size_t n = w.piece - within < len ? w.piece - within : len;
        copy_bytes(e->data + p.at + within, dense, n, way);
        dense += n;
        len -= n;
        advance(&w, &p, last, 1);
    }
    while (len >= w.piece) {
        size_t n;
        int64_t rows = rows_for_tiles(&w, &p, len);
        if (rows > 1) {
            const struct plane plane = {w.stride[last - 1], w.stride[last],
                                        (size_t)w.dim[last] * w.piece};
            copy_plane(e->data + p.at, dense, &plane, rows, w.dim[last], w.piece, way);
            n = (size_t)rows * plane.dense_row;
            advance(&w, &p, last - 1, rows);
        } else {
            int64_t left = w.dim[last] - p.index[last];
            int64_t whole = (int64_t)(len / w.piece);
            int64_t count = whole < left ? whole : left;
            copy_row(e->data + p.at, w.stride[last], dense, w.piece, count, way);
            n = (size_t)count * w.piece;
            advance(&w, &p, last, count);
        }
        dense += n;
        len -= n;
    }
    if (len > 0)
        copy_bytes(e->data + p.at, dense, len, way);
}

void ckpt__gather(const struct ckpt__entry *e, uint64_t off, uint8_t *dst, size_t len)
{
    move(e, off, dst, len, GATHER);
}

void ckpt__scatter(const struct ckpt__entry *e, uint64_t off, const uint8_t *src, size_t len)
{
    move(e, off, (uint8_t *)(uintptr_t)src, len, SCATTER); /* SCATTER only reads it */
}
