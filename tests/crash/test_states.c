/*
 * test_states.c: the law of libckpt under power loss. A save is recorded through an engine that
 * keeps every change; for every moment of it, every state that the disk may then be in
 * (disk_states.h says which) is built and restored:
 *
 * - what loads is the newest checkpoint that was acknowledged before that moment, or a newer
 *   complete one; trainer.c aborts on a wrong byte;
 * - nothing that looks like a checkpoint is passed over, and none at all is found only where none
 *   was acknowledged;
 * - the next save succeeds on that state, and is what loads then.
 *
 * Where a moment has more than STATES_PER_MOMENT states (a fraction of it where cases resemble
 * others) they are sampled: CRASH_SEED=N repeats a run, CRASH_STATES=N looks at more. Equal states
 * are restored once.
 */
#include "runner.h"

#include "disk.h"
#include "disk_states.h"
#include "handle.h"
#include "trainer.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STATES_PER_MOMENT 600
#define MAX_SEEN (1u << 18)
#define MAX_SAVES 4

static struct disk disk;
static uint64_t seed, states_per_moment;
static uint64_t seen[MAX_SEEN];
static struct {
    uint64_t moments, sampled, states, distinct, newer;
} counted;

/* The saves of a recording, in order; the salt of a save is its place, from 1. */
struct recording {
    char root[300];
    struct ckpt__engine *fake;
    ckpt *c;
    uint64_t acknowledged[MAX_SAVES]; /* tick, UINT64_MAX = never */
    size_t count;
};

/* ------------------------------------------------------------------------------------------ */
/* Recording                                                                                    */

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void setup(void)
{
    seed = number_from("CRASH_SEED", (uint64_t)time(NULL));
    states_per_moment = number_from("CRASH_STATES", STATES_PER_MOMENT);
    disk_init(&disk);
    trainer_set_bytes(4096);
    printf("# CRASH_SEED=%" PRIu64 " CRASH_STATES=%" PRIu64 "\n", seed, states_per_moment);
    fflush(stdout);
    memset(seen, 0, sizeof seen);
    memset(&counted, 0, sizeof counted);
}

static void teardown(void)
{
    disk_free(&disk);
}

static ckpt *open_over(const char *root,
                       struct ckpt__engine *(*make)(void *, const struct ckpt__env *, uint32_t),
                       void *make_ctx)
{
    ckpt_options opt;
    ckpt_error err = {0};
    ckpt *c = NULL;
    ckpt_options_init(&opt, sizeof opt);
    opt.root = root;
    opt.allocator = &disk.env.allocator;
    opt.block_bytes = 64u << 10;
    opt.staging_bytes = 128u << 10;
    opt.drive = CKPT_DRIVE_CALLER;
    ck_assert_msg(ckpt__open(&c, &opt, make, make_ctx, &err) == CKPT_OK, "%s", err.text);
    return c;
}

static struct ckpt__engine *make_recorder(void *ctx, const struct ckpt__env *env,
                                          uint32_t queue_depth)
{
    struct recording *r = ctx;
    r->fake = fake_open(env, queue_depth);
    fake_keep_data(r->fake);
    return r->fake;
}

static void record(struct recording *r, const char *name)
{
    memset(r, 0, sizeof *r);
    snprintf(r->root, sizeof r->root, "%s/%s", disk.dir, name);
    r->c = open_over(r->root, make_recorder, r);
}

static uint64_t last_tick(const struct recording *r)
{
    size_t n;
    uint64_t last = 0;
    const struct fake_event *log = fake_log(r->fake, &n);
    for (size_t i = 0; i < n; i++) {
        last = log[i].submitted > last ? log[i].submitted : last;
        last = log[i].completed > last ? log[i].completed : last;
    }
    return last;
}

static int save(struct recording *r, int64_t step)
{
    ckpt_error err = {0};
    ck_assert_uint_lt(r->count, MAX_SAVES);
    int rc = trainer_save(r->c, 0, step, r->count + 1, NULL, &err);
    r->acknowledged[r->count++] = rc == CKPT_OK ? last_tick(r) : UINT64_MAX;
    return rc;
}

