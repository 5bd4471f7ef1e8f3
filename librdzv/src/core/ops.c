/*
 * ops.c: the requests of the protocol, one function each. Order within a request: change the store,
 * seal the record, then answer and wake, so that each answer carries the record it depends on.
 * Invariant: every name that was taken from rdzv__store_name is settled before the function ends.
 */
#include "core/ops.h"

#include "core/out.h"
#include "core/record.h"
#include "core/wait.h"

#include <string.h>

enum { CHECK_READY = 0, CHECK_NOT_READY = 1, WAIT_CANCELED = 1 };

typedef int op_fn(struct rdzv__session *s, const uint8_t *body);

static struct rdzv__field name_field(const struct rdzv__name *name)
{
    struct rdzv__field f;
    f.data = rdzv__name_text(name, &f.len);
    return f;
}

/* Gives `name` this value and puts the change into the open record. */
static int put(struct rdzv__core *core, struct rdzv__name *name, struct rdzv__field value)
{
    int changed;
    int why = rdzv__store_put(&core->store, name, value.data, value.len, &changed);
    if (why == RDZV__WHY_OK && changed)
        rdzv__record_change(core, RDZV__CHANGE_SET, name_field(name), value);
    return why;
}

/* Ends a request about one name: record, wake-ups, name. */
static int finish(struct rdzv__core *core, struct rdzv__name *name, int why)
{
    rdzv__record_seal(core);
    if (why == RDZV__WHY_OK && name->has_key)
        rdzv__wake_all(name);
    rdzv__store_settle(&core->store, name);
    return why;
}

static int run_validate(struct rdzv__session *s, const uint8_t *body)
{
    (void)s;
    (void)body; /* the magic was checked when it decided the dialect */
    return RDZV__WHY_OK;
}

static int run_set(struct rdzv__session *s, const uint8_t *body)
{
    struct rdzv__field key = rdzv__take_string(&body);
    struct rdzv__field value = rdzv__take_string(&body);
    struct rdzv__name *name = rdzv__store_name(&s->core->store, key.data, key.len);
    if (name == NULL)
        return s->core->store.why;
    return finish(s->core, name, put(s->core, name, value));
}

static int run_compare_set(struct rdzv__session *s, const uint8_t *body)
{
    struct rdzv__core *core = s->core;
    struct rdzv__field key = rdzv__take_string(&body);
    struct rdzv__field expected = rdzv__take_string(&body);
    struct rdzv__field desired = rdzv__take_string(&body);
    struct rdzv__name *name = rdzv__store_name(&core->store, key.data, key.len);
    if (name == NULL)
        return core->store.why;
    struct rdzv__field now;
    now.data = rdzv__name_value(name, &now.len);
    int same =
        now.len == expected.len && (now.len == 0 || memcmp(now.data, expected.data, now.len) == 0);
    struct rdzv__field reply = name->has_key ? now : expected;
    int why = RDZV__WHY_OK;
    if (same) { /* an absent key compares as an empty value */
        why = put(core, name, desired);
        reply = desired;
    }
    rdzv__record_seal(core);
    if (why == RDZV__WHY_OK) {
        rdzv__out_depend(s);
        rdzv__out_vec(s, reply.data, reply.len);
    }
    return finish(core, name, why);
}

/* A missing key is answered like an empty value. */
static void answer_value(struct rdzv__session *s, struct rdzv__field key)
{
    struct rdzv__name *name = rdzv__store_find(&s->core->store, key.data, key.len);
    struct rdzv__field value = {NULL, 0};
    if (name != NULL)
        value.data = rdzv__name_value(name, &value.len);
    rdzv__out_depend(s);
    rdzv__out_vec(s, value.data, value.len);
}

static int run_get(struct rdzv__session *s, const uint8_t *body)
{
    answer_value(s, rdzv__take_string(&body));
    return RDZV__WHY_OK;
}

/* Adds to the counter of `name` and puts the sum into the open record. */
static int add(struct rdzv__core *core, struct rdzv__name *name, uint64_t delta, int64_t *ret_sum)
{
    int changed;
    int why = rdzv__store_add(&core->store, name, delta, ret_sum, &changed);
    if (why == RDZV__WHY_OK && changed && core->journal.change != NULL) {
        struct rdzv__field sum;
        sum.data = rdzv__name_value(name, &sum.len);
        rdzv__record_change(core, RDZV__CHANGE_SET, name_field(name), sum);
    }
    return why;
}

