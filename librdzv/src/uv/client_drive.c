/*
 * client_drive.c: who does the client's work: its own thread, the caller inside wait and dispatch,
 * or the caller's loop. Invariant: c->handles counts what libuv holds of ours; a call belongs to
 * the side of the core from post until it is handed over, and to the caller's side before and
 * after.
 */
#include "error.h"
#include "uv/client.h"
#include "thread.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ---- the timer ---- */

static void on_timer(uv_timer_t *timer)
{
    struct rdzv_client *c = timer->data;
    c->armed_ms = UINT64_MAX;
    if (c->closing)
        return;
    rdzv__client_on_time(c);
    rdzv__client_settle(c);
}

/* UINT64_MAX = off */
static void set_timer_fd(const struct rdzv_client *c, uint64_t delay_ms)
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

static void set_timer(struct rdzv_client *c, uint64_t delay_ms)
{
    if (c->drive == RDZV_DRIVE_CALLER)
        set_timer_fd(c, delay_ms);
    else if (delay_ms == UINT64_MAX)
        uv_timer_stop(&c->timer);
    else
        uv_timer_start(&c->timer, on_timer, delay_ms, 0);
}

/* Makes sure that on_time comes in time. Earlier does no harm, so a timer that is set stays; but
 * one that nothing needs would keep a borrowed loop awake. */
void rdzv__client_arm(struct rdzv_client *c)
{
    if (c->closing || (c->drive == RDZV_DRIVE_CALLER && c->timer_fd < 0))
        return;
    uint64_t now = clock_ms();
    uint64_t next = queue_empty(&c->core.done) ? rdzv__client_next_ms(c) : now;
    int never = next == UINT64_MAX;
    if (never ? c->armed_ms == UINT64_MAX : next >= c->armed_ms)
        return;
    c->armed_ms = next;
    set_timer(c, never ? UINT64_MAX : next > now ? next - now : 0);
}

/* ---- calls between the two sides ---- */

static void deliver_call(struct letter *letter)
{
    rdzv__client_deliver(CONTAINER_OF(letter, struct rdzv__client_call, letter));
}

int rdzv__client_hand_over(struct rdzv_client *c)
{
    struct queue batch; /* callbacks may make more */
    int count = 0;
    queue_init(&batch);
    while (!queue_empty(&c->core.done)) {
        struct queue *link = c->core.done.next;
        queue_remove(link);
        queue_push(&batch, link);
    }
    while (!queue_empty(&batch)) {
        struct rdzv__call *core_call = CONTAINER_OF(batch.next, struct rdzv__call, link);
        struct rdzv__client_call *call = CONTAINER_OF(core_call, struct rdzv__client_call, call);
        queue_remove(&core_call->link);
        if (c->drive == RDZV_DRIVE_THREAD) {
            call->letter.deliver = deliver_call;
            mailbox_post(&c->out.mailbox, &call->letter);
        } else {
            rdzv__client_deliver(call);
            count++;
        }
    }
    return count;
}

/* Work for whoever drives. */
static void kick(struct rdzv_client *c)
{
    c->armed_ms = 0;
    if (c->drive == RDZV_DRIVE_LOOP || c->timer_fd >= 0)
        set_timer(c, 0);
}

void rdzv__client_post(struct rdzv_client *c, struct rdzv__client_call *call)
{
    if (c->drive == RDZV_DRIVE_THREAD) {
        pthread_mutex_lock(&c->inbox_lock);
        queue_push(&c->inbox, &call->call.link);
        pthread_mutex_unlock(&c->inbox_lock);
        uv_async_send(&c->async);
        return;
    }
    rdzv__client_core_submit(&c->core, &call->call, clock_ms());
    kick(c);
}

void rdzv__client_post_cancel(struct rdzv_client *c, struct rdzv__client_call *call)
{
    if (c->drive == RDZV_DRIVE_THREAD) {
        pthread_mutex_lock(&c->inbox_lock);
        if (queue_empty(&call->cancel_link))
            queue_push(&c->cancels, &call->cancel_link);
        pthread_mutex_unlock(&c->inbox_lock);
        uv_async_send(&c->async);
        return;
    }
    call->call.canceled = 1;
    rdzv__client_core_cancel_marked(&c->core, clock_ms());
    kick(c);
}

void rdzv__client_forget(struct rdzv_client *c, struct rdzv__client_call *call)
{
    if (c->drive == RDZV_DRIVE_THREAD) {
        pthread_mutex_lock(&c->inbox_lock);
        queue_remove(&call->cancel_link);
        pthread_mutex_unlock(&c->inbox_lock);
    }
}

