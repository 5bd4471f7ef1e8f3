/*
 * test_group.c: the exchange over a board. The board of these tests lives in memory and can stop
 * everybody after any number of operations, which is how an attempt is killed in every phase.
 */
#include "runner.h"

#include "ckpt.h"
#include "clock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_KEYS 64
#define MAX_RANKS 5

/* ------------------------------------------------------------------------------------------ */
/* A board in memory                                                                            */

static struct {
    char key[32];
    uint8_t *bytes;
    size_t len;
} slots[MAX_KEYS];

static long operations; /* done */
static long stop_after; /* the board is dead from then on: the processes have been killed */

static int alive(void)
{
    return operations++ < stop_after;
}

static int32_t put(void *ctx, const char *key, const void *bytes, size_t len)
{
    (void)ctx;
    if (!alive())
        return CKPT_EIO;
    for (int i = 0; i < MAX_KEYS; i++) {
        if (slots[i].bytes != NULL && strcmp(slots[i].key, key) != 0)
            continue;
        free(slots[i].bytes);
        snprintf(slots[i].key, sizeof slots[i].key, "%s", key);
        slots[i].bytes = malloc(len + 1);
        memcpy(slots[i].bytes, bytes, len);
        slots[i].len = len;
        return CKPT_OK;
    }
    return CKPT_ENOSPC;
}

static int64_t get(void *ctx, const char *key, void *buf, size_t cap)
{
    (void)ctx;
    if (!alive())
        return CKPT_EIO;
    for (int i = 0; i < MAX_KEYS; i++) {
        if (slots[i].bytes == NULL || strcmp(slots[i].key, key) != 0)
            continue;
        if (slots[i].len > cap)
            return CKPT_EINVAL;
        memcpy(buf, slots[i].bytes, slots[i].len);
        return (int64_t)slots[i].len;
    }
    return CKPT_ENOENT;
}

static void clear_board(void)
{
    for (int i = 0; i < MAX_KEYS; i++) {
        free(slots[i].bytes);
        slots[i].bytes = NULL;
    }
    operations = 0;
    stop_after = 1000000000;
}

/* ------------------------------------------------------------------------------------------ */
/* Ranks, all driven from here                                                                  */

static struct rank {
    ckpt_group group;
    int open, waiting;
    ckpt_error result;
    char got[MAX_RANKS][32];
} ranks[MAX_RANKS];

static int world;

static void open_rank(int r, int world_size)
{
    ckpt_error err = {0};
    ckpt_board board = {.size = sizeof board, .put = put, .get = get};
    int rc = ckpt_group_board(&ranks[r].group, &board, r, world_size, &err);
    ck_assert_msg(rc == CKPT_OK, "%s", err.text);
    ranks[r].open = 1;
    ranks[r].waiting = 0;
}

static void close_rank(int r)
{
    if (ranks[r].open)
        ranks[r].group.close(ranks[r].group.ctx);
    ranks[r].open = 0;
}

static void open_all(int n)
{
    world = n;
    for (int r = 0; r < n; r++)
        open_rank(r, n);
}

static void close_all(void)
{
    for (int r = 0; r < MAX_RANKS; r++)
        close_rank(r);
}

static void teardown(void)
{
    close_all();
    clear_board();
}

static void exchanged(void *ctx, const ckpt_blob *blobs, const ckpt_error *result)
{
    struct rank *r = ctx;
    ck_assert_int_eq(r->waiting, 1); /* exactly once */
    r->waiting = 0;
    r->result = *result;
    ck_assert((blobs != NULL) == (result->code == CKPT_OK));
    for (int i = 0; blobs != NULL && i < r->group.world_size; i++)
        snprintf(r->got[i], sizeof r->got[i], "%.*s", (int)blobs[i].len_bytes,
                 (const char *)blobs[i].bytes);
}

static void say(int r, const char *what, int timeout_ms)
{
    char blob[32];
    snprintf(blob, sizeof blob, "%s-%d", what, r);
    ranks[r].waiting = 1;
    ranks[r].group.exchange(ranks[r].group.ctx, blob, strlen(blob), timeout_ms, exchanged,
                            &ranks[r]);
    ck_assert_int_eq(ranks[r].waiting, 1); /* never before the call returns */
}

static void say_all(const char *what, int timeout_ms)
{
    for (int r = 0; r < world; r++)
        say(r, what, timeout_ms);
}

/* Drives all until nobody waits, everybody has been killed, or ms are over. */
static void drive(long ms)
{
    for (uint64_t end = clock_in_ms(ms); clock_ms() < end;) {
        int waiting = 0;
        struct pollfd fds[MAX_RANKS];
        nfds_t n = 0;
        for (int r = 0; r < world; r++) {
            waiting += ranks[r].waiting;
            if (ranks[r].open)
                fds[n++] =
                    (struct pollfd){.fd = ranks[r].group.fd(ranks[r].group.ctx), .events = POLLIN};
        }
        if (waiting == 0 || operations > stop_after)
            return;
        poll(fds, n, 5);
        for (int r = 0; r < world; r++) {
            if (ranks[r].open)
                ranks[r].group.dispatch(ranks[r].group.ctx);
        }
    }
}