static int run_add(struct rdzv__session *s, const uint8_t *body)
{
    struct rdzv__core *core = s->core;
    struct rdzv__field key = rdzv__take_string(&body);
    uint64_t delta = rdzv__take_u64(&body);
    struct rdzv__name *name = rdzv__store_name(&core->store, key.data, key.len);
    if (name == NULL)
        return core->store.why;
    int64_t sum = 0;
    int why = add(core, name, delta, &sum);
    rdzv__record_seal(core);
    if (why == RDZV__WHY_OK) {
        rdzv__out_depend(s);
        rdzv__out_u64(s, (uint64_t)sum);
    }
    return finish(core, name, why);
}

static int run_check(struct rdzv__session *s, const uint8_t *body)
{
    uint8_t reply = CHECK_READY;
    for (uint64_t n = rdzv__take_u64(&body); n > 0; n--) {
        struct rdzv__field key = rdzv__take_string(&body);
        struct rdzv__name *name = rdzv__store_find(&s->core->store, key.data, key.len);
        s->core->visits++;
        if (name == NULL || !rdzv__name_ready(name)) {
            reply = CHECK_NOT_READY;
            break;
        }
    }
    rdzv__out_depend(s);
    rdzv__out_u8(s, reply);
    return RDZV__WHY_OK;
}

static int run_wait(struct rdzv__session *s, const uint8_t *body)
{
    uint64_t count = rdzv__take_u64(&body);
    return rdzv__wait_keys(s, body, count);
}

static int run_getnumkeys(struct rdzv__session *s, const uint8_t *body)
{
    (void)body;
    rdzv__out_depend(s);
    rdzv__out_u64(s, s->core->store.keys);
    return RDZV__WHY_OK;
}

static int run_delete_key(struct rdzv__session *s, const uint8_t *body)
{
    struct rdzv__core *core = s->core;
    struct rdzv__field key = rdzv__take_string(&body);
    struct rdzv__name *name = rdzv__store_find(&core->store, key.data, key.len);
    uint64_t removed = name != NULL && name->has_key;
    if (removed) {
        rdzv__store_remove(&core->store, name);
        rdzv__record_change(core, RDZV__CHANGE_DELETE, key, (struct rdzv__field){NULL, 0});
        rdzv__record_seal(core);
        rdzv__store_settle(&core->store, name);
    }
    rdzv__out_depend(s);
    rdzv__out_u64(s, removed);
    return RDZV__WHY_OK;
}

static int run_append(struct rdzv__session *s, const uint8_t *body)
{
    struct rdzv__core *core = s->core;
    struct rdzv__field key = rdzv__take_string(&body);
    struct rdzv__field value = rdzv__take_string(&body);
    struct rdzv__name *name = rdzv__store_name(&core->store, key.data, key.len);
    if (name == NULL)
        return core->store.why;
    int why = rdzv__store_append(&core->store, name, value.data, value.len);
    if (why == RDZV__WHY_OK)
        rdzv__record_change(core, RDZV__CHANGE_APPEND, key, value);
    return finish(core, name, why);
}

static int run_multi_get(struct rdzv__session *s, const uint8_t *body)
{
    uint64_t n = rdzv__take_u64(&body);
    s->core->visits += n;
    for (; n > 0 && s->state != RDZV__SESSION_FAILED; n--)
        answer_value(s, rdzv__take_string(&body));
    return RDZV__WHY_OK;
}

static int run_multi_set(struct rdzv__session *s, const uint8_t *body)
{
    struct rdzv__core *core = s->core;
    uint64_t n = rdzv__take_u64(&body);
    const uint8_t *cursor = body;
    core->visits += n;
    uint64_t done = 0;
    int why = RDZV__WHY_OK;
    while (done < n && why == RDZV__WHY_OK) {
        struct rdzv__field key = rdzv__take_string(&cursor);
        struct rdzv__field value = rdzv__take_string(&cursor);
        struct rdzv__name *name = rdzv__store_name(&core->store, key.data, key.len);
        why = name != NULL ? put(core, name, value) : core->store.why;
        if (name != NULL)
            rdzv__store_settle(&core->store, name);
        done += why == RDZV__WHY_OK;
    }
    rdzv__record_seal(core);
    for (; done > 0 && core->waiting > 0; done--) {
        struct rdzv__field key = rdzv__take_string(&body);
        rdzv__take_string(&body);
        rdzv__wake_all(rdzv__store_find(&core->store, key.data, key.len));
    }
    return why;
}

static int run_cancel_wait(struct rdzv__session *s, const uint8_t *body)
{
    (void)body; /* the wait itself was dropped when this request began to arrive */
    rdzv__out_u8(s, WAIT_CANCELED);
    return RDZV__WHY_OK;
}

static int run_ping(struct rdzv__session *s, const uint8_t *body)
{
    rdzv__out_bytes(s, body, sizeof(uint32_t));
    return RDZV__WHY_OK;
}

