/* clock.h: the monotonic clock, in one place. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_ms(void)
{
    return clock_ns() / 1000000u;
}

/* The time at which `ms` are over. Now's milliseconds are cut off, so it is one more. */
static inline uint64_t clock_in_ms(int64_t ms)
{
    return clock_ms() + (uint64_t)ms + (ms > 0);
}

/* The end of a wait whose time is -1 when it has no limit: UINT64_MAX then. */
static inline uint64_t clock_end_ms(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : clock_in_ms(timeout_ms);
}

/* For poll: the time left until `end`, at most an hour; UINT64_MAX is no limit. */
static inline int clock_poll_ms(uint64_t now, uint64_t end)
{
    if (end == UINT64_MAX)
        return -1;
    if (end <= now)
        return 0;
    return end - now < 3600000 ? (int)(end - now) : 3600000;
}

#endif
