/*
 * layout.h: from tensors to a file image and back. Pure: no file, no clock.
 *
 * The image of a shard is a plain safetensors file: u64 length of the header, JSON header padded
 * with spaces so that data starts on a multiple of 4096, tensors back to back, largest item size
 * first, then in order of put. docs/formats/checkpoint.md draws it.
 */
#ifndef CKPT_LAYOUT_H
#define CKPT_LAYOUT_H

#include "ckpt.h"
#include "env.h"

#include <stdbool.h>

#define CKPT__DATA_ALIGN 4096u
#define CKPT__MAX_HEADER_BYTES 100000000u /* what safetensors readers accept */

#define CKPT__MAX_ALIASES (1u << 20)
#define CKPT__METADATA_KEY "__metadata__" /* the one name that no tensor can have */

/* A tensor that is owned: strings and arrays are copies, data is borrowed. */
struct ckpt__entry {
    char *name;
    uint32_t dtype;
    int32_t ndim;
    int64_t *shape;         /* ndim values; these three may share one allocation */
    int64_t *strides_bytes; /* NULL = C order, no holes */
    int64_t *global_shape;  /* NULL = shape */
    int64_t *offset;        /* NULL = zeros */
    uint8_t *data;
    uint64_t bytes; /* elements times item size */
    uint64_t begin; /* place in the file, from its first byte; set by build or by a reader */
};

struct ckpt__alias {
    char *name;
    char *target;
};

/* The tensors of one shard; shared by save (before and after build), index and load. */
struct ckpt__layout {
    const struct ckpt__env *env;
    struct ckpt__entry *entries;
    size_t count, capacity;
    struct ckpt__alias *aliases;
    size_t alias_count, alias_capacity;
    uint8_t *head;        /* length word, JSON, padding: data_offset bytes; NULL before build */
    uint64_t data_offset; /* multiple of CKPT__DATA_ALIGN when we wrote it */
    uint64_t data_bytes;  /* of all entries, kept by add */
    uint64_t file_bytes;  /* set by build or by a reader */
    struct ckpt__names *names; /* name -> entry or alias, for duplicate checks and find */
};

void ckpt__layout_init(struct ckpt__layout *l, const struct ckpt__env *env);
void ckpt__layout_free(struct ckpt__layout *l);

/* Copies t's description; keeps t->data. Checks everything that ckpt.h says; products cannot
 * overflow (file_bytes stays below 2^63). CKPT_EINVAL, CKPT_ENOMEM. */
int ckpt__layout_add(struct ckpt__layout *l, const ckpt_tensor *t, ckpt_error *err);
int ckpt__layout_alias(struct ckpt__layout *l, const char *name, const char *target,
                       ckpt_error *err);

/* Like add, for a description alone: data is not looked at and stays NULL. What readers use. A
 * global_shape equal to shape and an offset of zeros are stored as NULL. */
int ckpt__layout_append(struct ckpt__layout *l, const ckpt_tensor *t, ckpt_error *err);

/* Sorts, places, writes the header. Aliases are not in the header. */
int ckpt__layout_build(struct ckpt__layout *l, ckpt_error *err);

/* What readers do instead of build, once all entries are there with their `begin`: puts them in
 * file order and makes sure that they fill [data_offset, file_bytes) without hole or overlap. */
int ckpt__layout_settle(struct ckpt__layout *l, uint64_t data_offset, uint64_t file_bytes,
                        ckpt_error *err);

/* Copies bytes [off, off + len) of the image to dst; off + len <= file_bytes. Any order, any split:
 * the same bytes. Used for staging; gathers strided tensors. */
void ckpt__layout_read(const struct ckpt__layout *l, uint64_t off, uint8_t *dst, size_t len);

/* Finds an entry by name, following one alias; NULL when absent. */
const struct ckpt__entry *ckpt__layout_find(const struct ckpt__layout *l, const char *name);

/* Reads a plain safetensors header into an empty layout. head: the JSON only, without the length
 * word. Every rule of the format is checked: known dtypes, no holes, no overlap, no trailing byte,
 * sizes that match file_bytes. Entries come in file order, begin counts from the start of the file.
 * CKPT_EUNREADABLE with what and where, CKPT_ENOTSUP for what only we cannot read, CKPT_ENOMEM;
 * then the layout is empty again. */
int ckpt__layout_parse(struct ckpt__layout *l, const uint8_t *json, size_t json_len,
                       uint64_t file_bytes, ckpt_error *err);

/* safetensors.c: length word, JSON and padding of entries whose `begin` counts from the start of
 * the data area. The caller frees *ret with ckpt__free. CKPT_EINVAL when larger than readers
 * accept. */
int ckpt__header_write(const struct ckpt__layout *l, uint8_t **ret, size_t *len, ckpt_error *err);

/* tensor.c: everything that ckpt.h says of a tensor except `data`. CKPT_EINVAL. */
int ckpt__tensor_check(const ckpt_tensor *t, uint64_t *ret_bytes, ckpt_error *err);
int ckpt__name_check(const char *name, ckpt_error *err);
/* What a caller gets wrong (CKPT_EINVAL) is, found in a file, CKPT_EUNREADABLE. Returns the code.
 */
int ckpt__unreadable(int code, ckpt_error *err);
bool ckpt__utf8_valid(const char *s, size_t len);

/* A name as it can stand in one line of text: cut, and with control characters and broken UTF-8 as
 * '?'. Lives until the end of the full expression: ckpt__show_name(name).text. */
struct ckpt__shown {
    char text[68];
};
struct ckpt__shown ckpt__show(const char *s, size_t len);
struct ckpt__shown ckpt__show_name(const char *name);

/* stride.c: moves bytes [off, off + len) of an entry's dense form to or from its strided memory.
 * Windows may start and end in the middle of an element. Scattering into memory that overlaps
 * itself (a stride of 0) is memory-safe, but the last write wins. */
void ckpt__gather(const struct ckpt__entry *e, uint64_t off, uint8_t *dst, size_t len);
void ckpt__scatter(const struct ckpt__entry *e, uint64_t off, const uint8_t *src, size_t len);

#endif