static void expect_all(const char *what)
{
    char want[32];
    for (int r = 0; r < world; r++) {
        ck_assert_int_eq(ranks[r].waiting, 0);
        ck_assert_msg(ranks[r].result.code == CKPT_OK, "rank %d: %s", r, ranks[r].result.text);
        for (int i = 0; i < world; i++) {
            snprintf(want, sizeof want, "%s-%d", what, i);
            ck_assert_str_eq(ranks[r].got[i], want);
        }
    }
}

START_TEST(everybody_gets_everything)
{
    open_all(_i);
    for (int k = 0; k < 10; k++) {
        char what[16];
        snprintf(what, sizeof what, "turn%d", k);
        say_all(what, 5000);
        drive(5000);
        expect_all(what);
    }
}
END_TEST

/* Kills an attempt of three exchanges after its Nth operation on the board, for every N, then lets
 * a new one run over what it left. */
START_TEST(leftovers_never_enter)
{
    for (long n = 1;; n++) {
        clear_board();
        stop_after = n;
        open_all(3);
        int finished = 1;
        for (int k = 0; k < 3 && finished; k++) {
            say_all("old", 60000);
            drive(60000);
            for (int r = 0; r < world; r++)
                finished &= !ranks[r].waiting && ranks[r].result.code == CKPT_OK;
            if (operations > stop_after)
                finished = 0;
        }
        close_all();
        stop_after = 1000000000;
        open_all(3);
        for (int k = 0; k < 3; k++) {
            char what[16];
            snprintf(what, sizeof what, "new%d", k);
            say_all(what, 5000);
            drive(6000);
            expect_all(what);
        }
        close_all();
        if (finished)
            break;
        ck_assert_int_lt(n, 500);
    }
}
END_TEST

/* One rank is killed in every phase and started again, the others stay: they fail together within
 * their deadline, and the next exchange has everybody. */
START_TEST(a_reborn_rank_is_taken_in)
{
    for (int victim = 0; victim < 3; victim++) {
        for (int phase = 0; phase < 6; phase++) {
            clear_board();
            open_all(3);
            say_all("first", 5000);
            drive(5000);
            expect_all("first");
            say_all("second", 60);
            for (int k = 0; k < phase; k++) {
                for (int r = 0; r < 3; r++)
                    ranks[r].group.dispatch(ranks[r].group.ctx);
                usleep(1000);
            }
            close_rank(victim);
            ranks[victim].waiting = 0;
            drive(1000);
            for (int r = 0; r < 3; r++)
                ck_assert_int_eq(ranks[r].waiting, 0);
            open_rank(victim, 3);
            say_all("third", 5000);
            drive(6000);
            expect_all("third");
            close_all();
        }
    }
}
END_TEST

START_TEST(the_missing_are_named)
{
    for (int before = 0; before < 2; before++) { /* from the start, or after they were there */
        clear_board();
        open_all(4);
        if (before) {
            say_all("before", 5000);
            drive(5000);
            expect_all("before");
        }
        say(0, "x", 50);
        say(1, "x", 50);
        uint64_t began = clock_ms();
        drive(3000);
        ck_assert_uint_lt(clock_ms() - began, 1000);
        for (int r = 0; r < 2; r++) {
            ck_assert_int_eq(ranks[r].result.code, CKPT_ETIMEDOUT);
            ck_assert_msg(strstr(ranks[r].result.text, "rank 2 3") != NULL, "%s",
                          ranks[r].result.text);
        }
        /* Those who come late find the failure; then all are in step. */
        say(2, "x", 50);
        say(3, "x", 50);
        drive(3000);
        for (int r = 2; r < 4; r++)
            ck_assert_int_eq(ranks[r].result.code, CKPT_ETIMEDOUT);
        say_all("again", 5000);
        drive(6000);
        expect_all("again");
        close_all();
    }
}
END_TEST

