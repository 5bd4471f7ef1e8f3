/*
 * test_crc32c.c: known answers (RFC 3720 appendix B.4 and the check value of the catalogue), any
 * split, and a bit-by-bit computation that shares nothing with the one under test.
 */
#include "format/crc32c.h"
#include "disk.h"
#include "runner.h"

#include <stdlib.h>
#include <string.h>

static uint32_t bit_by_bit(const uint8_t *bytes, size_t len)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

START_TEST(known_answers)
{
    uint8_t buf[32];
    ck_assert_uint_eq(ckpt__crc32c(0, "", 0), 0);
    ck_assert_uint_eq(ckpt__crc32c(0, "123456789", 9), 0xe3069283u);
    memset(buf, 0, sizeof buf);
    ck_assert_uint_eq(ckpt__crc32c(0, buf, sizeof buf), 0x8a9136aau);
    memset(buf, 0xff, sizeof buf);
    ck_assert_uint_eq(ckpt__crc32c(0, buf, sizeof buf), 0x62a8ab43u);
    for (uint8_t i = 0; i < 32; i++)
        buf[i] = i;
    ck_assert_uint_eq(ckpt__crc32c(0, buf, sizeof buf), 0x46dd794eu);
    for (uint8_t i = 0; i < 32; i++)
        buf[i] = (uint8_t)(31 - i);
    ck_assert_uint_eq(ckpt__crc32c(0, buf, sizeof buf), 0x113fdb5cu);
}
END_TEST

START_TEST(any_length_at_any_address)
{
    uint8_t buf[1100];
    disk_fill(buf, sizeof buf, 5);
    for (size_t at = 0; at < 17; at++)
        for (size_t len = 0; len <= 1024; len += len < 80 ? 1 : 31)
            ck_assert_uint_eq(ckpt__crc32c(0, buf + at, len), bit_by_bit(buf + at, len));
}
END_TEST

START_TEST(any_split_gives_the_same)
{
    size_t len = 70000;
    uint8_t *buf = malloc(len);
    disk_fill(buf, len, 6);
    uint32_t whole = ckpt__crc32c(0, buf, len);
    ck_assert_uint_eq(whole, bit_by_bit(buf, len));
    for (size_t at = 0; at <= len; at += at < 300 ? 1 : 997)
        ck_assert_uint_eq(ckpt__crc32c(ckpt__crc32c(0, buf, at), buf + at, len - at), whole);
    uint32_t crc = 0;
    for (size_t i = 0; i < len; i++)
        crc = ckpt__crc32c(crc, buf + i, 1);
    ck_assert_uint_eq(crc, whole);
    free(buf);
}
END_TEST

START_TEST(every_flipped_bit_shows)
{
    uint8_t buf[64];
    disk_fill(buf, sizeof buf, 7);
    uint32_t good = ckpt__crc32c(0, buf, sizeof buf);
    for (size_t bit = 0; bit < sizeof buf * 8; bit++) {
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert_uint_ne(ckpt__crc32c(0, buf, sizeof buf), good);
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("crc32c");
    TCase *t = tcase_create("crc32c");
    tcase_add_test(t, known_answers);
    tcase_add_test(t, any_length_at_any_address);
    tcase_add_test(t, any_split_gives_the_same);
    tcase_add_test(t, every_flipped_bit_shows);
    suite_add_tcase(s, t);
    return s;
}
