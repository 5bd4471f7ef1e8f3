/* pair.h: one client, connected to both servers: what is sent goes to both, what comes is kept. */
#ifndef TESTS_DIFFERENTIAL_PAIR_H
#define TESTS_DIFFERENTIAL_PAIR_H

#include "wire.h"

#include <stdint.h>

enum { OURS = 0, THEIRS = 1, SIDES = 2 };

struct side {
    int fd;         /* -1 = not connected */
    int ended;      /* the server has closed */
    struct wire in; /* what came */
    size_t taken;   /* and was looked at */
};

struct pair {
    struct side side[SIDES];
};

/* Connects both and sends `first`. Exits the program when a server cannot be reached. */
void pair_connect(struct pair *p, const uint16_t port[SIDES], const struct wire *first);
void pair_close(struct pair *p);
void pair_send(struct pair *p, const void *bytes, size_t len);
void pair_shutdown(struct pair *p);

/* Makes `len` bytes available behind those that were taken; NULL when the server closes or stays
 * silent before they are there. */
const uint8_t *side_take(struct side *s, size_t len, int timeout_ms);
/* Whether anything, or the end, is there within the time. */
int side_ready(struct side *s, int timeout_ms);

#endif
