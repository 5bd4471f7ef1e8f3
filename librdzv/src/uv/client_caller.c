/*
 * client_caller.c: the caller does the client's work, inside wait and dispatch. Invariant: while
 * the poll set is open, it holds the socket, the timer, and libuv's descriptor if there is a loop,
 * which is only for look-ups of names.
 */
#include "uv/client.h"
#include "uv/own_loop.h"
#include "uv/socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

void rdzv__client_caller_set_timer(const struct rdzv_client *c, uint64_t delay_ms)
{
    struct itimerspec when = {0};
    if (delay_ms == 0) {
        when.it_value.tv_nsec = 1;
    } else if (delay_ms != UINT64_MAX) {
        when.it_value.tv_sec = (time_t)(delay_ms / 1000);
        when.it_value.tv_nsec = (long)(delay_ms % 1000) * 1000000;
    }
    timerfd_settime(c->timer_fd, 0, &when, NULL);
}

int rdzv__client_need_loop(struct rdzv_client *c)
{
    if (c->loop != NULL)
        return 0;
    int result = rdzv__loop_init(&c->own_loop);
    if (result != 0)
        return result;
    c->loop = &c->own_loop;
    struct epoll_event event = {.events = EPOLLIN};
    if (c->epoll_fd >= 0 &&
        epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, uv_backend_fd(c->loop), &event) != 0)
        return -errno;
    return 0;
}

static int open_poll_set(struct rdzv_client *c)
{
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN};
    int failed = c->epoll_fd < 0 || c->timer_fd < 0 ||
                 epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->timer_fd, &event) != 0;
    if (!failed && c->loop != NULL)
        failed = epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, uv_backend_fd(c->loop), &event) != 0;
    event.events = (uint32_t)rdzv__poll_bits(c->events);
    if (!failed && c->fd >= 0)
        failed = epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->fd, &event) != 0;
    if (!failed) {
        rdzv__client_kick(c); /* whatever was submitted before */
        return RDZV_OK;
    }
    if (c->epoll_fd >= 0)
        close(c->epoll_fd);
    if (c->timer_fd >= 0)
        close(c->timer_fd);
    c->epoll_fd = -1;
    c->timer_fd = -1;
    return RDZV_EIO;
}

int rdzv__client_caller_fd(struct rdzv_client *c)
{
    int code = c->epoll_fd < 0 ? open_poll_set(c) : RDZV_OK;
    return code != RDZV_OK ? code : c->epoll_fd;
}

static void do_what_is_due(struct rdzv_client *c)
{
    if (rdzv__client_next_ms(c) <= clock_ms())
        rdzv__client_on_time(c);
    rdzv__client_settle(c);
}

/* Waits at most timeout_ms (-1 = no limit) for the kernel, and does what it brought. Returns -1
 * after a signal. */
static int turn(struct rdzv_client *c, int timeout_ms)
{
    if (c->blocking && c->phase == RDZV__PHASE_UP && c->events == UV_READABLE &&
        (timeout_ms < 0 || timeout_ms >= RDZV__RECEIVE_MS)) {
        int result = rdzv__client_receive_waiting(c);
        do_what_is_due(c);
        return result;
    }
    struct pollfd p = {.fd = c->fd, .events = rdzv__poll_bits(c->events)};
    if (c->looking_up) {
        uv_run(c->loop, UV_RUN_NOWAIT); /* also lets libuv set its own descriptor up */
        p = (struct pollfd){.fd = c->looking_up ? uv_backend_fd(c->loop) : -1, .events = POLLIN};
        if (!c->looking_up)
            timeout_ms = 0;
    }
    int ready = poll(&p, 1, timeout_ms);
    if (ready < 0)
        return -1;
    if (c->looking_up)
        uv_run(c->loop, UV_RUN_NOWAIT);
    else if (ready > 0 && p.fd >= 0 && p.fd == c->fd)
        rdzv__client_ready(c, ((p.revents & (POLLIN | POLLHUP | POLLERR)) != 0 ? UV_READABLE : 0) |
                                  ((p.revents & POLLOUT) != 0 ? UV_WRITABLE : 0));
    do_what_is_due(c);
    return 0;
}

static int drive_until_one_ran(struct rdzv_client *c, int timeout_ms)
{
    uint64_t now = clock_ms();
    uint64_t end = clock_end_ms(timeout_ms);
    rdzv__client_settle(c);
    for (;;) {
        int count = rdzv__client_hand_over(c);
        if (count > 0)
            return count;
        uint64_t next = rdzv__client_next_ms(c);
        if (turn(c, clock_poll_ms(now, next < end ? next : end)) < 0)
            return 0;
        count = rdzv__client_hand_over(c);
        now = clock_ms();
        if (count > 0 || now >= end)
            return count;
    }
}

int rdzv__client_caller_wait(struct rdzv_client *c, int timeout_ms)
{
    int count = drive_until_one_ran(c, timeout_ms);
    rdzv__client_arm(c); /* for the time until the caller comes back */
    return count;
}

void rdzv__client_caller_woken(struct rdzv_client *c)
{
    uint64_t fired;
    if (c->timer_fd >= 0 && read(c->timer_fd, &fired, sizeof fired) > 0)
        c->armed_ms = UINT64_MAX;
}

void rdzv__client_caller_stop(struct rdzv_client *c)
{
    rdzv__client_stop_work(c);
    if (c->loop != NULL) {
        uv_run(c->loop, UV_RUN_DEFAULT);
        uv_loop_close(c->loop);
    }
    if (c->epoll_fd >= 0) {
        close(c->epoll_fd);
        close(c->timer_fd);
    }
}
