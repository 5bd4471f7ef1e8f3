/*
 * client_c10d.c: what is asked when. Owns the lists of calls, the output and the answers that are
 * owed (slots). Invariant: while a WAIT or BARRIER is the last request sent, core->parked is its
 * call, and nothing is put behind it but a CANCEL_WAIT: any other request would make the server
 * drop the wait or answer it at the wrong place. Knows no socket and no clock.
 */
#include "core/client_c10d.h"

#include "error.h"

#include <stdarg.h>
#include <string.h>

enum {
    KEEP_OUT = 65536, /* an output buffer that grew beyond this is given back */
    POLL_FIRST_MS = 2,
    POLL_MOST_MS = 50,
    BACKOFF_FIRST_MS = 100,
    BACKOFF_MOST_MS = 5000
};

void rdzv__client_core_init(struct rdzv__client_core *core)
{
    struct rdzv__client_config config = core->config;
    memset(core, 0, sizeof *core);
    core->config = config;
    core->wait_first = (uint8_t)(config.wait_first || config.legacy);
    core->earliest_ms = UINT64_MAX;
    queue_init(&core->ready);
    queue_init(&core->waiting);
    queue_init(&core->sending);
    queue_init(&core->flight);
    queue_init(&core->done);
}

void rdzv__client_core_free(struct rdzv__client_core *core)
{
    rdzv__free(core->config.allocator, core->out);
    rdzv__free(core->config.allocator, core->slots);
}

static struct rdzv__call *first(struct queue *list)
{
    return CONTAINER_OF(list->next, struct rdzv__call, link);
}

static void move(struct rdzv__call *call, struct queue *list, uint8_t state)
{
    queue_remove(&call->link);
    queue_push(list, &call->link);
    call->state = state;
}

/* In front of the others. */
static void move_first(struct rdzv__call *call, struct queue *list, uint8_t state)
{
    queue_remove(&call->link);
    queue_push(list->next, &call->link); /* before the one that is first now */
    call->state = state;
}

static void set_deadline(struct rdzv__client_core *core, struct rdzv__call *call,
                         uint64_t deadline_ms)
{
    call->deadline_ms = deadline_ms;
    if (deadline_ms < core->earliest_ms)
        core->earliest_ms = deadline_ms;
}

static const char unconnected[] = "its deadline passed before there was a connection to ";

static void finish(struct rdzv__client_core *core, struct rdzv__call *call, int code,
                   const char *why)
{
    move(call, &core->done, RDZV__CALL_DONE);
    call->result.code = RDZV_OK;
    if (code == RDZV_OK)
        return;
    rdzv__call_clear(call, core->config.allocator);
    const char *quote = call->name[0] != '\0' ? "\"" : "";
    const char *trouble = why == unconnected ? core->config.trouble : "";
    rdzv__fail(&call->result, code, 0, "%s%s%s%s%s: %s%s%s%s", rdzv__op_name(call->op),
               quote[0] != '\0' ? " " : "", quote, call->name, quote, why,
               why == unconnected ? core->config.peer : "", trouble[0] != '\0' ? "; last: " : "",
               trouble);
}

/* Sends a CANCEL_WAIT after what is parked. */
static void call_off(struct rdzv__client_core *core)
{
    struct rdzv__call *call = core->parked;
    rdzv__client_put_byte(core, RDZV__OP_CANCEL_WAIT);
    core->owed_since_ms = core->now_ms;
    rdzv__client_slot(core, call->slot)->called_off = 1;
    rdzv__client_push_slot(core, RDZV__SLOT_CANCEL, NULL);
    call->state = RDZV__CALL_UNPARKING;
    core->parked = NULL;
}

/* ---- what to send ---- */

static uint8_t slot_kind(uint8_t op, int legacy)
{
    switch (op) {
    case RDZV__OP_GET:
    case RDZV__OP_MULTI_GET:
    case RDZV__OP_COMPARE_SET:
        return RDZV__SLOT_VALUES;
    case RDZV__OP_CHECK:
        return RDZV__SLOT_CHECK;
    case RDZV__OP_PING:
        return legacy ? RDZV__SLOT_NUMBER : RDZV__SLOT_ECHO;
    case RDZV__OP_QUEUE_POP:
        return RDZV__SLOT_POP;
    case RDZV__OP_LIST_KEYS:
        return RDZV__SLOT_LIST;
    case RDZV__OP_BARRIER:
        return RDZV__SLOT_PARK;
    default:
        return RDZV__SLOT_NUMBER;
    }
}

