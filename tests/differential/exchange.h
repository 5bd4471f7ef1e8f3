/* exchange.h: requests out and answers in, in lockstep. Results are those of answer.h. */
#ifndef TESTS_DIFFERENTIAL_EXCHANGE_H
#define TESTS_DIFFERENTIAL_EXCHANGE_H

#include "play.h"

/* Both servers have looked at their sockets since. */
int exchange_fence(struct play *p);
/* The same after something that nothing answers. */
int exchange_settle(struct play *p);

/* Puts a request behind those in `out`. */
void exchange_add(struct play *p, const struct op *op);
/* Sends what is in `out` and compares the answers. */
int exchange_flush(struct play *p, unsigned client, unsigned cut);
/* A WAIT or BARRIER at the end of `out`: after it the client is parked, or both have answered. */
int exchange_flush_blocking(struct play *p, unsigned client, unsigned cut);
/* Reads the answers to what is in `out`. */
int exchange_answers(struct play *p, struct pair *c);

/* A client that waits says so before it goes on. */
int exchange_cancel(struct play *p, unsigned client);
/* What both servers say to CHECK of the keys of `op`: 1 = all there. */
int exchange_probe(struct play *p, const struct op *op, int *ret_there);

int exchange_connect(struct play *p, unsigned client);
int exchange_reconnect(struct play *p, unsigned client);

#endif
