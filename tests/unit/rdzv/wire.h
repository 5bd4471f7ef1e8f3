/* wire.h: builds c10d bytes for the tests, requests and expected replies alike. */
#ifndef TESTS_RDZV_WIRE_H
#define TESTS_RDZV_WIRE_H

#include "core/wire_c10d.h"

#include <stddef.h>
#include <stdint.h>

struct wire {
    uint8_t *data;
    size_t len;
    size_t cap;
};

#define WIRE_INIT                                                                                  \
    {                                                                                              \
        NULL, 0, 0                                                                                 \
    }

void wire_bytes(struct wire *w, const void *bytes, size_t len);
/* Appends by format: b byte (int), u u32 (unsigned), i u64 (long long), s string with u64 length
 * (const char *), x bytes without a length (const char *). */
void wire_add(struct wire *w, const char *format, ...);
/* VALIDATE */
void wire_hello(struct wire *w);
/* A string of `len` times `c`. */
void wire_fill(struct wire *w, char c, size_t len);
void wire_free(struct wire *w);
/* Asserts equal bytes and empties both. */
void wire_equal(struct wire *got, struct wire *want);
/* Asserts that `got` is what wire_add would build, and empties it. */
#define wire_expect(got, ...)                                                                      \
    do {                                                                                           \
        struct wire wire_want = WIRE_INIT;                                                         \
        wire_add(&wire_want, __VA_ARGS__);                                                         \
        wire_equal((got), &wire_want);                                                             \
        wire_free(&wire_want);                                                                     \
    } while (0)

/* The recorded sessions: "2.13.0" and "1.13.1". */
void wire_load(struct wire *w, const char *version, const char *direction);
/* Sorts the names of the one LIST_KEYS answer of the 2.13.0 session, whose order is free. */
void wire_sort_list(struct wire *w);

#endif
