/*
 * ckpt.h: checkpoints of tensors, atomic over all ranks, verified on restore.
 *
 * A handle (struct ckpt) owns one root directory. A save puts tensors, then commits: `staged` says
 * that the caller's buffers are free again, `done` says that the checkpoint is durable, or why not.
 * A load opens a committed checkpoint, gets tensors into the caller's buffers and verifies every
 * byte that it hands over.
 *
 * Threads. A handle belongs to one thread at a time. Callbacks run only inside ckpt_dispatch,
 * ckpt_wait and ckpt_close, on the caller's thread. Every accepted operation calls back exactly
 * once; a call that returned an error never calls back. A callback may start new work; it may not
 * dispatch or wait (CKPT_EBUSY) or close (nothing happens). A handle does not cross fork: in the
 * child every call answers CKPT_ESTATE.
 *
 * Structs that start with `size` may be of another release than the library: fields that one side
 * does not know are left out. Fill them with their init function, then set what you need.
 *
 * Results. 0 or positive is success, negative is one of CKPT_ERRORS. `ret` is written only on
 * success, `err` (may be NULL) only on failure.
 */
#ifndef CKPT_H
#define CKPT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CKPT_API __attribute__((visibility("default")))
#else
#define CKPT_API
#endif

#define CKPT_VERSION_MAJOR 0
#define CKPT_VERSION_MINOR 1
#define CKPT_VERSION_PATCH 0

/* Run-time version: major * 10000 + minor * 100 + patch. Any thread, never blocks. */
CKPT_API int32_t ckpt_version(void);

/* ------------------------------------------------------------------------------------------ */
/* Errors                                                                                       */

/* Each code says what the caller can do. Values are never reused. */
#define CKPT_ERRORS(X)                                                                             \
    X(OK, 0, "success")                                                                            \
    X(EINVAL, -1, "invalid argument or option")                                                    \
    X(ENOMEM, -2, "out of memory")                                                                 \
    X(ESTATE, -3, "handle cannot be used: closed, failed, or in a child after fork")               \
    X(EBUSY, -4, "another operation or another writer is at work")                                 \
    X(ETIMEDOUT, -5, "deadline passed")                                                            \
    X(ECANCELED, -6, "operation cancelled")                                                        \
    X(ENONE, -7, "no checkpoint there")                                                            \
    X(EUNREADABLE, -8, "checkpoint is there but cannot be read or does not verify")                \
    X(ENOTSUP, -9, "needs a feature that this build, kernel or file lacks")                        \
    X(ENOSPC, -10, "no space left on the device or quota used up")                                 \
    X(EIO, -11, "input or output failed")                                                          \
    X(EACCES, -12, "permission denied or read-only")                                               \
    X(EPEER, -13, "another rank gave up; the text says which and why")                             \
    X(EFENCED, -14, "a newer generation owns this root")                                           \
    X(EMISMATCH, -15, "ranks, shapes or types do not agree")                                       \
    X(ENOENT, -16, "no such tensor, shard or step")

enum {
#define CKPT_ERROR_ENUM(name, value, text) CKPT_##name = (value),
    CKPT_ERRORS(CKPT_ERROR_ENUM)
#undef CKPT_ERROR_ENUM
};

/* 256 bytes for ever, no allocation. */
typedef struct ckpt_error {
    int32_t code;      /* CKPT_OK or a CKPT_E* value */
    int32_t sys_errno; /* the errno behind it, or 0 */
    char text[248];    /* one line: what, to what, why; always NUL-terminated */
} ckpt_error;

/* Static text of a code; "unknown error" for others. Any thread. */
CKPT_API const char *ckpt_strerror(int code);

/* ------------------------------------------------------------------------------------------ */
/* Options                                                                                      */

/* Memory of a handle; groups over a board and the JSON of a foreign file's header use libc's.
 * Called by the library from any of its threads: the only hook that must be thread-safe. `align` is
 * a power of two, at least sizeof(void *). Returns NULL when out of memory. */
typedef struct ckpt_allocator {
    void *(*alloc)(void *ctx, size_t len_bytes, size_t align);
    void (*free)(void *ctx, void *ptr); /* takes NULL */
    void *ctx;
} ckpt_allocator;

enum { CKPT_LOG_ERROR = 0, CKPT_LOG_WARN, CKPT_LOG_INFO, CKPT_LOG_DEBUG, CKPT_LOG_TRACE };

