/*
 * save_publish.c: what only rank 0 does for a save. Before: refuses when a newer generation or
 * another live writer is there, removes what dead writers left, claims a sequence number, makes the
 * staging directory. After: COMMIT, rename, sync of the root. Or: takes everything back.
 *
 * Invariant: a sequence number belongs to whoever created its claim file (O_EXCL); a staging
 * directory is removed before its claim, so that one without a claim has no owner.
 */
#include "save/save.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MAX_CLAIM_TRIES 1000

/* ------------------------------------------------------------------------------------------ */
/* Leftovers                                                                                    */

/* Remembers an attempt that is to be removed. */
static void add_leftover(struct ckpt_save *s, const char *attempt, const char *claim)
{
    if (ckpt__save_failed(s))
        return;
    if (!ckpt__grow(&s->c->env, &s->leftovers, s->leftover_count, &s->leftover_capacity,
                    sizeof *s->leftovers)) {
        ckpt__save_fail(s, CKPT_ENOMEM, "save in %s: out of memory", s->c->root);
        return;
    }
    struct ckpt__leftover *l = &s->leftovers[s->leftover_count++];
    snprintf(l->attempt, sizeof l->attempt, "%s", attempt);
    snprintf(l->claim, sizeof l->claim, "%s", claim);
    ckpt__log(&s->c->env, CKPT_LOG_INFO, "removing what a dead save left in %s: %s%s%s", s->c->root,
              claim, claim[0] != '\0' && attempt[0] != '\0' ? ", staging " : "", attempt);
}

static void remove_leftovers(struct ckpt__removal *r);

static void leftovers_removed(struct ckpt_save *s);

static void remove_leftovers(struct ckpt__removal *r)
{
    struct ckpt_save *s = r->ctx;
    if (s->leftover_count == 0 || ckpt__save_failed(s)) {
        leftovers_removed(s);
        return;
    }
    const struct ckpt__leftover *l = &s->leftovers[--s->leftover_count];
    ckpt__remove_attempt(r, l->attempt, l->claim);
}

static void prepare_removal(struct ckpt_save *s, void (*done)(struct ckpt__removal *r))
{
    s->removal.done = done;
    s->removal.ctx = s;
    s->removal.disk = &s->c->disk;
    s->removal.root = s->c->root;
}

static void discarded(struct ckpt__removal *r)
{
    struct ckpt_save *s = r->ctx;
    s->after(s);
}

void ckpt__save_discard(struct ckpt_save *s, void (*then)(struct ckpt_save *s))
{
    char hex[33];
    ckpt__hex(&s->index.attempt, hex);
    s->after = then;
    prepare_removal(s, discarded);
    ckpt__remove_attempt(&s->removal, hex,
                         s->claim_path != NULL ? strrchr(s->claim_path, '/') + 1 : "");
}

/* ------------------------------------------------------------------------------------------ */
/* Prepare                                                                                      */

static const struct ckpt__step_dir *newest_below(const struct ckpt__scan *scan, uint64_t sequence)
{
    const struct ckpt__step_dir *newest = NULL;
    for (size_t i = 0; i < scan->step_count; i++) {
        if (scan->steps[i].sequence < sequence &&
            (newest == NULL || scan->steps[i].sequence > newest->sequence))
            newest = &scan->steps[i];
    }
    return newest;
}

/* A higher generation in the newest COMMIT that can be read means that this run was replaced. */
static void check_fence(struct ckpt_save *s, const struct ckpt__scan *scan)
{
    struct ckpt__commit commit = {0};
    struct ckpt__digest digest;
    const struct ckpt__step_dir *d = newest_below(scan, UINT64_MAX);
    while (d != NULL &&
           ckpt__commit_read(&commit, &digest, &s->c->env, s->c->root, d->name, NULL) != CKPT_OK)
        d = newest_below(scan, d->sequence);
    if (d == NULL)
        return;
    if (commit.generation > s->c->generation)
        ckpt__save_fail(s, CKPT_EFENCED,
                        "%s/%s is of generation %" PRIu64 ", this run is of generation %" PRIu64
                        ": a newer run owns the root",
                        s->c->root, d->name, commit.generation, s->c->generation);
    ckpt__commit_free(&commit, &s->c->env);
}

/* Of a dead writer, of a superseded one, or of this handle's last save, which could not clean up.
 */
static bool is_leftover(const struct ckpt_save *s, const struct ckpt__claim *claim)
{
    return claim->expired ||
           (claim->known && (ckpt__owner_life(&claim->owner) == CKPT__GONE ||
                             claim->owner.generation < s->c->generation ||
                             strcmp(claim->owner.attempt, s->c->last_attempt) == 0));
}

