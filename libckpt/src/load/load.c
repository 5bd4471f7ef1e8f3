/*
 * load.c: the caller's side of a load: open, look, get, start, close, and the two callbacks.
 * Touches no disk and no peer.
 */
#include "load/load.h"
#include "container.h"
#include "options.h"

#include <inttypes.h>
#include <string.h>

void ckpt_load_options_init(ckpt_load_options *opt, size_t size)
{
    ckpt_load_options defaults = {.size = size, .step = CKPT_NEWEST};
    options_fill(opt, size, &defaults, sizeof defaults);
}

void ckpt__load_drop_wants(struct ckpt_load *l)
{
    for (size_t i = 0; i < l->want_count; i++)
        ckpt__free(&l->c->env, l->wants[i].into.shape);
    l->want_count = 0;
}

void ckpt__load_drop_shards(struct ckpt_load *l)
{
    for (int32_t i = 0; l->shards != NULL && i < l->info.world_size; i++) {
        ckpt__index_free(&l->shards[i].index);
        ckpt__free(&l->c->env, l->shards[i].path);
    }
    ckpt__free(&l->c->env, l->shards);
    l->shards = NULL;
    l->info.world_size = 0;
}

/* Takes l off the handle's list of open loads. */
static void unlist(struct ckpt_load *l)
{
    for (struct ckpt_load **at = &l->c->loads; l->listed && *at != NULL; at = &(*at)->next) {
        if (*at == l) {
            *at = l->next;
            break;
        }
    }
    l->listed = false;
}

void ckpt__load_free(struct ckpt_load *l)
{
    if (l == NULL)
        return;
    const struct ckpt__env *env = &l->c->env;
    unlist(l);
    for (size_t i = 0; i < l->candidate_count; i++)
        ckpt__commit_free(&l->candidates[i].commit, env);
    ckpt__free(env, l->candidates);
    ckpt__commit_free(&l->other.commit, env);
    ckpt__load_drop_wants(l);
    ckpt__load_drop_shards(l);
    ckpt__free(env, l->wants);
    ckpt__free(env, l->reads);
    ckpt__free(env, l->index_path);
    ckpt__free(env, l->file);
    ckpt__free(env, l->path);
    ckpt__free(env, l->run_id);
    ckpt__free(env, l);
}

static void deliver_start(struct letter *letter)
{
    struct ckpt_load *l = CONTAINER_OF(letter, struct ckpt_load, start_letter);
    ckpt__task_begin(l->c, &l->task);
}

static void deliver_opened(struct letter *letter)
{
    struct ckpt_load *l = CONTAINER_OF(letter, struct ckpt_load, done_letter);
    ckpt *c = l->c;
    c->busy = false;
    if (l->result.code == CKPT_OK) {
        l->next = c->loads;
        c->loads = l;
        l->listed = true;
        l->opened(l->ctx, l, &l->result);
    } else {
        l->opened(l->ctx, NULL, &l->result);
        ckpt__load_free(l);
    }
}

static void deliver_loaded(struct letter *letter)
{
    struct ckpt_load *l = CONTAINER_OF(letter, struct ckpt_load, done_letter);
    l->c->busy = false;
    l->reading = false;
    ckpt__load_drop_wants(l);
    l->loaded(l->ctx, &l->result);
}

static int check_options(const ckpt_load_options *opt, ckpt_error *err)
{
    if (opt->has_older_than > 1 || opt->alone > 1)
        return ckpt__fail(err, CKPT_EINVAL, "load options: has_older_than and alone are 0 or 1");
    if (opt->step < 0 && opt->step != CKPT_NEWEST)
        return ckpt__fail(err, CKPT_EINVAL, "load options: step %" PRId64 " is negative",
                          opt->step);
    return CKPT_OK;
}

