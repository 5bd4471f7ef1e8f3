/*
 * save_run.c: a save's way through its phases, on the working side.
 *
 *   lay out -> [rank 0: prepare] -> exchange BEGIN -> stage -> index -> exchange WRITTEN
 *           -> [rank 0: publish] -> exchange PUBLISHED -> done
 *
 * A failure never skips an exchange that the other ranks are in or will come to: it travels in the
 * verdict, so all ranks learn of it at once. Then rank 0 takes the attempt back, and all finish
 * with the same error. Once publishing has begun, the save runs to its end, whatever is cancelled.
 */
#include "save/save.h"

#include "clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void on_req(struct ckpt__req *req)
{
    struct ckpt_save *s = req->ctx;
    if (req->result < 0 && !ckpt__save_failed(s))
        ckpt__req_error(req, &s->error);
    s->then(s);
}

struct ckpt__req *ckpt__save_then(struct ckpt_save *s, void (*then)(struct ckpt_save *s))
{
    s->then = then;
    s->req = (struct ckpt__req){.done = on_req, .ctx = s};
    return &s->req;
}

static void exchange(struct ckpt_save *s, enum ckpt__phase phase, ckpt__agreed_fn done)
{
    struct ckpt__verdict mine = {
        .phase = phase,
        .step = s->index.step,
        .generation = s->c->generation,
        .sequence = s->sequence,
        .attempt = s->index.attempt,
        .digest = phase == CKPT__SAVE_PUBLISHED ? s->commit_digest : s->index_digest,
        .error = s->error,
    };
    s->exchanging = true;
    ckpt__agree(s->c, &mine, done, s);
    if (s->cancelled && !s->past_cancel && s->c->has_group)
        s->c->group.cancel(s->c->group.ctx);
}

/* ------------------------------------------------------------------------------------------ */
/* End                                                                                          */

static void finish(struct ckpt_save *s)
{
    ckpt *c = s->c;
    if (s->result.code == CKPT_OK) {
        c->parent = s->commit_digest;
        ckpt__log(&c->env, CKPT_LOG_DEBUG, "saved %s in %" PRIu64 " ms", s->final_path,
                  s->committed_ns / 1000000);
    } else if (!s->aborted) {
        ckpt__log(&c->env, CKPT_LOG_ERROR, "save of step %" PRId64 " in %s failed: %s",
                  s->index.step, c->root, s->result.text);
    }
    ckpt__save_tell_staged(s);
    mailbox_post(&c->out.mailbox, &s->done_letter); /* s belongs to the caller's side from here */
    ckpt__task_over(c);
}

/* s->result says why. */
static void give_up(struct ckpt_save *s)
{
    s->past_cancel = true;
    if (ckpt__save_leads(s) && (s->staging != NULL || s->claim_path != NULL))
        ckpt__save_discard(s, finish);
    else
        finish(s);
}

/* Reads an exchange's outcome into s->result; true when all ranks are fine. */
static bool all_fine(struct ckpt_save *s, const struct ckpt__verdict *all, const ckpt_error *result)
{
    s->exchanging = false;
    if (all != NULL) {
        ckpt__agree_failure(s->c, all, &s->result);
    } else {
        /* Our own failure says more than that the others could not be told. */
        s->result = ckpt__save_failed(s) ? s->error : *result;
    }
    return s->result.code == CKPT_OK;
}

/* ------------------------------------------------------------------------------------------ */
/* Published                                                                                    */

static void agreed_published(void *ctx, const struct ckpt__verdict *all, const ckpt_error *result)
{
    struct ckpt_save *s = ctx;
    s->committed_ns = ckpt__save_elapsed(s, clock_ns());
    if (all_fine(s, all, result)) {
        s->commit_digest = all[0].digest;
        finish(s);
    } else if (s->result.code == CKPT_ETIMEDOUT && (s->staging == NULL || !ckpt__save_leads(s))) {
        size_t used = strlen(s->result.text);
        snprintf(s->result.text + used, sizeof s->result.text - used, "; %s may be complete",
                 s->final_path);
        finish(s);
    } else {
        give_up(s);
    }
}

static void published(struct ckpt_save *s)
{
    exchange(s, CKPT__SAVE_PUBLISHED, agreed_published);
}

/* ------------------------------------------------------------------------------------------ */
/* Written                                                                                      */

