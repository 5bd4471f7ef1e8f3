/*
 * net.c: see net.h.
 */
#include "net.h"

#include "bytes.h"
#include "entries.h"

#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

rdzv_server_options net_options(void)
{
    rdzv_server_options opt;
    rdzv_server_options_init(&opt, sizeof opt);
    opt.port = 0;
    return opt;
}

int net_connect_socket(int fd, uint16_t port)
{
    struct timeval limit = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return connect(fd, (struct sockaddr *)&addr, sizeof addr);
}

int net_connect(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(net_connect_socket(fd, port), 0);
    return fd;
}

uint16_t net_port(const rdzv_server *s)
{
    uint16_t port;
    rdzv_server_address(s, &port);
    return port;
}

void net_send(int fd, struct wire *w)
{
    size_t at = 0;
    while (at < w->len) {
        ssize_t n = send(fd, w->data + at, w->len - at, MSG_NOSIGNAL);
        ck_assert_msg(n > 0, "send: %s", strerror(errno));
        at += (size_t)n;
    }
    w->len = 0;
}

/* With a limit a recv is not begun again by itself: an io_uring that libuv had and closed ends it
 * without any signal. */
static ssize_t receive(int fd, void *bytes, size_t len)
{
    return TEMP_FAILURE_RETRY(recv(fd, bytes, len, 0));
}

void net_read(int fd, struct wire *got, size_t len)
{
    char part[4096];
    while (len > 0) {
        ssize_t n = receive(fd, part, len < sizeof part ? len : sizeof part);
        ck_assert_msg(n > 0, "recv: %s, %zu bytes missing", n == 0 ? "end" : strerror(errno), len);
        wire_bytes(got, part, (size_t)n);
        len -= (size_t)n;
    }
}

int net_read_all(int fd, struct wire *got)
{
    char part[4096];
    for (;;) {
        ssize_t n = receive(fd, part, sizeof part);
        if (n == 0)
            return 0;
        if (n < 0) {
            ck_assert_msg(errno == ECONNRESET, "recv: %s", strerror(errno));
            return errno;
        }
        wire_bytes(got, part, (size_t)n);
    }
}

int net_greet(uint16_t port)
{
    int fd = net_connect(port);
    struct wire w = WIRE_INIT;
    wire_hello(&w);
    net_send(fd, &w);
    wire_free(&w);
    net_expect_served(fd);
    return fd;
}

void net_expect_served(int fd)
{
    struct wire w = WIRE_INIT;
    struct wire got = WIRE_INIT;
    wire_add(&w, "bu", RDZV__OP_PING, 7u);
    net_ask(fd, &w, &got, 4);
    wire_expect(&got, "u", 7u);
    wire_free(&got);
    wire_free(&w);
}

void net_ask(int fd, struct wire *w, struct wire *got, size_t len)
{
    net_send(fd, w);
    net_read(fd, got, len);
}

void net_send_some(int fd, const uint8_t *bytes, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = send(fd, bytes + at, len - at < 65536 ? len - at : 65536, MSG_NOSIGNAL);
        if (n < 0)
            break;
        at += (size_t)n;
    }
}

static void send_set(int fd, const char *key, size_t len)
{
    struct wire w = WIRE_INIT;
    wire_add(&w, "bs", RDZV__OP_SET, key);
    wire_fill(&w, 'v', len);
    wire_add(&w, "bu", RDZV__OP_PING, 7u);
    net_send(fd, &w);
    wire_free(&w);
}

void net_set(int fd, const char *key, size_t len)
{
    struct wire got = WIRE_INIT;
    send_set(fd, key, len);
    net_read(fd, &got, 4);
    wire_free(&got);
}

void net_set_refused(int fd, const char *key, size_t len)
{
    struct wire got = WIRE_INIT;
    send_set(fd, key, len);
    net_read_all(fd, &got);
    ck_assert_uint_eq(got.len, 0);
    wire_free(&got);
    close(fd);
}

void net_set_begun(int fd, const char *key, size_t len)
{
    enum { WHOLE = 1 << 20 };
    struct wire w = WIRE_INIT;
    wire_add(&w, "bs", RDZV__OP_SET, key);
    wire_fill(&w, 'v', WHOLE);
    net_send_some(fd, w.data, w.len - (WHOLE - len));
    wire_free(&w);
}

int net_heard(int fd, int within_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, within_ms) == 1;
}

void net_expect_end(int fd)
{
    struct wire got = WIRE_INIT;
    net_read_all(fd, &got);
    ck_assert_uint_eq(got.len, 0);
    wire_free(&got);
    close(fd);
}

