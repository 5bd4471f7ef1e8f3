/*
 * conn.c: one client's socket between libuv and its core session. Reads go through the server's
 * one buffer, so an idle connection has none. Whatever a read caused, in this session or others, is
 * sent in one write per connection before the callback returns. Writes use MSG_NOSIGNAL: a client
 * that is gone raises no SIGPIPE in the embedding program.
 * Invariant: a conn is in server->conns until rdzv__conn_close, and its memory lives until libuv
 * has let go of its handle.
 */
#include "uv/server.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READS_PER_EVENT = 8, SPANS = 16 };

struct rdzv__conn {
    uv_poll_t poll;
    struct queue link;
    struct queue begun; /* in server->begun, exactly while a request has come in part */
    uint64_t begun_ms;
    struct rdzv_server *server;
    struct rdzv__session session;
    int fd; /* -1 = closed */
    int events;
};

static void conn_closed(uv_handle_t *handle)
{
    struct rdzv__conn *c = handle->data;
    struct rdzv_server *s = c->server;
    rdzv__free(&s->allocator, c);
    rdzv__loop_handle_gone(s);
}

static void conn_close(struct rdzv__conn *c)
{
    struct rdzv_server *s = c->server;
    rdzv__session_close(&c->session);
    queue_remove(&c->link);
    queue_remove(&c->begun);
    s->conn_count--;
    uv_close((uv_handle_t *)&c->poll, conn_closed);
    close(c->fd);
    c->fd = -1;
    rdzv__loop_conn_left(s);
}

/* Closes a connection whose session is over, and says why if that was our decision. */
static void conn_end(struct rdzv__conn *c)
{
    const struct rdzv__session *session = &c->session;
    if (session->state == RDZV__SESSION_REFUSED || session->state == RDZV__SESSION_FAILED) {
        struct sockaddr_storage addr = {0};
        socklen_t len = sizeof addr;
        char peer[64];
        if (getpeername(c->fd, (struct sockaddr *)&addr, &len) != 0)
            memset(&addr, 0, sizeof addr);
        rdzv__address_text(&addr, peer, sizeof peer);
        c->server->refused++;
        rdzv__log_kind(c->server, session->why, RDZV_LOG_WARN, "closed client %s: %s", peer,
                       rdzv__why_text(session->why));
    }
    conn_close(c);
}

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch(struct rdzv__conn *c, int events)
{
    if (c->events == events)
        return;
    c->events = events;
    if (events == 0)
        uv_poll_stop(&c->poll);
    else
        uv_poll_start(&c->poll, events, on_poll);
}

/* 1 = all that may be sent was sent, 0 = the socket is full, -1 = the connection is broken. */
static int send_output(struct rdzv__conn *c)
{
    for (;;) {
        struct rdzv__field spans[SPANS];
        size_t n = rdzv__session_output(&c->session, spans, SPANS);
        if (n == 0)
            return 1;
        struct iovec iov[SPANS];
        for (size_t i = 0; i < n; i++)
            iov[i] = (struct iovec){(void *)(uintptr_t)spans[i].data, spans[i].len};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
        ssize_t sent = sendmsg(c->fd, &msg, MSG_NOSIGNAL);
        if (sent >= 0)
            rdzv__session_sent(&c->session, (size_t)sent);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return 0;
        else if (errno != EINTR)
            return -1;
    }
}

/* Does what the session's state asks for. The conn may be closed afterwards. */
static void settle(struct rdzv__conn *c)
{
    struct rdzv__session *session = &c->session;
    int sent = session->state == RDZV__SESSION_FAILED ? 1 : send_output(c);
    int over = session->state != RDZV__SESSION_OPEN && rdzv__session_unsent(session) == 0;
    if (sent < 0) {
        conn_close(c);
        return;
    }
    if (session->state == RDZV__SESSION_FAILED || over ||
        (session->state == RDZV__SESSION_REFUSED && sent == 0)) {
        conn_end(c);
        return;
    }
    watch(c,
          (session->state == RDZV__SESSION_OPEN ? UV_READABLE : 0) | (sent == 0 ? UV_WRITABLE : 0));
}

