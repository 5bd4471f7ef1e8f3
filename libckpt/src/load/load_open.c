/*
 * load_open.c: finds the checkpoint to load. Newest is the greatest (generation, sequence) whose
 * COMMIT, indexes and file sizes verify. Ranks agree in rounds: each offers its best; the greatest
 * offer is checked by all, by name, so that a directory listing that lags behind on a network file
 * system does not hide it; if anybody cannot read it, the next round is about older ones.
 *
 * Small records (COMMIT) and names are read with plain system calls, indexes through the engine.
 */
#include "load/load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void next_round(struct ckpt_load *l);

/* ------------------------------------------------------------------------------------------ */
/* Shared by opening and reading                                                                */

static void on_req(struct ckpt__req *req)
{
    struct ckpt_load *l = req->ctx;
    if (req->result < 0 && l->error.code == CKPT_OK)
        ckpt__req_error(req, &l->error);
    l->then(l);
}

struct ckpt__req *ckpt__load_then(struct ckpt_load *l, void (*then)(struct ckpt_load *l))
{
    l->then = then;
    l->req = (struct ckpt__req){.done = on_req, .ctx = l};
    return &l->req;
}

void ckpt__load_unreadable(ckpt_error *err)
{
    switch (err->code) {
    case CKPT_OK:
    case CKPT_ENOMEM:
    case CKPT_ECANCELED:
    case CKPT_ENOTSUP:
    case CKPT_EACCES:
        break;
    default:
        err->code = CKPT_EUNREADABLE;
    }
}

void ckpt__load_exchange(struct ckpt_load *l, enum ckpt__phase phase, ckpt__agreed_fn done)
{
    struct ckpt__verdict mine = {.phase = phase, .error = l->error};
    if (l->chosen != NULL) {
        mine.step = l->chosen->dir.step;
        mine.generation = l->chosen->commit.generation;
        mine.sequence = l->chosen->dir.sequence;
    }
    l->exchanging = true;
    ckpt__agree(l->c, &mine, done, l);
    if (l->cancelled && l->c->has_group)
        l->c->group.cancel(l->c->group.ctx);
}

void ckpt__load_cancel(struct ckpt__task *t)
{
    struct ckpt_load *l = (struct ckpt_load *)t;
    if (l->cancelled)
        return;
    l->cancelled = true;
    if (l->error.code == CKPT_OK)
        ckpt__fail(&l->error, CKPT_ECANCELED, "the handle of %s was closed", l->c->root);
    if (!l->exchanging)
        l->c->disk.engine->cls->cancel(l->c->disk.engine);
    else if (l->c->has_group)
        l->c->group.cancel(l->c->group.ctx);
}

void ckpt__load_finish(struct ckpt_load *l)
{
    ckpt *c = l->c;
    mailbox_post(&c->out.mailbox, &l->done_letter);
    ckpt__task_over(c);
}

/* ------------------------------------------------------------------------------------------ */
/* Candidates                                                                                   */

static int newer_first(const void *a, const void *b)
{
    const struct ckpt__candidate *x = a, *y = b;
    if (x->commit.generation != y->commit.generation)
        return x->commit.generation > y->commit.generation ? -1 : 1;
    return x->dir.sequence > y->dir.sequence ? -1 : x->dir.sequence < y->dir.sequence;
}

static bool is_older(uint64_t generation, uint64_t sequence, uint64_t than_generation,
                     uint64_t than_sequence)
{
    return generation < than_generation ||
           (generation == than_generation && sequence < than_sequence);
}

/* Something is there and cannot be used: said in the log, and kept for the final error. */
static void pass_over(struct ckpt_load *l, struct ckpt__candidate *k, const ckpt_error *why)
{
    ckpt__log(&l->c->env, CKPT_LOG_WARN, "passing over %s/%s: %s", l->c->root, k->dir.name,
              why->text);
    k->bad = true;
    if (l->newest_bad.code == CKPT_OK || k->dir.sequence > l->newest_bad_sequence) {
        l->newest_bad = *why;
        l->newest_bad_sequence = k->dir.sequence;
    }
}

/* Bad ones that are newer than sequence. */
static int32_t count_bad(const struct ckpt_load *l, uint64_t sequence)
{
    int32_t n = l->other.bad && l->other.dir.sequence > sequence;
    for (size_t i = 0; i < l->candidate_count; i++)
        n += l->candidates[i].bad && l->candidates[i].dir.sequence > sequence;
    return n;
}