static int has_no_answer(uint8_t op)
{
    return op == RDZV__OP_SET || op == RDZV__OP_APPEND || op == RDZV__OP_MULTI_SET ||
           op == RDZV__OP_QUEUE_PUSH;
}

static void send_request(struct rdzv__client_core *core, struct rdzv__call *call)
{
    size_t len = call->check ? 1 + call->keys_len : call->ask_len;
    if (!rdzv__client_reserve(core, len)) {
        finish(core, call, RDZV_ENOMEM, "out of memory for its request");
        return;
    }
    if (call->check) {
        rdzv__client_put_byte(core, core->config.legacy ? RDZV__LEGACY_CHECK : RDZV__OP_CHECK);
        rdzv__client_put(core, call->bytes + call->ask_len, call->keys_len);
        rdzv__client_push_slot(core, RDZV__SLOT_CHECK, call);
        move(call, &core->flight, RDZV__CALL_ASKED);
        return;
    }
    rdzv__client_put(core, call->bytes, len);
    if (has_no_answer(call->op)) {
        call->out_end = core->out_end;
        move(call, &core->sending, RDZV__CALL_SENDING);
        return;
    }
    rdzv__client_push_slot(core, slot_kind(call->op, core->config.legacy), call);
    move(call, &core->flight, RDZV__CALL_ASKED);
    if (call->op == RDZV__OP_BARRIER) {
        call->state = RDZV__CALL_PARKED;
        core->parked = call;
    }
}

static void park(struct rdzv__client_core *core, struct rdzv__call *call)
{
    if (!rdzv__client_reserve(core, 1 + call->keys_len)) {
        finish(core, call, RDZV_ENOMEM, "out of memory for its request");
        return;
    }
    rdzv__client_put_byte(core, RDZV__OP_WAIT);
    rdzv__client_put(core, call->bytes + call->ask_len, call->keys_len);
    rdzv__client_push_slot(core, RDZV__SLOT_PARK, call);
    move(call, &core->flight, RDZV__CALL_PARKED);
    core->parked = call;
}

/* Only one WAIT can be at the server; the other calls that lack a key look for it now and then. */
static void poll_waiting(struct rdzv__client_core *core)
{
    struct queue *next;
    for (struct queue *at = core->waiting.next; at != &core->waiting; at = next) {
        next = at->next;
        struct rdzv__call *call = CONTAINER_OF(at, struct rdzv__call, link);
        if (call->poll_ms > core->now_ms)
            continue;
        call->check = 1;
        move(call, &core->ready, RDZV__CALL_READY);
    }
}

static int in_barrier(const struct rdzv__client_core *core)
{
    return core->parked != NULL && core->parked->op == RDZV__OP_BARRIER;
}

void rdzv__client_core_pump(struct rdzv__client_core *core, uint64_t now_ms)
{
    core->now_ms = now_ms;
    if (core->state != RDZV__CLIENT_UP || in_barrier(core))
        return;
    if (!queue_empty(&core->waiting) &&
        (core->config.legacy || core->waiting.next != core->waiting.prev || core->parked != NULL))
        poll_waiting(core);
    while (!queue_empty(&core->ready) && !in_barrier(core)) {
        if (core->parked != NULL)
            call_off(core);
        send_request(core, first(&core->ready));
    }
    if (core->parked == NULL && !queue_empty(&core->waiting) && !core->config.legacy)
        park(core, first(&core->waiting));
}

/* ---- what an answer means ---- */

/* It lacks a key. */
static void lacks_key(struct rdzv__client_core *core, struct rdzv__call *call, int again)
{
    rdzv__call_clear(call, core->config.allocator);
    if (call->stop != 0) {
        finish(core, call, call->stop,
               call->stop == RDZV_ECANCELED ? "cancelled" : "not there before its deadline");
        return;
    }
    uint32_t interval = again ? 2 * call->poll_interval_ms : 0;
    if (interval < POLL_FIRST_MS)
        interval = POLL_FIRST_MS;
    call->poll_interval_ms = interval < POLL_MOST_MS ? interval : POLL_MOST_MS;
    call->poll_ms = core->now_ms + (again ? call->poll_interval_ms : 0);
    move(call, &core->waiting, RDZV__CALL_WAITING);
}