static int run_queue_push(struct rdzv__session *s, const uint8_t *body)
{
    struct rdzv__core *core = s->core;
    struct rdzv__field key = rdzv__take_string(&body);
    struct rdzv__field value = rdzv__take_string(&body);
    struct rdzv__name *name = rdzv__store_name(&core->store, key.data, key.len);
    if (name == NULL)
        return core->store.why;
    int why = rdzv__store_queue_push(&core->store, name, value.data, value.len);
    if (why == RDZV__WHY_OK) {
        rdzv__record_change(core, RDZV__CHANGE_PUSH, key, value);
        rdzv__record_seal(core);
        rdzv__wake_longest(name);
    }
    rdzv__store_settle(&core->store, name);
    return why;
}

static int run_queue_pop(struct rdzv__session *s, const uint8_t *body)
{
    struct rdzv__core *core = s->core;
    struct rdzv__field key = rdzv__take_string(&body);
    struct rdzv__name *name = rdzv__store_find(&core->store, key.data, key.len);
    uint64_t len = name != NULL ? name->items : 0;
    if (len > 0) {
        rdzv__record_change(core, RDZV__CHANGE_POP, key, (struct rdzv__field){NULL, 0});
        rdzv__record_seal(core);
    }
    rdzv__out_depend(s);
    rdzv__out_u64(s, len);
    if (len > 0) {
        size_t head_len;
        const uint8_t *head = rdzv__name_queue_head(name, &head_len);
        rdzv__out_vec(s, head, head_len);
        rdzv__store_queue_pop(&core->store, name);
        rdzv__store_settle(&core->store, name);
    }
    return RDZV__WHY_OK;
}

static int run_queue_len(struct rdzv__session *s, const uint8_t *body)
{
    struct rdzv__field key = rdzv__take_string(&body);
    struct rdzv__name *name = rdzv__store_find(&s->core->store, key.data, key.len);
    rdzv__out_depend(s);
    rdzv__out_u64(s, name != NULL ? name->items : 0);
    return RDZV__WHY_OK;
}

static int run_list_keys(struct rdzv__session *s, const uint8_t *body)
{
    (void)body;
    rdzv__out_depend(s);
    rdzv__out_u64(s, s->core->store.keys);
    struct rdzv__name *name = rdzv__store_first(&s->core->store);
    for (; name != NULL && s->state != RDZV__SESSION_FAILED; name = rdzv__name_next(name)) {
        struct rdzv__field text = name_field(name);
        s->core->visits++;
        if (name->has_key)
            rdzv__out_vec(s, text.data, text.len);
    }
    return RDZV__WHY_OK;
}

static int run_barrier(struct rdzv__session *s, const uint8_t *body)
{
    struct rdzv__core *core = s->core;
    struct rdzv__field key = rdzv__take_string(&body);
    int64_t world_size = (int64_t)rdzv__take_u64(&body);
    struct rdzv__name *name = rdzv__store_name(&core->store, key.data, key.len);
    if (name == NULL)
        return core->store.why;
    int64_t count = 0;
    int why = add(core, name, 1, &count);
    rdzv__record_seal(core);
    if (why == RDZV__WHY_OK && count < world_size) {
        why = rdzv__wait_name(s, name);
    } else if (why == RDZV__WHY_OK) {
        rdzv__out_depend(s);
        rdzv__out_u8(s, 0);
        rdzv__wake_all(name);
    }
    rdzv__store_settle(&core->store, name);
    return why;
}

static op_fn *const ops[RDZV__OP_COUNT] = {
    [RDZV__OP_VALIDATE] = run_validate,
    [RDZV__OP_SET] = run_set,
    [RDZV__OP_COMPARE_SET] = run_compare_set,
    [RDZV__OP_GET] = run_get,
    [RDZV__OP_ADD] = run_add,
    [RDZV__OP_CHECK] = run_check,
    [RDZV__OP_WAIT] = run_wait,
    [RDZV__OP_GETNUMKEYS] = run_getnumkeys,
    [RDZV__OP_DELETE_KEY] = run_delete_key,
    [RDZV__OP_APPEND] = run_append,
    [RDZV__OP_MULTI_GET] = run_multi_get,
    [RDZV__OP_MULTI_SET] = run_multi_set,
    [RDZV__OP_CANCEL_WAIT] = run_cancel_wait,
    [RDZV__OP_PING] = run_ping,
    [RDZV__OP_QUEUE_PUSH] = run_queue_push,
    [RDZV__OP_QUEUE_POP] = run_queue_pop,
    [RDZV__OP_QUEUE_LEN] = run_queue_len,
    [RDZV__OP_LIST_KEYS] = run_list_keys,
    [RDZV__OP_BARRIER] = run_barrier,
};

int rdzv__op_run(struct rdzv__session *s, uint8_t op, const uint8_t *body)
{
    s->core->requests++;
    return ops[op](s, body);
}
