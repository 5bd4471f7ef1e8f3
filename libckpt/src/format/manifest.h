/*
 * manifest.h: index and COMMIT records <-> bytes. Nothing else sees protobuf-c.
 *
 * Both files are one frame: magic "RPCKIDX1" or "RPCKCMT1" (8 bytes), u32 length, u32 CRC32C of the
 * payload, payload (protobuf, proto/ckpt.proto). Decoding trusts nothing: lengths, counts, ranges,
 * UTF-8, sums, feature bits. CKPT_EUNREADABLE, or CKPT_ENOTSUP when a required feature bit or the
 * format version is not known (the text says which).
 */
#ifndef CKPT_MANIFEST_H
#define CKPT_MANIFEST_H

#include "format/layout.h"

#define CKPT__FORMAT_VERSION 1u
#define CKPT__LEAF_BYTES 65536u
#define CKPT__MAX_INDEX_BYTES (512u << 20)
#define CKPT__MAX_COMMIT_BYTES (16u << 20)
#define CKPT__MAX_NOTE_BYTES (64u << 20)
#define CKPT__MAX_WORLD 65536
#define CKPT__MAX_RUN_ID_BYTES 256

struct ckpt__digest {
    uint8_t b[16];
};

struct ckpt__digest ckpt__digest_of(const void *bytes, size_t len); /* XXH3-128, canonical order */

struct ckpt__index {
    struct ckpt__digest attempt;
    int64_t step;
    int32_t rank, world_size;
    struct ckpt__layout layout; /* entries with begin, aliases, data_offset, file_bytes */
    uint32_t *leaves; /* CRC32C of each CKPT__LEAF_BYTES of the file, the last one short */
    uint64_t leaf_count;
    uint8_t *note;
    size_t note_bytes;
    uint64_t staged_ns, written_ns, synced_ns;
};

void ckpt__index_init(struct ckpt__index *x, const struct ckpt__env *env);
void ckpt__index_free(struct ckpt__index *x);
/* *ret: allocated with the index's env, caller frees with ckpt__free. */
int ckpt__index_encode(const struct ckpt__index *x, uint8_t **ret, size_t *len, ckpt_error *err);
/* x: initialised and empty; left empty on failure. */
int ckpt__index_decode(struct ckpt__index *x, const uint8_t *bytes, size_t len, ckpt_error *err);

struct ckpt__commit {
    int64_t step;
    uint64_t sequence, generation;
    char run_id[CKPT__MAX_RUN_ID_BYTES + 1];
    struct ckpt__digest attempt;
    struct ckpt__digest parent; /* zeros = none */
    int32_t world_size;
    struct ckpt__digest *index_digests; /* world_size of them */
    int64_t saved_unix_ms;
};

void ckpt__commit_free(struct ckpt__commit *c, const struct ckpt__env *env);
int ckpt__commit_encode(const struct ckpt__commit *c, const struct ckpt__env *env, uint8_t **ret,
                        size_t *len, ckpt_error *err);
int ckpt__commit_decode(struct ckpt__commit *c, const struct ckpt__env *env, const uint8_t *bytes,
                        size_t len, ckpt_error *err);

#endif
