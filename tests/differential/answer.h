/* answer.h: one answer, taken from both servers and compared. */
#ifndef TESTS_DIFFERENTIAL_ANSWER_H
#define TESTS_DIFFERENTIAL_ANSWER_H

#include "play.h"

enum { ANSWER_MS = 5000 /* longer is a hang */ };

enum { SAME = 0, CLOSED /* both have */, DIFFERENT /* see p->difference */ };

/* Notes what is not the same; returns DIFFERENT. */
__attribute__((format(printf, 2, 3))) int answer_differ(struct play *p, const char *format, ...);
/* Takes `len` bytes from both, which must be equal; *ret are ours. */
int answer_take(struct play *p, struct pair *c, size_t len, const uint8_t **ret);
/* Takes the answer to `op`. */
int answer_take_op(struct play *p, struct pair *c, const struct op *op);
/* Both servers end the connection and answer nothing more. */
int answer_end(struct play *p, struct pair *c);
/* The names of one LIST_KEYS answer, sorted: their order is free. An array of `count` to be freed
 * with its names; those that do not come are empty. */
struct wire *answer_names(struct side *s, uint64_t count);

#endif