static void judge_claims(struct ckpt_save *s, const struct ckpt__scan *scan)
{
    char name[CKPT__NAME_BYTES];
    for (size_t i = 0; i < scan->claim_count; i++) {
        const struct ckpt__claim *claim = &scan->claims[i];
        ckpt__claim_name(name, claim->sequence);
        if (is_leftover(s, claim)) {
            add_leftover(s, claim->known ? claim->owner.attempt : "", name);
        } else if (claim->known && claim->owner.step == s->index.step &&
                   ckpt__owner_life(&claim->owner) == CKPT__ALIVE) {
            ckpt__save_fail(s, CKPT_EBUSY,
                            "step %" PRId64 " is being saved in %s by process %" PRId64
                            " of this machine (%s)",
                            s->index.step, s->c->root, claim->owner.pid, name);
        }
    }
}

/* Staging directories that no claim names. stagings was read before claims: a writer makes its
 * claim first, so a live one cannot look as if it had none. */
static void judge_stagings(struct ckpt_save *s, const struct ckpt__scan *stagings,
                           const struct ckpt__scan *claims)
{
    for (size_t i = 0; i < stagings->staging_count; i++) {
        bool owned = false;
        for (size_t k = 0; k < claims->claim_count && !owned; k++)
            owned = !claims->claims[k].known ||
                    strcmp(claims->claims[k].owner.attempt, stagings->stagings[i]) == 0;
        if (!owned)
            add_leftover(s, stagings->stagings[i], "");
    }
}

static void end_prepare(struct ckpt_save *s)
{
    s->after(s);
}

static void claim_next(struct ckpt_save *s);

static void make_staging(struct ckpt_save *s)
{
    char hex[33];
    ckpt__hex(&s->index.attempt, hex);
    s->staging = ckpt__path(&s->c->env, "%s/.staging-%s", s->c->root, hex);
    if (s->staging != NULL) {
        ckpt__mkdir(&s->c->disk, s->staging, 0777, ckpt__save_then(s, end_prepare));
    } else {
        ckpt__save_fail(s, CKPT_ENOMEM, "save in %s: out of memory", s->c->root);
        end_prepare(s);
    }
}

static void claim_dropped(struct ckpt_save *s)
{
    if (ckpt__save_failed(s))
        end_prepare(s);
    else
        claim_next(s);
}

/* Between our look at the root and our claim another writer may have published under this number
 * and taken its own claim back. Its directory was there before its claim went. */
static void check_claim(struct ckpt_save *s)
{
    struct ckpt__scan scan;
    if (ckpt__scan_root(&scan, &s->c->env, s->c->root, &s->error) != CKPT_OK) {
        end_prepare(s);
        return;
    }
    const struct ckpt__step_dir *newest = newest_below(&scan, UINT64_MAX);
    bool taken = newest != NULL && newest->sequence >= s->sequence;
    if (taken)
        s->sequence = newest->sequence + 1;
    ckpt__scan_free(&scan);
    if (taken && s->claim_tries++ < MAX_CLAIM_TRIES)
        ckpt__unlink(&s->c->disk, s->claim_path, ckpt__save_then(s, claim_dropped));
    else
        make_staging(s);
}

static void claimed(struct ckpt__req *req)
{
    struct ckpt_save *s = req->ctx;
    const struct ckpt__env *env = &s->c->env;
    if (req->result == -EEXIST && s->claim_tries < MAX_CLAIM_TRIES) {
        s->claim_tries++; /* another writer was quicker */
        s->sequence++;
        claim_next(s);
        return;
    }
    if (req->result < 0) {
        if (!ckpt__save_failed(s))
            ckpt__req_error(req, &s->error);
        if (req->result == -EEXIST) {
            ckpt__free(env, s->claim_path); /* not ours to remove */
            s->claim_path = NULL;
        }
        end_prepare(s);
        return;
    }
    check_claim(s);
}

static void claim_next(struct ckpt_save *s)
{
    const struct ckpt__env *env = &s->c->env;
    char name[CKPT__NAME_BYTES];
    ckpt__claim_name(name, s->sequence);
    ckpt__free(env, s->claim_path);
    s->claim_path = ckpt__path(env, "%s/%s", s->c->root, name);
    if (s->claim_path == NULL) {
        ckpt__save_fail(s, CKPT_ENOMEM, "save in %s: out of memory", s->c->root);
        end_prepare(s);
        return;
    }
    s->req = (struct ckpt__req){.done = claimed, .ctx = s};
    ckpt__write_whole(&s->c->disk, s->claim_path, 0666, s->record, s->record_bytes, &s->req);
}

