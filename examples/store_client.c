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
    "  mset KEY VALUE...    push KEY VALUE    pop KEY    len KEY    barrier KEY WORLD_SIZE\n";

#define MAX_SECONDS 1e6

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

/* A whole number that is all of the text; 0 = it is not. */
static int parse_number(const char *text, long long *ret)
{
    char *end;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0;
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
    long long number = 0;
    int is_number = count > 1 && parse_number(words[1], &number);
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
    if (strcmp(call, "add") == 0 && n == 2 && is_number)
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
    if (strcmp(call, "barrier") == 0 && n == 2 && is_number)
        return rdzv_client_barrier(c, first, number, ms, on_reply, outcome, err);
    if (strcmp(call, "mset") == 0 && n % 2 == 0 && n <= MAX_KEYS) {
        for (size_t i = 0; i < n / 2; i++) {
            keys[i] = bytes(words[2 * i]);
            values[i] = bytes(words[2 * i + 1]);
        }
        return rdzv_client_multi_set(c, keys, values, n / 2, ms, NULL, NULL, err);
    }
    snprintf(err->text, sizeof err->text, "no such call, or not its arguments: %s", call);
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

/* Returns 0 if they make no sense. */
static int parse_options(rdzv_client_options *opt, int32_t *ms, int argc, char **argv)
{
    int c;
    while ((c = getopt(argc, argv, "+at:")) != -1) { /* +: a value may begin with a - */
        char *end = NULL;
        double seconds = c == 't' ? strtod(optarg, &end) : 0;
        if (c == 'a')
            opt->dialect = RDZV_DIALECT_A;
        else if (c == 't' && end != optarg && *end == '\0' && seconds >= 0 &&
                 seconds <= MAX_SECONDS)
            *ms = (int32_t)(seconds * 1000);
        else
            return 0;
    }
    long long port;
    if (argc - optind < 3 || !parse_number(argv[optind + 1], &port) || port < 1 ||
        port > UINT16_MAX)
        return 0;
    opt->host = argv[optind];
    opt->port = (uint16_t)port;
    return 1;
}

int main(int argc, char **argv)
{
    rdzv_client_options opt;
    rdzv_client_options_init(&opt, sizeof opt);
    opt.drive = RDZV_DRIVE_CALLER;
    opt.log = on_log;
    int32_t ms = 10000;
    if (!parse_options(&opt, &ms, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    if (ms > 0)
        opt.connect_timeout_ms = ms;
    rdzv_client *c;
    rdzv_error err;
    if (rdzv_client_open(&c, &opt, &err) != RDZV_OK) {
        fprintf(stderr, "store_client: %s\n", err.text);
        return 2;
    }
    int code = run(c, argv + optind + 2, argc - optind - 2, ms);
    rdzv_client_close(c, NULL, NULL);
    return code == RDZV_OK ? 0 : 1;
}
