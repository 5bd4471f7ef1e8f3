/*
 * bench_save.c: how fast a checkpoint becomes durable and comes back, next to what a trainer would
 * do by hand with the same bytes: write(2) and fsync through the page cache, and a loop of aligned
 * 4 MiB pwrites with O_DIRECT into fallocated space, which is the most that this device gives one
 * thread. Checksums are on, syncs are counted, files are new and cold.
 *
 * Usage: bench_save [--mib N] [--rounds N] [--dir DIR]; QUICK=1 in the environment: a short one.
 * Methods take turns in every round, so that a busy machine is unfair to all alike; ratios are
 * medians of the rounds' ratios. Last line: one JSON object; a_vs_b says how many times better a
 * is.
 */
#include "ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK (4u << 20)
#define TENSORS 16
#define MAX_ROUNDS 101

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_save: %s: %s\n", what, why);
    exit(1);
}

static void need(bool ok, const char *what)
{
    if (!ok)
        fail(what, strerror(errno));
}

static void need_ckpt(int rc, const char *what, const ckpt_error *err)
{
    if (rc < 0)
        fail(what, err->text);
}

/* ------------------------------------------------------------------------------------------ */
/* Meter                                                                                        */

struct sample {
    double wall_ms, blocked_ms, cpu_ms, peak_mib;
};

struct meter {
    double wall, cpu, rss;
};

static double wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* User and system, of all threads. */
static double cpu_ms(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

/* VmHWM or VmRSS, in MiB; 0 where there is none. */
static double status_mib(const char *key)
{
    char line[200];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0)
            kib = strtod(line + strlen(key), NULL);
    }
    if (f != NULL)
        fclose(f);
    return kib / 1024;
}

/* Memory is counted from here: before a handle is opened. */
static void meter_memory(struct meter *m)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "5", 1) != 1)
        errno = 0; /* then the peak is that of the whole run */
    if (fd >= 0)
        close(fd);
    m->rss = status_mib("VmRSS:");
}

static void meter_start(struct meter *m)
{
    m->cpu = cpu_ms();
    m->wall = wall_ms();
}

static void meter_stop(const struct meter *m, struct sample *ret)
{
    ret->wall_ms = wall_ms() - m->wall;
    ret->cpu_ms = cpu_ms() - m->cpu;
    ret->peak_mib = status_mib("VmHWM:") - m->rss;
    ret->blocked_ms = ret->wall_ms;
}

/* ------------------------------------------------------------------------------------------ */
/* By hand                                                                                      */

struct bench {
    size_t bytes;
    int rounds;
    char dir[400];
    char path[512]; /* file or root that the last save made */
    uint8_t *data, *back;
};

static void move_all(int fd, uint8_t *at, size_t bytes, bool writing)
{
    for (size_t done = 0; done < bytes;) {
        size_t len = bytes - done < BLOCK ? bytes - done : BLOCK;
        ssize_t n = writing ? pwrite(fd, at + done, len, (off_t)done)
                            : pread(fd, at + done, len, (off_t)done);
        need(n > 0, writing ? "write" : "read");
        done += (size_t)n;
    }
}

