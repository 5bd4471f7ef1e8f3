/*
 * get.c: blocking gets of one key with librdzv's client: a submission, then rdzv_client_wait until
 * it has ended. The round trip is made on the caller's thread, or, with --thread, on a thread of
 * the handle. Prints one JSON object like the load generator; every value is checked.
 */
#include "rdzv_client.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const rdzv_bytes key = {"bench-get", 9};
static const rdzv_bytes value = {"127.0.0.1:43210", 15};

struct outcome {
    int ended;
    int right;
    rdzv_error result;
};

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("store_get: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static long number(const char *text, long max)
{
    char *end;
    long v = strtol(text, &end, 10);
    if (end == text || *end != '\0' || v < 1 || v > max)
        die("a number from 1 to %ld is wanted, not \"%s\"", max, text);
    return v;
}

static void on_flushed(void *ctx, const rdzv_reply *reply, const rdzv_error *result)
{
    struct outcome *o = ctx;
    o->right = reply != NULL;
    if (reply == NULL)
        o->result = *result;
    o->ended = 1;
}

static void on_value(void *ctx, const rdzv_reply *reply, const rdzv_error *result)
{
    struct outcome *o = ctx;
    o->right = reply != NULL && reply->count == 1 &&
               reply->values[0].len_bytes == value.len_bytes &&
               memcmp(reply->values[0].data, value.data, value.len_bytes) == 0;
    if (reply == NULL)
        o->result = *result;
    o->ended = 1;
}

static void finish(rdzv_client *c, int64_t call, struct outcome *o, const rdzv_error *err)
{
    if (call < 0)
        die("%s", err->text);
    while (!o->ended)
        if (rdzv_client_wait(c, -1) < 0)
            die("rdzv_client_wait failed");
    if (!o->right)
        die("%s", o->result.code != RDZV_OK ? o->result.text : "a wrong answer");
}

static void set(rdzv_client *c)
{
    struct outcome o = {0};
    rdzv_error err = {0};
    int64_t call = rdzv_client_set(c, key, value, RDZV_DEFAULT_TIMEOUT, NULL, NULL, &err);
    if (call > 0)
        call = rdzv_client_flush(c, RDZV_DEFAULT_TIMEOUT, on_flushed, &o, &err);
    finish(c, call, &o, &err);
}

static void get(rdzv_client *c)
{
    struct outcome o;
    rdzv_error err;
    o.ended = 0;
    o.result.code = RDZV_OK;
    int64_t call = rdzv_client_get(c, key, RDZV_DEFAULT_TIMEOUT, on_value, &o, &err);
    finish(c, call, &o, &err);
}

int main(int argc, char **argv)
{
    rdzv_client_options opt;
    rdzv_client *c;
    rdzv_error err = {0};
    int thread = argc == 5 && strcmp(argv[4], "--thread") == 0;
    if (argc < 4 || argc > 4 + thread)
        die("usage: store_get HOST PORT MILLISECONDS [--thread]");
    rdzv_client_options_init(&opt, sizeof opt);
    opt.drive = thread ? RDZV_DRIVE_THREAD : RDZV_DRIVE_CALLER;
    opt.host = argv[1];
    opt.port = (uint16_t)number(argv[2], 65535);
    opt.connect_timeout_ms = 5000;
    double seconds = (double)number(argv[3], 1000000) / 1e3;
    if (rdzv_client_open(&c, &opt, &err) != RDZV_OK)
        die("%s", err.text);
    set(c);
    unsigned long long gets = 0;
    double begin = now();
    double end = begin;
    for (; end - begin < seconds; gets++) {
        get(c);
        end = now();
    }
    rdzv_client_close(c, NULL, NULL);
    printf("{\"ops\": %llu, \"seconds\": %.6f}\n", gets, end - begin);
    return 0;
}