/* ------------------------------------------------------------------------------------------ */
/* The law                                                                                      */

static const struct fake_rule no_direct = {
    .op = CKPT__OPEN, .direct = true, .forever = true, .action = FAKE_FAIL, .sys_errno = EINVAL};
static const struct fake_rule no_fsync = {.op = CKPT__FSYNC, .forever = true, .action = FAKE_FAIL};
static const struct fake_rule no_fdatasync = {
    .op = CKPT__FDATASYNC, .forever = true, .action = FAKE_FAIL};

/* What runs after the crash need not reach the device, only the page cache: syncs succeed at once
 * (errno 0). */
static struct ckpt__engine *make_quick(void *ctx, const struct ckpt__env *env, uint32_t queue_depth)
{
    struct fake_rule *rules = ctx;
    struct ckpt__engine *e = fake_open(env, queue_depth);
    for (int i = 0; i < 3; i++)
        fake_add_rule(e, &rules[i]);
    return e;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* required: the salt that was acknowledged, 0 = none. The path says which state it is. */
static void check_state(const struct recording *r, const char *path, uint64_t required)
{
    struct fake_rule rules[] = {no_direct, no_fsync, no_fdatasync};
    struct trainer_loaded got = {0}, after = {0};
    ckpt_error err = {0};
    ckpt *c = open_over(path, make_quick, rules);
    int rc = trainer_load(c, NULL, &got, &err);
    ck_assert_msg(rc == CKPT_OK || (rc == CKPT_ENONE && required == 0),
                  "%s: save %d was "
                  "acknowledged, load says: %s",
                  path, (int)required, err.text);
    ck_assert_msg(got.salt >= required && got.salt <= r->count,
                  "%s: save %d was acknowledged, save %d was loaded", path, (int)required,
                  (int)got.salt);
    ck_assert_msg(got.skipped == 0, "%s: a checkpoint that is not whole was in sight", path);
    counted.newer += got.salt > required;

    int64_t step = got.step + 1; /* what a trainer saves next; often that of the lost attempt */
    rc = trainer_save(c, 0, step, 99, NULL, &err);
    ck_assert_msg(rc == CKPT_OK, "%s: the next save: %s", path, err.text);
    rc = trainer_load(c, NULL, &after, &err);
    ck_assert_msg(rc == CKPT_OK && after.salt == 99 && after.step == step &&
                      after.sequence > got.sequence,
                  "%s: after the next save: %s", path, err.text);
    ckpt_close(c);
    ck_assert_int_eq(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* ------------------------------------------------------------------------------------------ */
/* All moments, all states                                                                      */

/* True the first time. */
static bool is_new(uint64_t digest)
{
    size_t at = digest % MAX_SEEN;
    ck_assert_uint_lt(counted.distinct, MAX_SEEN / 2);
    for (digest += digest == 0; seen[at] != 0; at = (at + 1) % MAX_SEEN) {
        if (seen[at] == digest)
            return false;
    }
    seen[at] = digest;
    counted.distinct++;
    return true;
}

static uint64_t required_at(const struct recording *r, uint64_t tick)
{
    uint64_t required = 0;
    for (size_t i = 0; i < r->count; i++)
        required = r->acknowledged[i] <= tick ? i + 1 : required;
    return required;
}

static void check_moment(const struct recording *r, struct disk_states *s, uint64_t tick)
{
    bool whole;
    uint64_t required = required_at(r, tick), count = disk_states_at(s, tick, &whole);
    bool all = count <= states_per_moment;
    counted.moments++;
    counted.sampled += !all || !whole;
    for (uint64_t i = 0; i < (all ? count : states_per_moment); i++) {
        char path[400];
        if (all || i == 0)
            disk_states_pick(s, i);
        else
            disk_states_pick_any(s);
        counted.states++;
        if (!is_new(disk_states_digest(s) + required * 0x9e3779b97f4a7c15u))
            continue;
        snprintf(path, sizeof path, "%s-tick-%" PRIu64 "-state-%" PRIu64, r->root, tick, i);
        disk_states_write(s, path);
        check_state(r, path, required);
    }
}

/* Ends the recording and looks at every moment from a tick on. */
static void check_from(struct recording *r, uint64_t tick)
{
    size_t n;
    uint64_t last = last_tick(r);
    const struct fake_event *log = fake_log(r->fake, &n);
    struct disk_states *s = disk_states_open(log, n, r->root, seed);
    ckpt_close(r->c);
    for (; tick <= last; tick++)
        check_moment(r, s, tick);
    disk_states_free(s);
}

static void report(const char *what)
{
    printf("%s: %" PRIu64 " moments (%" PRIu64 " sampled), %" PRIu64 " states, %" PRIu64
           " distinct, all restored, %" PRIu64 " to one newer than acknowledged\n",
           what, counted.moments, counted.sampled, counted.states, counted.distinct, counted.newer);
    ck_assert_uint_gt(counted.newer, 0); /* else the model loses everything */
}

START_TEST(first_save)
{
    struct recording r;
    record(&r, "first");
    ck_assert_int_eq(save(&r, 1), CKPT_OK);
    check_from(&r, 0);
    report("first save");
}
END_TEST

/* Writes in flight together complete in either order. */
START_TEST(save_after_an_earlier_one)
{
    struct recording r;
    record(&r, "later");
    if (_i == 1) {
        fake_reverse(r.fake);
        states_per_moment = states_per_moment / 4 + 1;
    }
    ck_assert_int_eq(save(&r, 1), CKPT_OK);
    uint64_t from = last_tick(&r);
    ck_assert_int_eq(save(&r, 2), CKPT_OK);
    check_from(&r, from);
    report(_i == 1 ? "later save, last write first" : "later save");
}
END_TEST

START_TEST(same_step_again)
{
    struct recording r;
    record(&r, "again");
    states_per_moment = states_per_moment / 4 + 1;
    ck_assert_int_eq(save(&r, 7), CKPT_OK);
    uint64_t from = last_tick(&r);
    ck_assert_int_eq(save(&r, 7), CKPT_OK);
    check_from(&r, from);
    report("same step again");
}
END_TEST

/* The moment from which on a save that failed is taken back. */
static uint64_t failed_at(const struct recording *r, uint64_t from)
{
    size_t n;
    const struct fake_event *log = fake_log(r->fake, &n);
    for (size_t i = 0; i < n; i++) {
        bool back = log[i].result < 0 || log[i].op == CKPT__UNLINK || log[i].op == CKPT__RMDIR;
        if (log[i].submitted > from && back)
            return log[i].submitted;
    }
    return last_tick(r);
}

/* Each io of a save fails; then every moment of its being taken back. */
START_TEST(failed_save)
{
    struct fake_rule rule = {.op = FAKE_ANY_OP, .action = FAKE_FAIL, .sys_errno = EIO};
    int failed = 0;
    states_per_moment = states_per_moment / 12 + 1;
    for (rule.fired = 1; rule.fired > 0; rule.nth++) {
        struct recording r;
        char name[40];
        snprintf(name, sizeof name, "failed-%" PRIu64, rule.nth);
        record(&r, name);
        ck_assert_int_eq(save(&r, 1), CKPT_OK);
        uint64_t from = last_tick(&r);
        fake_add_rule(r.fake, &rule);
        int rc = save(&r, 2);
        ck_assert(rule.fired > 0 || rc == CKPT_OK);
        failed += rc != CKPT_OK;
        check_from(&r, failed_at(&r, from));
    }
    ck_assert_int_gt(failed, 10);
    report("failed save");
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("states");
    TCase *t = tcase_create("states");
    tcase_set_timeout(t, 600);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, first_save);
    tcase_add_loop_test(t, save_after_an_earlier_one, 0, 2);
    tcase_add_test(t, same_step_again);
    tcase_add_test(t, failed_save);
    suite_add_tcase(s, t);
    return s;
}