/* One event, one line, no newline; delivered like any callback (see Threads). */
typedef void (*ckpt_log_fn)(void *ctx, int level, const char *line);

/* How a handle is driven; chosen once, at open. */
enum {
    CKPT_DRIVE_THREAD =
        0, /* one named thread of the handle: work goes on while the caller computes */
    CKPT_DRIVE_CALLER = 1 /* nothing happens outside the caller's dispatch and wait */
};

enum {
    CKPT_ENGINE_AUTO = 0,  /* io_uring, or threads with the same contract where it is refused */
    CKPT_ENGINE_URING = 1, /* io_uring or fail with CKPT_ENOTSUP */
    CKPT_ENGINE_SYNC = 2   /* plain system calls on a worker thread */
};

struct ckpt_group;

typedef struct ckpt_options {
    size_t size;            /* filled by ckpt_options_init */
    const char *root;       /* directory of the checkpoints; made if its parent exists; borrowed */
    uint32_t drive;         /* CKPT_DRIVE_*; default THREAD */
    uint32_t engine;        /* CKPT_ENGINE_*; default AUTO */
    uint64_t staging_bytes; /* memory budget of the staging ring, touched once at open and kept;
                               default 64 MiB, at least two blocks */
    uint32_t block_bytes;   /* size of one write, a multiple of 64 KiB; default 4 MiB */
    uint32_t queue_depth;   /* writes in flight; default 8, at most 64 */
    int32_t timeout_ms;     /* deadline of every wait for other ranks; default 120000 */
    uint64_t generation;    /* fencing generation of this run; default 0 = none */
    const char *run_id;     /* recorded in COMMIT; NULL = ""; borrowed */
    const struct ckpt_group *group;  /* the other ranks; copied; NULL = this process is alone */
    const ckpt_allocator *allocator; /* copied; NULL = libc */
    ckpt_log_fn log;                 /* NULL = silent */
    void *log_ctx;
} ckpt_options;

/* Fills defaults. `size` is sizeof(ckpt_options) of the caller. Any thread. */
CKPT_API void ckpt_options_init(ckpt_options *opt, size_t size);

/* ------------------------------------------------------------------------------------------ */
/* Handle                                                                                       */

typedef struct ckpt ckpt;

/* Opens a root. Does file-system metadata calls; starts the thread in CKPT_DRIVE_THREAD. The caller
 * owns *ret and releases it with ckpt_close. EINVAL (also: the path is a file, or the directory
 * above it is missing), EACCES, ENOMEM, ENOTSUP, EIO. */
CKPT_API int ckpt_open(ckpt **ret, const ckpt_options *opt, ckpt_error *err);

/* Cancels what is in flight, waits until the kernel and the group have let go of every borrowed
 * buffer, runs the outstanding callbacks (CKPT_ECANCELED), frees. A save that is already being
 * published is finished or fails by its own deadline. Takes NULL. */
CKPT_API void ckpt_close(ckpt *c);

/* Descriptor to poll for readable; never read, write or close it. Valid until ckpt_close. */
CKPT_API int ckpt_fd(const ckpt *c);

/* Runs ready callbacks; never waits for a peer or for data. In CKPT_DRIVE_CALLER it lists the root
 * and reads a COMMIT of some hundred bytes itself. Returns how many callbacks ran. */
CKPT_API int ckpt_dispatch(ckpt *c);

/* ckpt_dispatch, after waiting for readiness: at most timeout_ms, -1 = no limit. Returns how many
 * callbacks ran, 0 on time-out or after a signal. */
CKPT_API int ckpt_wait(ckpt *c, int timeout_ms);

/* Name of the engine at work, "io_uring" or "sync". Static text. */
CKPT_API const char *ckpt_engine_name(const ckpt *c);

/* ------------------------------------------------------------------------------------------ */
/* Tensors                                                                                      */

/* X(NAME, value, item_size_bytes, name in a safetensors header). A dtype that safetensors lacks is
 * stored there as U8 with one more dimension; its true dtype is in the index. */
