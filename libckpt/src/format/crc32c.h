/* crc32c.h: CRC32C (Castagnoli, reflected, initial value and final xor all ones) by ISA-L. */
#ifndef CKPT_CRC32C_H
#define CKPT_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* crc = 0 to start; the result of one call continues in the next. */
uint32_t ckpt__crc32c(uint32_t crc, const void *bytes, size_t len);

#endif
