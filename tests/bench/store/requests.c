/*
 * requests.c: the bytes of requests, in the newest dialect of c10d. Knows no connection.
 */
#include "load.h"

#include <string.h>

static size_t put_head(uint8_t *at, uint8_t op, char kind, uint64_t number)
{
    at[0] = op;
    return 1 + put_key(at + 1, kind, number);
}

size_t put_key(uint8_t *at, char kind, uint64_t number)
{
    bytes_put_u64(at, KEY_BYTES);
    at[8] = '/';
    at[9] = (uint8_t)kind;
    for (int i = 2; i < KEY_BYTES; i++, number /= 64)
        at[8 + i] = (uint8_t)('0' + number % 64);
    return 8 + KEY_BYTES;
}

size_t put_add(uint8_t *at, char kind, uint64_t number, uint64_t delta)
{
    size_t len = put_head(at, OP_ADD, kind, number);
    bytes_put_u64(at + len, delta);
    return len + 8;
}

size_t put_get(uint8_t *at, char kind, uint64_t number)
{
    return put_head(at, OP_GET, kind, number);
}

size_t put_wait(uint8_t *at, char kind, uint64_t number)
{
    at[0] = OP_WAIT;
    bytes_put_u64(at + 1, 1);
    return 9 + put_key(at + 9, kind, number);
}

size_t put_set(uint8_t *at, char kind, uint64_t number, const void *value, size_t len)
{
    size_t used = put_head(at, OP_SET, kind, number);
    bytes_put_u64(at + used, len);
    memcpy(at + used + 8, value, len);
    return used + 8 + len;
}

size_t put_barrier(uint8_t *at, char kind, uint64_t number, uint64_t world_size)
{
    size_t len = put_head(at, OP_BARRIER, kind, number);
    bytes_put_u64(at + len, world_size);
    return len + 8;
}

size_t put_ping(uint8_t *at, uint32_t nonce)
{
    at[0] = OP_PING;
    bytes_put_u32(at + 1, nonce);
    return 5;
}
