/*
 * client_calls.c: the calls of rdzv_client.h, on the caller's side: each is checked, copied into
 * one block, and posted; when it is back its callback runs. Invariant: an accepted call is in
 * open_calls until its callback runs, and counts against max_pending_bytes for so long.
 */
#include "error.h"
#include "uv/client.h"

struct how {
    int32_t timeout_ms;
    rdzv_reply_fn done;
    void *ctx;
    rdzv_error *err;
};

static int check_submit(const struct rdzv_client *c, const struct rdzv__request *r,
                        const struct how *how)
{
    int code = rdzv__client_check(c);
    if (code == RDZV_EINVAL)
        return rdzv__fail(how->err, code, 0, "%s: the client is NULL", rdzv__op_name(r->op));
    if (code != RDZV_OK)
        return rdzv__fail(how->err, code, 0, "%s: the client is closed, or the parent process's",
                          rdzv__op_name(r->op));
    if (how->timeout_ms < RDZV_DEFAULT_TIMEOUT)
        return rdzv__fail(how->err, RDZV_EINVAL, 0, "%s: timeout_ms is %d", rdzv__op_name(r->op),
                          how->timeout_ms);
    return RDZV_OK;
}

static int64_t submit(struct rdzv_client *c, const struct rdzv__request *r, const struct how *how)
{
    size_t len;
    int code = check_submit(c, r, how);
    if (code == RDZV_OK)
        code = rdzv__call_measure(&c->core.config, r, &len, how->err);
    if (code != RDZV_OK)
        return code;
    if (len > c->options.max_pending_bytes - c->pending_bytes)
        return rdzv__fail(how->err, RDZV_ELIMIT, 0,
                          "%s of %zu bytes: %llu are pending, max_pending_bytes is %llu",
                          rdzv__op_name(r->op), len, (unsigned long long)c->pending_bytes,
                          (unsigned long long)c->options.max_pending_bytes);
    struct rdzv__client_call *call = rdzv__alloc(&c->allocator, sizeof *call + len);
    if (call == NULL)
        return rdzv__fail(how->err, RDZV_ENOMEM, 0, "out of memory for %s", rdzv__op_name(r->op));
    rdzv__call_init(&call->call, (uint8_t *)(call + 1), &c->core.config, r);
    int32_t timeout_ms = how->timeout_ms > 0 ? how->timeout_ms : c->options.timeout_ms;
    call->call.id = ++c->last_id;
    call->call.no_wait = how->timeout_ms == RDZV_NO_WAIT;
    call->call.deadline_ms = clock_in_ms(timeout_ms);
    call->client = c;
    call->done = how->done;
    call->ctx = how->ctx;
    call->len_bytes = len;
    queue_init(&call->cancel_link);
    queue_push(&c->open_calls, &call->open);
    c->pending_bytes += len;
    int64_t id = (int64_t)call->call.id;
    rdzv__client_post(c, call);
    return id;
}

void rdzv__client_deliver(struct rdzv__client_call *call)
{
    struct rdzv_client *c = call->client;
    rdzv__client_forget(c, call);
    queue_remove(&call->open);
    c->pending_bytes -= call->len_bytes;
    if (call->done != NULL) {
        rdzv_reply reply = {call->call.number, call->call.values, call->call.count};
        c->in_callback++;
        call->done(call->ctx, call->call.result.code == RDZV_OK ? &reply : NULL,
                   &call->call.result);
        c->in_callback--;
    }
    rdzv__call_clear(&call->call, &c->allocator);
    rdzv__free(&c->allocator, call);
}

int rdzv_client_cancel(rdzv_client *c, int64_t id)
{
    int code = rdzv__client_check(c);
    if (code != RDZV_OK)
        return code;
    if (id <= 0 || (uint64_t)id > c->last_id)
        return RDZV_EINVAL;
    for (struct queue *at = c->open_calls.next; at != &c->open_calls; at = at->next) {
        struct rdzv__client_call *call = CONTAINER_OF(at, struct rdzv__client_call, open);
        if (call->call.id == (uint64_t)id) {
            rdzv__client_post_cancel(c, call);
            break;
        }
    }
    return RDZV_OK;
}

/* Requests of one key and at most one value. */
static int64_t submit_one(struct rdzv_client *c, uint8_t op, rdzv_bytes key,
                          const rdzv_bytes *values, size_t value_count, int64_t number,
                          const struct how *how)
{
    struct rdzv__request r = {.op = op,
                              .keys = &key,
                              .key_count = 1,
                              .values = values,
                              .value_count = value_count,
                              .number = number};
    return submit(c, &r, how);
}

static int64_t submit_keys(struct rdzv_client *c, uint8_t op, const rdzv_bytes *keys, size_t count,
                           const struct how *how)
{
    struct rdzv__request r = {.op = op, .keys = keys, .key_count = count};
    return submit(c, &r, how);
}

