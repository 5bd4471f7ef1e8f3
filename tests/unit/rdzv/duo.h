/* duo.h: the client's core and the server's core in one process, without sockets and clocks. */
#ifndef TESTS_RDZV_DUO_H
#define TESTS_RDZV_DUO_H

#include "core/client_c10d.h"
#include "peers.h"

struct duo {
    struct peers server; /* the client is its number 0 */
    struct rdzv__client_core client;
    rdzv_allocator allocator; /* of the client */
    uint64_t now_ms;
    size_t piece; /* answers come in pieces of so many bytes */
    int live;     /* calls that were not taken back */
};

void duo_open(struct duo *d, int legacy, int wait_first, const rdzv_allocator *allocator);
void duo_close(struct duo *d);
/* Moves bytes in both directions until nothing moves. */
void duo_run(struct duo *d);
/* Time passes, in one step. */
void duo_pass(struct duo *d, uint64_t ms);
/* Appends what the client has to send, as if it were sent. */
void duo_take(struct duo *d, struct wire *w);
void duo_feed(struct duo *d, const char *bytes, size_t len);

enum { DUO_KEYS = 4 };
/* A request for duo_submit: key, then values; `number`; a deadline from now, 0 = do not wait. */
struct rdzv__call *duo_submit(struct duo *d, uint8_t op, const char *const *keys, size_t keys_count,
                              const char *const *values, size_t values_count, int64_t number,
                              uint32_t timeout_ms);
struct rdzv__call *duo_key(struct duo *d, uint8_t op, const char *key, uint32_t timeout_ms);
struct rdzv__call *duo_set(struct duo *d, uint8_t op, const char *key, const char *value);
/* Server side: another client sets a key. */
void duo_other_sets(struct duo *d, const char *key, const char *value);

int duo_is_done(const struct rdzv__call *call);
/* Asserts that the call is done with that code, and frees it. */
void duo_ends(struct duo *d, struct rdzv__call *call, int code);
void duo_ends_with(struct duo *d, struct rdzv__call *call, int64_t number);
/* With one value. */
void duo_brings(struct duo *d, struct rdzv__call *call, const char *value);

#endif
