/*
 * load_verify.c: whether a candidate may be loaded: every index is the one that COMMIT names,
 * belongs to the same save, and the shard beside it has the size that it says. The data itself is
 * verified when it is read.
 */
#include "load/load.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static int make_shards(struct ckpt_load *l, int32_t world)
{
    l->shards = ckpt__alloc_array(&l->c->env, (size_t)world, sizeof *l->shards);
    if (l->shards == NULL)
        return ckpt__fail(&l->error, CKPT_ENOMEM, "load from %s: out of memory", l->c->root);
    l->info.world_size = world;
    for (int32_t i = 0; i < world; i++) {
        ckpt__index_init(&l->shards[i].index, &l->c->env);
        l->shards[i].path = NULL;
    }
    return CKPT_OK;
}

static int check_index(struct ckpt_load *l, const uint8_t *bytes, size_t len)
{
    const struct ckpt__commit *commit = &l->chosen->commit;
    struct ckpt__shard *shard = &l->shards[l->shard_at];
    struct ckpt__index *x = &shard->index;
    struct ckpt__digest digest = ckpt__digest_of(bytes, len);
    if (memcmp(&digest, &commit->index_digests[l->shard_at], sizeof digest) != 0)
        return ckpt__fail(&l->error, CKPT_EUNREADABLE, "%s is not the file that COMMIT names",
                          l->index_path);
    ckpt_error why;
    int rc = ckpt__index_decode(x, bytes, len, &why);
    if (rc != CKPT_OK)
        return ckpt__fail(&l->error, rc, "%s: %s", l->index_path, why.text);
    if (x->rank != l->shard_at || x->world_size != commit->world_size || x->step != commit->step ||
        memcmp(&x->attempt, &commit->attempt, sizeof x->attempt) != 0)
        return ckpt__fail(&l->error, CKPT_EUNREADABLE, "%s belongs to another save", l->index_path);
    struct stat st;
    if (stat(shard->path, &st) != 0) {
        ckpt__fail_sys(&l->error, errno, "look at %s", shard->path);
        return l->error.code = CKPT_EUNREADABLE;
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != x->layout.file_bytes)
        return ckpt__fail(&l->error, CKPT_EUNREADABLE, "%s has %lld bytes, its index says %" PRIu64,
                          shard->path, (long long)st.st_size, x->layout.file_bytes);
    return CKPT_OK;
}

static void read_index(struct ckpt_load *l);

static void index_read(struct ckpt_load *l)
{
    if (l->error.code == CKPT_OK)
        check_index(l, l->req.buf, (size_t)l->req.result);
    ckpt__free(&l->c->env, l->req.buf); /* there, too, when it was cancelled meanwhile */
    ckpt__free(&l->c->env, l->index_path);
    l->index_path = NULL;
    ckpt__load_unreadable(&l->error);
    l->shard_at++;
    if (l->error.code != CKPT_OK || l->shard_at == l->info.world_size)
        l->verified(l);
    else
        read_index(l);
}

static void read_index(struct ckpt_load *l)
{
    const struct ckpt__env *env = &l->c->env;
    char name[CKPT__NAME_BYTES];
    ckpt__shard_name(name, l->shard_at, l->info.world_size, "safetensors");
    l->shards[l->shard_at].path =
        ckpt__path(env, "%s/%s/%s", l->c->root, l->chosen->dir.name, name);
    ckpt__shard_name(name, l->shard_at, l->info.world_size, "index");
    l->index_path = ckpt__path(env, "%s/%s/%s", l->c->root, l->chosen->dir.name, name);
    if (l->index_path == NULL || l->shards[l->shard_at].path == NULL) {
        ckpt__fail(&l->error, CKPT_ENOMEM, "load from %s: out of memory", l->c->root);
        l->verified(l);
        return;
    }
    ckpt__read_whole(&l->c->disk, l->index_path, CKPT__MAX_INDEX_BYTES,
                     ckpt__load_then(l, index_read));
}

void ckpt__load_verify(struct ckpt_load *l, struct ckpt__candidate *k,
                       void (*verified)(struct ckpt_load *l))
{
    ckpt__load_drop_shards(l);
    l->chosen = k;
    l->verified = verified;
    l->shard_at = 0;
    if (make_shards(l, k->commit.world_size) != CKPT_OK)
        verified(l);
    else
        read_index(l);
}
