/*
 * save_blocking.c: saves two tensors as one checkpoint, loads the newest one back, compares.
 *
 *     cc save_blocking.c -o save_blocking $(pkg-config --cflags --libs libckpt) \
 *         -Wl,-rpath,"$(pkg-config --variable=libdir libckpt)"
 *     ./save_blocking /tmp/checkpoints
 *
 * The handle's own thread writes, we wait for it; a trainer would go on computing instead.
 */
#include <ckpt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct model {
    float weight[256][64];
    float bias[64];
} model;

typedef struct outcome {
    int finished;
    ckpt_load *load;
    ckpt_error result;
} outcome;

static const int64_t shape[] = {256, 64}; /* its tail is the shape of the bias */

static void describe(ckpt_tensor *t, const char *name, int32_t ndim, float *data)
{
    ckpt_tensor_init(t, sizeof(*t));
    t->name = name;
    t->dtype = CKPT_F32;
    t->ndim = ndim;
    t->shape = &shape[2 - ndim];
    t->data = data;
}

static void on_saved(void *ctx, const ckpt_saved *saved, const ckpt_error *result)
{
    *(outcome *)ctx = (outcome){.finished = 1, .result = *result};
    if (saved != NULL)
        printf("saved step %lld, %llu bytes, durable after %.1f ms\n", (long long)saved->step,
               (unsigned long long)saved->shard_bytes, (double)saved->committed_ns / 1e6);
}

static void on_opened(void *ctx, ckpt_load *load, const ckpt_error *result)
{
    *(outcome *)ctx = (outcome){.finished = 1, .load = load, .result = *result};
}

static void on_loaded(void *ctx, const ckpt_error *result)
{
    *(outcome *)ctx = (outcome){.finished = 1, .result = *result};
}

/* Callbacks run inside ckpt_wait, on this thread. */
static int wait_for(ckpt *c, const outcome *o, ckpt_error *err)
{
    int rc = 0;
    while (!o->finished && rc >= 0)
        rc = ckpt_wait(c, -1);
    if (rc < 0) {
        err->code = rc;
        snprintf(err->text, sizeof err->text, "waiting: %s", ckpt_strerror(rc));
        return rc;
    }
    *err = o->result;
    return o->result.code;
}

static int save(ckpt *c, int64_t step, const ckpt_tensor t[2], ckpt_error *err)
{
    outcome o = {0};
    ckpt_save *s;
    if (ckpt_save_begin(&s, c, step, err) < 0)
        return err->code;
    if (ckpt_save_put(s, &t[0], err) == 0 && ckpt_save_put(s, &t[1], err) == 0 &&
        ckpt_save_commit(s, NULL, on_saved, &o, err) == 0)
        return wait_for(c, &o, err);
    ckpt_save_abort(s, err->text);
    return err->code;
}

static int load_newest(ckpt *c, const ckpt_tensor t[2], ckpt_error *err)
{
    outcome opened = {0}, loaded = {0};
    ckpt_load_options opt;
    ckpt_load_options_init(&opt, sizeof(opt));
    if (ckpt_load_open(c, &opt, on_opened, &opened, err) < 0 || wait_for(c, &opened, err) < 0)
        return err->code;
    printf("loading %s\n", ckpt_load_info(opened.load)->path);
    if (ckpt_load_get(opened.load, 0, &t[0], err) == 0 &&
        ckpt_load_get(opened.load, 0, &t[1], err) == 0 &&
        ckpt_load_start(opened.load, on_loaded, &loaded, err) == 0)
        wait_for(c, &loaded, err);
    ckpt_load_close(opened.load);
    return err->code;
}

int main(int argc, char **argv)
{
    static model trained, restored;
    ckpt_tensor t[2], u[2];
    ckpt_error err = {0};
    ckpt_options opt;
    ckpt *c;
    for (int i = 0; i < 64; i++)
        trained.weight[i][i] = trained.bias[i] = (float)i;
    describe(&t[0], "weight", 2, &trained.weight[0][0]);
    describe(&t[1], "bias", 1, trained.bias);
    describe(&u[0], "weight", 2, &restored.weight[0][0]);
    describe(&u[1], "bias", 1, restored.bias);

    ckpt_options_init(&opt, sizeof(opt));
    opt.root = argc > 1 ? argv[1] : "checkpoints";
    if (ckpt_open(&c, &opt, &err) == 0) {
        if (save(c, 1000, t, &err) == 0)
            load_newest(c, u, &err);
        ckpt_close(c);
    }
    int equal = err.code == 0 && memcmp(&trained, &restored, sizeof(model)) == 0;
    if (!equal) {
        fprintf(stderr, "save_blocking: %s\n",
                err.code != 0 ? err.text : "what was loaded differs from what was saved");
        return EXIT_FAILURE;
    }
    puts("equal");
    return EXIT_SUCCESS;
}