/* Its keys are there. */
static void has_keys(struct rdzv__client_core *core, struct rdzv__call *call)
{
    if (call->op == RDZV__OP_WAIT || call->op == RDZV__OP_BARRIER) {
        finish(core, call, RDZV_OK, NULL);
        return;
    }
    call->check = 0;
    call->present = 1;
    move_first(call, &core->ready, RDZV__CALL_READY);
}

void rdzv__client_checked(struct rdzv__client_core *core, struct rdzv__call *call, int there)
{
    if (call->op == RDZV__OP_CHECK) {
        call->number = there;
        finish(core, call, RDZV_OK, NULL);
    } else if (there) {
        has_keys(core, call);
    } else if (call->no_wait && call->stop == 0) {
        finish(core, call, RDZV_ENOENT, "not there");
    } else {
        lacks_key(core, call, 1);
    }
}

void rdzv__client_parked(struct rdzv__client_core *core, int canceled)
{
    struct rdzv__call *call = rdzv__client_pop_slot(core);
    if (canceled)
        rdzv__client_pop_slot(core); /* this byte was that of CANCEL_WAIT */
    if (call == NULL)
        return;
    if (call == core->parked)
        core->parked = NULL;
    if (!canceled) {
        has_keys(core, call);
    } else if (call->stop != 0) {
        finish(core, call, call->stop,
               call->stop == RDZV_ECANCELED ? "cancelled" : "not there before its deadline");
    } else { /* it had made room for another request */
        call->poll_ms = core->now_ms + call->poll_interval_ms;
        move_first(call, &core->waiting, RDZV__CALL_WAITING);
    }
}

static int any_empty(const struct rdzv__call *call)
{
    for (size_t i = 0; i < call->count; i++)
        if (call->values[i].len_bytes == 0)
            return 1;
    return 0;
}

void rdzv__client_answered(struct rdzv__client_core *core, struct rdzv__call *call)
{
    if (call->reply_lost || !rdzv__call_decode(call, &core->config)) {
        finish(core, call, RDZV_ENOMEM, "out of memory for the answer");
        return;
    }
    /* The server answers a key that is not there with an empty value. */
    int is_get = call->op == RDZV__OP_GET || call->op == RDZV__OP_MULTI_GET;
    int lacks = (is_get && !call->present && any_empty(call)) ||
                (call->op == RDZV__OP_QUEUE_POP && call->number == 0);
    if (!lacks) {
        finish(core, call, RDZV_OK, NULL);
    } else if (!call->no_wait || call->stop != 0) {
        lacks_key(core, call, 0);
    } else if (is_get) {
        rdzv__call_clear(call, core->config.allocator);
        call->check = 1; /* absent, or empty? */
        move_first(call, &core->ready, RDZV__CALL_READY);
    } else {
        finish(core, call, RDZV_ENOENT, "the queue is empty");
    }
}

/* ---- calls in ---- */

void rdzv__client_core_submit(struct rdzv__client_core *core, struct rdzv__call *call,
                              uint64_t now_ms)
{
    core->now_ms = now_ms;
    if (core->state == RDZV__CLIENT_FAILED) {
        move(call, &core->done, RDZV__CALL_DONE);
        call->result = core->failure;
        return;
    }
    set_deadline(core, call, call->deadline_ms);
    int only_keys = call->op == RDZV__OP_WAIT;
    int keys_first =
        core->wait_first && (call->op == RDZV__OP_GET || call->op == RDZV__OP_MULTI_GET);
    if (!only_keys && call->ask_len == 0) { /* dialect A, of no keys: nothing to ask */
        finish(core, call, RDZV_OK, NULL);
        return;
    }
    if (call->op == RDZV__OP_MULTI_GET && call->items == 0) {
        finish(core, call, RDZV_OK, NULL);
        return;
    }
    move(call, &core->ready, RDZV__CALL_READY);
    if (!only_keys && !keys_first)
        return;
    call->check = 1;
    /* A call without limit of its own goes straight to its WAIT, where there is one. */
    if (!call->no_wait && !core->config.legacy && queue_empty(&core->waiting) &&
        core->parked == NULL)
        lacks_key(core, call, 0);
}

