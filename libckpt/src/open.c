/*
 * open.c: makes a handle and takes it apart: options, the root directory, descriptors, the thread.
 * Whatever fails on the way is undone in release, which copes with a handle that is half made.
 */
#include "handle.h"

#include "options.h"
#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define DEFAULT_BLOCK_BYTES (4u << 20)
#define DEFAULT_STAGING_BYTES (64u << 20)
#define DEFAULT_QUEUE_DEPTH 8u
#define MAX_QUEUE_DEPTH 64u
#define MAX_BLOCK_BYTES (64u << 20)
#define DEFAULT_TIMEOUT_MS 120000
#define MAX_TURN_LINES                                                                             \
    65536u /* of a caller who drives: he cannot take them before the turn ends                     \
            */
#define BLOCK_ALIGN CKPT__LEAF_BYTES

void ckpt_options_init(ckpt_options *opt, size_t size)
{
    ckpt_options defaults = {
        .size = size,
        .drive = CKPT_DRIVE_THREAD,
        .engine = CKPT_ENGINE_AUTO,
        .staging_bytes = DEFAULT_STAGING_BYTES,
        .block_bytes = DEFAULT_BLOCK_BYTES,
        .queue_depth = DEFAULT_QUEUE_DEPTH,
        .timeout_ms = DEFAULT_TIMEOUT_MS,
    };
    options_fill(opt, size, &defaults, sizeof defaults);
}

_Static_assert(CKPT_LOG_WARN == (int)OUTBOX_WARN && CKPT_LOG_INFO == (int)OUTBOX_INFO, "levels");

static void log_to_caller(void *ctx, int level, const char *line)
{
    ckpt *c = ctx;
    outbox_log(&c->out, level, line);
}

static int check_options(const ckpt_options *opt, ckpt_error *err)
{
    if (opt->root == NULL || opt->root[0] == '\0' || strlen(opt->root) > PATH_MAX - 256)
        return ckpt__fail(err, CKPT_EINVAL, "options: root is empty or too long");
    if (opt->drive > CKPT_DRIVE_CALLER || opt->engine > CKPT_ENGINE_SYNC)
        return ckpt__fail(err, CKPT_EINVAL, "options: drive %u or engine %u is unknown", opt->drive,
                          opt->engine);
    if (opt->block_bytes == 0 || opt->block_bytes % BLOCK_ALIGN != 0 ||
        opt->block_bytes > MAX_BLOCK_BYTES)
        return ckpt__fail(err, CKPT_EINVAL,
                          "options: block_bytes %u is not a multiple of 65536 up to 64 MiB",
                          opt->block_bytes);
    if (opt->staging_bytes / opt->block_bytes < 2 || opt->staging_bytes > (uint64_t)SSIZE_MAX ||
        opt->staging_bytes / opt->block_bytes > UINT32_MAX / 2)
        return ckpt__fail(
            err, CKPT_EINVAL,
            "options: staging_bytes is %llu, expected two to 2^30 blocks of %u, %llu at least",
            (unsigned long long)opt->staging_bytes, opt->block_bytes, 2ull * opt->block_bytes);
    if (opt->queue_depth < 1 || opt->queue_depth > MAX_QUEUE_DEPTH || opt->timeout_ms < 1)
        return ckpt__fail(err, CKPT_EINVAL,
                          "options: queue_depth %u is not 1 to 64 or timeout_ms %d is not positive",
                          opt->queue_depth, opt->timeout_ms);
    if (opt->run_id != NULL && strlen(opt->run_id) > CKPT__MAX_RUN_ID_BYTES)
        return ckpt__fail(err, CKPT_EINVAL, "options: run_id is longer than %d bytes",
                          CKPT__MAX_RUN_ID_BYTES);
    if (opt->allocator != NULL && (opt->allocator->alloc == NULL || opt->allocator->free == NULL))
        return ckpt__fail(err, CKPT_EINVAL, "options: allocator lacks a function");
    const ckpt_group *g = opt->group;
    if (g != NULL &&
        (g->exchange == NULL || g->fd == NULL || g->dispatch == NULL || g->cancel == NULL))
        return ckpt__fail(err, CKPT_EINVAL, "options: the group lacks a callback");
    return CKPT_OK;
}

