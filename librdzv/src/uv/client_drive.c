/*
 * client_drive.c: what the three ways to drive have in common: the timer, the calls' way between
 * the two sides, start and end. A borrowed loop needs no more than this; client_caller.c and
 * client_thread.c are the other two. Invariant: c->handles counts what libuv holds of ours; a call
 * belongs to the side of the core from post until it is handed over, and to the caller's side
 * before and after.
 */
#include "uv/client.h"

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

static void set_timer(struct rdzv_client *c, uint64_t delay_ms)
{
    if (c->drive == RDZV_DRIVE_CALLER)
        rdzv__client_caller_set_timer(c, delay_ms);
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

void rdzv__client_kick(struct rdzv_client *c)
{
    c->armed_ms = 0;
    if (c->drive == RDZV_DRIVE_LOOP || c->timer_fd >= 0)
        set_timer(c, 0);
}

void rdzv__client_post(struct rdzv_client *c, struct rdzv__client_call *call)
{
    if (c->drive == RDZV_DRIVE_THREAD) {
        rdzv__client_thread_post(c, call);
        return;
    }
    rdzv__client_core_submit(&c->core, &call->call, clock_ms());
    rdzv__client_kick(c);
}

void rdzv__client_post_cancel(struct rdzv_client *c, struct rdzv__client_call *call)
{
    if (c->drive == RDZV_DRIVE_THREAD) {
        rdzv__client_thread_post_cancel(c, call);
        return;
    }
    call->call.canceled = 1;
    rdzv__client_core_cancel_marked(&c->core, clock_ms());
    rdzv__client_kick(c);
}

void rdzv__client_forget(struct rdzv_client *c, struct rdzv__client_call *call)
{
    if (c->drive == RDZV_DRIVE_THREAD)
        rdzv__client_thread_forget(c, call);
}

/* ---- the caller comes ---- */

int rdzv_client_fd(rdzv_client *c)
{
    int code = rdzv__client_check(c);
    if (code != RDZV_OK)
        return code;
    if (c->drive == RDZV_DRIVE_LOOP)
        return RDZV_ENOTSUP;
    return c->drive == RDZV_DRIVE_THREAD ? c->out.mailbox.fd : rdzv__client_caller_fd(c);
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
    return c->drive == RDZV_DRIVE_THREAD ? rdzv__client_thread_wait(c, timeout_ms)
                                         : rdzv__client_caller_wait(c, timeout_ms);
}

int rdzv_client_dispatch(rdzv_client *c)
{
    if (rdzv__client_check(c) == RDZV_OK && !c->in_callback)
        rdzv__client_caller_woken(c);
    return rdzv_client_wait(c, 0);
}

/* ---- start and end ---- */

int rdzv__client_start(struct rdzv_client *c, rdzv_error *err)
{
    if (c->drive == RDZV_DRIVE_THREAD)
        return rdzv__client_thread_start(c, err);
    if (c->drive == RDZV_DRIVE_LOOP) {
        uv_timer_init(c->loop, &c->timer);
        c->handles = 1;
        c->timer.data = c;
    }
    rdzv__client_connect(c);
    rdzv__client_arm(c);
    return RDZV_OK;
}

void rdzv__client_stop_work(struct rdzv_client *c)
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
        rdzv__client_stop_work(c); /* handle_gone does the rest */
        return;
    }
    if (c->drive == RDZV_DRIVE_THREAD)
        rdzv__client_thread_stop(c);
    else
        rdzv__client_caller_stop(c);
    rdzv__client_finish(c);
}
