/*
 * crc32c.c: CRC32C by ISA-L, which picks the processor's instructions at run time.
 *
 * ISA-L's function is the bare polynomial: it neither inverts the start value nor the result. Both
 * inversions are here, so that 0 starts and results chain. Its length is an int: long input goes in
 * pieces.
 */
#include "format/crc32c.h"

#include <isa-l/crc.h>

#define PIECE_BYTES (1u << 30)

uint32_t ckpt__crc32c(uint32_t crc, const void *bytes, size_t len)
{
    /* not const in ISA-L's declaration; it only reads */
    unsigned char *at = (unsigned char *)(uintptr_t)bytes;
    uint32_t state = ~crc;
    while (len > 0) {
        size_t piece = len < PIECE_BYTES ? len : PIECE_BYTES;
        state = crc32_iscsi(at, (int)piece, state);
        at += piece;
        len -= piece;
    }
    return ~state;
}
