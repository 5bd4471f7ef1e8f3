/*
 * load.h: what the scenarios of the load generator share. A program error, a wrong answer and a
 * broken connection all end the process with a message: a figure is printed only if every reply
 * that counts in it was checked. Connects alone may fail and are counted.
 */
#ifndef BENCH_STORE_LOAD_H
#define BENCH_STORE_LOAD_H

#include "bytes.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Numbers of the newest dialect of c10d. */
enum {
    OP_VALIDATE = 0,
    OP_SET = 1,
    OP_GET = 3,
    OP_ADD = 4,
    OP_WAIT = 6,
    OP_PING = 13,
    OP_BARRIER = 18
};

enum { HELLO_BYTES = 10, KEY_BYTES = 8, ADD_BYTES = 1 + 8 + KEY_BYTES + 8, MAX_DEPTH = 64 };
enum { MAX_THREADS = 16 };

struct options {
    struct sockaddr_storage address;
    socklen_t address_len;
    int echo;         /* the server sends back what it gets */
    int one_trip;     /* get: WAIT and GET leave together */
    uint32_t threads; /* of a storm */
    uint32_t clients; /* in all; a wave's worth of them at a time */
    uint32_t wave;
    uint32_t depth;   /* requests on the way per client */
    uint32_t window;  /* handshakes on the way at a time */
    uint32_t sources; /* loopback addresses to connect from, 127.0.0.1 and following */
    double seconds;
};

struct client {
    int fd;        /* -1 = not connected */
    uint32_t seen; /* bytes of the current reply that have come */
    uint32_t step; /* the scenario's own */
    uint64_t value;
};

/* client.c */
__attribute__((format(printf, 1, 2), noreturn)) void die(const char *format, ...);
double now(void);
/* Different for each run of a generator, so that runs on one server do not share keys. */
uint64_t run_tag(void);
int new_epoll(void);
void watch(int epoll, int fd, uint32_t events, uint32_t index);
/* `n` sockets that are not connected yet. */
void open_clients(const struct options *opt, struct client *c, uint32_t n);
/* Connects and shakes hands, `window` at a time, and leaves each connection in `epoll` for reading,
 * with its index as data. Returns how many failed; says why the first did. */
uint32_t connect_clients(const struct options *opt, int epoll, struct client *c, uint32_t n);
/* By reset, so that no port stays in TIME_WAIT. */
void reset_clients(struct client *c, uint32_t n);
/* Blocking, or nearly so: a request is short and its socket has room. */
void send_all(const struct client *c, const void *bytes, size_t len);
void receive_all(const struct client *c, void *ret, size_t len);
/* One client on a blocking socket. */
struct client connect_one(const struct options *opt);

/* requests.c; each returns its length. A key is 8 bytes: '/', the number in base 64, a letter. */
size_t put_key(uint8_t *at, char kind, uint64_t number);
size_t put_add(uint8_t *at, char kind, uint64_t number, uint64_t delta);
size_t put_get(uint8_t *at, char kind, uint64_t number);
size_t put_wait(uint8_t *at, char kind, uint64_t number);
size_t put_set(uint8_t *at, char kind, uint64_t number, const void *value, size_t len);
size_t put_barrier(uint8_t *at, char kind, uint64_t number, uint64_t world_size);
size_t put_ping(uint8_t *at, uint32_t nonce);

/* Scenarios: each prints one JSON object. */
void run_ops(const struct options *opt);
void run_get(const struct options *opt);
void run_storm(const struct options *opt);
void run_hold(const struct options *opt);
void run_barrier(const struct options *opt);
void run_wake(const struct options *opt);

#endif
