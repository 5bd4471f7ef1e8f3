/* error.h: fills a caller's rdzv_error. */
#ifndef RDZV_SRC_ERROR_H
#define RDZV_SRC_ERROR_H

#include "rdzv.h"

#include <stdarg.h>

/* Returns `code`, so that a failing function can end with it. `err` may be NULL. */
__attribute__((format(printf, 4, 5))) int rdzv__fail(rdzv_error *err, int code, int sys_errno,
                                                     const char *format, ...);
/* The same; ": " and what sys_errno means is added to the text. */
__attribute__((format(printf, 4, 5))) int rdzv__fail_sys(rdzv_error *err, int code, int sys_errno,
                                                         const char *format, ...);
__attribute__((format(printf, 4, 0))) int rdzv__vfail(rdzv_error *err, int code, int sys_errno,
                                                      const char *format, va_list args);

#endif
