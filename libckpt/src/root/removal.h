/*
 * removal.h: takes away what an attempt left in the root: the files of its staging directory, the
 * directory, then its claim. In this order, so that a staging directory without a claim has no
 * owner. Allocates nothing: it must work when a save fails for want of memory.
 */
#ifndef CKPT_REMOVAL_H
#define CKPT_REMOVAL_H

#include "disk/io.h"
#include "root/root.h"

#include <dirent.h>
#include <limits.h>

struct ckpt__removal {
    void (*done)(struct ckpt__removal *r); /* set by the caller, as are ctx, disk and root */
    void *ctx;
    const struct ckpt__disk *disk;
    const char *root;

    struct ckpt__req req;
    char attempt[33];
    char claim[CKPT__NAME_BYTES]; /* name in the root; "" = none */
    DIR *dir;
    int passes;
    char path[PATH_MAX];
};

/* Best effort: what cannot be removed is said in the log and left for a later save. done runs later
 * or at once. */
void ckpt__remove_attempt(struct ckpt__removal *r, const char attempt[33], const char *claim);

#endif