/* Names the attempt and writes down who is behind it. */
static void name_attempt(struct ckpt_save *s)
{
    struct ckpt__owner owner;
    int e = ckpt__random(s->index.attempt.b, sizeof s->index.attempt.b);
    if (e != 0)
        ckpt__fail_sys(&s->error, e, "random bytes for the attempt");
    ckpt__owner_self(&owner, &s->index.attempt, s->index.step, s->c->generation);
    memcpy(s->c->last_attempt, owner.attempt, sizeof s->c->last_attempt);
    s->record = ckpt__alloc(&s->c->env, CKPT__OWNER_TEXT_BYTES);
    if (s->record == NULL)
        ckpt__save_fail(s, CKPT_ENOMEM, "save in %s: out of memory", s->c->root);
    else
        s->record_bytes = ckpt__owner_format(&owner, (char *)s->record);
}

static void leftovers_removed(struct ckpt_save *s)
{
    if (!ckpt__save_failed(s))
        name_attempt(s);
    if (ckpt__save_failed(s))
        end_prepare(s);
    else
        claim_next(s);
}

void ckpt__save_prepare(struct ckpt_save *s, void (*then)(struct ckpt_save *s))
{
    struct ckpt__scan before, scan;
    s->after = then;
    int rc = ckpt__scan_root(&before, &s->c->env, s->c->root, &s->error);
    if (rc == CKPT_OK) {
        rc = ckpt__scan_root(&scan, &s->c->env, s->c->root, &s->error);
        if (rc == CKPT_OK) {
            check_fence(s, &scan);
            judge_claims(s, &scan);
            judge_stagings(s, &before, &scan);
            s->sequence = scan.max_sequence + 1;
            ckpt__scan_free(&scan);
        }
        ckpt__scan_free(&before);
    }
    prepare_removal(s, remove_leftovers);
    remove_leftovers(&s->removal);
}

/* ------------------------------------------------------------------------------------------ */
/* Publish                                                                                      */

/* The checkpoint is there for good: what became of the claim no longer matters. */
static void claim_removed(struct ckpt__req *req)
{
    struct ckpt_save *s = req->ctx;
    s->after(s);
}

static void root_synced(struct ckpt_save *s)
{
    if (ckpt__save_failed(s)) {
        s->after(s);
        return;
    }
    s->req = (struct ckpt__req){.done = claim_removed, .ctx = s};
    ckpt__unlink(&s->c->disk, s->claim_path, &s->req);
}

static void renamed(struct ckpt_save *s)
{
    if (ckpt__save_failed(s)) {
        s->after(s);
        return;
    }
    ckpt__free(&s->c->env, s->staging);
    s->staging = NULL; /* it has become the checkpoint */
    ckpt__sync_dir(&s->c->disk, s->c->root, ckpt__save_then(s, root_synced));
}

static void staging_synced(struct ckpt_save *s)
{
    if (ckpt__save_failed(s)) {
        s->after(s);
        return;
    }
    struct ckpt__scan scan;
    if (ckpt__scan_root(&scan, &s->c->env, s->c->root, &s->error) == CKPT_OK) {
        check_fence(s, &scan); /* again: it is the last moment */
        ckpt__scan_free(&scan);
    }
    if (ckpt__save_failed(s))
        s->after(s);
    else
        ckpt__rename(&s->c->disk, s->staging, s->final_path, ckpt__save_then(s, renamed));
}

static void commit_written(struct ckpt_save *s)
{
    if (ckpt__save_failed(s))
        s->after(s);
    else
        ckpt__sync_dir(&s->c->disk, s->staging, ckpt__save_then(s, staging_synced));
}

static int encode_commit(struct ckpt_save *s)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct ckpt__commit *commit = &s->commit; /* index_digests are there already */
    commit->step = s->index.step;
    commit->sequence = s->sequence;
    commit->generation = s->c->generation;
    snprintf(commit->run_id, sizeof commit->run_id, "%s", s->c->run_id);
    commit->attempt = s->index.attempt;
    commit->parent = s->c->parent;
    commit->world_size = s->index.world_size;
    commit->saved_unix_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    ckpt__free(&s->c->env, s->record);
    s->record = NULL;
    int rc = ckpt__commit_encode(commit, &s->c->env, &s->record, &s->record_bytes, &s->error);
    if (rc == CKPT_OK)
        s->commit_digest = ckpt__digest_of(s->record, s->record_bytes);
    return rc;
}

void ckpt__save_publish(struct ckpt_save *s, void (*then)(struct ckpt_save *s))
{
    s->after = then;
    s->commit_path = ckpt__path(&s->c->env, "%s/COMMIT", s->staging);
    if (s->commit_path == NULL)
        ckpt__save_fail(s, CKPT_ENOMEM, "publish %s: out of memory", s->final_path);
    if (ckpt__save_failed(s) || encode_commit(s) != CKPT_OK)
        then(s);
    else
        ckpt__write_whole(&s->c->disk, s->commit_path, 0666, s->record, s->record_bytes,
                          ckpt__save_then(s, commit_written));
}
