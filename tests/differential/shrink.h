/* shrink.h: makes a failing case small. */
#ifndef TESTS_DIFFERENTIAL_SHRINK_H
#define TESTS_DIFFERENTIAL_SHRINK_H

#include "play.h"

/* `p` is closed, before and after. Returns 0 when `s` does not fail on new connections; else `s` is
 * what is left of it, and p->difference is its difference. */
int shrink(struct play *p, struct script *s);

#endif
