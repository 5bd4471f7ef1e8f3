/*
 * store_client.c: asks a c10d store from the command line, be it rdzvd or a TCPStore of PyTorch. A
 * blocking use: the round trips are made on this thread, inside rdzv_client_wait.
 *
 *     cc store_client.c -o store_client $(pkg-config --cflags --libs librdzv) \
 *         -Wl,-rpath,"$(pkg-config --variable=libdir librdzv)"
 *
 * Without arguments it says how it is called.
 */
#include <rdzv_client.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: store_client [-a] [-t SECONDS] HOST PORT CALL [ARGUMENT...]\n"
    "  -a           the store is one of PyTorch 2.0 or older\n"
    "  -t SECONDS   how long the call may take (default 10); 0 asks for what is there now\n"
    "calls:\n"
    "  set KEY VALUE    get KEY    add KEY NUMBER    wait KEY...    check KEY...    delete KEY\n"
    "  list    count    cas KEY EXPECTED DESIRED    append KEY VALUE    mget KEY...\n"
    "  mset KEY VALUE...    push KEY VALUE    pop KEY    len KEY    barrier KEY WORLD_SIZE\n"
    "at most 64 words for wait, check, mget and mset\n";

#define MAX_SECONDS 1e6

enum { MAX_WORDS = 64 };

struct outcome {
    int done;
    int code;
};

static void on_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    if (level <= RDZV_LOG_WARN)
        fprintf(stderr, "store_client: %s\n", line);
}

static void on_reply(void *ctx, const rdzv_reply *reply, const rdzv_error *result)
{
    struct outcome *outcome = ctx;
    outcome->done = 1;
    outcome->code = result->code;
    if (reply == NULL) {
        fprintf(stderr, "store_client: %s\n", result->text);
        return;
    }
    if (reply->count == 0)
        printf("%lld\n", (long long)reply->number);
    for (size_t i = 0; i < reply->count; i++) {
        fwrite(reply->values[i].data, 1, reply->values[i].len_bytes, stdout);
        putchar('\n');
    }
}

static rdzv_bytes bytes(const char *text)
{
    rdzv_bytes b = {text, strlen(text)};
    return b;
}

/* A whole number that is all of the text; 0 = it is not. */
static int parse_number(const char *text, long long *ret)
{
    char *end;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0;
}

typedef int64_t plain_fn(rdzv_client *, int32_t, rdzv_reply_fn, void *, rdzv_error *);
typedef int64_t key_fn(rdzv_client *, rdzv_bytes, int32_t, rdzv_reply_fn, void *, rdzv_error *);
typedef int64_t value_fn(rdzv_client *, rdzv_bytes, rdzv_bytes, int32_t, rdzv_reply_fn, void *,
                         rdzv_error *);
typedef int64_t number_fn(rdzv_client *, rdzv_bytes, int64_t, int32_t, rdzv_reply_fn, void *,
                          rdzv_error *);
typedef int64_t keys_fn(rdzv_client *, const rdzv_bytes *, size_t, int32_t, rdzv_reply_fn, void *,
                        rdzv_error *);
typedef int64_t swap_fn(rdzv_client *, rdzv_bytes, rdzv_bytes, rdzv_bytes, int32_t, rdzv_reply_fn,
                        void *, rdzv_error *);
typedef int64_t pairs_fn(rdzv_client *, const rdzv_bytes *, const rdzv_bytes *, size_t, int32_t,
                         rdzv_reply_fn, void *, rdzv_error *);

/* What may be asked: one of the functions is set. No server answers a call that is silent. */
static const struct call {
    const char *name;
    int min, max; /* arguments */
    int silent;
    plain_fn *plain;
    key_fn *key;
    value_fn *value;
    number_fn *number;
    keys_fn *keys;
    swap_fn *swap;
    pairs_fn *pairs;
} calls[] = {
    {"set", 2, 2, .silent = 1, .value = rdzv_client_set},
    {"append", 2, 2, .silent = 1, .value = rdzv_client_append},
    {"push", 2, 2, .silent = 1, .value = rdzv_client_queue_push},
    {"mset", 2, MAX_WORDS, .silent = 1, .pairs = rdzv_client_multi_set},
    {"cas", 3, 3, .swap = rdzv_client_compare_set},
    {"get", 1, 1, .key = rdzv_client_get},
    {"delete", 1, 1, .key = rdzv_client_delete_key},
    {"pop", 1, 1, .key = rdzv_client_queue_pop},
    {"len", 1, 1, .key = rdzv_client_queue_len},
    {"add", 2, 2, .number = rdzv_client_add},
    {"barrier", 2, 2, .number = rdzv_client_barrier},
    {"wait", 1, MAX_WORDS, .keys = rdzv_client_wait_keys},
    {"check", 1, MAX_WORDS, .keys = rdzv_client_check},
    {"mget", 1, MAX_WORDS, .keys = rdzv_client_multi_get},
    {"count", 0, 0, .plain = rdzv_client_num_keys},
    {"list", 0, 0, .plain = rdzv_client_list_keys},
};

