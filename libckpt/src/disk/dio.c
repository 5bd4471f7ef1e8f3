/*
 * dio.c: asks statx for the alignment of direct I/O, per file, memory and offset apart.
 *
 * No state. A probe by writing proves nothing (tmpfs takes bad alignment, overlayfs takes the flag
 * and fails later), so what statx does not know is left to the first transfer to find out.
 */
#include "disk/dio.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static bool usable(uint32_t align)
{
    return align != 0 && (align & (align - 1)) == 0 && align <= CKPT__DIO_MAX_ALIGN;
}

struct ckpt__dio ckpt__dio_ask(int fd)
{
    struct ckpt__dio dio = {true, CKPT__DIO_DEFAULT_ALIGN, CKPT__DIO_DEFAULT_ALIGN};
#ifdef STATX_DIOALIGN
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_DIOALIGN, &st) == 0 &&
        (st.stx_mask & STATX_DIOALIGN) != 0) {
        dio.mem_align = st.stx_dio_mem_align;
        dio.off_align = st.stx_dio_offset_align;
        dio.supported = usable(dio.mem_align) && usable(dio.off_align);
    }
#else
    (void)fd;
#endif
    return dio;
}

uint32_t ckpt__dio_align(const struct ckpt__dio *dio)
{
    return dio->mem_align > dio->off_align ? dio->mem_align : dio->off_align;
}

bool ckpt__dio_refused(int sys_errno)
{
    _Static_assert(ENOTSUP == EOPNOTSUPP, "on Linux they are one");
    return sys_errno == EINVAL || sys_errno == EOPNOTSUPP || sys_errno == EPERM;
}