/* The others have gone on to the next exchange when a late rank still comes to the last one. */
START_TEST(a_late_rank_does_not_spoil_the_next)
{
    for (int steps = 0; steps < 8; steps++) {
        clear_board();
        open_all(3);
        say_all("first", 5000);
        drive(5000);
        expect_all("first");
        say(0, "late", 50);
        say(1, "late", 50);
        drive(1000);
        ck_assert_int_eq(ranks[0].result.code, CKPT_ETIMEDOUT);
        say(0, "next", 5000);
        say(1, "next", 5000);
        for (int k = 0; k < steps; k++) {
            usleep(2000);
            for (int r = 0; r < 2; r++)
                ranks[r].group.dispatch(ranks[r].group.ctx);
        }
        say(2, "late", 5000);
        for (int k = 0; k < 500 && ranks[2].waiting; k++) {
            usleep(1000);
            for (int r = 0; r < 3; r++)
                ranks[r].group.dispatch(ranks[r].group.ctx);
        }
        ck_assert_int_eq(ranks[2].waiting, 0);
        ck_assert_int_eq(ranks[2].result.code, CKPT_ETIMEDOUT);
        say(2, "next", 5000);
        drive(6000);
        expect_all("next");
        close_all();
    }
}
END_TEST

START_TEST(a_wrong_world_size_is_said)
{
    world = 3;
    open_rank(0, 2);
    open_rank(1, 3);
    open_rank(2, 3);
    say(0, "x", 60);
    say(1, "x", 60);
    drive(2000);
    ck_assert_int_eq(ranks[0].result.code, CKPT_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(ranks[0].result.text, "world size 3"));
    ck_assert_int_eq(ranks[1].result.code, CKPT_ETIMEDOUT);
}
END_TEST

START_TEST(cancel_is_an_answer)
{
    open_all(3);
    say_all("first", 5000);
    drive(5000);
    say_all("second", 5000);
    ranks[0].group.cancel(ranks[0].group.ctx);
    ck_assert_int_eq(ranks[0].result.code, CKPT_ECANCELED);
    uint64_t began = clock_ms();
    drive(4000);
    ck_assert_uint_lt(clock_ms() - began, 1000); /* the others need not wait for their deadline */
    ck_assert_int_eq(ranks[1].result.code, CKPT_EPEER);
    say_all("third", 5000);
    drive(5000);
    expect_all("third");
}
END_TEST

START_TEST(damaged_records_are_ignored)
{
    open_all(2);
    for (size_t len = 0; len < 120; len += 7) {
        uint8_t junk[120];
        memset(junk, (int)len, sizeof junk);
        memcpy(junk, len % 2 ? "RPGR" : "RPGA", 4);
        put(NULL, "root", junk, len);
        put(NULL, "rank-1", junk, len);
        say_all("fine", 5000);
        drive(5000);
        expect_all("fine");
    }
}
END_TEST

START_TEST(a_blob_has_a_limit)
{
    static uint8_t big[CKPT_MAX_BLOB_BYTES + 1];
    open_all(1);
    ranks[0].waiting = 1;
    ranks[0].group.exchange(ranks[0].group.ctx, big, sizeof big, 1000, exchanged, &ranks[0]);
    drive(1000);
    ck_assert_int_eq(ranks[0].result.code, CKPT_EINVAL);
    ranks[0].waiting = 1;
    ranks[0].group.exchange(ranks[0].group.ctx, big, sizeof big - 1, 1000, exchanged, &ranks[0]);
    drive(1000);
    ck_assert_int_eq(ranks[0].result.code, CKPT_OK);
}
END_TEST

START_TEST(bad_arguments)
{
    ckpt_group g;
    ckpt_error err;
    ckpt_board board = {.size = sizeof board, .put = put, .get = get};
    ck_assert_int_eq(ckpt_group_board(&g, &board, 2, 2, &err), CKPT_EINVAL);
    ck_assert_int_eq(ckpt_group_board(&g, &board, -1, 2, &err), CKPT_EINVAL);
    ck_assert_int_eq(ckpt_group_board(&g, &board, 0, 0, &err), CKPT_EINVAL);
    board.get = NULL;
    ck_assert_int_eq(ckpt_group_board(&g, &board, 0, 1, &err), CKPT_EINVAL);
    ck_assert_int_eq(ckpt_group_dir(&g, "/proc/version", 0, 1, &err), CKPT_EINVAL);
    ck_assert_int_eq(ckpt_group_dir(&g, "/no/such/parent/dir", 0, 1, &err), CKPT_EINVAL);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("group");
    TCase *t = tcase_create("board");
    tcase_set_timeout(t, 100);
    tcase_add_checked_fixture(t, clear_board, teardown);
    tcase_add_loop_test(t, everybody_gets_everything, 1, MAX_RANKS + 1);
    tcase_add_test(t, leftovers_never_enter);
    tcase_add_test(t, a_reborn_rank_is_taken_in);
    tcase_add_test(t, the_missing_are_named);
    tcase_add_test(t, a_late_rank_does_not_spoil_the_next);
    tcase_add_test(t, a_wrong_world_size_is_said);
    tcase_add_test(t, cancel_is_an_answer);
    tcase_add_test(t, damaged_records_are_ignored);
    tcase_add_test(t, a_blob_has_a_limit);
    tcase_add_test(t, bad_arguments);
    suite_add_tcase(s, t);
    return s;
}
