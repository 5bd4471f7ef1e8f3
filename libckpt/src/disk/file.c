/*
 * file.c: files of blocks (io.h): O_DIRECT first, the page cache where that is refused.
 *
 * Invariant: f->direct says whether O_DIRECT is set on f->fd. It goes off once and never on again;
 * transfers in flight at that moment end either way and are resumed by io.c. Blocks do not share a
 * page, so direct and buffered writes to one file do not meet.
 */
#include "disk/io_steps.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

void ckpt__file_use_page_cache(struct ckpt__file *f, const char *by, const char *why)
{
    if (!f->direct)
        return; /* another transfer of this file was refused before */
    f->direct = false;
    int flags = fcntl(f->fd, F_GETFL);
    if (flags >= 0 && (flags & O_DIRECT) != 0)
        (void)fcntl(f->fd, F_SETFL,
                    flags & ~O_DIRECT); /* else the next transfer fails, and says it */
    ckpt__log(f->disk->env, CKPT_LOG_WARN,
              "direct I/O refused by %s of %s: %s; %s through the page cache", by, f->path, why,
              f->writing ? "writing" : "reading");
}

static void begin(struct ckpt__file *f, struct ckpt__req *r)
{
    ckpt__req_begin(r, f->disk, f->path);
    r->file = f;
    r->fd = f->fd;
    r->op = f->writing ? CKPT__WRITE : CKPT__READ;
}

/* ------------------------------------------------------------------------------------------ */
/* Open                                                                                         */

/* An open that is refused after it created the file leaves it there, empty; so the second open
 * takes an existing file, but only one that can be that one. */
static int check_created(const struct ckpt__req *r)
{
    struct stat st;
    if (r->refused == 0)
        return 0;
    if (fstat(r->fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) && st.st_size == 0 && st.st_nlink == 1 ? 0 : -EEXIST;
}

static void settle_alignment(struct ckpt__file *f, int refused)
{
    if (refused != 0) {
        ckpt__file_use_page_cache(f, "open", strerrordesc_np(refused));
        return;
    }
    struct ckpt__dio dio = ckpt__dio_ask(f->fd);
    if (dio.supported)
        f->align = ckpt__dio_align(&dio);
    else
        ckpt__file_use_page_cache(f, "statx", strerrordesc_np(EOPNOTSUPP));
}

static void opened(struct ckpt__req *r)
{
    int64_t n = r->io.result;
    struct ckpt__file *f = r->file;
    if (n < 0 && (r->io.flags & O_DIRECT) != 0 && ckpt__dio_refused((int)-n)) {
        struct ckpt__io again = r->io;
        again.flags = (again.flags & ~(O_DIRECT | O_EXCL)) | (f->writing ? O_NOFOLLOW : 0);
        r->refused = (int)-n;
        ckpt__req_issue(r, opened, again);
        return;
    }
    if (n < 0) {
        ckpt__req_finish(r, n);
        return;
    }
    r->fd = (int)n;
    int rc = f->writing ? check_created(r) : ckpt__req_check_regular(r, &f->bytes);
    if (rc < 0) {
        ckpt__req_set(r, rc);
        ckpt__req_close(r);
        return;
    }
    f->fd = r->fd;
    settle_alignment(f, r->refused);
    ckpt__req_finish(r, 0);
}

static void open_file(struct ckpt__file *f, const struct ckpt__disk *d, const char *path, int flags,
                      mode_t mode, struct ckpt__req *r)
{
    *f = (struct ckpt__file){.disk = d,
                             .path = path,
                             .fd = -1,
                             .direct = true,
                             .writing = (flags & O_CREAT) != 0,
                             .align = CKPT__DIO_DEFAULT_ALIGN};
    begin(f, r);
    ckpt__req_issue(
        r, opened,
        (struct ckpt__io){
            .op = CKPT__OPEN, .path = path, .flags = flags | O_DIRECT | O_CLOEXEC, .mode = mode});
}

void ckpt__file_create(struct ckpt__file *f, const struct ckpt__disk *d, const char *path,
                       mode_t mode, struct ckpt__req *r)
{
    open_file(f, d, path, O_WRONLY | O_CREAT | O_EXCL, mode, r);
}

void ckpt__file_open(struct ckpt__file *f, const struct ckpt__disk *d, const char *path,
                     struct ckpt__req *r)
{
    open_file(f, d, path, O_RDONLY | O_NONBLOCK, 0, r);
}

/* ------------------------------------------------------------------------------------------ */
/* Use                                                                                          */

static void finish_as_is(struct ckpt__req *r)
{
    ckpt__req_finish(r, r->io.result);
}

static void run_done(struct ckpt__req *r)
{
    r->done(r);
}

static void reserved(struct ckpt__req *r)
{
    int64_t n = r->io.result;
    if (n == -EOPNOTSUPP || n == -ENOSYS) {
        ckpt__log(r->disk->env, CKPT_LOG_DEBUG, "fallocate of %s: %s; space is taken as it comes",
                  r->path, strerrordesc_np((int)-n));
        n = 0;
    }
    ckpt__req_finish(r, n);
}

void ckpt__file_reserve(struct ckpt__file *f, uint64_t bytes, struct ckpt__req *r)
{
    begin(f, r);
    ckpt__req_issue(r, reserved,
                    (struct ckpt__io){.op = CKPT__FALLOCATE, .fd = f->fd, .len = bytes});
}

static void move(struct ckpt__file *f, enum ckpt__op op, void *buf, uint64_t len, uint64_t off,
                 struct ckpt__req *r)
{
    assert((((uintptr_t)buf | len | off) & (f->align - 1)) == 0);
    begin(f, r);
    r->buf = buf;
    r->len = len;
    r->off = off;
    ckpt__req_transfer(r, op, run_done);
}

void ckpt__file_write(struct ckpt__file *f, const void *buf, uint64_t len, uint64_t off,
                      struct ckpt__req *r)
{
    move(f, CKPT__WRITE, (void *)(uintptr_t)buf, len, off, r);
}

void ckpt__file_read(struct ckpt__file *f, void *buf, uint64_t len, uint64_t off,
                     struct ckpt__req *r)
{
    move(f, CKPT__READ, buf, len, off, r);
}

void ckpt__file_truncate(struct ckpt__file *f, uint64_t bytes, struct ckpt__req *r)
{
    begin(f, r);
    ckpt__req_issue(r, finish_as_is,
                    (struct ckpt__io){.op = CKPT__TRUNCATE, .fd = f->fd, .len = bytes});
}

void ckpt__file_sync(struct ckpt__file *f, struct ckpt__req *r)
{
    begin(f, r);
    ckpt__req_issue(r, finish_as_is, (struct ckpt__io){.op = CKPT__FDATASYNC, .fd = f->fd});
}

void ckpt__file_close(struct ckpt__file *f, struct ckpt__req *r)
{
    begin(f, r);
    f->fd = -1;
    ckpt__req_close(r);
}
