/*
 * env.c: memory through the caller's allocator, log lines through the handle. No state of its own.
 */
#include "env.h"
#include "libc_alloc.h"
#include "options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static void no_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

void ckpt__env_init(struct ckpt__env *env, const ckpt_allocator *a)
{
    env->allocator = a != NULL ? *a : (ckpt_allocator){libc_alloc, libc_free, NULL};
    env->log = no_log;
    env->log_ctx = NULL;
}

void *ckpt__alloc_aligned(const struct ckpt__env *env, size_t len, size_t align)
{
    return env->allocator.alloc(env->allocator.ctx, len > 0 ? len : 1, align);
}

void *ckpt__alloc(const struct ckpt__env *env, size_t len)
{
    return ckpt__alloc_aligned(env, len, _Alignof(max_align_t));
}

void *ckpt__alloc_zero(const struct ckpt__env *env, size_t len)
{
    void *p = ckpt__alloc(env, len);
    if (p != NULL)
        memset(p, 0, len);
    return p;
}

void *ckpt__alloc_array(const struct ckpt__env *env, size_t count, size_t item)
{
    size_t len;
    if (__builtin_mul_overflow(count, item, &len))
        return NULL;
    return ckpt__alloc(env, len);
}

char *ckpt__strdup(const struct ckpt__env *env, const char *s)
{
    size_t len = strlen(s) + 1;
    char *copy = ckpt__alloc(env, len);
    if (copy != NULL)
        memcpy(copy, s, len);
    return copy;
}

void ckpt__free(const struct ckpt__env *env, void *p)
{
    env->allocator.free(env->allocator.ctx, p);
}

void ckpt__log(const struct ckpt__env *env, int level, const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    env->log(env->log_ctx, level, line);
}

int ckpt__struct_read(void *ret, size_t known, const void *given, size_t least, const char *advice,
                      ckpt_error *err)
{
    switch (options_read(ret, known, given, least)) {
    case OPTIONS_OK:
        return CKPT_OK;
    case OPTIONS_TOO_NEW:
        return ckpt__fail(err, CKPT_EINVAL, "a field is set that version %d does not know: %s",
                          (int)ckpt_version(), advice);
    default:
        return ckpt__fail(err, CKPT_EINVAL, "the caller's struct is not set up: %s", advice);
    }
}

bool ckpt__grow(const struct ckpt__env *env, void *items, size_t count, size_t *capacity,
                size_t item)
{
    if (count < *capacity)
        return true;
    size_t want = *capacity == 0 ? 16 : *capacity * 2;
    void *bigger = ckpt__alloc_array(env, want, item);
    if (bigger == NULL)
        return false;
    void *old;
    memcpy(&old, items, sizeof old); /* the pointer's own type is the caller's */
    if (count > 0)
        memcpy(bigger, old, count * item);
    ckpt__free(env, old);
    memcpy(items, &bigger, sizeof bigger);
    *capacity = want;
    return true;
}

int ckpt__random(uint8_t *dst, size_t len)
{
    while (len > 0) {
        ssize_t n = getrandom(dst, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        dst += n;
        len -= (size_t)n;
    }
    return 0;
}