#define CKPT_DTYPES(X)                                                                             \
    X(BOOL, 1, 1, "BOOL")                                                                          \
    X(U8, 2, 1, "U8")                                                                              \
    X(I8, 3, 1, "I8")                                                                              \
    X(U16, 4, 2, "U16")                                                                            \
    X(I16, 5, 2, "I16")                                                                            \
    X(U32, 6, 4, "U32")                                                                            \
    X(I32, 7, 4, "I32")                                                                            \
    X(U64, 8, 8, "U64")                                                                            \
    X(I64, 9, 8, "I64")                                                                            \
    X(F8_E4M3, 10, 1, "F8_E4M3")                                                                   \
    X(F8_E5M2, 11, 1, "F8_E5M2")                                                                   \
    X(F8_E8M0, 12, 1, "F8_E8M0")                                                                   \
    X(F8_E4M3FNUZ, 13, 1, "U8")                                                                    \
    X(F8_E5M2FNUZ, 14, 1, "U8")                                                                    \
    X(F16, 15, 2, "F16")                                                                           \
    X(BF16, 16, 2, "BF16")                                                                         \
    X(F32, 17, 4, "F32")                                                                           \
    X(F64, 18, 8, "F64")                                                                           \
    X(C64, 19, 8, "C64")                                                                           \
    X(C128, 20, 16, "U8")

enum {
#define CKPT_DTYPE_ENUM(name, value, item_size_bytes, safetensors_name) CKPT_##name = (value),
    CKPT_DTYPES(CKPT_DTYPE_ENUM)
#undef CKPT_DTYPE_ENUM
};

#define CKPT_MAX_DIMS 32
#define CKPT_MAX_NAME_BYTES 4096

/* Item size in bytes of a dtype, 0 for an unknown one. Any thread. */
CKPT_API size_t ckpt_dtype_size(uint32_t dtype);

/* One local tensor and its place in the global one. All pointers are borrowed: the arrays during
 * the call only, `data` as the function that takes the tensor says. */
typedef struct ckpt_tensor {
    size_t size;          /* filled by ckpt_tensor_init */
    const char *name;     /* UTF-8, 1 to CKPT_MAX_NAME_BYTES bytes, any characters but NUL */
    uint32_t dtype;       /* CKPT_BOOL ... */
    int32_t ndim;         /* 0 to CKPT_MAX_DIMS */
    const int64_t *shape; /* local shape, ndim values >= 0 */
    const int64_t *strides_bytes; /* of data, may be negative or 0; NULL = C order, no holes */
    const int64_t *global_shape;  /* NULL = shape */
    const int64_t *offset;        /* of this part in the global tensor; NULL = zeros */
    void *data;                   /* first element (index 0, ..., 0); a save only reads it */
} ckpt_tensor;

CKPT_API void ckpt_tensor_init(ckpt_tensor *t, size_t size);

/* ------------------------------------------------------------------------------------------ */
/* Save                                                                                         */

typedef struct ckpt_save ckpt_save; /* one checkpoint being written */

/* What a committed save was. Valid during the callback only. */
typedef struct ckpt_saved {
    int64_t step;
    uint64_t sequence;
    uint64_t generation;
    const char *path;      /* of the published directory */
    uint64_t shard_bytes;  /* this rank's file */
    uint64_t staged_ns;    /* from commit to staged, monotonic nanoseconds; so are the others */
    uint64_t written_ns;   /* from commit to last block written */
    uint64_t synced_ns;    /* from commit to shard and index durable */
    uint64_t committed_ns; /* from commit to acknowledged by all */
} ckpt_saved;

/* The buffers given to ckpt_save_put are the caller's again. Comes before `done`, exactly once per
 * accepted commit, also when the save fails. */
typedef void (*ckpt_staged_fn)(void *ctx);

/* `saved` is NULL unless result->code is CKPT_OK. The same checkpoint is acknowledged on all ranks
 * or on none; after CKPT_ETIMEDOUT in the last phase it may be complete on disk all the same, and
 * restore then finds it. */
typedef void (*ckpt_saved_fn)(void *ctx, const ckpt_saved *saved, const ckpt_error *result);

/* Starts a save; all ranks of the group must start the same step. Never blocks. Ends with
 * ckpt_save_commit or ckpt_save_abort. EBUSY while another save of this handle is not done. */
CKPT_API int ckpt_save_begin(ckpt_save **ret, ckpt *c, int64_t step, ckpt_error *err);

/* Adds a tensor; `data` is borrowed until `staged`. EINVAL (also: a name twice), ENOMEM. */
CKPT_API int ckpt_save_put(ckpt_save *s, const ckpt_tensor *t, ckpt_error *err);

/* Says that `name` is the same tensor as `target`, which was put before; stored once. */
CKPT_API int ckpt_save_alias(ckpt_save *s, const char *name, const char *target, ckpt_error *err);