/* Makes the root when only it is missing, durable in its parent. */
static int make_root(const char *root, ckpt_error *err)
{
    struct stat st;
    int made = ckpt__make_directory(root, err);
    if (made < 0)
        return made;
    if (stat(root, &st) != 0)
        return ckpt__fail_sys(err, errno, "look at %s", root);
    if (!S_ISDIR(st.st_mode))
        return ckpt__fail(err, CKPT_EINVAL, "%s is not a directory: a root of checkpoints is one",
                          root);
    char parent[PATH_MAX]; /* the root's length was checked with the options */
    snprintf(parent, sizeof parent, "%s/..", root);
    int fd = made ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        int failed = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
        close(fd);
        if (failed)
            return ckpt__fail_sys(err, failed, "sync the directory above %s", root);
    }
    return CKPT_OK;
}

static int watch(ckpt *c, int fd, ckpt_error *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return ckpt__fail_sys(err, errno, "watch a descriptor of %s", c->root);
    return CKPT_OK;
}

static int open_descriptors(ckpt *c, ckpt_error *err)
{
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll_fd < 0)
        return ckpt__fail_sys(err, errno, "epoll for %s", c->root);
    int rc = watch(c, c->in.fd, err);
    if (rc == CKPT_OK)
        rc = watch(c, c->disk.engine->cls->fd(c->disk.engine), err);
    if (rc == CKPT_OK && !c->own_thread)
        rc = watch(c, c->out.mailbox.fd, err);
    int group_fd = c->has_group ? c->group.fd(c->group.ctx) : -1;
    if (rc == CKPT_OK && group_fd >= 0)
        rc = watch(c, group_fd, err);
    if (rc != CKPT_OK || !c->has_group || group_fd >= 0)
        return rc;
    c->tick_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (c->tick_fd < 0)
        return ckpt__fail_sys(err, errno, "timer for the group of %s", c->root);
    return watch(c, c->tick_fd, err);
}

static void *thread_main(void *arg)
{
    pthread_setname_np(pthread_self(), "ckpt");
    ckpt__run(arg);
    return NULL;
}

static int start_thread(ckpt *c, ckpt_error *err)
{
    int e = thread_start(&c->thread, thread_main, c);
    if (e != 0)
        return ckpt__fail_sys(err, e, "start the thread of %s", c->root);
    return CKPT_OK;
}

void ckpt__release(ckpt *c)
{
    struct ckpt__env env = c->env;
    if (c->disk.engine != NULL)
        c->disk.engine->cls->close(c->disk.engine);
    if (c->epoll_fd >= 0)
        close(c->epoll_fd);
    if (c->tick_fd >= 0)
        close(c->tick_fd);
    if (c->has_group && c->group.close != NULL)
        c->group.close(c->group.ctx);
    if (c->closing) { /* what was said meanwhile; of an open that failed err tells */
        c->in_callback = true;
        mailbox_deliver(&c->out.mailbox);
    }
    outbox_free(&c->out);
    mailbox_free(&c->in);
    ckpt__pool_free(&c->pool);
    ckpt__free(&env, c->root);
    ckpt__free(&env, c->run_id);
    ckpt__free(&env, c);
}

static int open_engine(ckpt *c, const ckpt_options *opt, ckpt__engine_maker make, void *make_ctx,
                       ckpt_error *err)
{
    if (make == NULL) {
        struct ckpt__engine_config config = {.env = &c->env,
                                             .queue_depth = opt->queue_depth,
                                             .pool = c->pool.base,
                                             .pool_bytes = c->pool.bytes};
        return ckpt__engine_open(&c->disk.engine, opt->engine, &config, err);
    }
    c->disk.engine = make(make_ctx, &c->env, opt->queue_depth);
    return c->disk.engine != NULL ? CKPT_OK
                                  : ckpt__fail(err, CKPT_ENOMEM, "open %s: no engine", c->root);
}

/* The root stays where it was at open, whatever the working directory becomes. */
static char *pin(const struct ckpt__env *env, const char *root)
{
    char here[PATH_MAX];
    if (root[0] == '/' || getcwd(here, sizeof here) == NULL)
        return ckpt__strdup(env, root);
    return ckpt__path(env, "%s/%s", here, root);
}