void net_expect_no_listener(uint16_t port)
{
    int connected = 1;
    for (int i = 0; i < 500 && connected; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        connected = net_connect_socket(fd, port) == 0;
        close(fd);
        if (connected)
            usleep(10000);
    }
    ck_assert(!connected);
}

long long net_count_keys(uint16_t port)
{
    struct wire w = WIRE_INIT;
    int fd = net_connect(port);
    wire_hello(&w);
    wire_add(&w, "b", RDZV__OP_GETNUMKEYS);
    net_send(fd, &w);
    net_read(fd, &w, 8);
    long long keys = (long long)bytes_get_u64(w.data);
    wire_free(&w);
    close(fd);
    return keys;
}

static int count_threads(void)
{
    int count = entries_count("/proc/self/task");
    ck_assert_int_gt(count, 0);
    return count;
}

static int threads_before;

void net_warm_up(void)
{
    rdzv_server_options opt = net_options();
    rdzv_server *s;
    ck_assert_int_eq(rdzv_server_open(&s, &opt, NULL), RDZV_OK);
    rdzv_server_close(s, NULL, NULL);
    threads_before = count_threads();
    for (int i = 0; i < 20; i++) {
        usleep(1000);
        int now = count_threads();
        threads_before = now < threads_before ? now : threads_before;
    }
}

int net_count_fds(void)
{
    int count = entries_count("/proc/self/fd");
    ck_assert_int_gt(count, 0);
    return count;
}

void net_expect_threads(int want)
{
    for (int i = 0; i < 1000 && count_threads() - threads_before != want; i++)
        usleep(1000);
    ck_assert_int_eq(count_threads() - threads_before, want);
}

void net_thread_status(const char *thread, const char *field, char *ret, size_t size)
{
    ret[0] = '\0';
    DIR *dir = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(dir);
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char path[300];
        char line[256];
        int named = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *f = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        while (f != NULL && fgets(line, sizeof line, f) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            if (strncmp(line, "Name:\t", 6) == 0)
                named = strcmp(line + 6, thread) == 0;
            if (named && strncmp(line, field, strlen(field)) == 0)
                snprintf(ret, size, "%s", line + strlen(field) + 2);
        }
        if (f != NULL)
            fclose(f);
    }
    closedir(dir);
}

struct net_log net_server_log;
static int fds_before;
static struct wire *wires[2];

static void setup(void)
{
    memset(&net_server_log, 0, sizeof net_server_log);
    net_expect_threads(0);
    fds_before = net_count_fds();
}

static void teardown(void)
{
    wire_free(wires[0]);
    wire_free(wires[1]);
    net_expect_threads(0);
    ck_assert_int_eq(net_count_fds(), fds_before);
}

TCase *net_tcase(Suite *s, const char *name, struct wire *w, struct wire *got)
{
    TCase *t = tcase_create(name);
    wires[0] = w;
    wires[1] = got;
    tcase_set_timeout(t, 60);
    tcase_add_unchecked_fixture(t, net_warm_up, NULL);
    tcase_add_checked_fixture(t, setup, teardown);
    suite_add_tcase(s, t);
    return t;
}

void net_log_line(void *ctx, int level, const char *line)
{
    struct net_log *log = ctx;
    log->lines++;
    log->level = level;
    size_t used = strlen(log->text);
    snprintf(log->text + used, sizeof log->text - used, "%s\n", line);
}

rdzv_server *net_open(const rdzv_server_options *given, struct net_log *log)
{
    rdzv_server_options opt = given != NULL ? *given : net_options();
    opt.log = net_log_line;
    opt.log_ctx = log;
    rdzv_server *s = NULL;
    rdzv_error err = {0};
    ck_assert_msg(rdzv_server_open(&s, &opt, &err) == RDZV_OK, "%s", err.text);
    return s;
}

void net_expect_log(rdzv_server *s, struct net_log *log, const char *text)
{
    for (int i = 0; strstr(log->text, text) == NULL; i++) {
        ck_assert_msg(i < 200, "\"%s\" was not logged, but:\n%s", text, log->text);
        ck_assert_int_ge(rdzv_server_wait(s, 50), 0);
    }
}

uint64_t net_stat(const rdzv_server *s, size_t offset)
{
    rdzv_server_stats st = {.size = sizeof st};
    ck_assert_int_eq(rdzv_server_get_stats(s, &st), RDZV_OK);
    uint64_t v;
    memcpy(&v, (char *)&st + offset, sizeof v);
    return v;
}

void net_expect_stat(const rdzv_server *s, size_t offset, uint64_t want, int within_s)
{
    for (int i = 0; i < within_s * 1000 && net_stat(s, offset) != want; i++)
        usleep(1000);
    ck_assert_uint_eq(net_stat(s, offset), want);
}

void net_count_call(void *count)
{
    ++*(int *)count;
}
