/*
 * removal.c: see removal.h. One name at a time, through the engine.
 */
#include "root/removal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_PASSES 3 /* a listing may miss names while others go */

static void next(struct ckpt__removal *r);

static void complain(const struct ckpt__removal *r)
{
    if (r->req.result < 0 && r->req.result != -ENOENT)
        ckpt__log(r->disk->env, CKPT_LOG_WARN, "cannot remove leftover %s: %s", r->path,
                  strerror((int)-r->req.result));
}

static void claim_gone(struct ckpt__req *req)
{
    struct ckpt__removal *r = req->ctx;
    complain(r);
    r->done(r);
}

static void remove_claim(struct ckpt__removal *r)
{
    if (r->claim[0] == '\0') {
        r->done(r);
        return;
    }
    snprintf(r->path, sizeof r->path, "%s/%s", r->root, r->claim);
    r->req = (struct ckpt__req){.done = claim_gone, .ctx = r};
    ckpt__unlink(r->disk, r->path, &r->req);
}

static void list(struct ckpt__removal *r)
{
    snprintf(r->path, sizeof r->path, "%s/.staging-%s", r->root, r->attempt);
    int fd = open(r->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    r->dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (r->dir != NULL) {
        next(r);
        return;
    }
    int e = errno;
    if (fd >= 0)
        close(fd);
    if (e == ENOENT || e == ELOOP || e == ENOTDIR) /* what is no directory is not ours */
        remove_claim(r);
    else
        r->done(r); /* out of descriptors or memory: the claim stays, so that it has an owner */
}

static void directory_gone(struct ckpt__req *req)
{
    struct ckpt__removal *r = req->ctx;
    if (req->result == -ENOTEMPTY && ++r->passes < MAX_PASSES) {
        list(r);
        return;
    }
    complain(r);
    if (req->result < 0 && req->result != -ENOENT)
        r->done(r);
    else
        remove_claim(r);
}

static void file_gone(struct ckpt__req *req)
{
    struct ckpt__removal *r = req->ctx;
    complain(r);
    next(r);
}

static void next(struct ckpt__removal *r)
{
    struct dirent *e;
    do
        e = readdir(r->dir);
    while (e != NULL && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    r->req = (struct ckpt__req){.done = e != NULL ? file_gone : directory_gone, .ctx = r};
    if (e != NULL) {
        snprintf(r->path, sizeof r->path, "%s/.staging-%s/%s", r->root, r->attempt, e->d_name);
        ckpt__unlink(r->disk, r->path, &r->req);
        return;
    }
    closedir(r->dir);
    r->dir = NULL;
    snprintf(r->path, sizeof r->path, "%s/.staging-%s", r->root, r->attempt);
    ckpt__rmdir(r->disk, r->path, &r->req);
}

void ckpt__remove_attempt(struct ckpt__removal *r, const char attempt[33], const char *claim)
{
    memcpy(r->attempt, attempt, sizeof r->attempt);
    snprintf(r->claim, sizeof r->claim, "%s", claim);
    r->passes = 0;
    list(r);
}
