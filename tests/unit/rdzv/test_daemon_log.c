/*
 * test_daemon_log.c: the log of rdzvd while nobody reads it: the server serves and can be ended,
 * and what was lost is told to the line.
 */
#include "daemon.h"
#include "log.h"
#include "net.h"
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[1 << 20];
static size_t text_len;

/* Takes what is there. */
static void read_all(int fd)
{
    ssize_t n;
    while ((n = read(fd, text + text_len, sizeof text - 1 - text_len)) > 0)
        text_len += (size_t)n;
    ck_assert_int_eq(errno, EAGAIN);
    text[text_len] = '\0';
}

/* Lines 0 to `count` - 1 came whole and in order, or were told to be lost where they are missing.
 * Returns how many came. */
static int check_lines(int count)
{
    int next = 0;
    int came = 0;
    for (char *line = strtok(text, "\r\n"); line != NULL; line = strtok(NULL, "\r\n")) {
        int number = -1;
        int end = -1;
        char *words = strchr(line, ' ');
        words = words != NULL ? words + strspn(words, " ") : line;
        sscanf(words, "warn %d lines before this one could not be written%n", &number, &end);
        if (end == (int)strlen(words)) {
            next += number;
            continue;
        }
        sscanf(words, "info number %d ends%n", &number, &end);
        if (end != (int)strlen(words))
            continue; /* torn, and told to be lost */
        ck_assert_msg(number == next, "%d after %d", number, next);
        next++;
        came++;
    }
    ck_assert_int_eq(next, count);
    return came;
}

START_TEST(what_was_lost_is_told)
{
    enum { FLOOD = 6000, PART = 200 };
    int ends[2];
    int number = 0;
    daemon_open_log(_i, ends);
    for (int i = 0; i < (_i == DAEMON_LOG_SOCKET ? 1 : 2); i++) /* as log_open does */
        fcntl(ends[i], F_SETFL, fcntl(ends[i], F_GETFL) | O_NONBLOCK);
    struct log log = {.fd = ends[1], .level = 2};
    text_len = 0;
    char line[64];
    for (int round = 0; round < 3; round++) {
        int lost = 0;
        for (int i = 0; i < FLOOD + round; i++) {
            snprintf(line, sizeof line, "number %d ends", number++);
            log_line(&log, 2, line);
            lost |= log.lost > 0;
        }
        ck_assert(lost); /* the last one may have found room again */
        for (int i = 0; i < PART || log.lost > 0; i++) {
            ck_assert_int_lt(i, 20 * PART);
            read_all(ends[0]);
            usleep(1000); /* a terminal hands on what is written a little later */
            snprintf(line, sizeof line, "number %d ends", number++);
            log_line(&log, 2, line);
        }
    }
    log_line(&log, 3, "too much detail");
    for (int i = 0; strstr(text, line) == NULL; i++) {
        ck_assert_int_lt(i, 10000);
        usleep(1000);
        read_all(ends[0]);
    }
    ck_assert_ptr_null(strstr(text, "detail"));
    ck_assert_int_ge(check_lines(number), 3 * PART);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(a_server_whose_log_nobody_reads)
{
    daemon_log_to(_i);
    DAEMON_START("--log-level", "debug");
    for (int i = 0; i < 1500; i++) /* two lines each */
        close(net_greet(daemon_port(NULL)));
    daemon_stop_unread();
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("daemon log");
    TCase *t = tcase_create("daemon log");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, daemon_teardown);
    tcase_add_loop_test(t, what_was_lost_is_told, 0, DAEMON_LOG_KINDS);
    tcase_add_loop_test(t, a_server_whose_log_nobody_reads, 0, DAEMON_LOG_KINDS);
    suite_add_tcase(s, t);
    return s;
}
