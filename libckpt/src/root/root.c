/*
 * root.c: names in a root directory and their meaning. Whatever is not named like ours is not ours
 * and is left alone. Reads small files with plain system calls; changes nothing.
 */
#include "root/root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPIRED_SECONDS 86400
#define NAMELESS_SECONDS 600 /* a writer puts its name into a claim as soon as it has made it */

void ckpt__step_name(char name[CKPT__NAME_BYTES], int64_t step, uint64_t sequence)
{
    snprintf(name, CKPT__NAME_BYTES, "step-%017" PRId64 ".%05" PRIu64, step, sequence);
}

void ckpt__claim_name(char name[CKPT__NAME_BYTES], uint64_t sequence)
{
    snprintf(name, CKPT__NAME_BYTES, ".sequence-%05" PRIu64, sequence);
}

void ckpt__shard_name(char name[CKPT__NAME_BYTES], int32_t rank, int32_t world, const char *ending)
{
    snprintf(name, CKPT__NAME_BYTES, "shard-%05d-of-%05d.%s", rank, world, ending);
}

static bool has_parent(const char *path)
{
    char parent[PATH_MAX];
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    while (len > 0 && path[len - 1] != '/')
        len--;
    if (len >= sizeof parent)
        return true;
    memcpy(parent, path, len);
    parent[len] = '\0';
    return access(len > 0 ? parent : ".", F_OK) == 0;
}

int ckpt__make_directory(const char *path, ckpt_error *err)
{
    if (mkdir(path, 0777) == 0)
        return 1;
    if (errno == EEXIST)
        return 0;
    int error = errno;
    if (error == ENOENT && !has_parent(path))
        return ckpt__fail(err, CKPT_EINVAL,
                          "make directory %s: the directory above it does not exist; is its file "
                          "system mounted?",
                          path);
    /* Under /proc, say, no directory can be made; ENOENT would read as "no checkpoint there". */
    return error == ENOENT
               ? ckpt__fail(err, CKPT_EINVAL,
                            "make directory %s: its file system makes no directories", path)
               : ckpt__fail_sys(err, error, "make directory %s", path);
}

char *ckpt__path(const struct ckpt__env *env, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *path = len >= 0 ? ckpt__alloc(env, (size_t)len + 1) : NULL;
    if (path == NULL)
        return NULL;
    va_start(args, fmt);
    vsnprintf(path, (size_t)len + 1, fmt, args);
    va_end(args);
    return path;
}

/* Decimal digits only, up to end; false on anything else or overflow. */
static bool parse_digits(const char *s, const char *end, uint64_t *ret)
{
    uint64_t v = 0;
    if (s == end)
        return false;
    for (; s < end; s++) {
        if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
            return false;
    }
    *ret = v;
    return true;
}

static bool parse_step_name(const char *name, struct ckpt__step_dir *d)
{
    const char *dot = strrchr(name, '.');
    uint64_t step;
    if (dot == NULL || dot < name + 5 || strlen(name) >= sizeof d->name ||
        !parse_digits(name + 5, dot, &step) || step > INT64_MAX ||
        !parse_digits(dot + 1, name + strlen(name), &d->sequence) ||
        d->sequence > CKPT__MAX_SEQUENCE)
        return false;
    d->step = (int64_t)step;
    char canonical[CKPT__NAME_BYTES];
    ckpt__step_name(canonical, d->step, d->sequence);
    if (strcmp(canonical, name) != 0)
        return false;
    memcpy(d->name, canonical, sizeof canonical);
    return true;
}

/* At most cap - 1 bytes of a small file in dir. -errno on failure. */
static ssize_t read_small(int dir, const char *name, char *buf, size_t cap, struct stat *st)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    ssize_t n = fstat(fd, st) == 0 ? read(fd, buf, cap - 1) : -1;
    int e = errno;
    close(fd);
    return n < 0 ? -e : n;
}

static void read_claim(int dir, const char *name, struct ckpt__claim *claim)
{
    char text[CKPT__OWNER_TEXT_BYTES];
    struct stat st = {0}, root;
    ssize_t n = read_small(dir, name, text, sizeof text, &st);
    claim->known = n > 0 && ckpt__owner_parse(&claim->owner, text, (size_t)n) == CKPT_OK;
    /* The root's own time moves with every entry made in it: that is the file system's clock. */
    claim->expired = n >= 0 && fstat(dir, &root) == 0 &&
                     root.st_mtim.tv_sec - st.st_mtim.tv_sec >
                         (claim->known ? EXPIRED_SECONDS : NAMELESS_SECONDS);
}

static bool parse_claim_name(const char *name, uint64_t *sequence)
{
    char canonical[CKPT__NAME_BYTES];
    if (!parse_digits(name + 10, name + strlen(name), sequence) || *sequence > CKPT__MAX_SEQUENCE)
        return false;
    ckpt__claim_name(canonical, *sequence);
    return strcmp(canonical, name) == 0;
}

