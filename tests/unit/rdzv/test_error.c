/*
 * test_error.c: how a failure fills the caller's error struct: code, errno, and a text that fits.
 */
#include "error.h"
#include "runner.h"
#include "text.h"

#include <errno.h>
#include <string.h>

START_TEST(code_errno_and_text)
{
    rdzv_error err;
    ck_assert_int_eq(rdzv__fail(&err, RDZV_EINVAL, 0, "port %d", 7), RDZV_EINVAL);
    ck_assert_int_eq(err.code, RDZV_EINVAL);
    ck_assert_int_eq(err.sys_errno, 0);
    ck_assert_str_eq(err.text, "port 7");
    ck_assert_int_eq(rdzv__fail_sys(&err, RDZV_EIO, ENOENT, "port %d", 8), RDZV_EIO);
    ck_assert_int_eq(err.code, RDZV_EIO);
    ck_assert_int_eq(err.sys_errno, ENOENT);
    ck_assert_str_eq(err.text, "port 8: No such file or directory");
    ck_assert_int_eq(rdzv__fail(NULL, RDZV_EIO, 0, "nobody reads it"), RDZV_EIO);
    ck_assert_int_eq(rdzv__fail_sys(NULL, RDZV_EIO, ENOENT, "nobody reads it"), RDZV_EIO);
}
END_TEST

/* A long text is cut, and not within a character: of 1 to 4 bytes, and at each place. */
START_TEST(a_text_that_is_cut_ends_in_a_whole_character)
{
    static const char *const characters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    const char *character = characters[_i];
    size_t bytes = strlen(character);
    for (size_t shift = 0; shift < 4; shift++) {
        char name[512] = "";
        rdzv_error err;
        memset(name, 'a', shift);
        for (size_t at = shift; at + bytes < sizeof name; at += bytes)
            memcpy(name + at, character, bytes + 1);
        size_t fits = shift + (sizeof err.text - 1 - shift) / bytes * bytes;
        rdzv__fail(&err, RDZV_EINVAL, 0, "%s", name);
        ck_assert_uint_eq(strlen(err.text), fits);
        ck_assert_mem_eq(err.text, name, fits);
        rdzv__fail_sys(&err, RDZV_EIO, ENOENT, "%s", name);
        ck_assert_uint_eq(strlen(err.text), fits);
        name[fits] = '\0';
        rdzv__fail(&err, RDZV_EINVAL, 0, "%s", name); /* fits, and stays */
        ck_assert_str_eq(err.text, name);
    }
}
END_TEST

START_TEST(short_buffers)
{
    char text[4] = "";
    text_mend_end(text, 1);
    ck_assert_str_eq(text, "");
    memcpy(text, "\xe2\x82", 3);
    text_mend_end(text, 3);
    ck_assert_str_eq(text, "");
    memcpy(text, "\xe2\x82", 3);
    text_mend_end(text, 4); /* was not cut */
    ck_assert_str_eq(text, "\xe2\x82");
    memcpy(text, "\x82\x82\x82", 4); /* no character at all */
    text_mend_end(text, 4);
    ck_assert_uint_le(strlen(text), 3);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("error");
    TCase *t = tcase_create("error");
    tcase_add_test(t, code_errno_and_text);
    tcase_add_loop_test(t, a_text_that_is_cut_ends_in_a_whole_character, 0, 4);
    tcase_add_test(t, short_buffers);
    suite_add_tcase(s, t);
    return s;
}
