/*
 * stride.c: moves windows of a tensor's dense (C order) bytes to or from its strided memory.
 * Dimensions that lie back to back are merged first, so that a contiguous tensor is one memcpy and
 * everything else is rows of equal pieces, walked like an odometer. Checks nothing:
 * ckpt__tensor_check has seen to it that shapes and strides cannot overflow. Knows nothing of
 * files.
 */
#include "layout.h"

#include <assert.h>
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

/* Goes `count` pieces ahead, at most to the end of the row, and carries. */
static void advance(const struct walk *w, struct place *p, int64_t count)
{
    int i = w->n - 1;
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

    size_t within = (size_t)(off % w.piece);
    if (within > 0) {
        size_t n = w.piece - within < len ? w.piece - within : len;
        copy_bytes(e->data + p.at + within, dense, n, way);
        dense += n;
        len -= n;
        advance(&w, &p, 1);
    }
    while (len >= w.piece) {
        int64_t left = w.dim[w.n - 1] - p.index[w.n - 1];
        int64_t whole = (int64_t)(len / w.piece);
        int64_t count = whole < left ? whole : left;
        copy_row(e->data + p.at, w.stride[w.n - 1], dense, w.piece, count, way);
        dense += (size_t)count * w.piece;
        len -= (size_t)count * w.piece;
        advance(&w, &p, count);
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