int64_t rdzv_client_set(rdzv_client *c, rdzv_bytes key, rdzv_bytes value, int32_t timeout_ms,
                        rdzv_reply_fn done, void *ctx, rdzv_error *err)
{
    return submit_one(c, RDZV__OP_SET, key, &value, 1, 0,
                      &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_append(rdzv_client *c, rdzv_bytes key, rdzv_bytes value, int32_t timeout_ms,
                           rdzv_reply_fn done, void *ctx, rdzv_error *err)
{
    return submit_one(c, RDZV__OP_APPEND, key, &value, 1, 0,
                      &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_queue_push(rdzv_client *c, rdzv_bytes key, rdzv_bytes value, int32_t timeout_ms,
                               rdzv_reply_fn done, void *ctx, rdzv_error *err)
{
    return submit_one(c, RDZV__OP_QUEUE_PUSH, key, &value, 1, 0,
                      &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_multi_set(rdzv_client *c, const rdzv_bytes *keys, const rdzv_bytes *values,
                              size_t count, int32_t timeout_ms, rdzv_reply_fn done, void *ctx,
                              rdzv_error *err)
{
    struct rdzv__request r = {.op = RDZV__OP_MULTI_SET,
                              .keys = keys,
                              .key_count = count,
                              .values = values,
                              .value_count = count};
    return submit(c, &r, &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_flush(rdzv_client *c, int32_t timeout_ms, rdzv_reply_fn done, void *ctx,
                          rdzv_error *err)
{
    return submit_keys(c, RDZV__OP_PING, NULL, 0, &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_get(rdzv_client *c, rdzv_bytes key, int32_t timeout_ms, rdzv_reply_fn done,
                        void *ctx, rdzv_error *err)
{
    return submit_one(c, RDZV__OP_GET, key, NULL, 0, 0, &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_multi_get(rdzv_client *c, const rdzv_bytes *keys, size_t count,
                              int32_t timeout_ms, rdzv_reply_fn done, void *ctx, rdzv_error *err)
{
    return submit_keys(c, RDZV__OP_MULTI_GET, keys, count,
                       &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_wait_keys(rdzv_client *c, const rdzv_bytes *keys, size_t count,
                              int32_t timeout_ms, rdzv_reply_fn done, void *ctx, rdzv_error *err)
{
    return submit_keys(c, RDZV__OP_WAIT, keys, count, &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_check(rdzv_client *c, const rdzv_bytes *keys, size_t count, int32_t timeout_ms,
                          rdzv_reply_fn done, void *ctx, rdzv_error *err)
{
    return submit_keys(c, RDZV__OP_CHECK, keys, count, &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_add(rdzv_client *c, rdzv_bytes key, int64_t delta, int32_t timeout_ms,
                        rdzv_reply_fn done, void *ctx, rdzv_error *err)
{
    return submit_one(c, RDZV__OP_ADD, key, NULL, 0, delta,
                      &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_compare_set(rdzv_client *c, rdzv_bytes key, rdzv_bytes expected,
                                rdzv_bytes desired, int32_t timeout_ms, rdzv_reply_fn done,
                                void *ctx, rdzv_error *err)
{
    rdzv_bytes values[2] = {expected, desired};
    return submit_one(c, RDZV__OP_COMPARE_SET, key, values, 2, 0,
                      &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_delete_key(rdzv_client *c, rdzv_bytes key, int32_t timeout_ms,
                               rdzv_reply_fn done, void *ctx, rdzv_error *err)
{
    return submit_one(c, RDZV__OP_DELETE_KEY, key, NULL, 0, 0,
                      &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_num_keys(rdzv_client *c, int32_t timeout_ms, rdzv_reply_fn done, void *ctx,
                             rdzv_error *err)
{
    return submit_keys(c, RDZV__OP_GETNUMKEYS, NULL, 0, &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_list_keys(rdzv_client *c, int32_t timeout_ms, rdzv_reply_fn done, void *ctx,
                              rdzv_error *err)
{
    return submit_keys(c, RDZV__OP_LIST_KEYS, NULL, 0, &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_queue_pop(rdzv_client *c, rdzv_bytes key, int32_t timeout_ms,
                              rdzv_reply_fn done, void *ctx, rdzv_error *err)
{
    return submit_one(c, RDZV__OP_QUEUE_POP, key, NULL, 0, 0,
                      &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_queue_len(rdzv_client *c, rdzv_bytes key, int32_t timeout_ms,
                              rdzv_reply_fn done, void *ctx, rdzv_error *err)
{
    return submit_one(c, RDZV__OP_QUEUE_LEN, key, NULL, 0, 0,
                      &(struct how){timeout_ms, done, ctx, err});
}

int64_t rdzv_client_barrier(rdzv_client *c, rdzv_bytes key, int64_t world_size, int32_t timeout_ms,
                            rdzv_reply_fn done, void *ctx, rdzv_error *err)
{
    return submit_one(c, RDZV__OP_BARRIER, key, NULL, 0, world_size,
                      &(struct how){timeout_ms, done, ctx, err});
}
