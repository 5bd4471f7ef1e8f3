/*
 * pair.c: sockets of one client. Sending never blocks for good: while a server does not read, what
 * it answers is read, as it may be waiting for that. Knows nothing of requests.
 */
#include "pair.h"

#include "clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PART_BYTES = 65536, STUCK_MS = 20000 };

static int connect_port(uint16_t port)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof addr) != 0) {
        fprintf(stderr, "connect to 127.0.0.1:%u: %s\n", port, strerror(errno));
        exit(2);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* Takes in what is there now. */
static void receive(struct side *s)
{
    uint8_t part[PART_BYTES];
    ssize_t n;
    while (!s->ended && (n = recv(s->fd, part, sizeof part, MSG_DONTWAIT)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            s->ended = errno != EAGAIN && errno != EWOULDBLOCK;
            return;
        }
        wire_bytes(&s->in, part, (size_t)n);
        if (n < PART_BYTES)
            return;
    }
    s->ended = 1;
}

static void side_send(struct side *s, const uint8_t *bytes, size_t len)
{
    while (len > 0 && !s->ended) {
        ssize_t n = send(s->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            struct pollfd p = {.fd = s->fd, .events = POLLIN | POLLOUT};
            if (poll(&p, 1, STUCK_MS) == 0) {
                fprintf(stderr, "a server has read nothing for %d ms\n", STUCK_MS);
                exit(2);
            }
            receive(s);
        } else if (errno != EINTR) {
            return; /* closed: reading finds what came before that, and the end */
        }
    }
}

void pair_connect(struct pair *p, const uint16_t port[SIDES], const struct wire *first)
{
    for (int i = 0; i < SIDES; i++) {
        struct side *s = &p->side[i];
        s->fd = connect_port(port[i]);
        s->ended = 0;
        s->in.len = 0;
        s->taken = 0;
        side_send(s, first->data, first->len);
    }
}

void pair_close(struct pair *p)
{
    for (int i = 0; i < SIDES; i++) {
        if (p->side[i].fd >= 0)
            close(p->side[i].fd);
        p->side[i].fd = -1;
        wire_free(&p->side[i].in);
    }
}

void pair_send(struct pair *p, const void *bytes, size_t len)
{
    for (int i = 0; i < SIDES; i++)
        side_send(&p->side[i], bytes, len);
}

void pair_shutdown(struct pair *p)
{
    for (int i = 0; i < SIDES; i++)
        shutdown(p->side[i].fd, SHUT_WR);
}

int side_ready(struct side *s, int timeout_ms)
{
    if (s->taken < s->in.len || s->ended)
        return 1;
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    if (poll(&p, 1, timeout_ms) > 0)
        receive(s);
    return s->taken < s->in.len || s->ended;
}

const uint8_t *side_take(struct side *s, size_t len, int timeout_ms)
{
    uint64_t end = clock_ms() + (uint64_t)timeout_ms;
    if (s->taken == s->in.len) {
        s->taken = 0;
        s->in.len = 0;
    }
    while (s->in.len - s->taken < len) {
        uint64_t now = clock_ms();
        if (s->ended || now > end)
            return NULL;
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        if (poll(&p, 1, clock_poll_ms(now, end)) > 0)
            receive(s);
    }
    const uint8_t *at = s->in.data + s->taken;
    s->taken += len;
    return at;
}