static void agreed_written(void *ctx, const struct ckpt__verdict *all, const ckpt_error *result)
{
    struct ckpt_save *s = ctx;
    if (!all_fine(s, all, result)) {
        give_up(s);
        return;
    }
    s->past_cancel = true;
    if (!ckpt__save_leads(s)) {
        published(s);
        return;
    }
    size_t world = (size_t)s->index.world_size;
    s->commit.index_digests = ckpt__alloc_array(&s->c->env, world, sizeof(struct ckpt__digest));
    if (s->commit.index_digests == NULL)
        ckpt__save_fail(s, CKPT_ENOMEM, "publish %s: out of memory", s->final_path);
    for (size_t i = 0; i < world && s->commit.index_digests != NULL; i++)
        s->commit.index_digests[i] = all[i].digest;
    ckpt__save_publish(s, published);
}

static void written(struct ckpt_save *s)
{
    exchange(s, CKPT__SAVE_WRITTEN, agreed_written);
}

static void index_written(struct ckpt_save *s)
{
    if (ckpt__save_failed(s))
        written(s);
    else
        ckpt__sync_dir(&s->c->disk, s->staging, ckpt__save_then(s, written));
}

static void staged(struct ckpt_save *s)
{
    s->index.synced_ns = ckpt__save_elapsed(s, clock_ns());
    if (ckpt__save_failed(s)) {
        written(s);
        return;
    }
    ckpt__free(&s->c->env, s->record);
    s->record = NULL;
    if (ckpt__index_encode(&s->index, &s->record, &s->record_bytes, &s->error) != CKPT_OK) {
        written(s);
        return;
    }
    s->index_digest = ckpt__digest_of(s->record, s->record_bytes);
    ckpt__write_whole(&s->c->disk, s->index_path, 0666, s->record, s->record_bytes,
                      ckpt__save_then(s, index_written));
}

/* ------------------------------------------------------------------------------------------ */
/* Begin                                                                                        */

static bool make_paths(struct ckpt_save *s)
{
    const struct ckpt__env *env = &s->c->env;
    char name[CKPT__NAME_BYTES], hex[33];
    ckpt__hex(&s->index.attempt, hex);
    if (s->staging == NULL)
        s->staging = ckpt__path(env, "%s/.staging-%s", s->c->root, hex);
    if (s->staging == NULL)
        return false;
    ckpt__shard_name(name, s->index.rank, s->index.world_size, "safetensors");
    s->shard_path = ckpt__path(env, "%s/%s", s->staging, name);
    ckpt__shard_name(name, s->index.rank, s->index.world_size, "index");
    s->index_path = ckpt__path(env, "%s/%s", s->staging, name);
    ckpt__step_name(name, s->index.step, s->sequence);
    s->final_path = ckpt__path(env, "%s/%s", s->c->root, name);
    return s->shard_path != NULL && s->index_path != NULL && s->final_path != NULL;
}

static void agreed_begin(void *ctx, const struct ckpt__verdict *all, const ckpt_error *result)
{
    struct ckpt_save *s = ctx;
    if (!all_fine(s, all, result)) {
        give_up(s);
        return;
    }
    s->index.attempt = all[0].attempt;
    s->sequence = all[0].sequence;
    if (!make_paths(s))
        ckpt__save_fail(s, CKPT_ENOMEM, "save in %s: out of memory", s->c->root);
    if (s->cancelled)
        ckpt__save_fail(s, CKPT_ECANCELED, "the handle of %s was closed", s->c->root);
    if (ckpt__save_failed(s))
        written(s);
    else
        ckpt__save_stage(s, staged);
}

static void prepared(struct ckpt_save *s)
{
    exchange(s, CKPT__SAVE_BEGIN, agreed_begin);
}

void ckpt__save_run(struct ckpt__task *t)
{
    struct ckpt_save *s = (struct ckpt_save *)t;
    s->begun_ns = clock_ns();
    if (!s->aborted)
        ckpt__layout_build(&s->index.layout, &s->error);
    if (ckpt__save_leads(s) && !ckpt__save_failed(s))
        ckpt__save_prepare(s, prepared);
    else
        prepared(s);
}

void ckpt__save_step(struct ckpt__task *t)
{
    ckpt__save_pump((struct ckpt_save *)t);
}

void ckpt__save_cancel(struct ckpt__task *t)
{
    struct ckpt_save *s = (struct ckpt_save *)t;
    if (s->past_cancel || s->cancelled)
        return;
    s->cancelled = true;
    ckpt__save_fail(s, CKPT_ECANCELED, "the handle of %s was closed", s->c->root);
    if (!s->exchanging)
        s->c->disk.engine->cls->cancel(s->c->disk.engine);
    else if (s->c->has_group)
        s->c->group.cancel(s->c->group.ctx);
}