/* Bytes of the caller's own that travel in the index, at most 64 MiB; copied. Replaces earlier
 * ones. */
CKPT_API int ckpt_save_note(ckpt_save *s, const void *bytes, size_t len_bytes, ckpt_error *err);

/* Stages, writes, syncs, agrees with the other ranks, publishes. Consumes s if accepted. `staged`
 * may be NULL. */
CKPT_API int ckpt_save_commit(ckpt_save *s, ckpt_staged_fn staged, ckpt_saved_fn done, void *ctx,
                              ckpt_error *err);

/* Gives up a save that was not committed, and lets the other ranks know, so that they need not wait
 * for their deadline. Always accepted, consumes s; frees the borrowed buffers at once. `reason` is
 * one line for the other ranks' error text, may be NULL. */
CKPT_API void ckpt_save_abort(ckpt_save *s, const char *reason);

/* ------------------------------------------------------------------------------------------ */
/* Load                                                                                         */

typedef struct ckpt_load ckpt_load; /* one committed checkpoint, open for reading */

#define CKPT_NEWEST INT64_MIN

typedef struct ckpt_load_options {
    size_t size;               /* filled by ckpt_load_options_init */
    int64_t step;              /* CKPT_NEWEST, or the newest copy of one step */
    const char *file;          /* one plain safetensors file instead of a checkpoint; borrowed */
    uint32_t has_older_than;   /* 1: only checkpoints older than the pair below */
    uint32_t alone;            /* 1: do not agree with the group; look for this rank only */
    uint64_t older_generation; /* order is (generation, sequence), never the step */
    uint64_t older_sequence;
} ckpt_load_options;

CKPT_API void ckpt_load_options_init(ckpt_load_options *opt, size_t size);

/* Fixed facts of an open load; pointers live as long as the load. */
typedef struct ckpt_info {
    int64_t step;
    uint64_t sequence;
    uint64_t generation;
    int32_t world_size; /* number of shards */
    int32_t skipped;    /* newer checkpoints that were there but could not be read */
    const char *path;
    const char *run_id;
    int64_t saved_unix_ms; /* wall clock of the writer, information only */
    uint8_t digest[16];    /* XXH3-128 of COMMIT */
    uint8_t parent[16];    /* digest of the COMMIT that its run resumed from; zeros = none */
} ckpt_info;

/* `load` is NULL unless result->code is CKPT_OK. CKPT_ENONE: nothing was ever committed there.
 * CKPT_ENOENT: other steps are there, not the one that was asked for. CKPT_EUNREADABLE: something
 * is there, and none of it verifies; the text names the newest and why.
 */
typedef void (*ckpt_opened_fn)(void *ctx, ckpt_load *load, const ckpt_error *result);
typedef void (*ckpt_loaded_fn)(void *ctx, const ckpt_error *result);

/* One operation of a handle at a time: CKPT_EBUSY while a save is not done. Finds the newest
 * checkpoint whose COMMIT, indexes and file sizes verify. With a group all ranks
 * call it and all get the same checkpoint. What is skipped is logged. */
CKPT_API int ckpt_load_open(ckpt *c, const ckpt_load_options *opt, ckpt_opened_fn done, void *ctx,
                            ckpt_error *err);

CKPT_API const ckpt_info *ckpt_load_info(const ckpt_load *l);

/* Number of names in a shard, aliases included; CKPT_ENOENT for a shard that is not there. */
CKPT_API int64_t ckpt_load_count(const ckpt_load *l, int32_t shard);

/* The i-th name of a shard: fills t, which ckpt_tensor_init has set up (data = NULL, strides_bytes
 * = NULL); pointers live as long as the load. *alias_of (may be NULL) is the target's name or NULL.
 */
CKPT_API int ckpt_load_at(const ckpt_load *l, int32_t shard, int64_t i, ckpt_tensor *t,
                          const char **alias_of);

/* The bytes given to ckpt_save_note; *ret is borrowed from the load. */
CKPT_API int ckpt_load_note(const ckpt_load *l, int32_t shard, const void **ret, size_t *len_bytes);

/* Asks for one tensor of one shard, whole, into t->data (borrowed until `done`), with t's strides.
 * t's name, dtype and shape must be those stored. ENOENT, EMISMATCH, EINVAL, ENOMEM. */
CKPT_API int ckpt_load_get(ckpt_load *l, int32_t shard, const ckpt_tensor *t, ckpt_error *err);