/* What the command line asks for. */
struct request {
    const struct call *call;
    rdzv_bytes words[MAX_WORDS];
    size_t count;
    long long number; /* the second word, for a call that wants one */
    int32_t timeout_ms;
};

static int64_t submit_pairs(rdzv_client *c, const struct request *r, struct outcome *outcome,
                            rdzv_error *err)
{
    rdzv_bytes keys[MAX_WORDS / 2], values[MAX_WORDS / 2];
    for (size_t i = 0; i < r->count / 2; i++) {
        keys[i] = r->words[2 * i];
        values[i] = r->words[2 * i + 1];
    }
    return r->call->pairs(c, keys, values, r->count / 2, r->timeout_ms, NULL, outcome, err);
}

static int64_t submit(rdzv_client *c, const struct request *r, struct outcome *outcome,
                      rdzv_error *err)
{
    const struct call *call = r->call;
    const rdzv_bytes *w = r->words;
    int32_t ms = r->timeout_ms;
    rdzv_reply_fn done = call->silent ? NULL : on_reply;
    if (call->plain != NULL)
        return call->plain(c, ms, done, outcome, err);
    if (call->key != NULL)
        return call->key(c, w[0], ms, done, outcome, err);
    if (call->value != NULL)
        return call->value(c, w[0], w[1], ms, done, outcome, err);
    if (call->number != NULL)
        return call->number(c, w[0], r->number, ms, done, outcome, err);
    if (call->keys != NULL)
        return call->keys(c, w, r->count, ms, done, outcome, err);
    if (call->swap != NULL)
        return call->swap(c, w[0], w[1], w[2], ms, done, outcome, err);
    return submit_pairs(c, r, outcome, err);
}

/* A call without an answer is followed by a flush, whose answer says that it was executed. */
static int run(rdzv_client *c, const struct request *r)
{
    struct outcome outcome = {0, RDZV_OK};
    rdzv_error err = {0};
    int64_t code = submit(c, r, &outcome, &err);
    if (code > 0 && r->call->silent)
        code = rdzv_client_flush(c, r->timeout_ms, on_reply, &outcome, &err);
    if (code < 0) {
        fprintf(stderr, "store_client: %s\n", err.text);
        return (int)code;
    }
    while (!outcome.done)
        if (rdzv_client_wait(c, -1) < 0)
            return RDZV_EIO;
    return outcome.code;
}

/* Takes the call and its arguments; returns 0 if they make no sense. */
static int parse_call(struct request *r, char **words, int count)
{
    size_t i = 0;
    while (i < sizeof calls / sizeof calls[0] && strcmp(calls[i].name, words[0]) != 0)
        i++;
    if (i == sizeof calls / sizeof calls[0])
        return 0;
    r->call = &calls[i];
    r->count = (size_t)count - 1;
    if (count - 1 < r->call->min || count - 1 > r->call->max)
        return 0;
    for (i = 0; i < r->count; i++)
        r->words[i] = bytes(words[i + 1]);
    if (r->call->number != NULL && !parse_number(words[2], &r->number))
        return 0;
    return r->call->pairs == NULL || r->count % 2 == 0;
}

/* Returns 0 if they make no sense. */
static int parse_options(rdzv_client_options *opt, struct request *r, int argc, char **argv)
{
    int c;
    while ((c = getopt(argc, argv, "+at:")) != -1) { /* +: a value may begin with a - */
        char *end = NULL;
        double seconds = c == 't' ? strtod(optarg, &end) : 0;
        if (c == 'a')
            opt->dialect = RDZV_DIALECT_A;
        else if (c == 't' && end != optarg && *end == '\0' && seconds >= 0 &&
                 seconds <= MAX_SECONDS)
            r->timeout_ms = (int32_t)(seconds * 1000);
        else
            return 0;
    }
    long long port;
    if (argc - optind < 3 || !parse_number(argv[optind + 1], &port) || port < 1 ||
        port > UINT16_MAX)
        return 0;
    opt->host = argv[optind];
    opt->port = (uint16_t)port;
    if (r->timeout_ms > 0)
        opt->connect_timeout_ms = r->timeout_ms;
    return parse_call(r, argv + optind + 2, argc - optind - 2);
}

int main(int argc, char **argv)
{
    rdzv_client_options opt;
    rdzv_client_options_init(&opt, sizeof opt);
    opt.drive = RDZV_DRIVE_CALLER;
    opt.log = on_log;
    struct request request = {.timeout_ms = 10000};
    if (!parse_options(&opt, &request, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    rdzv_client *c;
    rdzv_error err;
    if (rdzv_client_open(&c, &opt, &err) != RDZV_OK) {
        fprintf(stderr, "store_client: %s\n", err.text);
        return 2;
    }
    int code = run(c, &request);
    rdzv_client_close(c, NULL, NULL);
    return code == RDZV_OK ? 0 : 1;
}
