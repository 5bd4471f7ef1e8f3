/*
 * client_io.c: the client's one socket between the kernel and the core. Reads go through a buffer
 * on the stack, so an idle client has none. Whatever happened, settle sends what can go in one
 * write and hands finished calls over.
 */
#include "uv/client.h"
#include "uv/socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

enum { READ_BYTES = 32768, READS_PER_EVENT = 16 };

struct rdzv__client_socket {
    uv_poll_t poll;
    struct rdzv_client *client;
};

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct rdzv__client_socket *s = poll->data;
    struct rdzv_client *c = s->client;
    if (c->socket != s)
        return;
    if (status < 0)
        c->events = 0; /* an error ends the watch, but answers may lie before it */
    rdzv__client_ready(c, status < 0 ? UV_READABLE | UV_WRITABLE : events);
    rdzv__client_settle(c);
}

int rdzv__client_watch_new(struct rdzv_client *c)
{
    c->events = 0;
    if (c->drive == RDZV_DRIVE_CALLER) {
        struct epoll_event event = {.events = 0};
        return c->epoll_fd < 0 || epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->fd, &event) == 0 ? 0
                                                                                            : errno;
    }
    struct rdzv__client_socket *s = rdzv__alloc(&c->allocator, sizeof *s);
    if (s == NULL)
        return ENOMEM;
    int result = uv_poll_init(c->loop, &s->poll, c->fd);
    if (result != 0) {
        rdzv__free(&c->allocator, s);
        return -result;
    }
    s->poll.data = s;
    s->client = c;
    c->socket = s;
    c->handles++;
    return 0;
}

void rdzv__client_watch(struct rdzv_client *c, int events)
{
    if (c->events == events)
        return;
    c->events = events;
    if (c->drive != RDZV_DRIVE_CALLER) {
        uv_poll_start(&c->socket->poll, events, on_poll);
        return;
    }
    if (c->epoll_fd < 0)
        return;
    struct epoll_event event = {.events = (uint32_t)rdzv__poll_bits(events)};
    epoll_ctl(c->epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

static void on_socket_closed(uv_handle_t *handle)
{
    struct rdzv__client_socket *s = handle->data;
    struct rdzv_client *c = s->client;
    rdzv__free(&c->allocator, s);
    rdzv__client_handle_gone(c);
}

void rdzv__client_drop_socket(struct rdzv_client *c)
{
    if (c->fd < 0)
        return;
    if (c->socket != NULL)
        uv_close((uv_handle_t *)&c->socket->poll, on_socket_closed);
    c->socket = NULL;
    if (c->epoll_fd >= 0) /* a copy in a forked child would keep it in the set, ready for ever */
        epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    rdzv__socket_close(c->fd);
    c->fd = -1;
    c->events = 0;
}

/* Takes what is there; with `block` waits for it, at most RDZV__RECEIVE_MS. Returns -1 when a
 * signal came first. */
static int receive(struct rdzv_client *c, int block)
{
    uint8_t buffer[READ_BYTES];
    int flags = block ? 0 : MSG_DONTWAIT;
    for (int i = 0; i < READS_PER_EVENT && c->fd >= 0; i++) {
        ssize_t n = recv(c->fd, buffer, sizeof buffer, flags);
        if (n < 0 && errno == EINTR && flags == 0)
            return -1;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (n <= 0) {
            rdzv__client_lost(c, n < 0 ? errno : 0);
            return 0;
        }
        rdzv__client_core_feed(&c->core, buffer, (size_t)n, clock_ms());
        rdzv__client_follow_core(c);
        if (n < READ_BYTES)
            return 0;
        flags = MSG_DONTWAIT;
    }
    return 0;
}

int rdzv__client_receive_waiting(struct rdzv_client *c)
{
    return receive(c, 1);
}

void rdzv__client_ready(struct rdzv_client *c, int events)
{
    if (c->phase == RDZV__PHASE_CONNECT) {
        rdzv__client_connected(c);
        return;
    }
    if ((events & UV_READABLE) != 0)
        receive(c, 0);
}

static void transmit(struct rdzv_client *c)
{
    const uint8_t *bytes;
    size_t len;
    while ((len = rdzv__client_core_output(&c->core, &bytes)) > 0) {
        ssize_t n = send(c->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            rdzv__client_core_sent(&c->core, (size_t)n, clock_ms());
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            rdzv__client_watch(c, UV_READABLE | UV_WRITABLE);
            return;
        } else if (errno != EINTR) {
            /* Answers that came before the end are still to be read: they count. */
            receive(c, 0);
            if (c->fd >= 0 && (c->phase == RDZV__PHASE_HELLO || c->phase == RDZV__PHASE_UP))
                rdzv__client_lost(c, EPIPE);
            return;
        }
    }
    rdzv__client_watch(c, UV_READABLE);
}

void rdzv__client_settle(struct rdzv_client *c)
{
    rdzv__client_core_pump(&c->core, clock_ms());
    if (c->phase == RDZV__PHASE_HELLO || c->phase == RDZV__PHASE_UP)
        transmit(c);
    if (c->drive == RDZV_DRIVE_CALLER)
        return; /* wait does the rest */
    rdzv__client_hand_over(c);
    rdzv__client_arm(c);
}

uint64_t rdzv__client_next_ms(const struct rdzv_client *c)
{
    uint64_t next = rdzv__client_core_next_ms(&c->core);
    return next < c->phase_end_ms ? next : c->phase_end_ms;
}

/* Whoever turns us may have stood still: what came meanwhile counts before any deadline does. */
static void look(struct rdzv_client *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    if (c->phase == RDZV__PHASE_CONNECT && poll(&p, 1, 0) == 1)
        rdzv__client_connected(c);
    if (c->phase == RDZV__PHASE_HELLO || c->phase == RDZV__PHASE_UP)
        receive(c, 0);
}

void rdzv__client_on_time(struct rdzv_client *c)
{
    look(c);
    uint64_t now = clock_ms();
    if (c->phase_end_ms <= now)
        rdzv__client_phase_over(c, now);
    rdzv__client_core_tick(&c->core, now);
    rdzv__client_follow_core(c);
}