/* Reads what was asked for and verifies it. CKPT_EUNREADABLE names file, tensor and byte; then no
 * buffer may be used. With a group (unless `alone` or `file`) every rank calls it, and one rank's
 * failure is everybody's, with its rank in the text. Success makes this checkpoint the parent of
 * later saves. */
CKPT_API int ckpt_load_start(ckpt_load *l, ckpt_loaded_fn done, void *ctx, ckpt_error *err);

/* Gives up a load that will not be started, and lets the other ranks, which may have started
 * theirs, know at once. code: CKPT_ECANCELED (they get CKPT_EPEER), or CKPT_EUNREADABLE when what
 * is there makes no sense to the caller, so that all may try an older one. `reason` is one line,
 * may be NULL. Always accepted, consumes l; not while a start is running. Takes NULL. */
CKPT_API void ckpt_load_abort(ckpt_load *l, int32_t code, const char *reason);

/* Releases, without a word to other ranks. Not while a start is running (CKPT_EBUSY). Takes NULL.
 * ckpt_close releases what is still open. */
CKPT_API int ckpt_load_close(ckpt_load *l);

/* ------------------------------------------------------------------------------------------ */
/* Group: how ranks agree                                                                       */

typedef struct ckpt_blob {
    const void *bytes;
    size_t len_bytes;
} ckpt_blob;

/* blobs[rank] for every rank; valid during the call; NULL unless result->code is CKPT_OK. */
typedef void (*ckpt_exchanged_fn)(void *ctx, const ckpt_blob *blobs, const ckpt_error *result);

/*
 * A table of callbacks behind which a store, a shared directory, MPI or torch.distributed stands.
 * All ranks start the same exchanges in the same order; each gives one small blob (at most
 * CKPT_MAX_BLOB_BYTES) and gets everybody's, or an error that names who is missing, within
 * timeout_ms. No call blocks. Called from the handle's thread in CKPT_DRIVE_THREAD, else from the
 * caller's. One exchange at a time.
 */
typedef struct ckpt_group {
    size_t size; /* sizeof(ckpt_group) of whoever filled it */
    void *ctx;
    int32_t rank;
    int32_t world_size;
    /* Starts an exchange. `blob` is copied. A failure to start is reported through done, later. */
    void (*exchange)(void *ctx, const void *blob, size_t len_bytes, int32_t timeout_ms,
                     ckpt_exchanged_fn done, void *done_ctx);
    int (*fd)(void *ctx);        /* poll for readable, or -1: dispatch is called every 10 ms */
    void (*dispatch)(void *ctx); /* makes progress, runs done */
    void (*cancel)(void *ctx);   /* done runs with CKPT_ECANCELED before cancel returns */
    void (*close)(void *ctx);    /* called by ckpt_close, and by ckpt_open when it fails; may be
                                    NULL */
} ckpt_group;

#define CKPT_MAX_BLOB_BYTES 65536

/*
 * A board is the least that a medium must offer: named blobs, last writer wins. ckpt_group_board
 * makes a group of it: random nonces and rank 0's roster see to it that leftovers of a killed
 * attempt on the same board are never taken for this one.
 */
typedef struct ckpt_board {
    size_t size;
    void *ctx;
    /* key: letters, digits, '-', '.', '_'. Returns 0 or a CKPT_E* code. Must not wait for peers. */
    int32_t (*put)(void *ctx, const char *key, const void *bytes, size_t len_bytes);
    /* Length in bytes, CKPT_ENOENT when absent, CKPT_EINVAL when larger than cap. */
    int64_t (*get)(void *ctx, const char *key, void *buf, size_t cap_bytes);
    void (*del)(void *ctx, const char *key); /* best effort; may be NULL */
    void (*close)(void *ctx);                /* may be NULL */
} ckpt_board;

/* `board` is copied. On success ret->ctx is owned by whoever holds the table: give it to ckpt_open,
 * which takes it over, or call ret->close. EINVAL, ENOMEM. */
CKPT_API int ckpt_group_board(ckpt_group *ret, const ckpt_board *board, int32_t rank,
                              int32_t world_size, ckpt_error *err);

/* A group over a directory that all ranks share; made if its parent exists. EINVAL, EACCES, EIO. */
CKPT_API int ckpt_group_dir(ckpt_group *ret, const char *dir, int32_t rank, int32_t world_size,
                            ckpt_error *err);

#ifdef __cplusplus
}
#endif

#endif /* CKPT_H */
