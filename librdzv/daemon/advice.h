/* advice.h: says what is wrong with what was asked for, and what to do. */
#ifndef RDZVD_ADVICE_H
#define RDZVD_ADVICE_H

#include "args.h"
#include "log.h"

/* Limits that do not go together, or have no effect. */
void advise_limits(struct log *log, const struct args *a);
/* An address that is open to other machines. */
void advise_address(struct log *log, const char *address);
/* Why `flag` could not be done, and what to do; returns the exit code. `server` is NULL while it is
 * not open. */
int advise_open(struct log *log, const struct args *a, const rdzv_server *server, int code,
                const rdzv_error *err, const char *flag, unsigned port);

#endif