static int take_candidate(struct ckpt_load *l, const struct ckpt__step_dir *dir)
{
    struct ckpt__candidate *k = &l->candidates[l->candidate_count];
    ckpt_error why;
    *k = (struct ckpt__candidate){.dir = *dir};
    int rc = ckpt__commit_read(&k->commit, &k->digest, &l->c->env, l->c->root, dir->name, &why);
    if (rc == CKPT_ENOMEM) {
        l->error = why;
        return rc;
    }
    if (rc == CKPT_OK && (k->commit.step != dir->step || k->commit.sequence != dir->sequence)) {
        ckpt__commit_free(&k->commit, &l->c->env);
        rc = ckpt__fail(&why, CKPT_EUNREADABLE,
                        "COMMIT is of step %" PRId64 " and sequence %" PRIu64
                        ": the directory was renamed",
                        k->commit.step, k->commit.sequence);
    }
    if (rc != CKPT_OK) {
        if (!l->opt.has_older_than || dir->sequence < l->opt.older_sequence) {
            pass_over(l, k, &why);
            l->candidate_count++;
        }
        return CKPT_OK;
    }
    if (l->opt.has_older_than && !is_older(k->commit.generation, dir->sequence,
                                           l->opt.older_generation, l->opt.older_sequence))
        ckpt__commit_free(&k->commit, &l->c->env);
    else
        l->candidate_count++;
    return CKPT_OK;
}

static int by_sequence_down(const void *a, const void *b)
{
    const struct ckpt__step_dir *x = a, *y = b;
    return x->sequence > y->sequence ? -1 : x->sequence < y->sequence;
}

static void find_candidates(struct ckpt_load *l)
{
    struct ckpt__scan scan;
    if (ckpt__scan_root(&scan, &l->c->env, l->c->root, &l->error) != CKPT_OK)
        return;
    l->candidates = ckpt__alloc_array(&l->c->env, scan.step_count + 1, sizeof *l->candidates);
    if (l->candidates == NULL)
        ckpt__fail(&l->error, CKPT_ENOMEM, "load from %s: out of memory", l->c->root);
    else if (scan.step_count > 0)
        qsort(scan.steps, scan.step_count, sizeof *scan.steps, by_sequence_down);
    for (size_t i = 0; i < scan.step_count && l->candidates != NULL; i++) {
        if (l->opt.step != CKPT_NEWEST && scan.steps[i].step != l->opt.step) {
            l->others++;
            continue;
        }
        if (take_candidate(l, &scan.steps[i]) != CKPT_OK)
            break;
    }
    ckpt__scan_free(&scan);
    if (l->candidates != NULL)
        qsort(l->candidates, l->candidate_count, sizeof *l->candidates, newer_first);
}

/* ------------------------------------------------------------------------------------------ */
/* End                                                                                          */

static void fill_info(struct ckpt_load *l)
{
    const struct ckpt__candidate *k = l->chosen;
    l->path = ckpt__path(&l->c->env, "%s/%s", l->c->root, k->dir.name);
    l->run_id = ckpt__strdup(&l->c->env, k->commit.run_id);
    if (l->path == NULL || l->run_id == NULL) {
        ckpt__fail(&l->result, CKPT_ENOMEM, "load from %s: out of memory", l->c->root);
        return;
    }
    l->info.step = k->commit.step;
    l->info.sequence = k->commit.sequence;
    l->info.generation = k->commit.generation;
    l->info.path = l->path;
    l->info.run_id = l->run_id;
    l->info.skipped = count_bad(l, k->dir.sequence);
    l->info.saved_unix_ms = k->commit.saved_unix_ms;
    memcpy(l->info.digest, k->digest.b, sizeof l->info.digest);
    memcpy(l->info.parent, k->commit.parent.b, sizeof l->info.parent);
}

static void finish(struct ckpt_load *l, const ckpt_error *result)
{
    l->result = *result;
    if (l->result.code == CKPT_OK)
        fill_info(l);
    ckpt__load_finish(l);
}

/* Nobody, or nobody any more, has one that can be read. */
static void nothing_left(struct ckpt_load *l, ckpt_error *ret)
{
    char which[48] = "";
    if (l->opt.step != CKPT_NEWEST)
        snprintf(which, sizeof which, " of step %" PRId64, l->opt.step);
    if (l->newest_bad.code == CKPT_OK)
        ckpt__fail(ret, l->others > 0 ? CKPT_ENOENT : CKPT_ENONE, "%s holds no checkpoint%s%s",
                   l->c->root, which,
                   l->opt.has_older_than ? " older than the one that was given" : "");
    else
        /* The text of the newest has the path: a second one would crowd out its reason. */
        ckpt__fail(ret, CKPT_EUNREADABLE, "none of %d checkpoints%s can be read; the newest: %s",
                   count_bad(l, 0), which, l->newest_bad.text);
}

/* ------------------------------------------------------------------------------------------ */
/* Agreement                                                                                    */

