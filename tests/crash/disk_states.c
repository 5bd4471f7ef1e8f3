/*
 * disk_states.c: see disk_states.h. The log becomes a list of operations on objects (files and
 * directories, by identity, so that a rename moves nothing else). At a tick each object has its
 * loose operations, which may be kept, lost or torn; every way to do so that looks different is one
 * outcome of that object. A state picks one outcome for each object; what no directory names is
 * not seen. Knows nothing of checkpoints but where a claim keeps its boot id.
 */
#include "disk_states.h"

#include "format/manifest.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR 512u
#define NAME_BYTES 64
#define MAX_OBJECTS 64
#define MAX_ENTRIES 24
#define MAX_LOOSE 16
#define MAX_OUTCOMES 2048u
#define FEW_SECTORS 4u /* up to here all tears of a write are tried */
#define SOME_TEARS 8u  /* else these */

enum kind { WRITE, RESIZE, ALLOCATE, SYNC, LINK, UNLINK, MOVE };
enum { LOST, KEPT, TORN }; /* variants of a loose operation; TORN and above are tears */

struct op {
    enum kind kind;
    int object; /* changed by it */
    int child;  /* of LINK */
    char name[NAME_BYTES], to[NAME_BYTES];
    uint64_t off, len, submitted, completed;
    int64_t result;
    uint8_t *data;
};

struct dir {
    struct {
        char name[NAME_BYTES];
        int object;
    } entries[MAX_ENTRIES];
    size_t count;
};

struct outcome {
    uint8_t variants[MAX_LOOSE];
    struct ckpt__digest digest;
};

struct object {
    bool is_dir;
    uint64_t signature; /* of what the outcomes were made from */
    size_t loose[MAX_LOOSE], loose_count;
    struct outcome *outcomes;
    size_t outcome_count, picked;
};

struct disk_states {
    struct op *ops;
    size_t op_count;
    struct object objects[MAX_OBJECTS]; /* 0 is the root */
    int object_count;
    uint64_t tick, random;
    uint64_t seed;
    bool whole;
    struct dir dir; /* what apply made */
    uint8_t *image;
    uint64_t image_size, image_capacity;
};

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t next_random(struct disk_states *s)
{
    return mix(s->random++);
}

/* ------------------------------------------------------------------------------------------ */
/* Directories                                                                                  */

