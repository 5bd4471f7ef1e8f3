/*
 * ops.c: requests per second. Each client sends `depth` ADDs of 25 bytes in one write, and the next
 * ones when all are answered. One client without depth uses a blocking socket, so that nothing but
 * the round trip is timed. Every answer is checked: a store's sums count up by one, an echo's bytes
 * are those that were sent.
 */
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { EVENTS = 64 };

/* One client's requests, the same every time, and where the answers come together. */
struct batch {
    uint8_t request[MAX_DEPTH * ADD_BYTES];
    uint8_t reply[MAX_DEPTH * ADD_BYTES];
};

struct ops {
    const struct options *opt;
    size_t request_bytes; /* of a batch */
    size_t reply_bytes;
    uint64_t answered;
};

static void fill_batch(const struct ops *o, struct batch *b, uint64_t number)
{
    size_t len = 0;
    for (uint32_t i = 0; i < o->opt->depth; i++)
        len += put_add(b->request + len, 'a', number, 1);
}

static void check_batch(struct ops *o, struct client *c, const struct batch *b)
{
    o->answered += o->opt->depth;
    if (o->opt->echo) {
        if (memcmp(b->reply, b->request, o->request_bytes) != 0)
            die("the echo differs from what was sent");
        return;
    }
    for (uint32_t k = 0; k < o->opt->depth; k++, c->value++) {
        uint64_t sum = bytes_get_u64(b->reply + (size_t)k * 8);
        if (c->value == 0)
            c->value = sum; /* the first answer: an earlier run may have counted before */
        if (sum != c->value)
            die("ADD answered %llu, not %llu", (unsigned long long)sum,
                (unsigned long long)c->value);
    }
}

static double ops_blocking(struct ops *o)
{
    struct client c = connect_one(o->opt);
    struct batch b;
    fill_batch(o, &b, 0);
    double begin = now();
    double end = begin;
    while (end - begin < o->opt->seconds) {
        for (int i = 0; i < 16; i++) {
            send_all(&c, b.request, o->request_bytes);
            receive_all(&c, b.reply, o->reply_bytes);
            check_batch(o, &c, &b);
        }
        end = now();
    }
    reset_clients(&c, 1);
    return end - begin;
}

/* Takes what has come; sends the next batch when the last one is answered in whole. */
static void serve_client(struct ops *o, struct client *c, struct batch *b)
{
    ssize_t n = recv(c->fd, b->reply + c->seen, o->reply_bytes - c->seen, 0);
    if (n <= 0)
        die("receive: %s", n < 0 ? strerror(errno) : "closed by the server");
    c->seen += (uint32_t)n;
    if (c->seen < o->reply_bytes)
        return;
    check_batch(o, c, b);
    c->seen = 0;
    send_all(c, b->request, o->request_bytes);
}

static double ops_epoll(struct ops *o)
{
    uint32_t n = o->opt->clients;
    int epoll = new_epoll();
    struct client *c = calloc(n, sizeof *c);
    struct batch *b = calloc(n, sizeof *b);
    if (c == NULL || b == NULL)
        die("out of memory");
    open_clients(o->opt, c, n);
    if (connect_clients(o->opt, epoll, c, n) > 0)
        die("cannot connect");
    double begin = now();
    double end = begin;
    for (uint32_t i = 0; i < n; i++) {
        fill_batch(o, &b[i], i);
        send_all(&c[i], b[i].request, o->request_bytes);
    }
    while (end - begin < o->opt->seconds) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int e = 0; e < count; e++)
            serve_client(o, &c[events[e].data.u32], &b[events[e].data.u32]);
        end = now();
    }
    reset_clients(c, n);
    free(b);
    free(c);
    return end - begin;
}

void run_ops(const struct options *opt)
{
    struct ops o = {.opt = opt,
                    .request_bytes = (size_t)opt->depth * ADD_BYTES,
                    .reply_bytes = (size_t)opt->depth * (opt->echo ? ADD_BYTES : 8)};
    double seconds = opt->clients == 1 && opt->depth == 1 ? ops_blocking(&o) : ops_epoll(&o);
    printf("{\"ops\": %llu, \"seconds\": %.6f}\n", (unsigned long long)o.answered, seconds);
}

/* The wire patterns of a blocking get: PyTorch's clients wait for the answer to WAIT before they
 * send GET; one write can hold both. */
void run_get(const struct options *opt)
{
    static const char value[] = "127.0.0.1:43210";
    struct client c = connect_one(opt);
    uint64_t number = run_tag();
    uint8_t request[128];
    send_all(&c, request, put_set(request, 'g', number, value, sizeof value));
    size_t wait_len = put_wait(request, 'g', number);
    size_t len = wait_len + put_get(request + wait_len, 'g', number);
    uint64_t gets = 0;
    double begin = now();
    double end = begin;
    while (end - begin < opt->seconds) {
        uint8_t reply[1 + 8 + sizeof value];
        send_all(&c, request, opt->one_trip ? len : wait_len);
        if (!opt->one_trip) {
            receive_all(&c, reply, 1);
            send_all(&c, request + wait_len, len - wait_len);
        }
        receive_all(&c, reply + !opt->one_trip, sizeof reply - !opt->one_trip);
        if (reply[0] != 0 || bytes_get_u64(reply + 1) != sizeof value ||
            memcmp(reply + 9, value, sizeof value) != 0)
            die("get: a wrong answer");
        gets++;
        end = now();
    }
    reset_clients(&c, 1);
    printf("{\"ops\": %llu, \"seconds\": %.6f}\n", (unsigned long long)gets, end - begin);
}
