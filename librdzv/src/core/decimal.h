/* decimal.h: the text of counters, as PyTorch's server reads and writes it. */
#ifndef RDZV_CORE_DECIMAL_H
#define RDZV_CORE_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

enum { RDZV__DECIMAL_BYTES = 24 };

/* Reads the number that a text starts with, as strtoll does: blanks, a sign, digits; what follows
 * is ignored. 0 = there is none, or it is out of range. */
int rdzv__decimal_parse(const uint8_t *text, size_t len, int64_t *ret);
/* Writes the canonical text, not terminated; returns its length. */
size_t rdzv__decimal_format(int64_t v, uint8_t text[RDZV__DECIMAL_BYTES]);

#endif
