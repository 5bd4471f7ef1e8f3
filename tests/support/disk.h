/*
 * disk.h: a scratch directory, an env that counts allocations and keeps log lines, and a way to
 * wait for an engine. Tests that time out fail.
 */
#ifndef TESTS_DISK_H
#define TESTS_DISK_H

#include "disk/engine.h"
#include "env.h"

#include <pthread.h>
#include <stdbool.h>

#define DISK_MAX_LINES 64

struct disk {
    struct ckpt__env env;
    char dir[256]; /* absolute, empty at first */
    bool mounted;
    pthread_mutex_t lock;
    char lines[DISK_MAX_LINES][300];
    size_t line_count;
    uint64_t allocations, frees;
};

/* A fresh directory below the current one; not on a memory file system where tests run as usual. */
void disk_init(struct disk *d);

/* Mounts a file system without device ("tmpfs", "ramfs") over the scratch directory. False, with a
 * printed reason, where that is not allowed. */
bool disk_mount(struct disk *d, const char *type);

/* Removes the directory and all in it; fails the test when an allocation was not freed. */
void disk_free(struct disk *d);

/* dir/name in a buffer of the fixture's, good for 16 more calls. */
const char *disk_path(const char *dir, const char *name);

/* Opens an engine of this class, or fails the test; but where this machine refuses io_uring (a
 * container's filter, a small memlock limit), NULL with a printed reason. */
struct ckpt__engine *disk_engine(const struct ckpt__engine_class *cls,
                                 const struct ckpt__engine_config *config);

size_t disk_lines_with(struct disk *d, const char *part);

/* Polls and reaps until *flag reaches value; fails the test after 20 s. */
void disk_wait(struct ckpt__engine *e, const int *flag, int value);

/* Fills with bytes that depend on seed and place. */
void disk_fill(void *buf, size_t len, unsigned seed);

/* Content of a whole file, by plain system calls; *len is its size. Caller frees with free(). */
uint8_t *disk_read(const char *path, size_t *len);

int disk_open_fds(void); /* number of descriptors of this process */

#endif
