/* formats.h: what the tests of the pure formats share. */
#ifndef TESTS_CKPT_FORMATS_H
#define TESTS_CKPT_FORMATS_H

#include "ckpt.h"

ckpt_tensor formats_tensor(const char *name, uint32_t dtype, int32_t ndim, const int64_t *shape,
                           void *data);
/* Calls `act` over and over, each time with one more allocation that works before one fails, until
 * none does; it must return ENOMEM when one did. Returns how many calls there were. */
long formats_fail_each_allocation(int (*act)(const ckpt_allocator *));

#endif