static int open_parts(ckpt *c, const ckpt_options *opt, ckpt__engine_maker make, void *make_ctx,
                      ckpt_error *err)
{
    c->root = pin(&c->env, opt->root);
    c->run_id = ckpt__strdup(&c->env, opt->run_id != NULL ? opt->run_id : "");
    if (c->root == NULL || c->run_id == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "open %s: out of memory", opt->root);
    int rc = make_root(c->root, err);
    if (rc == CKPT_OK)
        rc = ckpt__pool_init(&c->pool, &c->env, (uint32_t)(opt->staging_bytes / opt->block_bytes),
                             opt->block_bytes, err);
    if (rc != CKPT_OK)
        return rc;
    rc = open_engine(c, opt, make, make_ctx, err);
    if (rc == CKPT_OK)
        rc = open_descriptors(c, err);
    if (rc == CKPT_OK && c->own_thread)
        rc = start_thread(c, err);
    return rc;
}

static int open_mailboxes(ckpt *c, const ckpt_options *opt, ckpt_error *err)
{
    const ckpt_allocator *a = &c->env.allocator;
    struct outbox_hooks hooks = {a->alloc, a->free, a->ctx, opt->log, opt->log_ctx};
    int e = mailbox_init(&c->in);
    if (e == 0) {
        e = outbox_init(&c->out, &hooks, c->own_thread ? OUTBOX_LINES : MAX_TURN_LINES);
        if (e == 0)
            return CKPT_OK;
        mailbox_free(&c->in);
    }
    return ckpt__fail_sys(err, e, "eventfd for the handle's mailbox");
}

/* The table of a process that is alone. */
static const ckpt_group nobody = {.size = sizeof nobody, .rank = 0, .world_size = 1};

static ckpt *allocate(const ckpt_options *opt, const ckpt_group *group)
{
    struct ckpt__env env;
    ckpt__env_init(&env, opt->allocator);
    ckpt *c = ckpt__alloc_zero(&env, sizeof *c);
    if (c == NULL)
        return NULL;
    c->env = env;
    c->env.log = log_to_caller;
    c->env.log_ctx = c;
    c->disk.env = &c->env;
    c->generation = opt->generation;
    c->block_bytes = opt->block_bytes;
    c->timeout_ms = opt->timeout_ms;
    c->own_thread = opt->drive == CKPT_DRIVE_THREAD;
    c->pid = getpid();
    c->group = *group;
    c->has_group = opt->group != NULL;
    c->epoll_fd = -1;
    c->tick_fd = -1;
    return c;
}

/* The group has its size; it is taken over only on success. */
static int open_handle(ckpt **ret, const ckpt_options *opt, const ckpt_group *group,
                       ckpt__engine_maker make, void *make_ctx, ckpt_error *err)
{
    int rc = check_options(opt, err);
    if (rc != CKPT_OK)
        return rc;
    ckpt *c = allocate(opt, group);
    if (c == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "open %s: out of memory", opt->root);
    rc = open_mailboxes(c, opt, err);
    if (rc != CKPT_OK) {
        struct ckpt__env env = c->env;
        ckpt__free(&env, c);
        return rc;
    }
    rc = open_parts(c, opt, make, make_ctx, err);
    if (rc != CKPT_OK) {
        c->has_group = false;
        ckpt__release(c);
        return rc;
    }
    *ret = c;
    return CKPT_OK;
}

int ckpt__open(ckpt **ret, const ckpt_options *opt, ckpt__engine_maker make, void *make_ctx,
               ckpt_error *err)
{
    ckpt_options full;
    ckpt_options_init(&full, sizeof full);
    int rc = ckpt__struct_read(&full, sizeof full, opt, offsetof(ckpt_options, root),
                               "call ckpt_options_init first", err);
    ckpt_group group = nobody;
    if (rc == CKPT_OK && full.group != NULL)
        rc = ckpt__struct_read(&group, sizeof group, full.group, sizeof group,
                               "ckpt_group.size is sizeof(ckpt_group)", err);
    if (rc != CKPT_OK)
        return rc; /* a group whose size is not known has no close */
    rc = open_handle(ret, &full, &group, make, make_ctx, err);
    if (rc != CKPT_OK && group.close != NULL)
        group.close(group.ctx);
    return rc;
}

int ckpt_open(ckpt **ret, const ckpt_options *opt, ckpt_error *err)
{
    return ckpt__open(ret, opt, NULL, NULL, err);
}
