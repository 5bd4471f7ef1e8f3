/*
 * serve.c: a c10d store server inside a program that has its own libuv loop. PyTorch processes use
 * it as their TCPStore: TCPStore("127.0.0.1", port, is_master=False).
 *
 *     cc serve.c -o serve $(pkg-config --cflags --libs librdzv libuv) \
 *         -Wl,-rpath,"$(pkg-config --variable=libdir librdzv)"
 *     ./serve [PORT [SECONDS]]      port 0 = a free one; no SECONDS = until Ctrl-C
 */
#include <rdzv.h>

#include <ctype.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define MAX_SECONDS 1e6

static rdzv_server *server;
static uv_signal_t interrupt;
static uv_timer_t timer;

static void on_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    if (level <= RDZV_LOG_WARN)
        fprintf(stderr, "serve: %s\n", line);
}

static void on_closed(void *ctx)
{
    (void)ctx;
    printf("closed\n");
}

/* No new clients; the ones that are there get a second to finish. */
static void on_drained(void *ctx)
{
    (void)ctx;
    rdzv_server_stats stats = {.size = sizeof stats};
    rdzv_server_get_stats(server, &stats);
    printf("%llu clients, %llu requests, %llu keys\n", (unsigned long long)stats.accepted,
           (unsigned long long)stats.requests, (unsigned long long)stats.keys);
    rdzv_server_close(server, on_closed, NULL);
}

static void stop(void)
{
    if (uv_is_closing((uv_handle_t *)&interrupt))
        return;
    uv_close((uv_handle_t *)&interrupt, NULL);
    uv_close((uv_handle_t *)&timer, NULL);
    rdzv_server_drain(server, 1000, on_drained, NULL);
}

static void on_interrupt(uv_signal_t *handle, int number)
{
    (void)handle;
    (void)number;
    stop();
}

static void on_time(uv_timer_t *handle)
{
    (void)handle;
    stop();
}

/* The words of the command line; 0 = they make no sense. */
static int parse(int argc, char **argv, uint16_t *port, double *seconds)
{
    char *end;
    *port = 0;
    *seconds = 0;
    if (argc > 1) {
        unsigned long number = strtoul(argv[1], &end, 10);
        if (!isdigit((unsigned char)argv[1][0]) || *end != '\0' || number > UINT16_MAX)
            return 0;
        *port = (uint16_t)number;
    }
    if (argc > 2) {
        *seconds = strtod(argv[2], &end);
        if (end == argv[2] || *end != '\0' || !(*seconds >= 0 && *seconds <= MAX_SECONDS))
            return 0;
    }
    return argc <= 3;
}

int main(int argc, char **argv)
{
    uint16_t port;
    double seconds;
    if (!parse(argc, argv, &port, &seconds)) {
        fputs("usage: serve [PORT [SECONDS]]\n", stderr);
        return 2;
    }
    uv_loop_t *loop = uv_default_loop();
    rdzv_server_options opt;
    rdzv_server_options_init(&opt, sizeof opt);
    opt.loop = loop;
    opt.port = port;
    opt.log = on_log;
    rdzv_error err;
    if (rdzv_server_open(&server, &opt, &err) != RDZV_OK) {
        fprintf(stderr, "serve: %s\n", err.text);
        return 1;
    }
    printf("serving on %s\n", rdzv_server_address(server, NULL));
    fflush(stdout);
    uv_signal_init(loop, &interrupt);
    uv_signal_start(&interrupt, on_interrupt, SIGINT);
    uv_timer_init(loop, &timer);
    if (argc > 2)
        uv_timer_start(&timer, on_time, (uint64_t)(seconds * 1000), 0);

    uv_run(loop, UV_RUN_DEFAULT); /* the rest of the program lives on this loop, too */
    return uv_loop_close(loop) == 0 ? 0 : 1;
}
