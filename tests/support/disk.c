/*
 * disk.c: see disk.h.
 */
#include "disk.h"

#include "entries.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void *count_alloc(void *ctx, size_t len, size_t align)
{
    struct disk *d = ctx;
    void *p = NULL;
    if (posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, len) != 0)
        return NULL;
    pthread_mutex_lock(&d->lock);
    d->allocations++;
    pthread_mutex_unlock(&d->lock);
    return p;
}

static void count_free(void *ctx, void *ptr)
{
    struct disk *d = ctx;
    free(ptr);
    if (ptr == NULL)
        return;
    pthread_mutex_lock(&d->lock);
    d->frees++;
    pthread_mutex_unlock(&d->lock);
}

static void keep_line(void *ctx, int level, const char *line)
{
    struct disk *d = ctx;
    pthread_mutex_lock(&d->lock);
    if (d->line_count < DISK_MAX_LINES)
        snprintf(d->lines[d->line_count++], sizeof d->lines[0], "%d %s", level, line);
    pthread_mutex_unlock(&d->lock);
}

void disk_init(struct disk *d)
{
    memset(d, 0, sizeof *d);
    pthread_mutex_init(&d->lock, NULL);
    ckpt_allocator a = {count_alloc, count_free, d};
    ckpt__env_init(&d->env, &a);
    d->env.log = keep_line;
    d->env.log_ctx = d;
    char cwd[200];
    ck_assert_ptr_nonnull(getcwd(cwd, sizeof cwd));
    snprintf(d->dir, sizeof d->dir, "%s/scratch-XXXXXX", cwd);
    ck_assert_ptr_nonnull(mkdtemp(d->dir));
    ck_assert_int_eq(chmod(d->dir, 0777), 0);
}

bool disk_mount(struct disk *d, const char *type)
{
    if (mount("none", d->dir, type, 0, NULL) != 0) {
        printf("skip: cannot mount %s: %s\n", type, strerror(errno));
        return false;
    }
    d->mounted = true;
    return true;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void disk_free(struct disk *d)
{
    if (d->mounted)
        ck_assert_int_eq(umount(d->dir), 0);
    ck_assert_int_eq(nftw(d->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    ck_assert_uint_eq(d->allocations, d->frees);
    pthread_mutex_destroy(&d->lock);
}

const char *disk_path(const char *dir, const char *name)
{
    static char paths[16][512];
    static unsigned next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

struct ckpt__engine *disk_engine(const struct ckpt__engine_class *cls,
                                 const struct ckpt__engine_config *config)
{
    ckpt_error err = {0};
    struct ckpt__engine *e = NULL;
    int rc = cls->open(&e, config, &err);
    if (rc == CKPT_ENOTSUP && cls == &ckpt__engine_uring) {
        printf("skip: %s\n", err.text);
        return NULL;
    }
    ck_assert_msg(rc == CKPT_OK, "%s: %s", cls->name, err.text);
    ck_assert_str_eq(e->cls->name, cls->name);
    return e;
}

size_t disk_lines_with(struct disk *d, const char *part)
{
    size_t count = 0;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->line_count; i++)
        count += strstr(d->lines[i], part) != NULL;
    pthread_mutex_unlock(&d->lock);
    return count;
}

void disk_wait(struct ckpt__engine *e, const int *flag, int value)
{
    time_t end = time(NULL) + 20;
    while (*flag < value) {
        struct pollfd p = {.fd = e->cls->fd(e), .events = POLLIN};
        ck_assert_msg(time(NULL) < end, "engine %s: waited too long", e->cls->name);
        (void)poll(&p, 1, 1000);
        ck_assert_msg((p.revents & POLLIN) != 0 || time(NULL) < end, "no event");
        e->cls->reap(e);
    }
    ck_assert_int_eq(*flag, value);
}

void disk_fill(void *buf, size_t len, unsigned seed)
{
    uint8_t *at = buf;
    uint32_t x = seed * 2654435761u + 1;
    for (size_t i = 0; i < len; i++) {
        x = x * 1664525u + 1013904223u;
        at[i] = (uint8_t)(x >> 24);
    }
}

uint8_t *disk_read(const char *path, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    *len = (size_t)st.st_size;
    uint8_t *buf = malloc(*len + 1);
    ck_assert_ptr_nonnull(buf);
    ck_assert_int_eq(pread(fd, buf, *len + 1, 0), (ssize_t)*len);
    close(fd);
    return buf;
}

int disk_open_fds(void)
{
    int count = entries_count("/proc/self/fd");
    ck_assert_int_gt(count, 0);
    return count;
}
