/*
 * events.c: the listeners and all connections in one epoll set, which the loop sees as a single
 * descriptor: a connection costs no libuv handle, is registered with one system call, and 20,000 of
 * them burden a borrowed loop no more than one. Invariant: what is in the set points to a conn that
 * is not freed before the end of the turn, or, marked by its lowest bit, to a job, which is never
 * closed within a turn.
 */
#include "uv/server.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = 256 };

static void on_events(uv_poll_t *poll, int status, int events)
{
    struct rdzv_server *s = poll->data;
    struct epoll_event ready[EVENTS];
    (void)status; /* an epoll descriptor has no errors */
    (void)events;
    int n = epoll_wait(s->epoll, ready, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        uint64_t who = ready[i].data.u64;
        if ((who & 1) != 0)
            rdzv__listener_accept((struct rdzv_job *)(uintptr_t)(who - 1));
        else
            rdzv__conn_serve(ready[i].data.ptr, ready[i].events);
    }
    rdzv__conn_free_gone(s);
    rdzv__job_publish(s->at_work);
}

int rdzv__events_start(struct rdzv_server *s)
{
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll < 0)
        return -errno;
    int result = rdzv__job_start(&s->unnamed);
    if (result == 0)
        result = uv_poll_init(s->loop, &s->poll, s->epoll);
    if (result != 0) {
        close(s->epoll);
        return result;
    }
    s->poll.data = s;
    s->handles++;
    return uv_poll_start(&s->poll, UV_READABLE, on_events);
}

void rdzv__events_close(struct rdzv_server *s)
{
    uv_close((uv_handle_t *)&s->poll, rdzv__loop_handle_closed);
    close(s->epoll);
}