static void agreed_check(void *ctx, const struct ckpt__verdict *all, const ckpt_error *result)
{
    struct ckpt_load *l = ctx;
    ckpt_error why;
    l->exchanging = false;
    if (all == NULL) {
        finish(l, result);
        return;
    }
    if (ckpt__agree_failure(l->c, all, &why) == CKPT_OK) {
        finish(l, &(ckpt_error){.code = CKPT_OK});
        return;
    }
    if (why.code != CKPT_EUNREADABLE && why.code != CKPT_ENOTSUP && why.code != CKPT_EACCES) {
        finish(l, &why);
        return;
    }
    pass_over(l, l->chosen, &why);
    l->error = (ckpt_error){.code = CKPT_OK};
    next_round(l);
}

static void exchange_check(struct ckpt_load *l)
{
    ckpt__load_exchange(l, CKPT__LOAD_CHECK, agreed_check);
}

/* The greatest offer is not our best: look at it by its name. */
static void check_other(struct ckpt_load *l, const struct ckpt__verdict *offer)
{
    struct ckpt__candidate *k = NULL;
    for (size_t i = 0; i < l->candidate_count && k == NULL; i++) {
        if (l->candidates[i].dir.sequence == offer->sequence &&
            l->candidates[i].dir.step == offer->step)
            k = &l->candidates[i];
    }
    if (k == NULL) {
        k = &l->other;
        ckpt__commit_free(&k->commit, &l->c->env);
        *k = (struct ckpt__candidate){.dir = {.step = offer->step, .sequence = offer->sequence}};
        ckpt__step_name(k->dir.name, offer->step, offer->sequence);
        if (ckpt__commit_read(&k->commit, &k->digest, &l->c->env, l->c->root, k->dir.name,
                              &l->error) != CKPT_OK) {
            ckpt__load_unreadable(&l->error);
            l->chosen = k;
            exchange_check(l);
            return;
        }
    }
    ckpt__load_verify(l, k, exchange_check);
}

static void agreed_offer(void *ctx, const struct ckpt__verdict *all, const ckpt_error *result)
{
    struct ckpt_load *l = ctx;
    const struct ckpt__verdict *best = NULL;
    l->exchanging = false;
    if (all == NULL) {
        finish(l, result);
        return;
    }
    for (int32_t i = 0; i < l->c->group.world_size; i++) {
        if (all[i].error.code == CKPT_OK &&
            (best == NULL ||
             is_older(best->generation, best->sequence, all[i].generation, all[i].sequence)))
            best = &all[i];
    }
    ckpt_error why;
    if (best == NULL) {
        ckpt__agree_failure(l->c, all, &why);
        for (int32_t i = 0; i < l->c->group.world_size && why.code == CKPT_ENONE; i++) {
            if (all[i].error.code != CKPT_ENONE)
                ckpt__fail(&why, all[i].error.code, "rank %d: %s", i, all[i].error.text);
        }
        finish(l, &why);
        return;
    }
    bool ours = l->error.code == CKPT_OK && l->chosen->commit.generation == best->generation &&
                l->chosen->dir.sequence == best->sequence && l->chosen->dir.step == best->step;
    l->error = (ckpt_error){.code = CKPT_OK};
    if (ours)
        exchange_check(l);
    else
        check_other(l, best);
}

/* l->error: OK with a candidate that verifies, or why there is none. */
static void offer(struct ckpt_load *l)
{
    if (ckpt__load_is_shared(l))
        ckpt__load_exchange(l, CKPT__LOAD_OFFER, agreed_offer);
    else
        finish(l, &l->error);
}

static void best_verified(struct ckpt_load *l)
{
    if (l->error.code == CKPT_OK || l->error.code == CKPT_ENOMEM ||
        l->error.code == CKPT_ECANCELED) {
        offer(l);
        return;
    }
    pass_over(l, l->chosen, &l->error);
    l->error = (ckpt_error){.code = CKPT_OK};
    next_round(l);
}

/* The best candidate that is not bad is verified and offered. */
static void next_round(struct ckpt_load *l)
{
    for (size_t i = 0; i < l->candidate_count; i++) {
        if (!l->candidates[i].bad) {
            ckpt__load_verify(l, &l->candidates[i], best_verified);
            return;
        }
    }
    ckpt__load_drop_shards(l);
    l->chosen = NULL;
    nothing_left(l, &l->error);
    offer(l);
}

void ckpt__load_run_open(struct ckpt__task *t)
{
    struct ckpt_load *l = (struct ckpt_load *)t;
    if (l->file != NULL) {
        ckpt__load_file(l, &l->result);
        ckpt__load_finish(l);
        return;
    }
    find_candidates(l);
    if (l->error.code != CKPT_OK)
        offer(l);
    else
        next_round(l);
}
