/* clock.h: the monotonic clock, in one place. */
#ifndef CKPT_CLOCK_H
#define CKPT_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ckpt__now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline int64_t ckpt__now_ms(void)
{
    return (int64_t)(ckpt__now_ns() / 1000000u);
}

#endif
