/*
 * io_steps.h: what the steps of io.c and file.c share. Nobody else includes it.
 */
#ifndef CKPT_IO_STEPS_H
#define CKPT_IO_STEPS_H

#include "disk/dio.h"
#include "disk/io.h"

/* Clears everything but done and ctx. */
void ckpt__req_begin(struct ckpt__req *r, const struct ckpt__disk *d, const char *path);

/* Submits io; step runs when it is done and need not be tried again. */
void ckpt__req_issue(struct ckpt__req *r, void (*step)(struct ckpt__req *r), struct ckpt__io io);

/* Moves r->len bytes between r->buf and r->fd at r->off; then r->result is set and after runs. */
void ckpt__req_transfer(struct ckpt__req *r, enum ckpt__op op, void (*after)(struct ckpt__req *r));

/* Sets the result, and for a failure the name of the io that was last. */
void ckpt__req_set(struct ckpt__req *r, int64_t result);

/* The last step: sets the result, runs done. */
void ckpt__req_finish(struct ckpt__req *r, int64_t result);

/* The last step of a chain with a descriptor: closes r->fd, keeps an earlier failure, runs done. */
void ckpt__req_close(struct ckpt__req *r);

/* 0 and the size when r->fd is a regular file; takes O_NONBLOCK off. Waits for a server at most as
 * long as any stat. */
int ckpt__req_check_regular(const struct ckpt__req *r, uint64_t *bytes);

/* Takes O_DIRECT off, and says so once per file: BY (a system call) refused it, because WHY. */
void ckpt__file_use_page_cache(struct ckpt__file *f, const char *by, const char *why);

#endif
