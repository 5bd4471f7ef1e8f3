/* steps.h: one step of a script. */
#ifndef TESTS_DIFFERENTIAL_STEPS_H
#define TESTS_DIFFERENTIAL_STEPS_H

#include "play.h"

/* SAME, DIFFERENT, or CLOSED: the client has to connect again. */
int step_play(struct play *p, const struct step *step);

#endif
