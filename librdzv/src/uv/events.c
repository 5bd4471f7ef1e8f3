/*
 * events.c: the listeners and all connections in one epoll set: a connection costs no libuv handle
 * and is registered with one system call. A borrowed loop sees the set as a single descriptor. The
 * own thread does it the other way round: it waits in the set, which has the loop's descriptor in
 * it, because a set within a set costs one more system call for every wake-up.
 * Invariant: what is in the set points to a conn that is not freed before the end of the turn, or,
 * marked by its lowest bit, to a job, which is never closed within a turn; or it is LOOP.
 */
#include "uv/server.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = 256, LOOP = 1 };

/* Waits for events and serves them. Returns whether the loop has to look after its own: timers,
 * commands, handles that close. */
static int serve(struct rdzv_server *s, int timeout_ms)
{
    struct epoll_event ready[EVENTS];
    int n = epoll_wait(s->epoll, ready, EVENTS, timeout_ms);
    int loop_due = n <= 0;
    if (!s->borrowed)
        uv_update_time(s->loop); /* what is served now may start timers */
    for (int i = 0; i < n; i++) {
        uint64_t who = ready[i].data.u64;
        if (who == LOOP)
            loop_due = 1;
        else if ((who & 1) != 0)
            rdzv__listener_accept((struct rdzv_job *)(uintptr_t)(who - 1));
        else
            rdzv__conn_serve(ready[i].data.ptr, ready[i].events);
    }
    rdzv__conn_free_gone(s);
    rdzv__job_publish(s->at_work);
    return loop_due;
}

/* The set hands out its sockets in turns, so this serves each of them once: not until nothing is
 * left, for some may write all the time. */
void rdzv__events_look(struct rdzv_server *s)
{
    for (uint64_t left = s->conn_count / EVENTS + 1; left > 0; left--)
        serve(s, 0);
}

static void on_events(uv_poll_t *poll, int status, int events)
{
    (void)status; /* an epoll descriptor has no errors */
    (void)events;
    serve(poll->data, 0);
}

void rdzv__events_run(struct rdzv_server *s)
{
    int timeout_ms = 0;
    while (!s->closing) {
        if (serve(s, timeout_ms) || timeout_ms == 0)
            uv_run(s->loop, UV_RUN_NOWAIT);
        timeout_ms = uv_backend_timeout(s->loop);
    }
    uv_run(s->loop, UV_RUN_DEFAULT); /* until every handle is closed */
}

/* Puts the set into the borrowed loop, or the own loop into the set. */
static int connect_loop(struct rdzv_server *s)
{
    if (!s->borrowed) {
        struct epoll_event e = {.events = EPOLLIN, .data.u64 = LOOP};
        return epoll_ctl(s->epoll, EPOLL_CTL_ADD, uv_backend_fd(s->loop), &e) != 0 ? -errno : 0;
    }
    int result = uv_poll_init(s->loop, &s->poll, s->epoll);
    if (result != 0)
        return result;
    s->poll.data = s;
    s->handles++;
    return uv_poll_start(&s->poll, UV_READABLE, on_events);
}

int rdzv__events_start(struct rdzv_server *s)
{
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll < 0)
        return -errno;
    int result = rdzv__job_start(&s->unnamed);
    if (result == 0)
        result = connect_loop(s);
    if (result != 0)
        close(s->epoll);
    return result;
}

void rdzv__events_close(struct rdzv_server *s)
{
    if (s->borrowed)
        uv_close((uv_handle_t *)&s->poll, rdzv__loop_handle_closed);
    close(s->epoll);
}
