/*
 * test_client.c: the client over real sockets, driven in each of the three ways: against our
 * server, and against peers that refuse, close, are silent, or are no store at all.
 */
#include "alloc_fault.h"
#include "net.h"
#include "rdzv_client.h"
#include "runner.h"
#include "uv/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DRIVES = 3, NONE = 1 };

static rdzv_server *server;
static uv_loop_t loop;
static rdzv_client *client;
static int drive;

/* What a callback brought. */
struct outcome {
    int calls;
    int code;
    char text[256];
    int64_t number;
    size_t count;
    char value[64]; /* of the first value */
};

static void on_reply(void *ctx, const rdzv_reply *reply, const rdzv_error *result)
{
    struct outcome *o = ctx;
    ck_assert((reply != NULL) == (result->code == RDZV_OK));
    if (drive == RDZV_DRIVE_LOOP)
        uv_stop(&loop); /* uv_run may have done its timers, and would go on to wait */
    o->calls++;
    o->code = result->code;
    snprintf(o->text, sizeof o->text, "%s", result->code != RDZV_OK ? result->text : "");
    if (reply == NULL)
        return;
    o->number = reply->number;
    o->count = reply->count;
    if (reply->count > 0)
        snprintf(o->value, sizeof o->value, "%.*s", (int)reply->values[0].len_bytes,
                 (const char *)reply->values[0].data);
}

static rdzv_bytes text(const char *s)
{
    return (rdzv_bytes){s, strlen(s)};
}

static rdzv_client_options options(uint16_t port)
{
    rdzv_client_options opt;
    rdzv_client_options_init(&opt, sizeof opt);
    opt.drive = (uint32_t)drive;
    opt.loop = drive == RDZV_DRIVE_LOOP ? &loop : NULL;
    opt.port = port;
    opt.timeout_ms = 20000;
    opt.connect_timeout_ms = 20000;
    return opt;
}

static void open_with(const rdzv_client_options *opt)
{
    rdzv_error err;
    if (drive == RDZV_DRIVE_LOOP)
        ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_msg(rdzv_client_open(&client, opt, &err) == RDZV_OK, "%s", err.text);
}

static void turn(void)
{
    if (drive == RDZV_DRIVE_LOOP)
        uv_run(&loop, UV_RUN_ONCE);
    else
        ck_assert_int_ge(rdzv_client_wait(client, 5000), 0);
}

static void until(const struct outcome *o)
{
    uint64_t end = clock_ms() + 20000;
    while (o->calls == 0) {
        ck_assert_msg(clock_ms() < end, "no callback within 20 s");
        turn();
    }
}

static void ends(struct outcome *o, int code)
{
    until(o);
    ck_assert_msg(o->code == code, "%d: %s", o->code, o->text);
    ck_assert_int_eq(o->calls, 1);
    *o = (struct outcome){0};
}

static void close_client(void)
{
    int closed = 0;
    rdzv_client_close(client, net_count_call, &closed);
    if (drive == RDZV_DRIVE_LOOP) {
        ck_assert_int_eq(closed, 0);
        uv_run(&loop, UV_RUN_DEFAULT);
        ck_assert_int_eq(uv_loop_close(&loop), 0);
    }
    ck_assert_int_eq(closed, 1);
}

static int fds_before;

static void start(int i)
{
    drive = i;
    net_warm_up();
    rdzv_server_options opt = net_options();
    fds_before = net_count_fds();
    ck_assert_int_eq(rdzv_server_open(&server, &opt, NULL), RDZV_OK);
}

static void finish(void)
{
    close_client();
    rdzv_server_close(server, NULL, NULL);
    ck_assert_int_eq(net_count_fds(), fds_before);
    net_expect_threads(0);
}

