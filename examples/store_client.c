/*
 * store_client.c: asks a c10d store from the command line, be it rdzvd or a TCPStore of PyTorch. A
 * blocking use: the round trips are made on this thread, inside rdzv_client_wait.
 *
 *     cc store_client.c -o store_client $(pkg-config --cflags --libs librdzv)
 *     ./store_client [-a] [-t SECONDS] HOST PORT CALL [ARGUMENT...]
 *
 *     set KEY VALUE   get KEY   add KEY NUMBER   wait KEY...   check KEY...   delete KEY   list
 *     count   cas KEY EXPECTED DESIRED   append KEY VALUE   push KEY VALUE   pop KEY   len KEY
 *     mget KEY...   mset KEY VALUE...   barrier KEY WORLD_SIZE
 *
 * -a: the store is one of PyTorch 2.0 or older.
 */
#include <rdzv_client.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEYS = 64 };

struct outcome {
    int done;
    int code;
};

static void on_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    if (level <= RDZV_LOG_INFO)
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

/* Submits the call that the words ask for. */
static int64_t submit(rdzv_client *c, const char *call, char **words, int count, int32_t ms,
                      struct outcome *outcome, rdzv_error *err)
{
    rdzv_bytes keys[MAX_KEYS];
    rdzv_bytes values[MAX_KEYS];
    size_t n = (size_t)count;
    rdzv_bytes first = bytes(count > 0 ? words[0] : "");
    rdzv_bytes second = bytes(count > 1 ? words[1] : "");
    long long number = strtoll(count > 1 ? words[1] : "0", NULL, 10);
    for (size_t i = 0; i < n && i < MAX_KEYS; i++)
        keys[i] = bytes(words[i]);
    if (strcmp(call, "set") == 0 && n == 2)
        return rdzv_client_set(c, first, second, ms, NULL, NULL, err);
    if (strcmp(call, "append") == 0 && n == 2)
        return rdzv_client_append(c, first, second, ms, NULL, NULL, err);
    if (strcmp(call, "push") == 0 && n == 2)
        return rdzv_client_queue_push(c, first, second, ms, NULL, NULL, err);
    if (strcmp(call, "get") == 0 && n == 1)
        return rdzv_client_get(c, first, ms, on_reply, outcome, err);
    if (strcmp(call, "add") == 0 && n == 2)
        return rdzv_client_add(c, first, number, ms, on_reply, outcome, err);
    if (strcmp(call, "wait") == 0 && n <= MAX_KEYS)
        return rdzv_client_wait_keys(c, keys, n, ms, on_reply, outcome, err);
    if (strcmp(call, "check") == 0 && n <= MAX_KEYS)
        return rdzv_client_check(c, keys, n, ms, on_reply, outcome, err);
    if (strcmp(call, "delete") == 0 && n == 1)
        return rdzv_client_delete_key(c, first, ms, on_reply, outcome, err);
    if (strcmp(call, "count") == 0 && n == 0)
        return rdzv_client_num_keys(c, ms, on_reply, outcome, err);
    if (strcmp(call, "list") == 0 && n == 0)
        return rdzv_client_list_keys(c, ms, on_reply, outcome, err);
    if (strcmp(call, "cas") == 0 && n == 3)
        return rdzv_client_compare_set(c, first, second, bytes(words[2]), ms, on_reply, outcome,
                                       err);
    if (strcmp(call, "pop") == 0 && n == 1)
        return rdzv_client_queue_pop(c, first, ms, on_reply, outcome, err);
    if (strcmp(call, "len") == 0 && n == 1)
        return rdzv_client_queue_len(c, first, ms, on_reply, outcome, err);
    if (strcmp(call, "mget") == 0 && n <= MAX_KEYS)
        return rdzv_client_multi_get(c, keys, n, ms, on_reply, outcome, err);
    if (strcmp(call, "barrier") == 0 && n == 2)
        return rdzv_client_barrier(c, first, number, ms, on_reply, outcome, err);
    if (strcmp(call, "mset") == 0 && n % 2 == 0 && n <= MAX_KEYS) {
        for (size_t i = 0; i < n / 2; i++) {
            keys[i] = bytes(words[2 * i]);
            values[i] = bytes(words[2 * i + 1]);
        }
        return rdzv_client_multi_set(c, keys, values, n / 2, ms, NULL, NULL, err);
    }
    snprintf(err->text, sizeof err->text, "no such call, or not its number of arguments: %s", call);
    return RDZV_EINVAL;
}

/* Calls without an answer are followed by a flush, whose answer says that they were executed. */
static int run(rdzv_client *c, char **words, int count, int32_t ms)
{
    struct outcome outcome = {0, RDZV_OK};
    rdzv_error err = {0};
    const char *call = words[0];
    int64_t code = submit(c, call, words + 1, count - 1, ms, &outcome, &err);
    if (code > 0 && (strcmp(call, "set") == 0 || strcmp(call, "append") == 0 ||
                     strcmp(call, "push") == 0 || strcmp(call, "mset") == 0))
        code = rdzv_client_flush(c, ms, on_reply, &outcome, &err);
    if (code < 0) {
        fprintf(stderr, "store_client: %s\n", err.text);
        return (int)code;
    }
    while (!outcome.done)
        if (rdzv_client_wait(c, -1) < 0)
            return RDZV_EIO;
    return outcome.code;
}

int main(int argc, char **argv)
{
    rdzv_client_options opt;
    rdzv_client_options_init(&opt, sizeof opt);
    opt.drive = RDZV_DRIVE_CALLER;
    opt.log = on_log;
    int32_t ms = 10000;
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "-a") == 0)
            opt.dialect = RDZV_DIALECT_A;
        else if (strcmp(argv[at], "-t") == 0 && at + 1 < argc)
            ms = (int32_t)(strtod(argv[++at], NULL) * 1000);
    }
    if (argc - at < 3) {
        fprintf(stderr, "usage: store_client [-a] [-t SECONDS] HOST PORT CALL [ARGUMENT...]\n");
        return 2;
    }
    opt.host = argv[at];
    opt.port = (uint16_t)strtoul(argv[at + 1], NULL, 10);
    if (ms > 0)
        opt.connect_timeout_ms = ms;
    rdzv_client *c;
    rdzv_error err;
    if (rdzv_client_open(&c, &opt, &err) != RDZV_OK) {
        fprintf(stderr, "store_client: %s\n", err.text);
        return 2;
    }
    int code = run(c, argv + at + 2, argc - at - 2, ms);
    rdzv_client_close(c, NULL, NULL);
    return code == RDZV_OK ? 0 : 1;
}
