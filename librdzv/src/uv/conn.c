/*
 * conn.c: one client's socket between epoll and its core session. Reads go through the server's
 * one buffer, so an idle connection has none. Whatever a read caused, in this session or others, is
 * sent in one write per connection before the turn ends. Writes use MSG_NOSIGNAL: a client
 * that is gone raises no SIGPIPE in the embedding program.
 * No client has the server to itself: what a slice of work has left of the bytes is kept as the
 * conn's rest, and goes on in the next turn, after the others; nothing more is read meanwhile.
 * Nobody is closed for a slow request before his socket has been looked at: it may be the server
 * that stood still.
 * Invariant: a conn is in job->conns until conn_close, then in server->gone until the turn ends,
 * because an event of this turn may still name it.
 */
#include "clock.h"
#include "uv/server.h"
#include "uv/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>

enum {
    READS_PER_EVENT = 8,
    JUDGED_PER_TURN = 256, /* as many as have events in one turn */
    SPANS = 16,
    PEER_BYTES = 64
};

struct rest {
    struct queue link; /* in server->busy */
    struct rdzv__conn *conn;
    size_t len;
    size_t at; /* fed up to here */
    uint8_t bytes[];
};

struct rdzv__conn {
    struct queue begun; /* in server->begun, exactly while a request has come in part */
    uint64_t begun_ms;
    struct queue link; /* in job->conns, then in server->gone */
    struct rdzv_job *job;
    struct rdzv__session session;
    struct rest *rest; /* NULL = none */
    uint64_t requests;
    int fd; /* -1 = closed */
    uint32_t events;
    char peer[]; /* PEER_BYTES, but none unless rdzv__logs(RDZV_LOG_DEBUG) */
};

static void peer_text(int fd, char ret[PEER_BYTES])
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    if (getpeername(fd, (struct sockaddr *)&addr, &len) != 0)
        memset(&addr, 0, sizeof addr);
    rdzv__address_text(&addr, ret, PEER_BYTES);
}

static void drop_rest(struct rdzv__conn *c)
{
    struct rest *r = c->rest;
    if (r == NULL)
        return;
    queue_remove(&r->link);
    c->job->core.buffer_bytes -= r->len;
    c->rest = NULL;
    rdzv__free(&c->job->server->allocator, r);
}

static void conn_close(struct rdzv__conn *c, const char *why)
{
    struct rdzv_job *job = c->job;
    struct rdzv_server *s = job->server;
    if (rdzv__logs(s, RDZV_LOG_DEBUG))
        rdzv__log_job(job, RDZV_LOG_DEBUG, "client %s left after %llu requests: %s", c->peer,
                      (unsigned long long)c->requests, why);
    drop_rest(c);
    rdzv__session_close(&c->session);
    queue_remove(&c->link);
    queue_remove(&c->begun);
    queue_push(&s->gone, &c->link);
    s->conn_count--;
    job->conn_count--;
    /* A copy of the descriptor in a forked child would keep it in the set. */
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    rdzv__socket_close(c->fd);
    c->fd = -1;
    if (job->conn_count == 0) {
        rdzv__job_left(job);
        rdzv__loop_conn_left(s);
    }
}

/* Closes a connection whose session is over, and says why if that was our decision. */
static void conn_end(struct rdzv__conn *c)
{
    const struct rdzv__session *session = &c->session;
    const char *why = "it has closed the connection";
    if (session->state == RDZV__SESSION_REFUSED || session->state == RDZV__SESSION_FAILED) {
        char peer[PEER_BYTES];
        why = rdzv__why_text(session->why);
        peer_text(c->fd, peer);
        c->job->refused++;
        rdzv__log_kind(c->job, session->why, RDZV_LOG_WARN, "closed client %s: %s%s", peer, why,
                       rdzv__job_whose(c->job, session->why));
    }
    conn_close(c, why);
}

static void watch(struct rdzv__conn *c, uint32_t events)
{
    if (c->events == events)
        return;
    c->events = events;
    struct epoll_event e = {.events = events, .data.ptr = c};
    epoll_ctl(c->job->server->epoll, EPOLL_CTL_MOD, c->fd, &e);
}

static ssize_t send_spans(int fd, const struct rdzv__field *spans, size_t n)
{
    struct iovec iov[SPANS];
    for (size_t i = 0; i < n; i++)
        iov[i] = (struct iovec){(void *)(uintptr_t)spans[i].data, spans[i].len};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
    return sendmsg(fd, &msg, MSG_NOSIGNAL);
}

