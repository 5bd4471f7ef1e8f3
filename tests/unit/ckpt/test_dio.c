/*
 * test_dio.c: what the kernel says about alignment is true: a transfer that keeps to it is taken.
 */
#include "disk/dio.h"
#include "disk.h"
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct disk disk;

static void setup(void)
{
    disk_init(&disk);
}

static void teardown(void)
{
    disk_free(&disk);
}

START_TEST(what_is_asked_is_what_is_taken)
{
    int fd = open(disk_path(disk.dir, "file"), O_CREAT | O_RDWR | O_DIRECT | O_CLOEXEC, 0644);
    if (fd < 0) {
        printf("skip: %s takes no O_DIRECT: %s\n", disk.dir, strerror(errno));
        return;
    }
    struct ckpt__dio dio = ckpt__dio_ask(fd);
    ck_assert(dio.supported);
    uint32_t align = ckpt__dio_align(&dio);
    ck_assert_uint_ge(align, dio.mem_align);
    ck_assert_uint_ge(align, dio.off_align);
    ck_assert_uint_le(align, CKPT__DIO_MAX_ALIGN);
    ck_assert_uint_eq(align & (align - 1), 0);
    uint8_t *buf = aligned_alloc(CKPT__DIO_MAX_ALIGN, 4 * CKPT__DIO_MAX_ALIGN);
    disk_fill(buf, 2 * align, 1);
    ck_assert_int_eq(pwrite(fd, buf + align, align, align), (ssize_t)align);
    ck_assert_int_eq(pread(fd, buf + 2 * align, align, align), (ssize_t)align);
    ck_assert_mem_eq(buf + align, buf + 2 * align, align);
    free(buf);
    close(fd);
}
END_TEST

START_TEST(ramfs_has_none_and_says_so_at_open)
{
    if (!disk_mount(&disk, "ramfs"))
        return;
    int fd = open(disk_path(disk.dir, "file"), O_CREAT | O_RDWR | O_DIRECT | O_CLOEXEC, 0644);
    ck_assert_int_eq(fd, -1);
    ck_assert(ckpt__dio_refused(errno));
}
END_TEST

START_TEST(what_cannot_be_asked_gets_the_default)
{
    struct ckpt__dio dio = ckpt__dio_ask(-1);
    ck_assert(dio.supported);
    ck_assert_uint_eq(dio.mem_align, CKPT__DIO_DEFAULT_ALIGN);
    ck_assert_uint_eq(dio.off_align, CKPT__DIO_DEFAULT_ALIGN);
}
END_TEST

START_TEST(which_errno_means_fall_back)
{
    static const int yes[] = {EINVAL, EOPNOTSUPP, ENOTSUP, EPERM};
    static const int no[] = {EIO, ENOSPC, EACCES, EROFS, EINTR, EAGAIN, ECANCELED, EFBIG, EDQUOT};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        ck_assert(ckpt__dio_refused(yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
        ck_assert(!ckpt__dio_refused(no[i]));
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("dio");
    TCase *t = tcase_create("dio");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_is_asked_is_what_is_taken);
    tcase_add_test(t, ramfs_has_none_and_says_so_at_open);
    tcase_add_test(t, what_cannot_be_asked_gets_the_default);
    tcase_add_test(t, which_errno_means_fall_back);
    suite_add_tcase(s, t);
    return s;
}
