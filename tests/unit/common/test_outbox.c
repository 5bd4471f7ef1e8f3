/*
 * test_outbox.c: what a handle tells its owner: letters in order, lines that are bounded and, when
 * they find no room or memory, counted and told once.
 */
#include "outbox.h"
#include "runner.h"

#include "libc_alloc.h"

#include <poll.h>
#include <stdatomic.h>

enum { DEBUG = 3 };

static struct outbox out;
static int lines[4]; /* delivered, by level */
static char last[200];
static int out_of_memory;
static atomic_long blocks; /* of memory, that are not given back */

static void *count_alloc(void *ctx, size_t len, size_t align)
{
    if (out_of_memory)
        return NULL;
    blocks++;
    return libc_alloc(ctx, len, align);
}

static void count_free(void *ctx, void *ptr)
{
    blocks -= ptr != NULL;
    libc_free(ctx, ptr);
}

static void on_log(void *ctx, int level, const char *line)
{
    ck_assert_ptr_eq(ctx, last);
    lines[level]++;
    snprintf(last, sizeof last, "%s", line);
}

static void start(void)
{
    struct outbox_hooks hooks = {count_alloc, count_free, NULL, on_log, last};
    memset(lines, 0, sizeof lines);
    out_of_memory = 0;
    ck_assert_int_eq(outbox_init(&out, &hooks, OUTBOX_LINES), 0);
}

static void finish(void)
{
    outbox_free(&out);
    ck_assert_int_eq(blocks, 0);
}

static int readable(void)
{
    struct pollfd p = {.fd = out.mailbox.fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

START_TEST(a_flood_is_bounded_and_told_once)
{
    for (int round = 0; round < 3; round++) { /* it works again after */
        memset(lines, 0, sizeof lines);
        for (int i = 0; i < 1000; i++)
            outbox_log(&out, DEBUG, "detail");
        outbox_log(&out, OUTBOX_INFO, "this");
        outbox_log(&out, OUTBOX_WARN, "and that");
        ck_assert_int_eq(blocks, OUTBOX_LINES / 2 + 2);
        ck_assert(readable());
        ck_assert_int_eq(mailbox_deliver(&out.mailbox), OUTBOX_LINES / 2 + 3);
        ck_assert_int_eq(lines[DEBUG], OUTBOX_LINES / 2);
        ck_assert_int_eq(lines[OUTBOX_INFO], 1);
        ck_assert_int_eq(lines[OUTBOX_WARN], 2); /* mine, and the one about the rest */
        ck_assert(!readable());
        ck_assert_int_eq(mailbox_deliver(&out.mailbox), 0);
    }
    for (int i = 0; i < OUTBOX_LINES + 7; i++)
        outbox_log(&out, OUTBOX_WARN, "warning");
    mailbox_deliver(&out.mailbox);
    ck_assert_str_eq(last, "7 log lines were dropped: nobody dispatched in time, or no memory");
}
END_TEST

START_TEST(no_memory_is_told)
{
    out_of_memory = 1;
    outbox_log(&out, OUTBOX_WARN, "a");
    outbox_log(&out, OUTBOX_WARN, "b");
    ck_assert_int_eq(mailbox_deliver(&out.mailbox), 1);
    ck_assert_str_eq(last, "2 log lines were dropped: nobody dispatched in time, or no memory");
    out_of_memory = 0;
    for (int i = 0; i < OUTBOX_LINES; i++) /* what was lost takes no room */
        outbox_log(&out, OUTBOX_WARN, "c");
    ck_assert_int_eq(mailbox_deliver(&out.mailbox), OUTBOX_LINES);
    ck_assert_str_eq(last, "c");
}
END_TEST

static int posted;

static void deliver_and_post(struct letter *letter)
{
    posted++;
    if (posted == 1) {
        mailbox_post(&out.mailbox, letter); /* it is ours again */
        outbox_log(&out, OUTBOX_INFO, "meanwhile");
    }
}

START_TEST(what_is_posted_meanwhile_comes_next)
{
    struct letter letter = {.deliver = deliver_and_post};
    posted = 0;
    outbox_log(&out, OUTBOX_INFO, "before");
    mailbox_post(&out.mailbox, &letter);
    ck_assert_int_eq(mailbox_deliver(&out.mailbox), 2);
    ck_assert_str_eq(last, "before");
    ck_assert_int_eq(posted, 1);
    ck_assert(readable());
    ck_assert_int_eq(mailbox_deliver(&out.mailbox), 2);
    ck_assert_int_eq(posted, 2);
    ck_assert_str_eq(last, "meanwhile");
}
END_TEST

/* finish() sees that their memory is given back, and nobody is told any more. */
START_TEST(what_nobody_took_goes_with_it)
{
    static struct letter letter = {.deliver = deliver_and_post};
    posted = 0;
    for (int i = 0; i < OUTBOX_LINES + 5; i++)
        outbox_log(&out, OUTBOX_WARN, "late");
    mailbox_post(&out.mailbox, &letter);
}
END_TEST

enum { WRITERS = 4, EACH = 3000 };

static void *write_lines(void *arg)
{
    for (int i = 0; i < EACH; i++)
        outbox_log(arg, OUTBOX_INFO, "line");
    return NULL;
}

START_TEST(many_threads_write)
{
    pthread_t threads[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_lines, &out), 0);
    unsigned long long dropped = 0, here;
    for (int running = WRITERS; running >= 0; running--) {
        if (running > 0)
            pthread_join(threads[running - 1], NULL);
        for (struct letter *at = mailbox_take(&out.mailbox), *next; at != NULL; at = next) {
            next = at->next;
            last[0] = '\0';
            at->deliver(at);
            if (sscanf(last, "%llu log lines were dropped", &here) == 1)
                dropped += here;
        }
    }
    ck_assert_uint_eq(dropped + (unsigned)lines[OUTBOX_INFO], WRITERS * EACH);
    ck_assert_uint_eq(out.waiting, 0);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("outbox");
    TCase *t = tcase_create("outbox");
    tcase_add_checked_fixture(t, start, finish);
    tcase_add_test(t, a_flood_is_bounded_and_told_once);
    tcase_add_test(t, no_memory_is_told);
    tcase_add_test(t, what_is_posted_meanwhile_comes_next);
    tcase_add_test(t, what_nobody_took_goes_with_it);
    tcase_add_test(t, many_threads_write);
    suite_add_tcase(s, t);
    return s;
}