/* 1 = all that may be sent was sent, 0 = the socket is full, -1 = the connection is broken. */
static int send_output(struct rdzv__conn *c)
{
    for (;;) {
        struct rdzv__field spans[SPANS];
        size_t n = rdzv__session_output(&c->session, spans, SPANS);
        if (n == 0)
            return 1;
        ssize_t sent = n == 1 ? send(c->fd, spans[0].data, spans[0].len, MSG_NOSIGNAL)
                              : send_spans(c->fd, spans, n);
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
        conn_close(c, strerror(errno));
        return;
    }
    if (session->state == RDZV__SESSION_FAILED || over ||
        (session->state == RDZV__SESSION_REFUSED && sent == 0)) {
        conn_end(c);
        return;
    }
    int reads = session->state == RDZV__SESSION_OPEN && c->rest == NULL;
    watch(c, (reads ? EPOLLIN : 0U) | (sent == 0 ? EPOLLOUT : 0U));
}

static void settle_ready(struct rdzv_job *job)
{
    struct rdzv__session *session;
    while ((session = rdzv__core_next_ready(&job->core)) != NULL)
        settle(CONTAINER_OF(session, struct rdzv__conn, session));
}

static void on_request_timer(uv_timer_t *timer);

/* After bytes were fed: is there half a request, and is it the one that was there before? */
static void watch_request(struct rdzv__conn *c, uint64_t requests_before)
{
    struct rdzv_server *s = c->job->server;
    if (s->options.request_timeout_ms == 0)
        return;
    int waits = !queue_empty(&c->begun);
    int begun = rdzv__session_begun(&c->session);
    if (waits && begun && c->job->core.requests == requests_before)
        return;
    if (waits)
        queue_remove(&c->begun);
    if (!begun)
        return;
    c->begun_ms = clock_ms(); /* the time of a borrowed loop may be old */
    queue_push(&s->begun, &c->begun);
    if (!uv_is_active((uv_handle_t *)&s->request_timer))
        uv_timer_start(&s->request_timer, on_request_timer, s->options.request_timeout_ms, 0);
}

/* Feeds a slice; returns how many bytes that was. */
static size_t feed(struct rdzv__conn *c, const uint8_t *bytes, size_t len)
{
    uint64_t before = c->job->core.requests;
    size_t used = rdzv__session_feed(&c->session, bytes, len);
    c->requests += c->job->core.requests - before;
    watch_request(c, before);
    return used;
}

/* Goes on with those that have a rest: one slice each. */
static void on_busy(uv_idle_t *idle)
{
    struct rdzv_server *s = idle->data;
    struct queue turn;
    queue_init(&turn);
    while (!queue_empty(&s->busy)) {
        struct queue *link = s->busy.next;
        queue_remove(link);
        queue_push(&turn, link);
    }
    while (!queue_empty(&turn)) {
        struct rest *r = CONTAINER_OF(turn.next, struct rest, link);
        struct rdzv__conn *c = r->conn;
        queue_remove(&r->link);
        queue_push(&s->busy, &r->link);
        rdzv__job_enter(c->job);
        r->at += feed(c, r->bytes + r->at, r->len - r->at);
        if (r->at == r->len)
            drop_rest(c);
        settle(c);
        settle_ready(c->job);
    }
    rdzv__conn_free_gone(s);
    rdzv__job_publish(s->at_work);
    if (queue_empty(&s->busy))
        uv_idle_stop(idle);
}

static void keep_rest(struct rdzv__conn *c, const uint8_t *bytes, size_t len)
{
    struct rdzv_server *s = c->job->server;
    struct rest *r = rdzv__alloc(&s->allocator, sizeof *r + len);
    if (r == NULL) {
        c->job->refused++;
        rdzv__log_kind(c->job, RDZV__WHY_NO_MEMORY, RDZV_LOG_ERROR, "closed a client: %s",
                       rdzv__why_text(RDZV__WHY_NO_MEMORY));
        conn_close(c, "out of memory");
        return;
    }
    *r = (struct rest){.conn = c, .len = len};
    memcpy(r->bytes, bytes, len);
    queue_push(&s->busy, &r->link);
    c->rest = r;
    c->job->core.buffer_bytes += len; /* less than what each connection is always granted */
    uv_idle_start(&s->busy_idle, on_busy);
}

/* 0 = read on, 1 = enough for now. */
static int read_once(struct rdzv__conn *c)
{
    struct rdzv_server *s = c->job->server;
    ssize_t n = recv(c->fd, s->read_buffer, RDZV__READ_BYTES, 0);
    if (n < 0) {
        if (errno == EINTR)
            return 0;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            conn_close(c, strerror(errno));
        return 1;
    }
    if (n == 0) {
        rdzv__session_eof(&c->session);
        return 1;
    }
    size_t len = (size_t)n;
    size_t used = feed(c, s->read_buffer, len);
    if (used < len)
        keep_rest(c, s->read_buffer + used, len - used);
    return used < RDZV__READ_BYTES || c->session.state != RDZV__SESSION_OPEN;
}