/* Nobody is interested in its answer any more. */
static void orphan(struct rdzv__client_core *core, struct rdzv__call *call)
{
    if (call->state == RDZV__CALL_ASKED || call->state == RDZV__CALL_UNPARKING)
        rdzv__client_slot(core, call->slot)->call = NULL;
}

static const char *stop_text(const struct rdzv__client_core *core, const struct rdzv__call *call,
                             int code)
{
    if (code == RDZV_ECANCELED)
        return "cancelled";
    if (core->state != RDZV__CLIENT_UP)
        return unconnected;
    if (call->state == RDZV__CALL_READY || call->state == RDZV__CALL_SENDING)
        return "its deadline passed before it was sent";
    return call->state == RDZV__CALL_WAITING ? "not there before its deadline"
                                             : "not answered before its deadline";
}

static int can_wait(const struct rdzv__call *call)
{
    return call->keys_len > 0 || call->op == RDZV__OP_BARRIER;
}

/* Ends a call with `code`: at once, or once the server has said what became of its wait. */
static void stop(struct rdzv__client_core *core, struct rdzv__call *call, int code)
{
    int again = call->stop != 0;
    const char *text = stop_text(core, call, code);
    call->stop = code;
    if (call == core->parked)
        call_off(core);
    else if (again || !can_wait(call) ||
             (call->state != RDZV__CALL_ASKED && call->state != RDZV__CALL_UNPARKING)) {
        orphan(core, call);
        finish(core, call, code, text);
        return;
    }
    set_deadline(core, call, core->now_ms + RDZV__CLIENT_GRACE_MS);
}

static void expire(struct rdzv__client_core *core, struct queue *list)
{
    struct queue *next;
    for (struct queue *at = list->next; at != list; at = next) {
        next = at->next;
        struct rdzv__call *call = CONTAINER_OF(at, struct rdzv__call, link);
        if (call->deadline_ms > core->now_ms)
            set_deadline(core, call, call->deadline_ms);
        else
            stop(core, call, call->stop != 0 ? call->stop : RDZV_ETIMEDOUT);
    }
}

static void cancel_marked(struct rdzv__client_core *core, struct queue *list)
{
    struct queue *next;
    for (struct queue *at = list->next; at != list; at = next) {
        next = at->next;
        struct rdzv__call *call = CONTAINER_OF(at, struct rdzv__call, link);
        if (call->canceled && call->stop == 0)
            stop(core, call, RDZV_ECANCELED);
    }
}

void rdzv__client_core_cancel_marked(struct rdzv__client_core *core, uint64_t now_ms)
{
    core->now_ms = now_ms;
    cancel_marked(core, &core->ready);
    cancel_marked(core, &core->waiting);
    cancel_marked(core, &core->sending);
    cancel_marked(core, &core->flight);
}

void rdzv__client_core_tick(struct rdzv__client_core *core, uint64_t now_ms)
{
    core->now_ms = now_ms;
    if (core->earliest_ms <= now_ms) {
        core->earliest_ms = UINT64_MAX;
        expire(core, &core->ready);
        expire(core, &core->waiting);
        expire(core, &core->sending);
        expire(core, &core->flight);
    }
    int32_t patience = core->config.reply_timeout_ms;
    if (core->state == RDZV__CLIENT_UP && rdzv__client_is_owed(core) &&
        now_ms - core->owed_since_ms >= (uint64_t)patience) {
        const struct rdzv__call *call = rdzv__client_core_owed(core);
        rdzv__client_core_fail(core, RDZV_ECONN, 0,
                               "%s has been silent for %d ms and owes an answer%s%s",
                               core->config.peer, patience, call != NULL ? " to " : "",
                               call != NULL ? rdzv__op_name(call->op) : "");
    }
}

uint64_t rdzv__client_core_next_ms(const struct rdzv__client_core *core)
{
    uint64_t next = core->earliest_ms;
    if (core->state != RDZV__CLIENT_UP)
        return next;
    if (rdzv__client_is_owed(core) &&
        core->owed_since_ms + (uint64_t)core->config.reply_timeout_ms < next)
        next = core->owed_since_ms + (uint64_t)core->config.reply_timeout_ms;
    if (in_barrier(core))
        return next;
    for (struct queue *at = core->waiting.next; at != &core->waiting; at = at->next) {
        const struct rdzv__call *call = CONTAINER_OF(at, struct rdzv__call, link);
        if (call->poll_ms < next)
            next = call->poll_ms;
    }
    return next;
}

