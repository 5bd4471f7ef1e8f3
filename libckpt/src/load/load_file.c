/*
 * load_file.c: opens one plain safetensors file, ours or anybody's, as a load of one shard without
 * checksums. Reads the header with plain system calls.
 */
#include "load/load.h"

#include "bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_fully(int fd, void *buf, size_t len, off_t off)
{
    size_t got = 0;
    while (got < len) {
        ssize_t n = pread(fd, (uint8_t *)buf + got, len - got, off + (off_t)got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        got += (size_t)n;
    }
    return 0;
}

static int parse(struct ckpt_load *l, int fd, uint64_t file_bytes, ckpt_error *err)
{
    uint8_t word[8];
    const char *path = l->file;
    if (file_bytes < sizeof word)
        return ckpt__fail(err, CKPT_EUNREADABLE,
                          "%s has %" PRIu64 " bytes: too short for a safetensors file", path,
                          file_bytes);
    int e = read_fully(fd, word, sizeof word, 0);
    if (e != 0)
        return ckpt__fail_sys(err, e, "read %s", path);
    uint64_t len = bytes_get_u64(word);
    if (len > CKPT__MAX_HEADER_BYTES || len > file_bytes - sizeof word)
        return ckpt__fail(err, CKPT_EUNREADABLE,
                          "%s: its header claims %" PRIu64 " bytes of a file of %" PRIu64
                          ": not a safetensors file, or cut short",
                          path, len, file_bytes);
    uint8_t *json = ckpt__alloc(&l->c->env, (size_t)len);
    if (json == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "header of %s: out of memory", path);
    ckpt_error why;
    int rc;
    e = read_fully(fd, json, (size_t)len, sizeof word);
    if (e != 0) {
        rc = ckpt__fail_sys(err, e, "read %s", path);
    } else {
        rc = ckpt__layout_parse(&l->shards[0].index.layout, json, (size_t)len, file_bytes, &why);
        if (rc != CKPT_OK)
            ckpt__fail(err, rc, "%s: %s", path, why.text);
    }
    ckpt__free(&l->c->env, json);
    return rc;
}

int ckpt__load_file(struct ckpt_load *l, ckpt_error *err)
{
    const struct ckpt__env *env = &l->c->env;
    l->shards = ckpt__alloc_zero(env, sizeof *l->shards);
    l->path = ckpt__strdup(env, l->file);
    if (l->shards == NULL || l->path == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "load of %s: out of memory", l->file);
    ckpt__index_init(&l->shards[0].index, env);
    l->info.world_size = 1;
    l->info.step = CKPT_NEWEST;
    l->info.path = l->path;
    l->info.run_id = "";
    l->shards[0].path = ckpt__strdup(env, l->file);
    if (l->shards[0].path == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "load of %s: out of memory", l->file);
    int fd = open(l->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int e = errno;
        ckpt__fail_sys(err, e, "open %s", l->file);
        return e == ENOENT ? err->code = CKPT_ENOENT : err->code;
    }
    struct stat st;
    int rc = fstat(fd, &st) != 0 ? ckpt__fail_sys(err, errno, "look at %s", l->file)
             : !S_ISREG(st.st_mode)
                 ? ckpt__fail(err, CKPT_EUNREADABLE, "%s is not a regular file", l->file)
                 : parse(l, fd, (uint64_t)st.st_size, err);
    close(fd);
    return rc;
}
