/* random.h: a number for seeds, nonces and spread pauses; not for secrets. */
#ifndef RDZV_UV_RANDOM_H
#define RDZV_UV_RANDOM_H

#include <stdint.h>
#include <sys/random.h>
#include <uv.h>

/* Never waits: where the kernel has none yet, the clock has to do. */
static inline uint64_t rdzv__random(void)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number)
        number = uv_hrtime() * 0x9E3779B97F4A7C15ull;
    return number;
}

#endif