/* A link is not ours, wherever it leads: what it holds must not be removed. */
static bool is_directory(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int take_entry(struct ckpt__scan *s, int dir, const char *name)
{
    const char *end = name + strlen(name);
    uint64_t sequence = 0;
    if (strncmp(name, "step-", 5) == 0) {
        struct ckpt__step_dir d;
        if (!parse_step_name(name, &d))
            return CKPT_OK;
        if (!ckpt__grow(s->env, &s->steps, s->step_count, &s->step_capacity, sizeof d))
            return CKPT_ENOMEM;
        s->steps[s->step_count++] = d;
        sequence = d.sequence;
    } else if (strncmp(name, ".sequence-", 10) == 0) {
        if (!parse_claim_name(name, &sequence))
            return CKPT_OK;
        if (!ckpt__grow(s->env, &s->claims, s->claim_count, &s->claim_capacity, sizeof *s->claims))
            return CKPT_ENOMEM;
        struct ckpt__claim *claim = &s->claims[s->claim_count++];
        *claim = (struct ckpt__claim){.sequence = sequence};
        read_claim(dir, name, claim);
    } else if (strncmp(name, ".staging-", 9) == 0 && end - name == 9 + 32 &&
               strspn(name + 9, "0123456789abcdef") == 32 && is_directory(dir, name)) {
        if (!ckpt__grow(s->env, &s->stagings, s->staging_count, &s->staging_capacity, 33))
            return CKPT_ENOMEM;
        memcpy(s->stagings[s->staging_count++], name + 9, 33);
    }
    if (sequence > s->max_sequence)
        s->max_sequence = sequence;
    return CKPT_OK;
}

int ckpt__scan_root(struct ckpt__scan *s, const struct ckpt__env *env, const char *root,
                    ckpt_error *err)
{
    *s = (struct ckpt__scan){.env = env};
    DIR *dir = opendir(root);
    if (dir == NULL && errno == ENOENT)
        return ckpt__fail(err, CKPT_EIO,
                          "%s is gone: the directory was removed, or its file system unmounted",
                          root);
    if (dir == NULL)
        return ckpt__fail_sys(err, errno, "open directory %s", root);
    int rc = CKPT_OK;
    while (rc == CKPT_OK) {
        errno = 0;
        struct dirent *e = readdir(dir);
        if (e == NULL && errno != 0)
            rc = ckpt__fail_sys(err, errno, "list directory %s", root);
        if (e == NULL)
            break;
        rc = take_entry(s, dirfd(dir), e->d_name);
        if (rc != CKPT_OK)
            ckpt__fail(err, rc, "list directory %s: out of memory", root);
    }
    closedir(dir);
    if (rc != CKPT_OK)
        ckpt__scan_free(s);
    return rc;
}

void ckpt__scan_free(struct ckpt__scan *s)
{
    ckpt__free(s->env, s->steps);
    ckpt__free(s->env, s->claims);
    ckpt__free(s->env, s->stagings);
    *s = (struct ckpt__scan){.env = s->env};
}

static int read_fully(int fd, uint8_t *bytes, size_t len, const char *path, ckpt_error *err)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = pread(fd, bytes + got, len - got, (off_t)got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            ckpt__fail_sys(err, errno, "read %s", path);
            return err->code = CKPT_EUNREADABLE;
        }
        if (n == 0)
            return ckpt__fail(err, CKPT_EUNREADABLE, "%s became shorter while it was read", path);
        got += (size_t)n;
    }
    return CKPT_OK;
}

static int read_file(const struct ckpt__env *env, const char *path, size_t cap, uint8_t **ret,
                     size_t *len, ckpt_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int e = errno;
        int code = ckpt__fail_sys(err, e, "open %s", path);
        return code == CKPT_EINVAL || code == CKPT_EIO ? err->code = CKPT_EUNREADABLE : code;
    }
    struct stat st;
    int rc = CKPT_OK;
    uint8_t *bytes = NULL;
    if (fstat(fd, &st) != 0)
        rc = ckpt__fail_sys(err, errno, "stat %s", path);
    else if (!S_ISREG(st.st_mode))
        rc = ckpt__fail(err, CKPT_EUNREADABLE, "%s is not a regular file", path);
    else if ((uint64_t)st.st_size > cap)
        rc = ckpt__fail(err, CKPT_EUNREADABLE, "%s is longer than %zu bytes", path, cap);
    else if ((bytes = ckpt__alloc(env, (size_t)st.st_size)) == NULL)
        rc = ckpt__fail(err, CKPT_ENOMEM, "read %s: out of memory", path);
    else
        rc = read_fully(fd, bytes, (size_t)st.st_size, path, err);
    close(fd);
    if (rc != CKPT_OK) {
        ckpt__free(env, bytes);
        return rc;
    }
    *ret = bytes;
    *len = (size_t)st.st_size;
    return CKPT_OK;
}

int ckpt__commit_read(struct ckpt__commit *ret, struct ckpt__digest *digest,
                      const struct ckpt__env *env, const char *root, const char *name,
                      ckpt_error *err)
{
    ckpt_error inner;
    char *path = ckpt__path(env, "%s/%s/COMMIT", root, name);
    if (path == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "read COMMIT of %s: out of memory", name);
    uint8_t *bytes = NULL;
    size_t len = 0;
    int rc = read_file(env, path, CKPT__MAX_COMMIT_BYTES, &bytes, &len, &inner);
    if (rc == CKPT_OK) {
        *digest = ckpt__digest_of(bytes, len);
        rc = ckpt__commit_decode(ret, env, bytes, len, &inner);
        ckpt__free(env, bytes);
        if (rc != CKPT_OK)
            rc = ckpt__fail(err, rc, "%s: %s", path, inner.text);
    } else if (err != NULL) {
        *err = inner;
    }
    ckpt__free(env, path);
    return rc;
}