static void settle_ready(struct rdzv_server *s)
{
    struct rdzv__session *session;
    while ((session = rdzv__core_next_ready(&s->core)) != NULL)
        settle(QUEUE_ENTRY(session, struct rdzv__conn, session));
}

/* After bytes were fed: is there half a request, and is it the one that was there before? */
static void watch_request(struct rdzv__conn *c, uint64_t requests_before)
{
    struct rdzv_server *s = c->server;
    if (s->request_timeout_ms == 0)
        return;
    int waits = !queue_empty(&c->begun);
    int begun = rdzv__session_begun(&c->session);
    if (waits && begun && s->core.requests == requests_before)
        return;
    if (waits)
        queue_remove(&c->begun);
    if (!begun)
        return;
    c->begun_ms = uv_now(s->loop);
    queue_push(&s->begun, &c->begun);
    if (!uv_is_active((uv_handle_t *)&s->request_timer))
        uv_timer_start(&s->request_timer, rdzv__conn_request_timer, s->request_timeout_ms, 0);
}

void rdzv__conn_request_timer(uv_timer_t *timer)
{
    struct rdzv_server *s = timer->data;
    uint64_t now = uv_now(s->loop);
    while (!queue_empty(&s->begun)) {
        struct rdzv__conn *c = QUEUE_ENTRY(s->begun.next, struct rdzv__conn, begun);
        uint64_t age = now - c->begun_ms;
        if (age < s->request_timeout_ms) {
            uv_timer_start(timer, rdzv__conn_request_timer, s->request_timeout_ms - age, 0);
            break;
        }
        queue_remove(&c->begun);
        rdzv__session_expire(&c->session);
    }
    settle_ready(s);
    rdzv__loop_publish(s);
}

/* 0 = read on, 1 = enough for now. */
static int read_once(struct rdzv__conn *c)
{
    struct rdzv_server *s = c->server;
    ssize_t n = recv(c->fd, s->read_buffer, RDZV__READ_BYTES, 0);
    if (n < 0) {
        if (errno == EINTR)
            return 0;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            conn_close(c);
        return 1;
    }
    if (n == 0) {
        rdzv__session_eof(&c->session);
        return 1;
    }
    size_t len = (size_t)n;
    size_t used = 0;
    uint64_t requests = s->core.requests;
    while (used < len) {
        used += rdzv__session_feed(&c->session, s->read_buffer + used, len - used);
        if (used < len) {
            settle(c);
            if (c->fd < 0)
                return 1;
        }
    }
    watch_request(c, requests);
    return len < RDZV__READ_BYTES || c->session.state != RDZV__SESSION_OPEN;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct rdzv__conn *c = poll->data;
    struct rdzv_server *s = c->server;
    if (status < 0) {
        conn_close(c);
    } else {
        if ((events & UV_WRITABLE) != 0)
            settle(c);
        if ((events & UV_READABLE) != 0 && c->fd >= 0 && c->session.state == RDZV__SESSION_OPEN) {
            for (int i = 0; i < READS_PER_EVENT && read_once(c) == 0; i++)
                ;
        }
    }
    settle_ready(s);
    rdzv__loop_publish(s);
}

void rdzv__conn_open(struct rdzv_server *s, int fd)
{
    struct rdzv__conn *c = rdzv__alloc(&s->allocator, sizeof *c);
    int failed = c == NULL;
    if (!failed) {
        failed = uv_poll_init(s->loop, &c->poll, fd) != 0;
        if (failed)
            rdzv__free(&s->allocator, c);
    }
    if (failed) {
        close(fd);
        s->refused++;
        rdzv__log_kind(s, RDZV__WHY_NO_MEMORY, RDZV_LOG_ERROR,
                       "closed a new client: out of memory with %llu connected",
                       (unsigned long long)s->conn_count);
        return;
    }
    c->poll.data = c;
    c->server = s;
    c->fd = fd;
    c->events = 0;
    queue_init(&c->begun);
    rdzv__session_open(&c->session, &s->core);
    queue_push(&s->conns, &c->link);
    s->handles++;
    s->conn_count++;
    s->accepted++;
    watch(c, UV_READABLE);
}

void rdzv__conn_close_all(struct rdzv_server *s)
{
    while (!queue_empty(&s->conns))
        conn_close(QUEUE_ENTRY(s->conns.next, struct rdzv__conn, link));
}
