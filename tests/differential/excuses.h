/* excuses.h: which requests would meet a difference that we keep. */
#ifndef TESTS_DIFFERENTIAL_EXCUSES_H
#define TESTS_DIFFERENTIAL_EXCUSES_H

#include "play.h"

/* Whether the driver has to keep clear of this difference, DIFFERENT_*. */
int excused(const struct play *p, int difference);
/* 0 = to be left out now. */
int excuses_usable(const struct play *p, const struct op *op);

#endif
