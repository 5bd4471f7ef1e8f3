/*
 * agree.c: one exchange of verdicts over the handle's group, or with nobody when there is none.
 * A verdict is a fixed record of VERDICT_BYTES, little-endian:
 *   u32 phase, i32 code, i32 errno, i64 step, u64 generation, u64 sequence, attempt[16],
 *   digest[16], text[248]
 * What another rank says is checked before use; ranks that are not in the same phase of the same
 * step are a mismatch, never a mixture.
 */
#include "handle.h"

#include "bytes.h"
#include "container.h"

#include <inttypes.h>
#include <string.h>
#include <sys/timerfd.h>

#define TEXT_BYTES sizeof(((ckpt_error *)0)->text)
#define VERDICT_BYTES (68 + TEXT_BYTES)

static const char *phase_name(uint32_t phase)
{
    static const char *const names[] = {"?",
                                        "beginning a save",
                                        "done writing its shard",
                                        "done publishing a save",
                                        "looking for a checkpoint",
                                        "checking a checkpoint",
                                        "done reading its tensors"};
    return phase < sizeof names / sizeof names[0] ? names[phase] : names[0];
}

static void encode(const struct ckpt__verdict *v, uint8_t *dst)
{
    bytes_put_u32(dst, v->phase);
    bytes_put_u32(dst + 4, (uint32_t)v->error.code);
    bytes_put_u32(dst + 8, (uint32_t)v->error.sys_errno);
    bytes_put_u64(dst + 12, (uint64_t)v->step);
    bytes_put_u64(dst + 20, v->generation);
    bytes_put_u64(dst + 28, v->sequence);
    memcpy(dst + 36, v->attempt.b, 16);
    memcpy(dst + 52, v->digest.b, 16);
    memcpy(dst + 68, v->error.text, TEXT_BYTES);
}

static int decode(struct ckpt__verdict *v, const ckpt_blob *blob)
{
    const uint8_t *src = blob->bytes;
    if (blob->len_bytes != VERDICT_BYTES)
        return 0;
    v->phase = bytes_get_u32(src);
    v->error.code = (int32_t)bytes_get_u32(src + 4);
    v->error.sys_errno = (int32_t)bytes_get_u32(src + 8);
    v->step = (int64_t)bytes_get_u64(src + 12);
    v->generation = bytes_get_u64(src + 20);
    v->sequence = bytes_get_u64(src + 28);
    memcpy(v->attempt.b, src + 36, 16);
    memcpy(v->digest.b, src + 52, 16);
    memcpy(v->error.text, src + 68, TEXT_BYTES);
    v->error.text[TEXT_BYTES - 1] = '\0';
    return v->error.code <= 0;
}

static void tick(ckpt *c, bool on)
{
    long ns = on ? 10000000L : 0;
    struct itimerspec at = {.it_interval = {0, ns}, .it_value = {0, ns}};
    if (c->tick_fd >= 0)
        timerfd_settime(c->tick_fd, 0, &at, NULL);
}

static void answer(struct ckpt__agreement *a, const struct ckpt__verdict *all,
                   const ckpt_error *result)
{
    ckpt__agreed_fn done = a->done;
    a->done = NULL;
    done(a->ctx, all, result);
}

/* All verdicts decoded, and all about the same thing as mine. */
static int compare(const ckpt *c, struct ckpt__verdict *all, const ckpt_blob *blobs,
                   ckpt_error *err)
{
    const struct ckpt__verdict *mine = &c->agreement.mine;
    for (int32_t i = 0; i < c->group.world_size; i++) {
        if (!decode(&all[i], &blobs[i]))
            return ckpt__fail(err, CKPT_EMISMATCH,
                              "rank %d sent %zu bytes that are no verdict of this version", i,
                              blobs[i].len_bytes);
        if (all[i].phase != mine->phase)
            return ckpt__fail(err, CKPT_EMISMATCH, "rank %d is %s while rank %d is %s", i,
                              phase_name(all[i].phase), c->group.rank, phase_name(mine->phase));
        if (mine->phase == CKPT__SAVE_BEGIN &&
            (all[i].step != mine->step || all[i].generation != mine->generation))
            return ckpt__fail(err, CKPT_EMISMATCH,
                              "rank %d saves step %" PRId64 " of generation %" PRIu64
                              ", rank %d step %" PRId64 " of generation %" PRIu64,
                              i, all[i].step, all[i].generation, c->group.rank, mine->step,
                              mine->generation);
    }
    return CKPT_OK;
}

static void exchanged(void *ctx, const ckpt_blob *blobs, const ckpt_error *result)
{
    ckpt *c = ctx;
    tick(c, false);
    if (result->code != CKPT_OK) {
        answer(&c->agreement, NULL, result);
        return;
    }
    size_t world = (size_t)c->group.world_size;
    ckpt_error err = {.code = CKPT_OK};
    struct ckpt__verdict *all = ckpt__alloc_array(&c->env, world, sizeof *all);
    if (all == NULL)
        ckpt__fail(&err, CKPT_ENOMEM, "no memory for the verdicts of %zu ranks", world);
    else
        compare(c, all, blobs, &err);
    answer(&c->agreement, err.code == CKPT_OK ? all : NULL, &err);
    ckpt__free(&c->env, all);
}

static void alone(struct letter *letter)
{
    struct ckpt__agreement *a = CONTAINER_OF(letter, struct ckpt__agreement, letter);
    answer(a, &a->mine, &(ckpt_error){.code = CKPT_OK});
}

void ckpt__agree(ckpt *c, const struct ckpt__verdict *mine, ckpt__agreed_fn done, void *ctx)
{
    struct ckpt__agreement *a = &c->agreement;
    *a = (struct ckpt__agreement){.letter.deliver = alone, .mine = *mine, .done = done, .ctx = ctx};
    if (!c->has_group) {
        mailbox_post(&c->in, &a->letter);
        return;
    }
    uint8_t blob[VERDICT_BYTES];
    encode(mine, blob);
    tick(c, true);
    c->group.exchange(c->group.ctx, blob, sizeof blob, c->timeout_ms, exchanged, c);
}

int ckpt__agree_failure(const ckpt *c, const struct ckpt__verdict *all, ckpt_error *err)
{
    const ckpt_error *own = &all[c->group.rank].error;
    if (own->code != CKPT_OK) {
        *err = *own;
        return own->code;
    }
    for (int32_t i = 0; i < c->group.world_size; i++) {
        const ckpt_error *theirs = &all[i].error;
        if (theirs->code == CKPT_OK)
            continue;
        int code = theirs->code == CKPT_ECANCELED ? CKPT_EPEER : theirs->code;
        ckpt__fail(err, code, "rank %d: %s", i, theirs->text);
        err->sys_errno = theirs->sys_errno;
        return code;
    }
    return CKPT_OK;
}
