/*
 * fuzz.h: what the targets of the two c10d parsers share: a check that does not return, and an
 * allocator that counts what lives and fails when it is told to. FUZZ_LARGEST is defined by who
 * includes this: no input may make the parser ask for a longer block.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "alloc.h"

#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static size_t live;
static int fail_in; /* the allocation that fails, counted down; 0 = none */

static void *fuzz_alloc(void *ctx, size_t len, size_t align)
{
    (void)ctx;
    (void)align;
    REQUIRE(len <= FUZZ_LARGEST); /* nothing may believe an announced length */
    if (fail_in > 0 && --fail_in == 0)
        return NULL;
    void *ptr = malloc(len);
    live += ptr != NULL;
    return ptr;
}

static void fuzz_free(void *ctx, void *ptr)
{
    (void)ctx;
    live -= ptr != NULL;
    free(ptr);
}

static const rdzv_allocator allocator = {fuzz_alloc, fuzz_free, NULL};

#endif