static void write_by_hand(struct bench *b, bool direct, struct sample *ret)
{
    struct meter m;
    snprintf(b->path, sizeof b->path, "%s/plain", b->dir);
    meter_memory(&m);
    meter_start(&m);
    int fd = open(b->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
    need(fd >= 0, b->path);
    if (direct && fallocate(fd, 0, 0, (off_t)b->bytes) != 0)
        need(errno == EOPNOTSUPP, "fallocate");
    move_all(fd, b->data, b->bytes, true);
    need((direct ? fdatasync(fd) : fsync(fd)) == 0, "sync");
    need(close(fd) == 0, "close");
    meter_stop(&m, ret);
}

static void read_by_hand(struct bench *b, bool direct, struct sample *ret)
{
    struct meter m;
    int fd = open(b->path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
    need(fd >= 0, b->path);
    need(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "drop the cache");
    meter_memory(&m);
    meter_start(&m);
    move_all(fd, b->back, b->bytes, false);
    meter_stop(&m, ret);
    close(fd);
}

/* ------------------------------------------------------------------------------------------ */
/* Through libckpt                                                                              */

struct outcome {
    bool done;
    double staged_at; /* on wall_ms */
    ckpt_load *load;
    ckpt_error result;
};

static void on_staged(void *ctx)
{
    ((struct outcome *)ctx)->staged_at = wall_ms();
}

static void on_done(void *ctx, const ckpt_error *result)
{
    struct outcome *o = ctx;
    o->done = true;
    o->result = *result;
}

static void on_saved(void *ctx, const ckpt_saved *saved, const ckpt_error *result)
{
    (void)saved;
    on_done(ctx, result);
}

static void on_opened(void *ctx, ckpt_load *load, const ckpt_error *result)
{
    ((struct outcome *)ctx)->load = load;
    on_done(ctx, result);
}

static void wait_for(ckpt *c, struct outcome *o, const char *what)
{
    while (!o->done)
        ckpt_wait(c, -1);
    need_ckpt(o->result.code, what, &o->result);
    o->done = false;
}

/* NULL, said on stderr, where this engine is refused. */
static ckpt *open_root(const struct bench *b, uint32_t engine, uint64_t staging_bytes)
{
    ckpt_options opt;
    ckpt_error err;
    ckpt *c;
    ckpt_options_init(&opt, sizeof opt);
    opt.root = b->path;
    opt.engine = engine;
    if (staging_bytes > 0)
        opt.staging_bytes = staging_bytes;
    int rc = ckpt_open(&c, &opt, &err);
    if (rc == CKPT_ENOTSUP) {
        fprintf(stderr, "left out: %s\n", err.text);
        return NULL;
    }
    need_ckpt(rc, "open", &err);
    return c;
}

static void describe(const struct bench *b, int i, uint8_t *memory, char name[32], int64_t *shape,
                     ckpt_tensor *t)
{
    size_t part = b->bytes / TENSORS;
    snprintf(name, 32, "layer.%d.weight", i);
    *shape = (int64_t)(part / 4);
    ckpt_tensor_init(t, sizeof *t);
    t->name = name;
    t->dtype = CKPT_F32;
    t->ndim = 1;
    t->shape = shape;
    t->data = memory + (size_t)i * part;
}

static bool save(struct bench *b, uint32_t engine, uint64_t staging_bytes, struct sample *ret)
{
    struct meter m;
    struct outcome o = {0};
    ckpt_error err;
    ckpt_save *s;
    ckpt_tensor t;
    char name[32];
    int64_t shape;
    snprintf(b->path, sizeof b->path, "%s/root", b->dir);
    meter_memory(&m);
    ckpt *c = open_root(b, engine, staging_bytes);
    if (c == NULL)
        return false;
    meter_start(&m);
    need_ckpt(ckpt_save_begin(&s, c, 1, &err), "begin", &err);
    for (int i = 0; i < TENSORS; i++) {
        describe(b, i, b->data, name, &shape, &t);
        need_ckpt(ckpt_save_put(s, &t, &err), "put", &err);
    }
    if (ckpt_save_commit(s, on_staged, on_saved, &o, NULL) < 0)
        fail("commit", "refused");
    wait_for(c, &o, "save");
    meter_stop(&m, ret);
    ret->blocked_ms = o.staged_at - m.wall;
    ckpt_close(c);
    return true;
}

static void load(struct bench *b, uint32_t engine, struct sample *ret)
{
    struct meter m;
    struct outcome o = {0};
    ckpt_load_options opt;
    ckpt_error err;
    ckpt_tensor t;
    char name[32];
    int64_t shape;
    meter_memory(&m);
    ckpt *c = open_root(b, engine, 0);
    meter_start(&m);
    ckpt_load_options_init(&opt, sizeof opt);
    need_ckpt(ckpt_load_open(c, &opt, on_opened, &o, &err), "open a load", &err);
    wait_for(c, &o, "load");
    for (int i = 0; i < TENSORS; i++) {
        describe(b, i, b->back, name, &shape, &t);
        need_ckpt(ckpt_load_get(o.load, 0, &t, &err), "get", &err);
    }
    need_ckpt(ckpt_load_start(o.load, on_done, &o, &err), "start", &err);
    wait_for(c, &o, "load");
    meter_stop(&m, ret);
    ckpt_load_close(o.load);
    ckpt_close(c);
}

/* ------------------------------------------------------------------------------------------ */
/* Rounds                                                                                       */

enum method { WRITE_FSYNC, DIRECT, URING, SYNC, URING_WHOLE, METHODS };

static const char *const names[METHODS] = {"write + fsync", "O_DIRECT loop", "ckpt io_uring",
                                           "ckpt sync", "ckpt io_uring, whole shard staged"};

struct results {
    bool there[METHODS];
    struct sample saves[METHODS][MAX_ROUNDS], loads[METHODS][MAX_ROUNDS];
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static bool run(struct bench *b, enum method m, struct sample *saved, struct sample *loaded)
{
    uint32_t engine = m == SYNC ? CKPT_ENGINE_SYNC : CKPT_ENGINE_URING;
    uint64_t staging = m == URING_WHOLE ? b->bytes + 2 * BLOCK : 0;
    memset(b->back, 0, b->bytes);
    if (m == WRITE_FSYNC || m == DIRECT) {
        write_by_hand(b, m == DIRECT, saved);
        read_by_hand(b, m == DIRECT, loaded);
    } else if (save(b, engine, staging, saved)) {
        load(b, engine, loaded);
    } else {
        return false;
    }
    if (memcmp(b->data, b->back, b->bytes) != 0)
        fail(names[m], "what came back is not what was saved");
    need(nftw(b->path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0, b->path);
    sync(); /* the next method does not pay for this one */
    return true;
}

static void run_all(struct bench *b, struct results *r)
{
    for (int round = 0; round < b->rounds; round++) {
        for (int k = 0; k < METHODS; k++) {
            enum method m = (enum method)((round + k) % METHODS);
            r->there[m] = run(b, m, &r->saves[m][round], &r->loads[m][round]);
            if (r->there[m])
                fprintf(stderr, "round %d of %d: %s: saved in %.0f ms, loaded in %.0f ms\n",
                        round + 1, b->rounds, names[m], r->saves[m][round].wall_ms,
                        r->loads[m][round].wall_ms);
        }
    }
}

/* ------------------------------------------------------------------------------------------ */
/* Report                                                                                       */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x > y ? 1 : x < y ? -1 : 0;
}

/* Of one field (its offset) of the samples; over: of its ratio over/samples, round by round. */
static double median(const struct sample *samples, const struct sample *over, size_t field, int n)
{
    double v[MAX_ROUNDS];
    for (int i = 0; i < n; i++) {
        double x = *(const double *)(const void *)((const char *)&samples[i] + field);
        v[i] =
            over == NULL ? x : *(const double *)(const void *)((const char *)&over[i] + field) / x;
    }
    qsort(v, (size_t)n, sizeof v[0], by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

#define FIELD(name) offsetof(struct sample, name)

static void print_row(const struct bench *b, const char *name, const struct sample *s)
{
    double ms = median(s, NULL, FIELD(wall_ms), b->rounds);
    printf("%-36s %9.0f %9.0f %10.0f %9.0f %9.0f\n", name, ms,
           (double)b->bytes / 1048576 / (ms / 1e3), median(s, NULL, FIELD(blocked_ms), b->rounds),
           median(s, NULL, FIELD(cpu_ms), b->rounds), median(s, NULL, FIELD(peak_mib), b->rounds));
}

static void print_table(const struct bench *b, const struct results *r)
{
    printf("%zu MiB, medians of %d rounds\n\n%-36s %9s %9s %10s %9s %9s\n", b->bytes >> 20,
           b->rounds, "save", "durable", "MiB/s", "blocked ms", "CPU ms", "peak MiB");
    for (int m = 0; m < METHODS; m++) {
        if (r->there[m])
            print_row(b, names[m], r->saves[m]);
    }
    printf("\n%-36s %9s %9s %10s %9s %9s\n", "load, cold", "ms", "MiB/s", "blocked ms", "CPU ms",
           "peak MiB");
    static const char *const readers[] = {"read", "O_DIRECT loop", "ckpt io_uring", "ckpt sync"};
    for (int m = 0; m < URING_WHOLE; m++) {
        if (r->there[m])
            print_row(b, readers[m], r->loads[m]);
    }
    printf("\n");
}

static void print_json(const struct bench *b, const struct results *r)
{
    enum method best = r->there[URING] ? URING : SYNC; /* what CKPT_ENGINE_AUTO takes */
    const struct sample *s = r->saves[best], *l = r->loads[best];
    int n = b->rounds;
    printf("{\"bench\": \"save\", \"mib\": %zu, \"rounds\": %d, \"engine\": \"%s\"", b->bytes >> 20,
           n, best == URING ? "io_uring" : "sync");
    printf(", \"save_vs_write_fsync\": %.2f, \"save_vs_direct\": %.2f",
           median(s, r->saves[WRITE_FSYNC], FIELD(wall_ms), n),
           median(s, r->saves[DIRECT], FIELD(wall_ms), n));
    printf(", \"sync_save_vs_write_fsync\": %.2f, \"sync_save_vs_direct\": %.2f",
           median(r->saves[SYNC], r->saves[WRITE_FSYNC], FIELD(wall_ms), n),
           median(r->saves[SYNC], r->saves[DIRECT], FIELD(wall_ms), n));
    printf(", \"durable_ms\": %.1f, \"staged_ms\": %.1f", median(s, NULL, FIELD(wall_ms), n),
           median(s, NULL, FIELD(blocked_ms), n));
    if (r->there[URING_WHOLE])
        printf(", \"staged_whole_ms\": %.1f",
               median(r->saves[URING_WHOLE], NULL, FIELD(blocked_ms), n));
    printf(", \"cpu_vs_write_fsync\": %.2f, \"load_vs_read\": %.2f, \"load_vs_direct\": %.2f",
           median(s, r->saves[WRITE_FSYNC], FIELD(cpu_ms), n),
           median(l, r->loads[WRITE_FSYNC], FIELD(wall_ms), n),
           median(l, r->loads[DIRECT], FIELD(wall_ms), n));
    printf(", \"peak_mib\": %.1f}\n", median(s, NULL, FIELD(peak_mib), n));
}

/* ------------------------------------------------------------------------------------------ */

static size_t number(const char *text, size_t least, size_t most)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || text[0] < '0' || text[0] > '9' || v < least || v > most) {
        fprintf(stderr, "bench_save: %s is not a number from %zu to %zu\n", text, least, most);
        exit(2);
    }
    return (size_t)v;
}

static void read_arguments(struct bench *b, int argc, char **argv, const char **below)
{
    const char *quick = getenv("QUICK");
    bool is_quick = quick != NULL && strcmp(quick, "1") == 0;
    b->bytes = is_quick ? 64u << 20 : 256u << 20;
    b->rounds = is_quick ? 5 : 7;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--mib") == 0) {
            b->bytes = number(argv[i + 1], 1, 1u << 20) << 20;
        } else if (i + 1 < argc && strcmp(argv[i], "--rounds") == 0) {
            b->rounds = (int)number(argv[i + 1], 1, MAX_ROUNDS);
        } else if (i + 1 < argc && strcmp(argv[i], "--dir") == 0) {
            *below = argv[i + 1];
        } else {
            fprintf(stderr, "usage: bench_save [--mib N] [--rounds N] [--dir DIR]\n"
                            "The default DIR is that of the program: a disk, not a memory file "
                            "system. QUICK=1: less of all.\n");
            exit(2);
        }
    }
}

static uint8_t *memory(size_t bytes)
{
    void *p;
    if (posix_memalign(&p, BLOCK, bytes) != 0)
        fail("memory", "there is not enough for two copies of the data");
    memset(p, 0, bytes);
    return p;
}

int main(int argc, char **argv)
{
    static struct bench b;
    static struct results r;
    char self[300] = ".";
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0 && memrchr(self, '/', (size_t)n) != NULL)
        *(char *)memrchr(self, '/', (size_t)n) = '\0';
    const char *below = self;
    read_arguments(&b, argc, argv, &below);
#ifndef __OPTIMIZE__
    fprintf(stderr, "bench_save: built without optimisation, so CPU time says little\n");
#endif
    snprintf(b.dir, sizeof b.dir, "%s/bench-XXXXXX", below);
    need(mkdtemp(b.dir) != NULL, b.dir);
    b.data = memory(b.bytes);
    b.back = memory(b.bytes);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < b.bytes; i += sizeof x) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(b.data + i, &x, sizeof x);
    }
    run_all(&b, &r);
    print_table(&b, &r);
    print_json(&b, &r);
    free(b.data);
    free(b.back);
    need(rmdir(b.dir) == 0, b.dir);
    return 0;
}
