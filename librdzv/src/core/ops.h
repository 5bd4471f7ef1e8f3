/* ops.h: what each request does. Inside the core only. */
#ifndef RDZV_CORE_OPS_H
#define RDZV_CORE_OPS_H

#include "core/core.h"

/* Applies and answers one complete request: `op` in dialect C's numbers, `body` what follows the
 * opcode. Anything but RDZV__WHY_OK is a reason to end the connection. */
int rdzv__op_run(struct rdzv__session *s, uint8_t op, const uint8_t *body);

#endif
