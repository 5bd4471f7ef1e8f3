/*
 * test_client_connect.c: how a client comes to its store, driven in each of the three ways: names
 * that appear late, addresses, deadlines, and peers that refuse, close, are silent, or are no
 * store.
 */
#include "one.h"
#include "runner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    one_start(_i % ONE_WAYS);
    int kind = _i / ONE_WAYS;
    peer_start(&peer, kind);
    rdzv_client_options opt = one_options(peer.port);
    opt.hello_timeout_ms = 300;
    if (kind == CLOSES)
        opt.connect_timeout_ms = 600;
    uint64_t begin = clock_ms();
    one_open(&opt);
    rdzv_client_get(the.client, one_text("a"), -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_uint_lt(clock_ms() - begin, 3000);
    if (kind == CLOSES) { /* may be a store that is not up yet */
        ck_assert_ptr_nonnull(strstr(o.text, "handshake: "));
        one_ends(&o, RDZV_ETIMEDOUT);
    } else {
        ck_assert_msg(strstr(o.text, "not a c10d store") != NULL, "%s", o.text);
        one_ends(&o, RDZV_ENOTSTORE);
    }
    peer_stop(&peer);
    one_finish();
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
    one_start(_i);
    rdzv_client_options opt = one_options(net_port(the.server));
    opt.host = "late.example";
    lookups = 0;
    one_open_with(&opt, late_lookup);
    rdzv_client_add(the.client, one_text("n"), 3, -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_int_eq(o.number, 3);
    one_ends(&o, RDZV_OK);
    ck_assert_int_eq(lookups, 4);
    one_close();
    rdzv_server_close(the.server, NULL,
                      NULL); /* libuv's pool keeps threads: only descriptors count */
    ck_assert_int_le(net_count_fds(), the.fds_before + 2);
}
END_TEST

START_TEST(a_server_that_comes_late)
{
    struct outcome o = {0};
    one_start(_i);
    uint16_t port = net_port(the.server);
    rdzv_server_close(the.server, NULL, NULL);
    rdzv_client_options opt = one_options(port);
    one_open(&opt);
    rdzv_client_add(the.client, one_text("n"), 3, -1, one_on_reply, &o, NULL);
    for (int i = 0; i < 5; i++) { /* refused, and tried again */
        if (the.drive == RDZV_DRIVE_LOOP)
            uv_run(&the.loop, UV_RUN_NOWAIT);
        else
            rdzv_client_wait(the.client, 60);
    }
    rdzv_server_options again = net_options();
    again.port = port;
    ck_assert_int_eq(rdzv_server_open(&the.server, &again, NULL), RDZV_OK);
    one_ends(&o, RDZV_OK);
    one_finish();
}
END_TEST

START_TEST(nobody_there)
{
    struct outcome o = {0};
    one_start(_i);
    rdzv_client_options opt = one_options(ONE_NO_PORT);
    opt.connect_timeout_ms = 400;
    one_open(&opt);
    rdzv_client_get(the.client, one_text("a"), 100, one_on_reply, &o,
                    NULL); /* its own deadline is earlier */
    one_until(&o);
    ck_assert_ptr_nonnull(strstr(o.text, "before there was a connection to 127.0.0.1:1; last: "));
    ck_assert_ptr_nonnull(strstr(o.text, "connecting: Connection refused"));
    one_ends(&o, RDZV_ETIMEDOUT);
    rdzv_client_get(the.client, one_text("a"), -1, one_on_reply, &o, NULL);
    one_until(&o);
    ck_assert_ptr_nonnull(strstr(o.text, "no connection to 127.0.0.1:1 within 400 ms"));
    ck_assert_ptr_nonnull(strstr(o.text, "refused (does a store listen there?)"));
    one_ends(&o, RDZV_ETIMEDOUT);
    one_finish();
}
END_TEST

/* A port of 127.0.0.2 that takes no more connections: whoever tries hears nothing. */
struct full_port {
    int fd;
    int fill[8];
    uint16_t port;
};

static void full_port_open(struct full_port *f)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002)};
    socklen_t len = sizeof addr;
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(f->fd, (struct sockaddr *)&addr, len), 0);
    ck_assert_int_eq(listen(f->fd, 0), 0);
    getsockname(f->fd, (struct sockaddr *)&addr, &len);
    f->port = ntohs(addr.sin_port);
    for (int i = 0; i < 8; i++) {
        f->fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(f->fill[i], (struct sockaddr *)&addr, len);
    }
}

static void full_port_close(struct full_port *f)
{
    for (int i = 0; i < 8; i++)
        close(f->fill[i]);
    close(f->fd);
}

/* The name has two addresses: 127.0.0.1 refuses, 127.0.0.2 says nothing. */
static uv_getaddrinfo_cb client_found;
static void add_second_address(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    char service[8];
    ck_assert_int_eq(status, 0);
    ck_assert_ptr_null(found->ai_next);
    struct sockaddr_in *first = (struct sockaddr_in *)(void *)found->ai_addr;
    snprintf(service, sizeof service, "%u", ntohs(first->sin_port));
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    ck_assert_int_eq(getaddrinfo("127.0.0.2", service, &hints, &found->ai_next), 0);
    client_found(request, status, found);
}

static int two_addresses(uv_loop_t *l, uv_getaddrinfo_t *request, uv_getaddrinfo_cb done,
                         const char *node, const char *service, const struct addrinfo *hints)
{
    ck_assert_str_eq(node, "two.example");
    client_found = done;
    return uv_getaddrinfo(l, request, add_second_address, "127.0.0.1", service, hints);
}

