/*
 * fanout.c: one event releases many. `barrier`: all clients send BARRIER as fast as the generator
 * can, and the clock starts when the last one has sent. `wake`: all clients are parked in a WAIT
 * for one key, and the clock starts with its SET. The figures are over clients: the time from
 * there to the client's released byte.
 */
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

enum { EVENTS = 256, SETTLE_MS = 300, PATIENCE_MS = 120000 };

struct crowd {
    struct client *c;
    double *at; /* when each was released */
    int epoll;
    uint32_t n;
};

static struct crowd gather(const struct options *opt)
{
    struct crowd w = {.n = opt->clients, .epoll = new_epoll()};
    w.c = calloc(w.n, sizeof *w.c);
    w.at = calloc(w.n, sizeof *w.at);
    if (w.c == NULL || w.at == NULL)
        die("out of memory");
    open_clients(opt, w.c, w.n);
    if (connect_clients(opt, w.epoll, w.c, w.n) > 0)
        die("cannot connect");
    return w;
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Waits for everybody's byte, reports, lets go. */
static void collect(struct crowd *w, double begin)
{
    for (uint32_t released = 0; released < w->n;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(w->epoll, events, EVENTS, PATIENCE_MS);
        if (count == 0)
            die("%u of %u are still waiting after %d s", w->n - released, w->n, PATIENCE_MS / 1000);
        for (int e = 0; e < count; e++) {
            uint32_t i = events[e].data.u32;
            uint8_t reply[2];
            ssize_t n = recv(w->c[i].fd, reply, sizeof reply, 0);
            if (n != 1 || reply[0] != 0 || w->at[i] > 0)
                die("client %u: %s", i, n < 0 ? strerror(errno) : "not released by one zero byte");
            w->at[i] = now() - begin;
            released++;
        }
    }
    qsort(w->at, w->n, sizeof *w->at, by_time);
    printf("{\"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f}\n", w->at[w->n / 2] * 1e3,
           w->at[w->n - 1 - w->n / 100] * 1e3, w->at[w->n - 1] * 1e3);
    reset_clients(w->c, w->n);
    free(w->c);
    free(w->at);
}

void run_barrier(const struct options *opt)
{
    struct crowd w = gather(opt);
    uint8_t request[64];
    size_t len = put_barrier(request, 'b', run_tag(), w.n);
    for (uint32_t i = 0; i < w.n; i++)
        send_all(&w.c[i], request, len);
    collect(&w, now());
}

void run_wake(const struct options *opt)
{
    struct timespec settle = {.tv_nsec = SETTLE_MS * 1000000L};
    struct crowd w = gather(opt);
    struct client setter = connect_one(opt);
    uint64_t number = run_tag();
    uint8_t request[64];
    size_t len = put_wait(request, 'w', number);
    for (uint32_t i = 0; i < w.n; i++)
        send_all(&w.c[i], request, len);
    nanosleep(&settle, NULL);
    double begin = now();
    send_all(&setter, request, put_set(request, 'w', number, "1", 1));
    collect(&w, begin);
    reset_clients(&setter, 1);
}