/* ---- the caller drives ---- */

static int open_poll_set(struct rdzv_client *c)
{
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN};
    int failed = c->epoll_fd < 0 || c->timer_fd < 0 ||
                 epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->timer_fd, &event) != 0;
    if (!failed && c->loop != NULL)
        failed = epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, uv_backend_fd(c->loop), &event) != 0;
    event.events = ((c->events & UV_READABLE) != 0 ? EPOLLIN : 0u) |
                   ((c->events & UV_WRITABLE) != 0 ? EPOLLOUT : 0u);
    if (!failed && c->fd >= 0)
        failed = epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->fd, &event) != 0;
    if (!failed) {
        kick(c); /* whatever was submitted before */
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

int rdzv_client_fd(rdzv_client *c)
{
    int code = rdzv__client_check(c);
    if (code != RDZV_OK)
        return code;
    if (c->drive == RDZV_DRIVE_LOOP)
        return RDZV_ENOTSUP;
    if (c->drive == RDZV_DRIVE_THREAD)
        return c->out.mailbox.fd;
    if (c->epoll_fd < 0)
        code = open_poll_set(c);
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
    struct pollfd p = {.fd = c->fd,
                       .events = (short)(((c->events & UV_READABLE) != 0 ? POLLIN : 0) |
                                         ((c->events & UV_WRITABLE) != 0 ? POLLOUT : 0))};
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
    uint64_t end = timeout_ms < 0 ? UINT64_MAX : clock_in_ms(timeout_ms);
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

static int wait_driven(struct rdzv_client *c, int timeout_ms)
{
    int count = drive_until_one_ran(c, timeout_ms);
    rdzv__client_arm(c); /* for the time until the caller comes back */
    return count;
}

static int wait_thread(struct rdzv_client *c, int timeout_ms)
{
    uint64_t now = clock_ms();
    uint64_t end = timeout_ms < 0 ? UINT64_MAX : clock_in_ms(timeout_ms);
    for (;;) {
        struct pollfd p = {.fd = c->out.mailbox.fd, .events = POLLIN};
        if (poll(&p, 1, clock_poll_ms(now, end)) < 0)
            return errno == EINTR ? 0 : RDZV_EIO;
        c->in_callback++;
        int count = mailbox_deliver(&c->out.mailbox);
        c->in_callback--;
        now = clock_ms();
        if (count > 0 || now >= end)
            return count;
    }
}

int rdzv_client_wait(rdzv_client *c, int timeout_ms)
{
    int code = rdzv__client_check(c);
    if (code != RDZV_OK)
        return code;
    if (c->drive == RDZV_DRIVE_LOOP)
        return RDZV_ENOTSUP;
    if (c->in_callback)
        return RDZV_EBUSY;
    return c->drive == RDZV_DRIVE_THREAD ? wait_thread(c, timeout_ms) : wait_driven(c, timeout_ms);
}

int rdzv_client_dispatch(rdzv_client *c)
{
    if (rdzv__client_check(c) == RDZV_OK && c->timer_fd >= 0 && !c->in_callback) {
        uint64_t fired;
        if (read(c->timer_fd, &fired, sizeof fired) > 0)
            c->armed_ms = UINT64_MAX;
    }
    return rdzv_client_wait(c, 0);
}

/* ---- the own thread ---- */

static void stop_work(struct rdzv_client *c)
{
    rdzv__client_core_fail(&c->core, RDZV_ECANCELED, 0, "the client of %s was closed", c->peer);
    c->closing = 1;
    rdzv__client_down(c);
    if (c->looking_up)
        uv_cancel((uv_req_t *)&c->lookup_request);
    if (c->drive == RDZV_DRIVE_CALLER)
        return;
    uv_close((uv_handle_t *)&c->timer, rdzv__client_handle_closed);
    if (c->drive == RDZV_DRIVE_THREAD)
        uv_close((uv_handle_t *)&c->async, rdzv__client_handle_closed);
}

static void on_inbox(uv_async_t *async)
{
    struct rdzv_client *c = async->data;
    if (c->closing)
        return;
    uint64_t now = clock_ms();
    pthread_mutex_lock(&c->inbox_lock);
    while (!queue_empty(&c->inbox)) {
        struct rdzv__call *call = CONTAINER_OF(c->inbox.next, struct rdzv__call, link);
        queue_remove(&call->link);
        rdzv__client_core_submit(&c->core, call, now);
    }
    int cancel = !queue_empty(&c->cancels);
    while (!queue_empty(&c->cancels)) {
        struct rdzv__client_call *call =
            CONTAINER_OF(c->cancels.next, struct rdzv__client_call, cancel_link);
        queue_remove(&call->cancel_link);
        call->call.canceled = 1;
    }
    int close_command = c->close_command;
    pthread_mutex_unlock(&c->inbox_lock);
    if (cancel)
        rdzv__client_core_cancel_marked(&c->core, now);
    if (close_command) {
        stop_work(c);
        rdzv__client_hand_over(c);
    } else {
        rdzv__client_settle(c);
    }
}

static void *run_loop(void *arg)
{
    struct rdzv_client *c = arg;
    pthread_setname_np(pthread_self(), "rdzv-client");
    uv_run(&c->own_loop, UV_RUN_DEFAULT);
    return NULL;
}

int rdzv__client_need_loop(struct rdzv_client *c)
{
    if (c->loop != NULL)
        return 0;
    int result = uv_loop_init(&c->own_loop);
    if (result != 0)
        return result;
    c->loop = &c->own_loop;
    struct epoll_event event = {.events = EPOLLIN};
    if (c->epoll_fd >= 0 &&
        epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, uv_backend_fd(c->loop), &event) != 0)
        return -errno;
    return 0;
}

static int start_thread(struct rdzv_client *c, rdzv_error *err)
{
    int result = uv_loop_init(&c->own_loop);
    if (result != 0)
        return rdzv__fail(err, RDZV_EIO, -result, "event loop: %s", uv_strerror(result));
    c->loop = &c->own_loop;
    result = uv_async_init(c->loop, &c->async, on_inbox);
    if (result != 0) {
        uv_loop_close(c->loop);
        return rdzv__fail(err, RDZV_EIO, -result, "event loop: %s", uv_strerror(result));
    }
    c->async.data = c;
    uv_timer_init(c->loop, &c->timer);
    c->handles = 2;
    c->timer.data = c;
    rdzv__client_connect(c);
    rdzv__client_arm(c);
    int error = thread_start(&c->thread, run_loop, c);
    if (error == 0)
        return RDZV_OK;
    stop_work(c);
    uv_run(c->loop, UV_RUN_DEFAULT);
    uv_loop_close(c->loop);
    return rdzv__fail(err, RDZV_EIO, error, "starting the client's thread: %s", strerror(error));
}

int rdzv__client_start(struct rdzv_client *c, rdzv_error *err)
{
    if (c->drive == RDZV_DRIVE_THREAD) {
        const rdzv_allocator *a = &c->allocator;
        struct outbox_hooks hooks = {a->alloc, a->free, a->ctx, c->log, c->log_ctx};
        int error = outbox_init(&c->out, &hooks);
        if (error != 0)
            return rdzv__fail(err, RDZV_EIO, error, "eventfd for the client: %s", strerror(error));
        pthread_mutex_init(&c->inbox_lock, NULL);
        int code = start_thread(c, err);
        if (code != RDZV_OK) {
            outbox_free(&c->out);
            pthread_mutex_destroy(&c->inbox_lock);
        }
        return code;
    }
    if (c->drive == RDZV_DRIVE_LOOP) {
        uv_timer_init(c->loop, &c->timer);
        c->handles = 1;
        c->timer.data = c;
    }
    rdzv__client_connect(c);
    rdzv__client_arm(c);
    return RDZV_OK;
}

/* ---- the end ---- */

void rdzv__client_handle_gone(struct rdzv_client *c)
{
    c->handles--;
    if (c->handles == 0 && c->closing && c->drive == RDZV_DRIVE_LOOP)
        rdzv__client_finish(c);
}

void rdzv__client_handle_closed(uv_handle_t *handle)
{
    rdzv__client_handle_gone(handle->data);
}

void rdzv__client_stop(struct rdzv_client *c)
{
    if (c->drive == RDZV_DRIVE_LOOP) {
        stop_work(c);
        return;
    }
    if (c->drive == RDZV_DRIVE_THREAD) {
        pthread_mutex_lock(&c->inbox_lock);
        c->close_command = 1;
        pthread_mutex_unlock(&c->inbox_lock);
        uv_async_send(&c->async);
        pthread_join(c->thread, NULL);
        uv_loop_close(c->loop);
    } else {
        stop_work(c);
        if (c->loop != NULL) {
            uv_run(c->loop, UV_RUN_DEFAULT);
            uv_loop_close(c->loop);
        }
        if (c->epoll_fd >= 0) {
            close(c->epoll_fd);
            close(c->timer_fd);
        }
    }
    rdzv__client_finish(c);
}