int ckpt_load_open(ckpt *c, const ckpt_load_options *opt, ckpt_opened_fn done, void *ctx,
                   ckpt_error *err)
{
    ckpt_load_options full;
    ckpt_load_options_init(&full, sizeof full);
    int rc = ckpt__check_idle(c, err);
    if (rc == CKPT_OK)
        rc = ckpt__struct_read(&full, sizeof full, opt, offsetof(ckpt_load_options, step),
                               "call ckpt_load_options_init first", err);
    if (rc == CKPT_OK)
        rc = check_options(&full, err);
    if (rc != CKPT_OK)
        return rc;
    if (done == NULL)
        return ckpt__fail(err, CKPT_EINVAL, "ckpt_load_open needs a callback");
    struct ckpt_load *l = ckpt__alloc_zero(&c->env, sizeof *l);
    if (l == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "load from %s: out of memory", c->root);
    l->c = c;
    l->opt = full;
    l->opened = done;
    l->ctx = ctx;
    l->task = (struct ckpt__task){.start = ckpt__load_run_open, .cancel = ckpt__load_cancel};
    l->start_letter.deliver = deliver_start;
    l->done_letter.deliver = deliver_opened;
    if (full.file != NULL && (l->file = ckpt__strdup(&c->env, full.file)) == NULL) {
        ckpt__load_free(l);
        return ckpt__fail(err, CKPT_ENOMEM, "load of %s: out of memory", full.file);
    }
    l->opt.file = l->file;
    c->busy = true;
    mailbox_post(&c->in, &l->start_letter);
    return CKPT_OK;
}

const ckpt_info *ckpt_load_info(const ckpt_load *l)
{
    return &l->info;
}

static const struct ckpt__layout *layout_of(const ckpt_load *l, int32_t shard)
{
    if (shard < 0 || shard >= l->info.world_size)
        return NULL;
    return &l->shards[shard].index.layout;
}

int64_t ckpt_load_count(const ckpt_load *l, int32_t shard)
{
    const struct ckpt__layout *layout = layout_of(l, shard);
    return layout == NULL ? CKPT_ENOENT : (int64_t)(layout->count + layout->alias_count);
}

int ckpt_load_at(const ckpt_load *l, int32_t shard, int64_t i, ckpt_tensor *t,
                 const char **alias_of)
{
    const struct ckpt__layout *layout = layout_of(l, shard);
    if (layout == NULL || i < 0 || (uint64_t)i >= layout->count + layout->alias_count)
        return CKPT_ENOENT;
    const struct ckpt__alias *alias = NULL;
    const struct ckpt__entry *e;
    if ((uint64_t)i < layout->count) {
        e = &layout->entries[i];
    } else {
        alias = &layout->aliases[(size_t)i - layout->count];
        e = ckpt__layout_find(layout, alias->target);
    }
    if (e == NULL)
        return CKPT_ENOENT;
    ckpt_tensor found = {.size = t->size,
                         .name = alias != NULL ? alias->name : e->name,
                         .dtype = e->dtype,
                         .ndim = e->ndim,
                         .shape = e->shape,
                         .global_shape = e->global_shape,
                         .offset = e->offset};
    memcpy(t, &found, t->size < sizeof found ? t->size : sizeof found);
    if (alias_of != NULL)
        *alias_of = alias != NULL ? alias->target : NULL;
    return CKPT_OK;
}

int ckpt_load_note(const ckpt_load *l, int32_t shard, const void **ret, size_t *len)
{
    if (layout_of(l, shard) == NULL)
        return CKPT_ENOENT;
    *ret = l->shards[shard].index.note;
    *len = l->shards[shard].index.note_bytes;
    return CKPT_OK;
}

static int check_want(const ckpt_tensor *t, const struct ckpt__entry *e, ckpt_error *err)
{
    if (t->dtype != e->dtype || t->ndim != e->ndim)
        return ckpt__fail(err, CKPT_EMISMATCH,
                          "tensor %s is stored with dtype %u and %d dimensions, asked for with "
                          "dtype %u and %d",
                          ckpt__show_name(e->name).text, e->dtype, e->ndim, t->dtype, t->ndim);
    for (int32_t d = 0; d < e->ndim; d++) {
        if (t->shape[d] != e->shape[d])
            return ckpt__fail(err, CKPT_EMISMATCH,
                              "tensor %s: dimension %d is stored as %" PRId64
                              ", asked for as %" PRId64,
                              ckpt__show_name(e->name).text, d, e->shape[d], t->shape[d]);
    }
    if (t->data == NULL && e->bytes > 0)
        return ckpt__fail(err, CKPT_EINVAL, "tensor %s: data is NULL",
                          ckpt__show_name(e->name).text);
    return CKPT_OK;
}