/* ---- bytes ---- */

void rdzv__client_core_sent(struct rdzv__client_core *core, size_t len, uint64_t now_ms)
{
    core->now_ms = now_ms;
    core->owed_since_ms = now_ms;
    core->out_sent += len;
    uint64_t sent = core->out_end - (core->out_len - core->out_sent);
    while (!queue_empty(&core->sending) && first(&core->sending)->out_end <= sent)
        finish(core, first(&core->sending), RDZV_OK, NULL);
    if (core->out_sent < core->out_len)
        return;
    core->out_sent = 0;
    core->out_len = 0;
    if (core->out_cap > KEEP_OUT && core->parked == NULL) {
        rdzv__free(core->config.allocator, core->out);
        core->out = NULL;
        core->out_cap = 0;
    }
}

void rdzv__client_core_feed(struct rdzv__client_core *core, const uint8_t *bytes, size_t len,
                            uint64_t now_ms)
{
    core->now_ms = now_ms;
    core->owed_since_ms = now_ms;
    size_t used = 0;
    while (used < len && (core->state == RDZV__CLIENT_HELLO || core->state == RDZV__CLIENT_UP)) {
        if (core->slots_first == core->slots_end) {
            char got[48];
            rdzv__printable(got, sizeof got, bytes + used, len - used);
            rdzv__client_core_fail(core, RDZV_ENOTSTORE, 0,
                                   "not a c10d store, or out of step: %s sent \"%s\" unasked",
                                   core->config.peer, got);
            return;
        }
        used += rdzv__client_reply_take(core, bytes + used, len - used);
    }
}

/* ---- the connection ---- */

void rdzv__client_core_disconnect(struct rdzv__client_core *core)
{
    core->state = RDZV__CLIENT_OFF;
    core->out_len = 0;
    core->out_sent = 0;
    core->out_end = 0;
    core->slots_first = core->slots_end;
    core->parked = NULL;
    rdzv__client_reply_reset(core);
}

void rdzv__client_up(struct rdzv__client_core *core)
{
    core->state = RDZV__CLIENT_UP;
    if (!core->wait_first)
        return;
    /* What was submitted before it was known to be needed. */
    for (struct queue *at = core->ready.next; at != &core->ready; at = at->next) {
        struct rdzv__call *call = CONTAINER_OF(at, struct rdzv__call, link);
        if (call->op == RDZV__OP_GET || call->op == RDZV__OP_MULTI_GET)
            call->check = !call->present;
    }
}

static void fail_all(struct rdzv__client_core *core, struct queue *list)
{
    while (!queue_empty(list)) {
        struct rdzv__call *call = first(list);
        rdzv__call_clear(call, core->config.allocator);
        move(call, &core->done, RDZV__CALL_DONE);
        call->result = core->failure;
    }
}

void rdzv__client_core_fail(struct rdzv__client_core *core, int code, int sys_errno,
                            const char *format, ...)
{
    if (core->state == RDZV__CLIENT_FAILED)
        return;
    va_list args;
    va_start(args, format);
    rdzv__vfail(&core->failure, code, sys_errno, format, args);
    va_end(args);
    rdzv__client_core_disconnect(core);
    core->state = RDZV__CLIENT_FAILED;
    fail_all(core, &core->flight);
    fail_all(core, &core->sending);
    fail_all(core, &core->ready);
    fail_all(core, &core->waiting);
    core->earliest_ms = UINT64_MAX;
}

uint32_t rdzv__client_backoff_ms(uint32_t attempt, uint32_t random)
{
    uint64_t pause = BACKOFF_FIRST_MS;
    for (uint32_t i = 0; i < attempt && pause < BACKOFF_MOST_MS; i++)
        pause = pause * 8 / 5;
    if (pause > BACKOFF_MOST_MS)
        pause = BACKOFF_MOST_MS;
    return (uint32_t)(pause / 2 + pause * (random & 0xffff) / 0x10000);
}
