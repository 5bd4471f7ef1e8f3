/*
 * dio.h: what the kernel says about direct I/O on one file, and which errno means "not here".
 */
#ifndef CKPT_DIO_H
#define CKPT_DIO_H

#include <stdbool.h>
#include <stdint.h>

#define CKPT__DIO_DEFAULT_ALIGN 4096u
#define CKPT__DIO_MAX_ALIGN 65536u /* blocks and their offsets are multiples of it */

struct ckpt__dio {
    bool supported;
    uint32_t mem_align; /* of the buffer; powers of two, 1 to CKPT__DIO_MAX_ALIGN */
    uint32_t off_align; /* of offset and length */
};

/* Asks about an open file. Where kernel, headers or file system do not say: supported, 4096. May
 * wait for a server on a network file system. */
struct ckpt__dio ckpt__dio_ask(int fd);

/* The larger of the two: what fits buffer, offset and length alike. */
uint32_t ckpt__dio_align(const struct ckpt__dio *dio);

/* True for an errno of an open with O_DIRECT, or of a transfer on such a file, after which the page
 * cache is worth a try. */
bool ckpt__dio_refused(int sys_errno);

#endif