static uv_getaddrinfo_t *lookup_request;
static int endless_lookup(uv_loop_t *l, uv_getaddrinfo_t *request, uv_getaddrinfo_cb done,
                          const char *node, const char *service, const struct addrinfo *hints)
{
    ck_assert(l != NULL && node != NULL && service != NULL && hints != NULL);
    lookup_request = request;
    client_found = done;
    return 0;
}

static void ends_without_connection(const char *last, int sys_errno)
{
    struct outcome o = {0};
    rdzv_client_get(the.client, one_text("a"), -1, one_on_reply, &o, NULL);
    one_until(&o);
    const char *told = strstr(o.text, "; last: ");
    ck_assert_msg(told != NULL && strncmp(told + 8, last, strlen(last)) == 0, "%s", o.text);
    ck_assert_ptr_nonnull(strstr(o.text, "no connection to "));
    ck_assert_ptr_nonnull(strstr(o.text, " within 300 ms"));
    ck_assert_int_eq(o.sys_errno, sys_errno);
    one_ends(&o, RDZV_ETIMEDOUT);
}

/* A try that the deadline cuts short says less than one that failed, in the same round or before.
 */
START_TEST(the_last_failure_is_told)
{
    struct full_port full;
    one_start(_i);
    full_port_open(&full);
    rdzv_client_options opt = one_options(full.port);
    opt.connect_timeout_ms = 300;
    opt.host = "two.example";
    one_open_with(&opt, two_addresses);
    ends_without_connection("connecting: Connection refused", ECONNREFUSED);
    one_close();
    full_port_close(&full);
    rdzv_server_close(the.server, NULL, NULL); /* libuv's pool keeps threads */
}
END_TEST

START_TEST(nothing_answers)
{
    struct full_port full;
    one_start(_i);
    full_port_open(&full);
    rdzv_client_options opt = one_options(full.port);
    opt.connect_timeout_ms = 300;
    opt.host = "127.0.0.2";
    one_open(&opt);
    ends_without_connection("no answer to connecting", 0);
    full_port_close(&full);
    one_finish();
}
END_TEST

START_TEST(the_name_server_does_not_answer)
{
    static const int drives[] = {RDZV_DRIVE_CALLER,
                                 RDZV_DRIVE_LOOP}; /* the hook's thread is ours */
    one_start(drives[_i]);
    rdzv_client_options opt = one_options(net_port(the.server));
    opt.connect_timeout_ms = 300;
    opt.host = "endless.example";
    one_open_with(&opt, endless_lookup);
    ends_without_connection("no answer to looking the name up", 0);
    client_found(lookup_request, UV_EAI_CANCELED, NULL);
    one_finish();
}
END_TEST

/* It may be a store that came up just before the deadline. */
START_TEST(silent_at_the_deadline_of_connecting)
{
    struct peer peer;
    one_start(_i);
    peer_start(&peer, NOTHING);
    rdzv_client_options opt = one_options(peer.port);
    opt.connect_timeout_ms = 300;
    one_open(&opt);
    ends_without_connection("the peer took the connection and is silent", 0);
    peer_stop(&peer);
    one_finish();
}
END_TEST

static const char *const good_hosts[] = {"127.0.0.1", "localhost", "::ffff:127.0.0.1",
                                         "[::ffff:127.0.0.1]"};

START_TEST(host_forms)
{
    struct outcome o = {0};
    one_start(RDZV_DRIVE_CALLER);
    rdzv_client_options opt = one_options(net_port(the.server));
    opt.host = good_hosts[_i];
    one_open(&opt);
    rdzv_client_flush(the.client, -1, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_OK);
    one_close();
    rdzv_server_close(the.server, NULL, NULL);
}
END_TEST

START_TEST(addresses_of_version_6)
{
    struct outcome o = {0};
    one_start(_i);
    rdzv_server_options six = net_options();
    six.host = "::1";
    rdzv_server *other;
    int have_six = rdzv_server_open(&other, &six, NULL) == RDZV_OK;
    rdzv_client_options opt = one_options(have_six ? net_port(other) : net_port(the.server));
    opt.host = have_six ? "[::1]" : "127.0.0.1";
    one_open(&opt);
    rdzv_client_flush(the.client, -1, one_on_reply, &o, NULL);
    one_ends(&o, RDZV_OK);
    if (have_six)
        rdzv_server_close(other, NULL, NULL);
    one_finish();
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("client_connect");
    TCase *t = tcase_create("client_connect");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_server_that_comes_late, 0, ONE_WAYS);
    tcase_add_loop_test(t, nobody_there, 0, ONE_WAYS);
    tcase_add_loop_test(t, addresses_of_version_6, 0, ONE_WAYS);
    tcase_add_loop_test(t, row_19_not_a_store_within_seconds, 0, ONE_WAYS * PEER_KINDS);
    tcase_add_loop_test(t, silent_at_the_deadline_of_connecting, 0, ONE_WAYS);
    tcase_add_loop_test(t, nothing_answers, 0, ONE_WAYS);
    tcase_add_loop_test(t, the_name_server_does_not_answer, 0, 2);
    /* These look names up: libuv keeps the threads of its pool. */
    tcase_add_loop_test(t, row_15_a_name_that_appears_late, 0, ONE_WAYS);
    tcase_add_loop_test(t, the_last_failure_is_told, 0, ONE_WAYS);
    tcase_add_loop_test(t, host_forms, 0, sizeof good_hosts / sizeof good_hosts[0]);
    suite_add_tcase(s, t);
    return s;
}