int ckpt_load_get(ckpt_load *l, int32_t shard, const ckpt_tensor *t, ckpt_error *err)
{
    int rc = ckpt__check(l->c, err);
    if (rc != CKPT_OK)
        return rc;
    if (l->reading)
        return ckpt__fail(err, CKPT_EBUSY, "a start of this load has not called back");
    const struct ckpt__layout *layout = layout_of(l, shard);
    if (layout == NULL)
        return ckpt__fail(err, CKPT_ENOENT, "%s has %d shards, no shard %d", l->info.path,
                          l->info.world_size, shard);
    uint64_t bytes;
    rc = ckpt__tensor_check(t, &bytes, err);
    if (rc != CKPT_OK)
        return rc;
    const struct ckpt__entry *e = ckpt__layout_find(layout, t->name);
    if (e == NULL)
        return ckpt__fail(err, CKPT_ENOENT, "no tensor %s in %s", ckpt__show_name(t->name).text,
                          l->shards[shard].path);
    rc = check_want(t, e, err);
    if (rc != CKPT_OK)
        return rc;
    size_t ndim = (size_t)e->ndim;
    int64_t *arrays = ckpt__alloc_array(&l->c->env, ndim * 2 + 1, sizeof *arrays);
    if (arrays == NULL ||
        !ckpt__grow(&l->c->env, &l->wants, l->want_count, &l->want_capacity, sizeof *l->wants)) {
        ckpt__free(&l->c->env, arrays);
        return ckpt__fail(err, CKPT_ENOMEM, "tensor %s: out of memory",
                          ckpt__show_name(e->name).text);
    }
    struct ckpt__want *w = &l->wants[l->want_count++];
    *w = (struct ckpt__want){.shard = shard, .into = *e};
    w->into.data = t->data;
    w->into.shape = arrays;
    w->into.strides_bytes = NULL;
    memcpy(arrays, e->shape, ndim * sizeof *arrays);
    if (t->strides_bytes != NULL) {
        w->into.strides_bytes = arrays + ndim;
        memcpy(w->into.strides_bytes, t->strides_bytes, ndim * sizeof *arrays);
    }
    return CKPT_OK;
}

int ckpt_load_start(ckpt_load *l, ckpt_loaded_fn done, void *ctx, ckpt_error *err)
{
    int rc = ckpt__check_idle(l->c, err);
    if (rc != CKPT_OK)
        return rc;
    if (done == NULL)
        return ckpt__fail(err, CKPT_EINVAL, "ckpt_load_start needs a callback");
    l->loaded = done;
    l->ctx = ctx;
    l->task = (struct ckpt__task){.start = ckpt__load_run_read, .cancel = ckpt__load_cancel};
    l->done_letter.deliver = deliver_loaded;
    l->reading = true;
    l->c->busy = true;
    mailbox_post(&l->c->in, &l->start_letter);
    return CKPT_OK;
}

int ckpt_load_close(ckpt_load *l)
{
    if (l == NULL)
        return CKPT_OK;
    int rc = ckpt__check(l->c, NULL);
    if (rc != CKPT_OK || l->reading)
        return rc != CKPT_OK ? rc : CKPT_EBUSY;
    ckpt__load_free(l);
    return CKPT_OK;
}

static void deliver_aborted(struct letter *letter)
{
    ckpt__load_free(CONTAINER_OF(letter, struct ckpt_load, done_letter));
}

void ckpt_load_abort(ckpt_load *l, int32_t code, const char *reason)
{
    if (l == NULL || ckpt__check(l->c, NULL) != CKPT_OK || l->reading)
        return;
    if (!ckpt__load_is_shared(l) || l->c->closing) {
        ckpt__load_free(l);
        return;
    }
    ckpt__load_drop_wants(l);
    unlist(l);
    ckpt__fail(&l->abort_error, code == CKPT_EUNREADABLE ? code : CKPT_ECANCELED,
               "gave up loading %s: %s", l->info.path, reason != NULL ? reason : "no reason given");
    l->task = (struct ckpt__task){.start = ckpt__load_run_read, .cancel = ckpt__load_cancel};
    l->done_letter.deliver = deliver_aborted;
    mailbox_post(&l->c->in, &l->start_letter);
}