static int find(const struct dir *d, const char *name)
{
    for (size_t i = 0; i < d->count; i++) {
        if (strcmp(d->entries[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

static void unlink_name(struct dir *d, const char *name)
{
    int at = find(d, name);
    if (at >= 0)
        d->entries[at] = d->entries[--d->count];
}

static void link_name(struct dir *d, const char *name, int object)
{
    unlink_name(d, name);
    ck_assert_uint_lt(d->count, MAX_ENTRIES);
    snprintf(d->entries[d->count].name, NAME_BYTES, "%s", name);
    d->entries[d->count++].object = object;
}

static void change_dir(struct dir *d, const struct op *op)
{
    if (op->kind == LINK)
        link_name(d, op->name, op->child);
    else
        unlink_name(d, op->name);
    if (op->kind == MOVE)
        link_name(d, op->to, op->child);
}

/* ------------------------------------------------------------------------------------------ */
/* From the log to operations on objects                                                        */

struct reading {
    struct disk_states *s;
    const char *root;
    struct dir *dirs; /* as a running process sees them, by object */
};

/* Name of the last part, and the directory that holds it; "" and the root for the root. */
static int parent_of(const struct reading *r, const char *path, const char **name)
{
    size_t len = strlen(r->root);
    ck_assert_msg(strncmp(path, r->root, len) == 0, "%s is not below %s", path, r->root);
    *name = path[len] == '/' ? path + len + 1 : path + len;
    const char *slash = strchr(*name, '/');
    if (slash == NULL)
        return 0;
    char first[NAME_BYTES];
    snprintf(first, sizeof first, "%.*s", (int)(slash - *name), *name);
    *name = slash + 1;
    int at = find(&r->dirs[0], first);
    ck_assert_msg(at >= 0 && strchr(*name, '/') == NULL, "no directory for %s", path);
    return r->dirs[0].entries[at].object;
}

static int object_of(const struct reading *r, const char *path)
{
    const char *name;
    int dir = parent_of(r, path, &name);
    if (name[0] == '\0')
        return 0;
    int at = find(&r->dirs[dir], name);
    ck_assert_msg(at >= 0, "the log uses %s before it is there", path);
    return r->dirs[dir].entries[at].object;
}

static void read_name_op(struct reading *r, const struct fake_event *e, struct op *op)
{
    const char *name, *to;
    op->object = parent_of(r, e->path, &name);
    snprintf(op->name, NAME_BYTES, "%s", name);
    if (op->kind == LINK) {
        ck_assert_int_lt(r->s->object_count, MAX_OBJECTS);
        op->child = r->s->object_count++;
        r->s->objects[op->child].is_dir = e->op == CKPT__MKDIR;
    } else {
        op->child = object_of(r, e->path);
    }
    if (op->kind == MOVE) {
        ck_assert_msg(parent_of(r, e->path2, &to) == op->object, "renamed to another directory");
        snprintf(op->to, NAME_BYTES, "%s", to);
    }
    change_dir(&r->dirs[op->object], op);
}

/* A claim that was written before the crash is of an earlier boot. */
static void change_boot_id(uint8_t *bytes, uint64_t len)
{
    static const char key[] = "\nboot_id ";
    uint8_t *at = memmem(bytes, len, key, sizeof key - 1);
    ck_assert_ptr_nonnull(at);
    for (at += sizeof key - 1; at < bytes + len && *at != '\n'; at++)
        *at = *at == '-' ? '-' : '0';
}

static void read_data_op(struct reading *r, const struct fake_event *e, struct op *op)
{
    op->object = object_of(r, e->path);
    op->off = e->off;
    op->len = e->len;
    if (op->kind == WRITE) {
        op->data = malloc(e->len);
        ck_assert(op->data != NULL && e->data != NULL);
        memcpy(op->data, e->data, e->len);
        if (strstr(e->path, "/.sequence-") != NULL)
            change_boot_id(op->data, op->len);
    }
    if (op->off + op->len > r->s->image_capacity)
        r->s->image_capacity = op->off + op->len;
}

static bool kind_of(const struct reading *r, const struct fake_event *e, enum kind *kind)
{
    const char *name;
    switch (e->op) {
    case CKPT__WRITE:
        *kind = WRITE;
        break;
    case CKPT__TRUNCATE:
        *kind = RESIZE;
        break;
    case CKPT__FALLOCATE:
        *kind = ALLOCATE;
        break;
    case CKPT__FDATASYNC:
    case CKPT__FSYNC:
        *kind = SYNC;
        break;
    case CKPT__OPEN:
        *kind = LINK;
        break;
    case CKPT__MKDIR:
        *kind = LINK;
        break;
    case CKPT__RENAME:
        *kind = MOVE;
        break;
    case CKPT__UNLINK:
    case CKPT__RMDIR:
        *kind = UNLINK;
        break;
    default:
        ck_abort_msg("an operation that the model does not know: %s", ckpt__op_name(e->op));
    }
    if (e->op == CKPT__OPEN) {
        if ((e->flags & O_CREAT) == 0)
            return false;
        const struct dir *parent = &r->dirs[parent_of(r, e->path, &name)];
        if (find(parent, name) >= 0)
            return false;
    }
    return *kind < LINK || e->result >= 0; /* a name that was refused changed nothing */
}

struct disk_states *disk_states_open(const struct fake_event *log, size_t count, const char *root,
                                     uint64_t seed)
{
    struct disk_states *s = calloc(1, sizeof *s);
    struct reading r = {.s = s, .root = root, .dirs = calloc(MAX_OBJECTS, sizeof *r.dirs)};
    ck_assert(s != NULL && r.dirs != NULL);
    s->ops = calloc(count + 1, sizeof *s->ops);
    ck_assert_ptr_nonnull(s->ops);
    s->seed = s->random = seed;
    s->objects[0].is_dir = true;
    s->object_count = 1;
    for (size_t i = 0; i < count; i++) {
        const struct fake_event *e = &log[i];
        struct op *op = &s->ops[s->op_count];
        ck_assert_uint_gt(e->completed, 0);
        if (!kind_of(&r, e, &op->kind))
            continue;
        op->submitted = e->submitted;
        op->completed = e->completed;
        op->result = e->result;
        if (op->kind >= LINK)
            read_name_op(&r, e, op);
        else
            read_data_op(&r, e, op);
        s->op_count++;
    }
    free(r.dirs);
    s->image = malloc(s->image_capacity + 1);
    ck_assert_ptr_nonnull(s->image);
    for (int i = 0; i < s->object_count; i++)
        s->objects[i].outcomes = malloc(MAX_OUTCOMES * sizeof(struct outcome));
    return s;
}

void disk_states_free(struct disk_states *s)
{
    for (size_t i = 0; i < s->op_count; i++)
        free(s->ops[i].data);
    for (int i = 0; i < s->object_count; i++)
        free(s->objects[i].outcomes);
    free(s->ops);
    free(s->image);
    free(s);
}

/* ------------------------------------------------------------------------------------------ */
/* What one object becomes                                                                      */

/* Bytes that are known to be part of a write at this tick. */
static uint64_t length_of(const struct disk_states *s, const struct op *op)
{
    bool shorter = op->completed <= s->tick && op->result >= 0 && (uint64_t)op->result < op->len;
    return shorter ? (uint64_t)op->result : op->len;
}

static uint64_t sectors_of(uint64_t len)
{
    return (len + SECTOR - 1) / SECTOR;
}

static unsigned variants_of(const struct disk_states *s, const struct op *op)
{
    if (op->kind != WRITE)
        return TORN;
    uint64_t n = sectors_of(length_of(s, op));
    return n <= FEW_SECTORS ? TORN + (1u << n) - 1 : TORN + SOME_TEARS;
}

/* Whether tear number t keeps sector i of n. */
static bool keeps(const struct disk_states *s, const struct op *op, unsigned t, uint64_t i,
                  uint64_t n)
{
    if (n <= FEW_SECTORS)
        return (t >> i) & 1; /* the last mask, all of them, is KEPT */
    switch (t) {
    case 0:
        return false; /* only the size moved */
    case 1:
        return i < n / 2;
    case 2:
        return i >= n / 2;
    case 3:
        return i > 0;
    case 4:
        return i < n - 1;
    case 5:
        return i % 2 == 0;
    default:
        return mix(s->seed ^ mix(op->submitted * 2 + t) ^ i) & 1;
    }
}

static void grow_image(struct disk_states *s, uint64_t end)
{
    if (end > s->image_size)
        s->image_size = end;
}

static void change_file(struct disk_states *s, const struct op *op, unsigned variant)
{
    if (op->kind == ALLOCATE) {
        grow_image(s, op->off + op->len);
    } else if (op->kind == RESIZE) {
        if (op->len < s->image_size)
            memset(s->image + op->len, 0, s->image_size - op->len);
        s->image_size = op->len;
    } else {
        uint64_t len = length_of(s, op), n = sectors_of(len);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = i * SECTOR, part = len - at < SECTOR ? len - at : SECTOR;
            if (variant == KEPT || keeps(s, op, variant - TORN, i, n))
                memcpy(s->image + op->off + at, op->data + at, part);
        }
        bool cut = variant == TORN + 1 && n > FEW_SECTORS; /* the size came half way, too */
        grow_image(s, op->off + (cut ? n / 2 * SECTOR : len));
    }
}

/* Everything on an object so far, its loose operations as variants say: into s->dir or s->image. */
static void apply(struct disk_states *s, int object, const uint8_t *variants)
{
    const struct object *o = &s->objects[object];
    size_t k = 0;
    s->dir.count = 0;
    s->image_size = 0;
    if (!o->is_dir)
        memset(s->image, 0, s->image_capacity);
    for (size_t i = 0; i < s->op_count && s->ops[i].submitted <= s->tick; i++) {
        const struct op *op = &s->ops[i];
        if (op->object != object || op->kind == SYNC)
            continue;
        unsigned variant = KEPT;
        if (k < o->loose_count && o->loose[k] == i)
            variant = variants[k++];
        if (variant != LOST && o->is_dir)
            change_dir(&s->dir, op);
        else if (variant != LOST)
            change_file(s, op, variant);
    }
}

static struct ckpt__digest digest_of_applied(const struct disk_states *s, bool is_dir)
{
    if (!is_dir)
        return ckpt__digest_of(s->image, s->image_size);
    uint64_t sum = s->dir.count; /* order in a directory means nothing */
    for (size_t i = 0; i < s->dir.count; i++) {
        struct ckpt__digest d =
            ckpt__digest_of(s->dir.entries[i].name, strlen(s->dir.entries[i].name));
        uint64_t half;
        memcpy(&half, d.b, sizeof half);
        sum += mix(half + (uint64_t)s->dir.entries[i].object);
    }
    return ckpt__digest_of(&sum, sizeof sum);
}

static bool is_settled(const struct disk_states *s, const struct op *op)
{
    if (op->completed > s->tick || op->result < 0)
        return false;
    for (size_t i = 0; i < s->op_count; i++) {
        const struct op *sync = &s->ops[i];
        if (sync->kind == SYNC && sync->object == op->object && sync->submitted > op->completed &&
            sync->completed <= s->tick && sync->result >= 0)
            return true;
    }
    return false;
}

/* Finds the loose operations of an object; false when its outcomes are as they were. */
static bool find_loose(struct disk_states *s, int object)
{
    struct object *o = &s->objects[object];
    uint64_t signature = 1;
    o->loose_count = 0;
    for (size_t i = 0; i < s->op_count && s->ops[i].submitted <= s->tick; i++) {
        const struct op *op = &s->ops[i];
        if (op->object != object || op->kind == SYNC)
            continue;
        bool settled = is_settled(s, op);
        signature = mix(signature ^ mix(i * 2 + settled) ^ length_of(s, op));
        if (settled)
            continue;
        ck_assert_uint_lt(o->loose_count, MAX_LOOSE);
        o->loose[o->loose_count++] = i;
    }
    bool changed = signature != o->signature;
    o->signature = signature;
    return changed;
}

static void add_outcome(struct disk_states *s, int object, const uint8_t *variants)
{
    struct object *o = &s->objects[object];
    apply(s, object, variants);
    struct ckpt__digest digest = digest_of_applied(s, o->is_dir);
    for (size_t i = 0; i < o->outcome_count; i++) {
        if (memcmp(&o->outcomes[i].digest, &digest, sizeof digest) == 0)
            return;
    }
    struct outcome *new = &o->outcomes[o->outcome_count++];
    memcpy(new->variants, variants, MAX_LOOSE);
    new->digest = digest;
}

static void find_outcomes(struct disk_states *s, int object)
{
    struct object *o = &s->objects[object];
    if (!find_loose(s, object))
        return;
    uint64_t ways = 1;
    for (size_t k = 0; k < o->loose_count; k++)
        ways = ways > MAX_OUTCOMES ? ways : ways * variants_of(s, &s->ops[o->loose[k]]);
    bool all = ways <= MAX_OUTCOMES;
    s->whole &= all;
    o->outcome_count = 0;
    for (uint64_t i = 0; i < (all ? ways : MAX_OUTCOMES); i++) {
        uint8_t variants[MAX_LOOSE] = {0};
        uint64_t rest = i;
        for (size_t k = 0; k < o->loose_count; k++) {
            unsigned n = variants_of(s, &s->ops[o->loose[k]]);
            /* Of a sample the first two are the extremes. */
            variants[k] = (uint8_t)(all ? rest % n : i < 2 ? i : next_random(s) % n);
            rest /= n;
        }
        add_outcome(s, object, variants);
    }
}

/* ------------------------------------------------------------------------------------------ */
/* What the disk becomes                                                                        */

uint64_t disk_states_at(struct disk_states *s, uint64_t tick, bool *whole)
{
    ck_assert_uint_ge(tick, s->tick);
    s->tick = tick;
    s->whole = true;
    uint64_t count = 1;
    for (int i = 0; i < s->object_count; i++) {
        find_outcomes(s, i);
        if (__builtin_mul_overflow(count, s->objects[i].outcome_count, &count))
            count = UINT64_MAX;
    }
    *whole = s->whole;
    return count;
}

void disk_states_pick(struct disk_states *s, uint64_t number)
{
    for (int i = 0; i < s->object_count; i++) {
        s->objects[i].picked = number % s->objects[i].outcome_count;
        number /= s->objects[i].outcome_count;
    }
}

void disk_states_pick_any(struct disk_states *s)
{
    for (int i = 0; i < s->object_count; i++)
        s->objects[i].picked = next_random(s) % s->objects[i].outcome_count;
}

static const struct outcome *picked(const struct disk_states *s, int object)
{
    return &s->objects[object].outcomes[s->objects[object].picked];
}

static uint64_t digest_of_tree(struct disk_states *s, int object)
{
    uint64_t sum;
    memcpy(&sum, picked(s, object)->digest.b, sizeof sum);
    if (!s->objects[object].is_dir)
        return sum;
    apply(s, object, picked(s, object)->variants);
    struct dir dir = s->dir;
    for (size_t i = 0; i < dir.count; i++) {
        int child = dir.entries[i].object;
        sum += mix(digest_of_tree(s, child) ^ mix((uint64_t)child));
    }
    return sum;
}

uint64_t disk_states_digest(struct disk_states *s)
{
    return digest_of_tree(s, 0);
}

static void write_tree(struct disk_states *s, int object, const char *path)
{
    apply(s, object, picked(s, object)->variants);
    if (!s->objects[object].is_dir) {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
        ck_assert_int_eq(write(fd, s->image, s->image_size), (ssize_t)s->image_size);
        close(fd);
        return;
    }
    struct dir dir = s->dir;
    ck_assert_msg(mkdir(path, 0777) == 0, "%s: %s", path, strerror(errno));
    for (size_t i = 0; i < dir.count; i++) {
        char below[600];
        snprintf(below, sizeof below, "%s/%s", path, dir.entries[i].name);
        write_tree(s, dir.entries[i].object, below);
    }
}

void disk_states_write(struct disk_states *s, const char *dir)
{
    write_tree(s, 0, dir);
}
