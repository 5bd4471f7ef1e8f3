/*
 * bytes.h: little-endian integers in byte strings, at any alignment. The caller checks lengths.
 */
#ifndef COMMON_BYTES_H
#define COMMON_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t bytes_get_u32(const void *src)
{
    uint32_t v;
    memcpy(&v, src, sizeof v);
    return le32toh(v);
}

static inline uint64_t bytes_get_u64(const void *src)
{
    uint64_t v;
    memcpy(&v, src, sizeof v);
    return le64toh(v);
}

static inline void bytes_put_u32(void *dst, uint32_t v)
{
    v = htole32(v);
    memcpy(dst, &v, sizeof v);
}

static inline void bytes_put_u64(void *dst, uint64_t v)
{
    v = htole64(v);
    memcpy(dst, &v, sizeof v);
}

#endif
