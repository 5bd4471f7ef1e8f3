/*
 * io.h: what a save and a load ask of the disk, over any engine: whole transfers, direct I/O with
 * its fallback, and the few operations that take several system calls.
 *
 * Every operation takes a ckpt__req that the caller owns (embedded in its own struct), with done
 * and ctx set before the call. It is asynchronous: done runs exactly once, from the engine's reap
 * or close, never before the call has returned. Until then the req, the path, the buffer and the
 * file are borrowed; in done the req is the caller's again and may be reused at once. Nothing is
 * allocated, except the buffer of ckpt__read_whole.
 *
 * EINTR and EAGAIN are tried again (bounded, one debug line), short transfers go on to the end.
 * After ckpt__engine cancel: operations end with -ECANCELED or as if nothing was; operations that
 * were started later run as usual, so that files can be closed and staging removed.
 */
#ifndef CKPT_IO_H
#define CKPT_IO_H

#include "disk/engine.h"
#include "env.h"

#include <stdbool.h>

/* Where operations run; filled by its owner, shared by all of them. */
struct ckpt__disk {
    const struct ckpt__env *env;
    struct ckpt__engine *engine;
};

struct ckpt__file;

struct ckpt__req {
    void (*done)(struct ckpt__req *r); /* set by the caller */
    void *ctx;                         /* set by the caller, who may also change it at any time */
    int64_t result;                    /* >= 0, or -errno */
    const char *what;                  /* the system call that failed: "fdatasync" */

    /* of io.c */
    const struct ckpt__disk *disk;
    struct ckpt__file *file; /* NULL for whole files and names */
    const char *path;
    int fd;
    void (*step)(struct ckpt__req *r);  /* the io is done */
    void (*after)(struct ckpt__req *r); /* the transfer is done, r->result is set */
    uint8_t *buf;
    uint64_t len, off; /* of the whole transfer */
    uint64_t at, high; /* next byte of it, and how far it ever came: they differ while a short
                          direct transfer is taken up from the last aligned byte */
    uint64_t cap;
    uint32_t retries;
    enum ckpt__op op; /* CKPT__READ or CKPT__WRITE where there is a transfer */
    int refused;      /* errno of an open with O_DIRECT */
    bool direct;      /* the io in flight was submitted with O_DIRECT */
    struct ckpt__io io;
};

/* Fills err from a failed req ("write PATH at byte 4096: No space left on device"); returns its
 * code. */
int ckpt__req_error(const struct ckpt__req *r, ckpt_error *err);

/* ------------------------------------------------------------------------------------------ */
/* A file of blocks: O_DIRECT where the kernel takes it, else through the page cache             */

/*
 * Many reads or many writes may be in flight at once, in any order. A refused O_DIRECT (at open, or
 * at any later transfer) costs one line of log for the file and changes nothing else: the same
 * bytes arrive.
 */
struct ckpt__file {
    const struct ckpt__disk *disk;
    const char *path; /* borrowed until close is done */
    int fd;           /* -1 unless open */
    bool direct;
    bool writing;
    uint32_t align; /* buffer, offset and length of a transfer are multiples of it (power of two,
                       at most 64 KiB); 4096 also when the file is not direct */
    uint64_t bytes; /* size at open; 0 for a file that was created */
};

/* Creates PATH, which must not exist (-EEXIST), for writing. result: 0. On failure nothing is open
 * and there is nothing to close. */
void ckpt__file_create(struct ckpt__file *f, const struct ckpt__disk *d, const char *path,
                       mode_t mode, struct ckpt__req *r);

/* Opens PATH, a regular file (-EISDIR, -EINVAL for others), for reading; f->bytes is its size. */
void ckpt__file_open(struct ckpt__file *f, const struct ckpt__disk *d, const char *path,
                     struct ckpt__req *r);

/* Allocates [0, bytes) and moves the size there. Where the file system has no such call, that is
 * not an error (one debug line). result: 0. */
void ckpt__file_reserve(struct ckpt__file *f, uint64_t bytes, struct ckpt__req *r);

/* Writes all of it; result: len. len > 0. Pad the last block up to f->align (ckpt__file_pad) with
 * bytes of your choice, and cut the file to its length afterwards. */
void ckpt__file_write(struct ckpt__file *f, const void *buf, uint64_t len, uint64_t off,
                      struct ckpt__req *r);

/* Reads len bytes, or up to the end of the file; result: bytes read. len > 0, multiple of f->align;
 * the range may reach beyond the end. */
void ckpt__file_read(struct ckpt__file *f, void *buf, uint64_t len, uint64_t off,
                     struct ckpt__req *r);

void ckpt__file_truncate(struct ckpt__file *f, uint64_t bytes, struct ckpt__req *r);
void ckpt__file_sync(struct ckpt__file *f, struct ckpt__req *r); /* fdatasync */

/* Nothing else may be in flight on f. The file is closed whatever the result. */
void ckpt__file_close(struct ckpt__file *f, struct ckpt__req *r);

static inline uint64_t ckpt__file_pad(const struct ckpt__file *f, uint64_t len)
{
    return (len + f->align - 1) & ~(uint64_t)(f->align - 1);
}

/* ------------------------------------------------------------------------------------------ */
/* Whole small files and names                                                                  */

/* Creates PATH (-EEXIST when it is there), writes, fsyncs, closes; result: len. What a failure
 * leaves behind is the caller's to unlink. */
void ckpt__write_whole(const struct ckpt__disk *d, const char *path, mode_t mode, const void *buf,
                       uint64_t len, struct ckpt__req *r);

/* Reads a regular file of at most cap bytes (-EFBIG for a larger one); result: bytes. On success
 * r->buf holds them, never NULL, to be freed with ckpt__free; on failure r->buf is NULL. */
void ckpt__read_whole(const struct ckpt__disk *d, const char *path, uint64_t cap,
                      struct ckpt__req *r);

/* fsync of a directory. A file system that has none (EINVAL) is no error; one line says so. */
void ckpt__sync_dir(const struct ckpt__disk *d, const char *path, struct ckpt__req *r);

void ckpt__mkdir(const struct ckpt__disk *d, const char *path, mode_t mode, struct ckpt__req *r);
void ckpt__rename(const struct ckpt__disk *d, const char *from, const char *to,
                  struct ckpt__req *r);
void ckpt__unlink(const struct ckpt__disk *d, const char *path, struct ckpt__req *r);
void ckpt__rmdir(const struct ckpt__disk *d, const char *path, struct ckpt__req *r);

#endif