/* Takes what has come, up to a limit. Returns whether there may be more. */
static int take_input(struct rdzv__conn *c)
{
    int reads = 0;
    if (c->rest != NULL || c->session.state != RDZV__SESSION_OPEN)
        return 0;
    while (reads < READS_PER_EVENT && read_once(c) == 0)
        reads++;
    if (c->rest != NULL)
        settle(c); /* asks for no more bytes */
    return reads == READS_PER_EVENT;
}

/* Its request began too long ago: ends it, unless the rest has come by now. Returns whether it has
 * to be judged once more, for not all that has come could be read. */
static int judge(struct rdzv__conn *c)
{
    uint64_t begun_ms = c->begun_ms;
    rdzv__job_enter(c->job);
    int more = take_input(c);
    if (!more && !queue_empty(&c->begun) && c->begun_ms == begun_ms) {
        queue_remove(&c->begun);
        rdzv__session_expire(&c->session);
    }
    settle_ready(c->job);
    return more;
}

static void on_request_timer(uv_timer_t *timer)
{
    struct rdzv_server *s = timer->data;
    uint64_t now = clock_ms();
    for (int judged = 0; !queue_empty(&s->begun); judged++) {
        struct rdzv__conn *c = CONTAINER_OF(s->begun.next, struct rdzv__conn, begun);
        uint64_t due_ms = c->begun_ms + s->options.request_timeout_ms;
        if (due_ms <= now && judged < JUDGED_PER_TURN && !judge(c))
            continue;
        /* Not 0: the others have their turn before it. */
        uv_timer_start(timer, on_request_timer, due_ms > now ? due_ms - now : 1, 0);
        break;
    }
    rdzv__conn_free_gone(s);
    rdzv__job_publish(s->at_work);
}

void rdzv__conn_serve(struct rdzv__conn *c, uint32_t events)
{
    struct rdzv_job *job = c->job;
    if (c->fd < 0)
        return; /* an earlier event of this turn has closed it */
    rdzv__job_enter(job);
    /* Nothing was asked for and yet there is an event: it is broken at both ends. */
    if ((events & EPOLLERR) != 0 || c->events == 0)
        conn_close(c, "the connection is broken");
    else if ((events & (EPOLLOUT | EPOLLHUP)) != 0 && (c->events & EPOLLOUT) != 0)
        settle(c);
    if ((events & (EPOLLIN | EPOLLHUP)) != 0 && c->fd >= 0)
        take_input(c);
    settle_ready(job);
}

void rdzv__conn_free_gone(struct rdzv_server *s)
{
    while (!queue_empty(&s->gone)) {
        struct rdzv__conn *c = CONTAINER_OF(s->gone.next, struct rdzv__conn, link);
        queue_remove(&c->link);
        rdzv__free(&s->allocator, c);
    }
}

void rdzv__conn_open(struct rdzv_job *job, int fd)
{
    struct rdzv_server *s = job->server;
    int tells = rdzv__logs(s, RDZV_LOG_DEBUG);
    struct rdzv__conn *c = rdzv__alloc(&s->allocator, sizeof *c + (tells ? PEER_BYTES : 0));
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (c == NULL || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) != 0) {
        rdzv__free(&s->allocator, c);
        rdzv__socket_close(fd);
        job->refused++;
        rdzv__log_kind(job, RDZV__WHY_NO_MEMORY, RDZV_LOG_ERROR,
                       "closed a new client: out of memory with %llu connected",
                       (unsigned long long)s->conn_count);
        return;
    }
    c->job = job;
    c->rest = NULL;
    c->requests = 0;
    c->fd = fd;
    c->events = EPOLLIN;
    queue_init(&c->begun);
    rdzv__session_open(&c->session, &job->core);
    queue_push(&job->conns, &c->link);
    s->conn_count++;
    job->conn_count++;
    job->accepted++;
    if (!tells)
        return;
    peer_text(fd, c->peer);
    rdzv__log_job(job, RDZV_LOG_DEBUG, "client %s connected, %llu are", c->peer,
                  (unsigned long long)job->conn_count);
}

void rdzv__conn_close_all(struct rdzv_job *job)
{
    while (!queue_empty(&job->conns))
        conn_close(CONTAINER_OF(job->conns.next, struct rdzv__conn, link),
                   "the server closes its job");
    rdzv__conn_free_gone(job->server);
}
