/*
 * env.h: what every module of libckpt gets from its handle: memory and a place for log lines.
 * Neither may be called with a handle's lock held by the caller's callbacks; both are thread-safe.
 */
#ifndef CKPT_ENV_H
#define CKPT_ENV_H

#include "ckpt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt__env {
    ckpt_allocator allocator;
    /* Takes one finished line from any thread; the handle delivers it in dispatch. */
    void (*log)(void *ctx, int level, const char *line);
    void *log_ctx;
};

/* Fills env with libc's allocator when a is NULL, and with silence. */
void ckpt__env_init(struct ckpt__env *env, const ckpt_allocator *a);

/* Reads a caller's struct that begins with its size, whatever release he was compiled for, over the
 * `known` bytes of defaults at ret. A size below `least` was never set; `advice`, how to set
 * it, is for the message. */
int ckpt__struct_read(void *ret, size_t known, const void *given, size_t least, const char *advice,
                      ckpt_error *err);

/* Room for one more item in a growing array: *items is a pointer of any type, whose items are moved
 * to larger memory when count has reached *capacity. False when out of memory. */
bool ckpt__grow(const struct ckpt__env *env, void *items, size_t count, size_t *capacity,
                size_t item);

/* len 0 gives a valid pointer; NULL means out of memory. */
void *ckpt__alloc(const struct ckpt__env *env, size_t len);
void *ckpt__alloc_zero(const struct ckpt__env *env, size_t len);
void *ckpt__alloc_array(const struct ckpt__env *env, size_t count,
                        size_t item); /* overflow: NULL */
void *ckpt__alloc_aligned(const struct ckpt__env *env, size_t len, size_t align);
char *ckpt__strdup(const struct ckpt__env *env, const char *s);
void ckpt__free(const struct ckpt__env *env, void *p);

int ckpt__random(uint8_t *dst, size_t len); /* 0 or an errno */

void ckpt__log(const struct ckpt__env *env, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Fill *err (may be NULL) and return code. _sys maps errno to the code that says what to do and
 * appends ": strerror". */
int ckpt__fail(ckpt_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int ckpt__fail_sys(ckpt_error *err, int sys_errno, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int ckpt__code_of_errno(int sys_errno);

#endif
