/* runner.h: every unit test defines suite(); runner.c is its main. */
#ifndef TESTS_RUNNER_H
#define TESTS_RUNNER_H

#include <check.h>

Suite *suite(void);

#endif
