/*
 * save.c: the caller's side of a save: begin, put, alias, note, commit, abort, and the two
 * callbacks. Touches no disk and no peer.
 */
#include "save/save.h"

#include "container.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ckpt__save_free(struct ckpt_save *s)
{
    if (s == NULL)
        return;
    const struct ckpt__env *env = &s->c->env;
    if (s->c->begun == s)
        s->c->begun = NULL;
    ckpt__free(env, s->leftovers);
    ckpt__index_free(&s->index);
    ckpt__commit_free(&s->commit, env);
    ckpt__free(env, s->staging);
    ckpt__free(env, s->shard_path);
    ckpt__free(env, s->index_path);
    ckpt__free(env, s->commit_path);
    ckpt__free(env, s->final_path);
    ckpt__free(env, s->claim_path);
    ckpt__free(env, s->record);
    ckpt__free(env, s->blocks);
    ckpt__free(env, s);
}

static void deliver_start(struct letter *letter)
{
    struct ckpt_save *s = CONTAINER_OF(letter, struct ckpt_save, start_letter);
    ckpt__task_begin(s->c, &s->task);
}

static void deliver_staged(struct letter *letter)
{
    struct ckpt_save *s = CONTAINER_OF(letter, struct ckpt_save, staged_letter);
    if (s->staged != NULL)
        s->staged(s->ctx);
}

static void deliver_done(struct letter *letter)
{
    struct ckpt_save *s = CONTAINER_OF(letter, struct ckpt_save, done_letter);
    ckpt_saved saved = {
        .step = s->index.step,
        .sequence = s->sequence,
        .generation = s->c->generation,
        .path = s->final_path,
        .shard_bytes = s->index.layout.file_bytes,
        .staged_ns = s->index.staged_ns,
        .written_ns = s->index.written_ns,
        .synced_ns = s->index.synced_ns,
        .committed_ns = s->committed_ns,
    };
    if (s->done != NULL) {
        s->c->busy = false;
        s->done(s->ctx, s->result.code == CKPT_OK ? &saved : NULL, &s->result);
    }
    ckpt__save_free(s);
}

int ckpt_save_begin(ckpt_save **ret, ckpt *c, int64_t step, ckpt_error *err)
{
    int rc = ckpt__check_idle(c, err);
    if (rc != CKPT_OK)
        return rc;
    if (step < 0)
        return ckpt__fail(err, CKPT_EINVAL, "save of step %lld: a step is not negative",
                          (long long)step);
    if (c->begun != NULL)
        return ckpt__fail(err, CKPT_EBUSY,
                          "save of step %lld was begun and neither committed nor "
                          "aborted",
                          (long long)c->begun->index.step);
    struct ckpt_save *s = ckpt__alloc_zero(&c->env, sizeof *s);
    if (s == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "save of step %lld: out of memory", (long long)step);
    s->c = c;
    s->task = (struct ckpt__task){
        .start = ckpt__save_run, .step = ckpt__save_step, .cancel = ckpt__save_cancel};
    ckpt__index_init(&s->index, &c->env);
    s->index.step = step;
    s->index.rank = c->group.rank;
    s->index.world_size = c->group.world_size;
    s->start_letter.deliver = deliver_start;
    s->staged_letter.deliver = deliver_staged;
    s->done_letter.deliver = deliver_done;
    c->begun = s;
    *ret = s;
    return CKPT_OK;
}

int ckpt_save_put(ckpt_save *s, const ckpt_tensor *t, ckpt_error *err)
{
    int rc = ckpt__check(s->c, err);
    return rc != CKPT_OK ? rc : ckpt__layout_add(&s->index.layout, t, err);
}

int ckpt_save_alias(ckpt_save *s, const char *name, const char *target, ckpt_error *err)
{
    int rc = ckpt__check(s->c, err);
    return rc != CKPT_OK ? rc : ckpt__layout_alias(&s->index.layout, name, target, err);
}

int ckpt_save_note(ckpt_save *s, const void *bytes, size_t len, ckpt_error *err)
{
    int rc = ckpt__check(s->c, err);
    if (rc != CKPT_OK)
        return rc;
    if (len > CKPT__MAX_NOTE_BYTES || (bytes == NULL && len > 0))
        return ckpt__fail(err, CKPT_EINVAL, "note of %zu bytes: at most %u are kept", len,
                          CKPT__MAX_NOTE_BYTES);
    uint8_t *copy = ckpt__alloc(&s->c->env, len);
    if (copy == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "note of %zu bytes: out of memory", len);
    if (len > 0)
        memcpy(copy, bytes, len);
    ckpt__free(&s->c->env, s->index.note);
    s->index.note = copy;
    s->index.note_bytes = len;
    return CKPT_OK;
}

int ckpt_save_commit(ckpt_save *s, ckpt_staged_fn staged, ckpt_saved_fn done, void *ctx,
                     ckpt_error *err)
{
    int rc = ckpt__check_idle(s->c, err);
    if (rc == CKPT_OK && done == NULL)
        rc = ckpt__fail(err, CKPT_EINVAL, "ckpt_save_commit needs a callback");
    if (rc != CKPT_OK)
        return rc;
    s->staged = staged;
    s->done = done;
    s->ctx = ctx;
    s->c->begun = NULL;
    s->c->busy = true;
    mailbox_post(&s->c->in, &s->start_letter);
    return CKPT_OK;
}

void ckpt_save_abort(ckpt_save *s, const char *reason)
{
    if (s == NULL || ckpt__check(s->c, NULL) != CKPT_OK || s->done != NULL)
        return; /* one that was committed runs to its end */
    if (!s->c->has_group || s->c->closing) {
        ckpt__save_free(s);
        return;
    }
    s->aborted = true;
    s->c->begun = NULL;
    ckpt__save_fail(s, CKPT_ECANCELED, "gave up the save of step %lld: %s",
                    (long long)s->index.step, reason != NULL ? reason : "no reason given");
    mailbox_post(&s->c->in, &s->start_letter);
}

void ckpt__save_fail(struct ckpt_save *s, int code, const char *fmt, ...)
{
    if (ckpt__save_failed(s))
        return;
    va_list args;
    va_start(args, fmt);
    s->error = (ckpt_error){.code = code};
    vsnprintf(s->error.text, sizeof s->error.text, fmt, args);
    va_end(args);
}
