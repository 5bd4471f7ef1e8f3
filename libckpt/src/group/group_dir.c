/*
 * group_dir.c: a board in a directory that all ranks share: a key is a file, put is write and
 * rename, so a reader sees a blob whole or not at all. Nothing here needs to be durable: what a
 * crash leaves behind is kept out by the nonces of group_board.c.
 */
#include "env.h"
#include "root/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct dir_board {
    int fd; /* of the directory */
    int32_t rank;
    uint64_t temps; /* for temporary names */
};

static int write_all(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

static int32_t dir_put(void *ctx, const char *key, const void *bytes, size_t len)
{
    struct dir_board *b = ctx;
    char temp[64];
    snprintf(temp, sizeof temp, ".put-%d-%ld-%llu", b->rank, (long)getpid(),
             (unsigned long long)b->temps++);
    int fd = openat(b->fd, temp, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        return ckpt__code_of_errno(errno);
    int e = write_all(fd, bytes, len);
    if (close(fd) != 0 && e == 0)
        e = errno;
    if (e == 0 && renameat(b->fd, temp, b->fd, key) != 0)
        e = errno;
    if (e != 0)
        unlinkat(b->fd, temp, 0);
    return e == 0 ? CKPT_OK : ckpt__code_of_errno(e);
}

static int64_t dir_get(void *ctx, const char *key, void *buf, size_t cap)
{
    struct dir_board *b = ctx;
    int fd = openat(b->fd, key, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? CKPT_ENOENT : ckpt__code_of_errno(errno);
    size_t got = 0;
    int64_t result = CKPT_EINVAL;
    for (;;) {
        uint8_t over;
        ssize_t n = got < cap ? read(fd, (uint8_t *)buf + got, cap - got) : read(fd, &over, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            result = ckpt__code_of_errno(errno);
        if (n == 0)
            result = (int64_t)got;
        if (n <= 0 || got == cap)
            break;
        got += (size_t)n;
    }
    close(fd);
    return result;
}

static void dir_del(void *ctx, const char *key)
{
    struct dir_board *b = ctx;
    unlinkat(b->fd, key, 0);
}

static void dir_close(void *ctx)
{
    struct dir_board *b = ctx;
    close(b->fd);
    free(b);
}

int ckpt_group_dir(ckpt_group *ret, const char *dir, int32_t rank, int32_t world_size,
                   ckpt_error *err)
{
    if (ret == NULL || dir == NULL || dir[0] == '\0')
        return ckpt__fail(err, CKPT_EINVAL, "ckpt_group_dir needs a result and a directory");
    int made = ckpt__make_directory(dir, err);
    if (made < 0)
        return made;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ckpt__fail_sys(err, errno, "open group directory %s", dir);
    struct dir_board *b = malloc(sizeof *b);
    if (b == NULL) {
        close(fd);
        return ckpt__fail(err, CKPT_ENOMEM, "group directory %s: out of memory", dir);
    }
    *b = (struct dir_board){.fd = fd, .rank = rank};
    ckpt_board board = {.size = sizeof board,
                        .ctx = b,
                        .put = dir_put,
                        .get = dir_get,
                        .del = dir_del,
                        .close = dir_close};
    int rc = ckpt_group_board(ret, &board, rank, world_size, err);
    if (rc != CKPT_OK)
        dir_close(b);
    return rc;
}
