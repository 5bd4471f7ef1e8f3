/*
 * client.c: connections of the load generator. Connects in parallel with as few system calls as
 * will do: on loopback a connect is over before its call returns, so the handshake is sent at once
 * and only a full backlog makes a connection wait for being writable.
 */
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, PATIENCE_MS = 120000, MAGIC_BYTES = 5 };
enum { STEP_CONNECTING = 1, STEP_GREETED, STEP_READY };

struct storm {
    const struct options *opt;
    struct client *c;
    int epoll;
    uint32_t ready;
    uint32_t failed;
};

void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("store_load: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

uint64_t run_tag(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int new_epoll(void)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        die("epoll_create1: %s", strerror(errno));
    return fd;
}

static void control(int epoll, int what, int fd, uint32_t events, uint32_t index)
{
    struct epoll_event e = {.events = events, .data.u32 = index};
    if (epoll_ctl(epoll, what, fd, &e) != 0)
        die("epoll_ctl: %s", strerror(errno));
}

void watch(int epoll, int fd, uint32_t events, uint32_t index)
{
    control(epoll, EPOLL_CTL_ADD, fd, events, index);
}

static size_t put_hello(uint8_t *at, uint32_t nonce)
{
    at[0] = OP_VALIDATE;
    bytes_put_u32(at + 1, 0x3C85F7CE);
    put_ping(at + MAGIC_BYTES, nonce);
    return HELLO_BYTES;
}

static void give_up(struct storm *st, uint32_t i, const char *step, int error)
{
    if (st->failed++ == 0)
        fprintf(stderr, "store_load: connection %u: %s: %s\n", i, step,
                error != 0 ? strerror(error) : "closed by the server");
    close(st->c[i].fd);
    st->c[i].fd = -1;
}

static void bind_source(const struct options *opt, int fd, uint32_t i)
{
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + i % opt->sources)};
    int on = 1;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&from, sizeof from) != 0)
        die("bind to a loopback address: %s", strerror(errno));
}

static void greet(struct storm *st, uint32_t i)
{
    struct client *c = &st->c[i];
    uint8_t hello[HELLO_BYTES];
    put_hello(hello, i);
    ssize_t n = send(c->fd, hello, sizeof hello, MSG_NOSIGNAL);
    int what = c->step == STEP_CONNECTING ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (n == HELLO_BYTES) {
        c->step = STEP_GREETED;
        control(st->epoll, what, c->fd, EPOLLIN, i);
    } else if (n < 0 && errno == EAGAIN && c->step != STEP_CONNECTING) {
        c->step = STEP_CONNECTING;
        control(st->epoll, what, c->fd, EPOLLOUT, i);
    } else if (n < 0) {
        give_up(st, i, "handshake", errno);
    } else {
        die("a handshake was sent in parts");
    }
}

static int new_socket(const struct options *opt, uint32_t i)
{
    int fd = socket(opt->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket %u: %s", i, strerror(errno));
    if (opt->sources > 1)
        bind_source(opt, fd, i);
    return fd;
}

void open_clients(const struct options *opt, struct client *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        c[i] = (struct client){.fd = new_socket(opt, i)};
}

/* Connects some, then greets them: the server meets the connects as fast as one CPU can make them.
 */
static void start(struct storm *st, uint32_t first, uint32_t end)
{
    const struct options *opt = st->opt;
    for (uint32_t i = first; i < end; i++) {
        if (connect(st->c[i].fd, (const struct sockaddr *)&opt->address, opt->address_len) != 0 &&
            errno != EINPROGRESS)
            give_up(st, i, "connect", errno);
    }
    for (uint32_t i = first; i < end; i++) {
        if (st->c[i].fd >= 0)
            greet(st, i);
    }
}

static void take_reply(struct storm *st, uint32_t i)
{
    struct client *c = &st->c[i];
    uint8_t expected[HELLO_BYTES];
    uint8_t reply[HELLO_BYTES];
    put_hello(expected, i);
    uint32_t skip = st->opt->echo ? 0 : HELLO_BYTES - sizeof(uint32_t);
    ssize_t n = recv(c->fd, reply, HELLO_BYTES - skip - c->seen, 0);
    if (n <= 0) {
        give_up(st, i, "handshake", n < 0 ? errno : 0);
        return;
    }
    if (memcmp(reply, expected + skip + c->seen, (size_t)n) != 0)
        die("connection %u: the handshake has a wrong answer: not a c10d store?", i);
    c->seen += (uint32_t)n;
    if (c->seen == HELLO_BYTES - skip) {
        c->step = STEP_READY;
        c->seen = 0;
        st->ready++;
    }
}

uint32_t connect_clients(const struct options *opt, int epoll, struct client *c, uint32_t n)
{
    struct storm st = {.opt = opt, .c = c, .epoll = epoll};
    uint32_t started = 0;
    while (st.ready + st.failed < n) {
        uint32_t room = opt->window - (started - st.ready - st.failed);
        uint32_t end = room < n - started ? started + room : n;
        start(&st, started, end);
        started = end;
        if (st.ready + st.failed == n)
            break;
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll, events, EVENTS, PATIENCE_MS);
        if (count == 0)
            die("%u connections without an answer after %d s", started - st.ready - st.failed,
                PATIENCE_MS / 1000);
        for (int e = 0; e < count; e++) {
            uint32_t i = events[e].data.u32;
            if (c[i].step == STEP_CONNECTING)
                greet(&st, i);
            else if (c[i].step == STEP_GREETED)
                take_reply(&st, i);
            else
                die("connection %u: closed by the server, or an answer that was not asked for", i);
        }
    }
    return st.failed;
}

void reset_clients(struct client *c, uint32_t n)
{
    struct linger now_and_hard = {.l_onoff = 1, .l_linger = 0};
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].fd < 0)
            continue;
        setsockopt(c[i].fd, SOL_SOCKET, SO_LINGER, &now_and_hard, sizeof now_and_hard);
        close(c[i].fd);
        c[i].fd = -1;
    }
}

void send_all(const struct client *c, const void *bytes, size_t len)
{
    ssize_t n = send(c->fd, bytes, len, MSG_NOSIGNAL);
    if (n != (ssize_t)len)
        die("send: %s", n < 0 ? strerror(errno) : "the socket is full");
}

void receive_all(const struct client *c, void *ret, size_t len)
{
    for (uint8_t *at = ret; len > 0;) {
        ssize_t n = recv(c->fd, at, len, 0);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = c->fd, .events = POLLIN};
            if (poll(&p, 1, PATIENCE_MS) == 0)
                die("no answer after %d s", PATIENCE_MS / 1000);
            continue;
        }
        if (n <= 0)
            die("receive: %s", n < 0 ? strerror(errno) : "closed by the server");
        at += n;
        len -= (size_t)n;
    }
}

struct client connect_one(const struct options *opt)
{
    struct client c = {.fd = socket(opt->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    int on = 1;
    if (c.fd < 0)
        die("socket: %s", strerror(errno));
    if (connect(c.fd, (const struct sockaddr *)&opt->address, opt->address_len) != 0)
        die("connect: %s", strerror(errno));
    setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    uint8_t hello[HELLO_BYTES];
    uint8_t reply[HELLO_BYTES];
    size_t skip = opt->echo ? 0 : HELLO_BYTES - sizeof(uint32_t);
    put_hello(hello, 7);
    send_all(&c, hello, sizeof hello);
    receive_all(&c, reply, sizeof hello - skip);
    if (memcmp(reply, hello + skip, sizeof hello - skip) != 0)
        die("the handshake has a wrong answer: not a c10d store?");
    return c;
}
