/*
 * owner.h: who is writing, told so that another process can find out whether that writer still
 * lives. Text, one "key value" a line: attempt, step, generation, boot_id, pid_ns, pid,
 * start_time, host.
 */
#ifndef CKPT_OWNER_H
#define CKPT_OWNER_H

#include "format/manifest.h"

struct ckpt__owner {
    char attempt[33]; /* 32 hex digits */
    int64_t step;
    uint64_t generation;
    char boot_id[40];
    char pid_ns[40]; /* pids mean nothing in another name space */
    int64_t pid;
    uint64_t start_time; /* of the process, in clock ticks since boot */
    char host[65];
};

enum ckpt__life { CKPT__ALIVE, CKPT__GONE, CKPT__UNKNOWN };

/* This process. */
void ckpt__owner_self(struct ckpt__owner *o, const struct ckpt__digest *attempt, int64_t step,
                      uint64_t generation);

#define CKPT__OWNER_TEXT_BYTES 512

/* Length of the text; buf has CKPT__OWNER_TEXT_BYTES. */
size_t ckpt__owner_format(const struct ckpt__owner *o, char *buf);

/* CKPT_EUNREADABLE when a line that is needed is missing or malformed. */
int ckpt__owner_parse(struct ckpt__owner *o, const char *text, size_t len);

/* UNKNOWN when the writer is of another boot (machine) or pid name space. */
enum ckpt__life ckpt__owner_life(const struct ckpt__owner *o);

void ckpt__hex(const struct ckpt__digest *d, char hex[33]);

#endif