START_TEST(every_call)
{
    struct outcome o = {0};
    rdzv_bytes keys[] = {text("a"), text("b")};
    rdzv_bytes values[] = {text("A"), text("B")};
    start(_i);
    rdzv_client_options opt = options(net_port(server));
    open_with(&opt);
    ck_assert_int_gt(rdzv_client_set(client, keys[0], values[1], -1, on_reply, &o, NULL), 0);
    ends(&o, RDZV_OK);
    rdzv_client_get(client, keys[0], -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_str_eq(o.value, "B");
    ends(&o, RDZV_OK);
    rdzv_client_append(client, keys[0], text("C"), -1, NULL, NULL, NULL);
    rdzv_client_compare_set(client, keys[0], text("BC"), values[0], -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_str_eq(o.value, "A");
    ends(&o, RDZV_OK);
    rdzv_client_add(client, text("n"), -7, -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_int_eq(o.number, -7);
    ends(&o, RDZV_OK);
    rdzv_client_multi_set(client, keys, values, 2, -1, NULL, NULL, NULL);
    rdzv_client_multi_get(client, keys, 2, -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_uint_eq(o.count, 2);
    ends(&o, RDZV_OK);
    rdzv_client_check(client, keys, 2, -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_int_eq(o.number, 1);
    ends(&o, RDZV_OK);
    rdzv_client_wait_keys(client, keys, 2, -1, on_reply, &o, NULL);
    ends(&o, RDZV_OK);
    rdzv_client_delete_key(client, keys[1], -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_int_eq(o.number, 1);
    ends(&o, RDZV_OK);
    rdzv_client_num_keys(client, -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_int_eq(o.number, 2);
    ends(&o, RDZV_OK);
    rdzv_client_list_keys(client, -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_uint_eq(o.count, 2);
    ends(&o, RDZV_OK);
    rdzv_client_queue_push(client, text("q"), text("e"), -1, NULL, NULL, NULL);
    rdzv_client_queue_len(client, text("q"), -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_int_eq(o.number, 1);
    ends(&o, RDZV_OK);
    rdzv_client_queue_pop(client, text("q"), -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_str_eq(o.value, "e");
    ends(&o, RDZV_OK);
    rdzv_client_barrier(client, text("bar"), 1, -1, on_reply, &o, NULL);
    ends(&o, RDZV_OK);
    rdzv_client_flush(client, -1, on_reply, &o, NULL);
    ends(&o, RDZV_OK);
    rdzv_client_get(client, text("none"), RDZV_NO_WAIT, on_reply, &o, NULL);
    ends(&o, RDZV_ENOENT);
    rdzv_client_get(client, text("none"), 50, on_reply, &o, NULL);
    ends(&o, RDZV_ETIMEDOUT);
    finish();
}
END_TEST

START_TEST(a_batch_a_wait_and_a_cancel)
{
    enum { MANY = 500 };
    static struct outcome many[MANY];
    struct outcome waits = {0};
    struct outcome o = {0};
    memset(many, 0, sizeof many);
    start(_i);
    rdzv_client_options opt = options(net_port(server));
    open_with(&opt);
    int64_t call = rdzv_client_get(client, text("late"), -1, on_reply, &waits, NULL);
    for (int i = 0; i < MANY; i++)
        rdzv_client_add(client, text("n"), 1, -1, on_reply, &many[i], NULL);
    until(&many[MANY - 1]);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(many[i].number, i + 1);
    ck_assert_int_eq(waits.calls, 0);
    ck_assert_int_eq(rdzv_client_cancel(client, call), RDZV_OK);
    ends(&waits, RDZV_ECANCELED);
    ck_assert_int_eq(rdzv_client_cancel(client, call), RDZV_OK); /* it is over */
    ck_assert_int_eq(rdzv_client_cancel(client, call + 10000), RDZV_EINVAL);

    rdzv_client_get(client, text("late"), -1, on_reply, &waits, NULL);
    rdzv_client_flush(client, -1, on_reply, &o, NULL);
    ends(&o, RDZV_OK);
    int fd = net_connect(net_port(server));
    struct wire w = WIRE_INIT;
    wire_hello(&w);
    wire_add(&w, "bss", RDZV__OP_SET, "/late", "now");
    net_send(fd, &w);
    until(&waits);
    ck_assert_str_eq(waits.value, "now");
    close(fd);
    wire_free(&w);

    waits = (struct outcome){0}; /* what is open ends with close */
    rdzv_client_get(client, text("never"), -1, on_reply, &waits, NULL);
    finish();
    ck_assert_int_eq(waits.calls, 1);
    ck_assert_int_eq(waits.code, RDZV_ECANCELED);
}
END_TEST

START_TEST(a_lost_server_ends_every_call)
{
    struct outcome waits = {0};
    struct outcome o = {0};
    start(_i);
    rdzv_client_options opt = options(net_port(server));
    open_with(&opt);
    rdzv_client_flush(client, -1, on_reply, &o, NULL);
    ends(&o, RDZV_OK);
    rdzv_client_get(client, text("late"), -1, on_reply, &waits, NULL);
    rdzv_client_barrier(client, text("bar"), 9, -1, on_reply, &o, NULL);
    rdzv_server_close(server, NULL, NULL);
    until(&waits);
    ck_assert_ptr_nonnull(strstr(waits.text, "lost"));
    ends(&waits, RDZV_ECONN);
    ends(&o, RDZV_ECONN);
    rdzv_client_set(client, text("a"), text("b"), -1, on_reply, &o, NULL);
    ends(&o, RDZV_ECONN);
    rdzv_server_options again = net_options();
    ck_assert_int_eq(rdzv_server_open(&server, &again, NULL), RDZV_OK);
    finish();
}
END_TEST

/* A peer on a thread of its own that takes connections and does one thing to each. */
struct peer {
    pthread_t thread;
    int fd;
    int kind;
    uint16_t port;
};
enum { MIRROR = 0, HTTP, NOISE, NOTHING, CLOSES, PEER_KINDS };

static void *run_peer(void *arg)
{
    struct peer *p = arg;
    int held[64];
    int count = 0;
    int fd;
    while (count < 64 && (fd = accept(p->fd, NULL, NULL)) >= 0) {
        char part[4096];
        ssize_t n = p->kind == NOTHING ? 0 : recv(fd, part, sizeof part, 0);
        if (p->kind == HTTP)
            n = snprintf(part, sizeof part, "HTTP/1.1 400 Bad Request\r\n\r\n");
        if (p->kind == NOISE)
            memset(part, 0xa7, sizeof part);
        if (n > 0 && p->kind != CLOSES)
            (void)!send(fd, part, p->kind == NOISE ? sizeof part : (size_t)n, MSG_NOSIGNAL);
        if (p->kind == CLOSES)
            close(fd);
        else
            held[count++] = fd;
    }
    while (count > 0)
        close(held[--count]);
    return NULL;
}

static void peer_start(struct peer *p, int kind)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    p->kind = kind;
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(p->fd, (struct sockaddr *)&addr, len), 0);
    ck_assert_int_eq(listen(p->fd, 16), 0);
    getsockname(p->fd, (struct sockaddr *)&addr, &len);
    p->port = ntohs(addr.sin_port);
    ck_assert_int_eq(pthread_create(&p->thread, NULL, run_peer, p), 0);
}

static void peer_stop(struct peer *p)
{
    shutdown(p->fd, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    close(p->fd);
}

START_TEST(row_19_not_a_store_within_seconds)
{
    struct outcome o = {0};
    struct peer peer;
    start(_i % DRIVES);
    int kind = _i / DRIVES;
    peer_start(&peer, kind);
    rdzv_client_options opt = options(peer.port);
    opt.hello_timeout_ms = 300;
    if (kind == CLOSES)
        opt.connect_timeout_ms = 600;
    uint64_t begin = clock_ms();
    open_with(&opt);
    rdzv_client_get(client, text("a"), -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_uint_lt(clock_ms() - begin, 3000);
    if (kind == CLOSES) { /* may be a store that is not up yet */
        ck_assert_ptr_nonnull(strstr(o.text, "handshake: "));
        ends(&o, RDZV_ETIMEDOUT);
    } else {
        ck_assert_msg(strstr(o.text, "not a c10d store") != NULL, "%s", o.text);
        ends(&o, RDZV_ENOTSTORE);
    }
    peer_stop(&peer);
    finish();
}
END_TEST

/* The name resolves at the fourth time only. */
static int lookups;
static int late_lookup(uv_loop_t *l, uv_getaddrinfo_t *request, uv_getaddrinfo_cb done,
                       const char *node, const char *service, const struct addrinfo *hints)
{
    lookups++;
    ck_assert_str_eq(node, "late.example");
    return uv_getaddrinfo(l, request, done, lookups < 4 ? "late.invalid" : "127.0.0.1", service,
                          hints);
}

START_TEST(row_15_a_name_that_appears_late)
{
    struct outcome o = {0};
    start(_i);
    rdzv_client_options opt = options(net_port(server));
    opt.host = "late.example";
    lookups = 0;
    if (drive == RDZV_DRIVE_LOOP)
        ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(rdzv__client_open(&client, &opt, late_lookup, NULL), RDZV_OK);
    rdzv_client_add(client, text("n"), 3, -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_int_eq(o.number, 3);
    ends(&o, RDZV_OK);
    ck_assert_int_eq(lookups, 4);
    close_client();
    rdzv_server_close(server, NULL, NULL); /* libuv's pool keeps threads: only descriptors count */
    ck_assert_int_le(net_count_fds(), fds_before + 2);
}
END_TEST

START_TEST(a_server_that_comes_late)
{
    struct outcome o = {0};
    start(_i);
    uint16_t port = net_port(server);
    rdzv_server_close(server, NULL, NULL);
    rdzv_client_options opt = options(port);
    open_with(&opt);
    rdzv_client_add(client, text("n"), 3, -1, on_reply, &o, NULL);
    for (int i = 0; i < 5; i++) { /* refused, and tried again */
        if (drive == RDZV_DRIVE_LOOP)
            uv_run(&loop, UV_RUN_NOWAIT);
        else
            rdzv_client_wait(client, 60);
    }
    rdzv_server_options again = net_options();
    again.port = port;
    ck_assert_int_eq(rdzv_server_open(&server, &again, NULL), RDZV_OK);
    ends(&o, RDZV_OK);
    finish();
}
END_TEST

START_TEST(nobody_there)
{
    struct outcome o = {0};
    start(_i);
    rdzv_client_options opt = options(NONE);
    opt.connect_timeout_ms = 400;
    open_with(&opt);
    rdzv_client_get(client, text("a"), 100, on_reply, &o, NULL); /* its own deadline is earlier */
    until(&o);
    ck_assert_ptr_nonnull(strstr(o.text, "before there was a connection"));
    ends(&o, RDZV_ETIMEDOUT);
    rdzv_client_get(client, text("a"), -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_ptr_nonnull(strstr(o.text, "no connection to 127.0.0.1:1 within 400 ms"));
    ck_assert_ptr_nonnull(strstr(o.text, "refused"));
    ends(&o, RDZV_ETIMEDOUT);
    finish();
}
END_TEST

static const char *const good_hosts[] = {"127.0.0.1", "localhost", "::ffff:127.0.0.1",
                                         "[::ffff:127.0.0.1]"};

START_TEST(host_forms)
{
    struct outcome o = {0};
    start(RDZV_DRIVE_CALLER);
    rdzv_client_options opt = options(net_port(server));
    opt.host = good_hosts[_i];
    open_with(&opt);
    rdzv_client_flush(client, -1, on_reply, &o, NULL);
    ends(&o, RDZV_OK);
    close_client();
    rdzv_server_close(server, NULL, NULL);
}
END_TEST

START_TEST(addresses_of_version_6)
{
    struct outcome o = {0};
    start(_i);
    rdzv_server_options six = net_options();
    six.host = "::1";
    rdzv_server *other;
    int have_six = rdzv_server_open(&other, &six, NULL) == RDZV_OK;
    rdzv_client_options opt = options(have_six ? net_port(other) : net_port(server));
    opt.host = have_six ? "[::1]" : "127.0.0.1";
    open_with(&opt);
    rdzv_client_flush(client, -1, on_reply, &o, NULL);
    ends(&o, RDZV_OK);
    if (have_six)
        rdzv_server_close(other, NULL, NULL);
    finish();
}
END_TEST

static const char *const bad_hosts[] = {"",          "[]",  "[127.0.0.1]",
                                        "[nowhere]", "::g", "fe80::1%no-such-interface"};

START_TEST(bad_arguments)
{
    rdzv_error err;
    rdzv_client *c = NULL;
    drive = RDZV_DRIVE_CALLER;
    for (size_t i = 0; i < sizeof bad_hosts / sizeof bad_hosts[0]; i++) {
        rdzv_client_options opt = options(NONE);
        opt.host = bad_hosts[i];
        ck_assert_msg(rdzv_client_open(&c, &opt, &err) == RDZV_EINVAL, "%s", bad_hosts[i]);
    }
    rdzv_client_options opt = options(0);
    ck_assert_int_eq(rdzv_client_open(&c, &opt, &err), RDZV_EINVAL);
    opt = options(NONE);
    opt.host = "[fe80::1%lo]"; /* a scope that is there */
    ck_assert_int_eq(rdzv_client_open(&c, &opt, &err), RDZV_OK);
    rdzv_client_close(c, NULL, NULL);
    c = NULL;
    opt = options(NONE);
    opt.loop = &loop;
    ck_assert_int_eq(rdzv_client_open(&c, &opt, &err), RDZV_EINVAL);
    opt = options(NONE);
    opt.reply_timeout_ms = 0;
    ck_assert_int_eq(rdzv_client_open(&c, &opt, &err), RDZV_EINVAL);
    opt = options(NONE);
    ck_assert_int_eq(rdzv_client_open(NULL, &opt, &err), RDZV_EINVAL);
    ck_assert_int_eq(rdzv_client_open(&c, NULL, &err), RDZV_EINVAL);
    ck_assert_ptr_null(c);
    ck_assert_int_eq(rdzv_client_get(NULL, text("a"), -1, NULL, NULL, &err), RDZV_EINVAL);
    ck_assert_int_eq(rdzv_client_wait(NULL, 0), RDZV_EINVAL);
    rdzv_client_close(NULL, NULL, NULL);

    opt.max_pending_bytes = 100;
    ck_assert_int_eq(rdzv_client_open(&c, &opt, &err), RDZV_OK);
    ck_assert_int_eq(rdzv_client_get(c, text("a"), -2, NULL, NULL, &err), RDZV_EINVAL);
    ck_assert_int_gt(rdzv_client_get(c, text("a"), -1, NULL, NULL, &err), 0);
    static char big[100];
    ck_assert_int_eq(rdzv_client_set(c, text("a"), (rdzv_bytes){big, 100}, -1, NULL, NULL, &err),
                     RDZV_ELIMIT);
    pid_t child = fork();
    if (child == 0) {
        int bad = rdzv_client_get(c, text("a"), -1, NULL, NULL, NULL) != RDZV_ESTATE ||
                  rdzv_client_dispatch(c) != RDZV_ESTATE;
        rdzv_client_close(c, NULL, NULL);
        _exit(bad);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    rdzv_client_close(c, NULL, NULL);
}
END_TEST

static void on_reply_again(void *ctx, const rdzv_reply *reply, const rdzv_error *result)
{
    struct outcome *o = ctx;
    if (result->code == RDZV_OK && reply->number < 5) {
        ck_assert_int_gt(rdzv_client_add(client, text("n"), 1, -1, on_reply_again, o, NULL), 0);
        if (drive != RDZV_DRIVE_LOOP) {
            ck_assert_int_eq(rdzv_client_wait(client, 0), RDZV_EBUSY);
            rdzv_client_close(client, NULL, NULL); /* ignored */
        }
        return;
    }
    on_reply(ctx, reply, result);
}

/* Callbacks submit; the descriptor alone tells when to dispatch. */
START_TEST(callbacks_submit_and_the_descriptor_tells)
{
    struct outcome o = {0};
    start(_i);
    rdzv_client_options opt = options(net_port(server));
    open_with(&opt);
    rdzv_client_add(client, text("n"), 1, -1, on_reply_again, &o, NULL);
    if (drive == RDZV_DRIVE_LOOP) {
        ck_assert_int_eq(rdzv_client_fd(client), RDZV_ENOTSUP);
        ck_assert_int_eq(rdzv_client_wait(client, 0), RDZV_ENOTSUP);
    }
    while (o.calls == 0 && drive != RDZV_DRIVE_LOOP) {
        struct pollfd p = {.fd = rdzv_client_fd(client), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 10000), 1);
        ck_assert_int_ge(rdzv_client_dispatch(client), 0);
    }
    until(&o);
    ck_assert_int_eq(o.number, 5);
    ends(&o, RDZV_OK);
    rdzv_client_get(client, text("none"), 80, on_reply, &o, NULL); /* a deadline is told, too */
    while (o.calls == 0 && drive != RDZV_DRIVE_LOOP) {
        struct pollfd p = {.fd = rdzv_client_fd(client), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 10000), 1);
        ck_assert_int_ge(rdzv_client_dispatch(client), 0);
    }
    ends(&o, RDZV_ETIMEDOUT);
    finish();
}
END_TEST

/* Larger than every buffer on the way. */
START_TEST(large_values)
{
    static char big[4 << 20];
    struct outcome o = {0};
    memset(big, 'b', sizeof big);
    start(_i);
    rdzv_client_options opt = options(net_port(server));
    open_with(&opt);
    for (int i = 0; i < 4; i++)
        rdzv_client_append(client, text("big"), (rdzv_bytes){big, sizeof big}, -1, NULL, NULL,
                           NULL);
    rdzv_client_get(client, text("big"), -1, on_reply, &o, NULL);
    until(&o);
    ck_assert_uint_eq(strlen(o.value), sizeof o.value - 1);
    ends(&o, RDZV_OK);
    finish();
}
END_TEST

START_TEST(out_of_memory)
{
    struct alloc_fault fault = ALLOC_FAULT_INIT;
    start(_i);
    while (alloc_fault_next(&fault)) {
        rdzv_allocator a = {alloc_fault_alloc, alloc_fault_free, &fault};
        rdzv_client_options opt = options(net_port(server));
        struct outcome o = {0};
        opt.allocator = &a;
        opt.connect_timeout_ms = 400;
        if (drive == RDZV_DRIVE_LOOP)
            ck_assert_int_eq(uv_loop_init(&loop), 0);
        int code = rdzv_client_open(&client, &opt, NULL);
        if (code == RDZV_OK) {
            if (rdzv_client_add(client, text("n"), 1, -1, on_reply, &o, NULL) > 0) {
                until(&o);
                ck_assert(o.code == RDZV_OK || alloc_fault_fired(&fault));
            }
            close_client();
        } else {
            ck_assert_int_eq(code, RDZV_ENOMEM);
            if (drive == RDZV_DRIVE_LOOP)
                uv_loop_close(&loop);
        }
    }
    ck_assert_int_gt(fault.round, 2);
    rdzv_server_close(server, NULL, NULL);
    ck_assert_int_eq(net_count_fds(), fds_before);
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("client");
    TCase *t = tcase_create("client");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_call, 0, DRIVES);
    tcase_add_loop_test(t, a_batch_a_wait_and_a_cancel, 0, DRIVES);
    tcase_add_loop_test(t, a_lost_server_ends_every_call, 0, DRIVES);
    tcase_add_loop_test(t, callbacks_submit_and_the_descriptor_tells, 0, DRIVES);
    tcase_add_loop_test(t, large_values, 0, DRIVES);
    tcase_add_loop_test(t, a_server_that_comes_late, 0, DRIVES);
    tcase_add_loop_test(t, nobody_there, 0, DRIVES);
    tcase_add_loop_test(t, addresses_of_version_6, 0, DRIVES);
    tcase_add_loop_test(t, row_19_not_a_store_within_seconds, 0, DRIVES * PEER_KINDS);
    tcase_add_loop_test(t, out_of_memory, 0, DRIVES);
    tcase_add_test(t, bad_arguments);
    /* These look names up: libuv keeps the threads of its pool. */
    tcase_add_loop_test(t, row_15_a_name_that_appears_late, 0, DRIVES);
    tcase_add_loop_test(t, host_forms, 0, sizeof good_hosts / sizeof good_hosts[0]);
    suite_add_tcase(s, t);
    return s;
}
