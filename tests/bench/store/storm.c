/*
 * storm.c: many connections. A storm is timed from the first connect to the last answered
 * handshake, the closing of the waves between included. `hold` keeps the connections and does what
 * its standard input says, so that the server can be looked at meanwhile.
 */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct client *new_clients(uint32_t n)
{
    struct client *c = calloc(n, sizeof *c);
    if (c == NULL)
        die("out of memory");
    return c;
}

/* One answered PING on each connection. */
static uint32_t ping_all(struct client *c, uint32_t n)
{
    uint8_t ping[5];
    uint8_t reply[4];
    uint32_t alive = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].fd >= 0)
            send_all(&c[i], ping, put_ping(ping, ~i));
    }
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].fd < 0)
            continue;
        receive_all(&c[i], reply, sizeof reply);
        if (bytes_get_u32(reply) != (uint32_t)~i)
            die("connection %u: PING has a wrong answer", i);
        alive++;
    }
    return alive;
}

void run_storm(const struct options *opt)
{
    struct client *c = new_clients(opt->wave);
    uint32_t failed = 0;
    double begin = 0;
    double end = 0;
    for (uint32_t done = 0; done < opt->clients; done += opt->wave) {
        uint32_t n = opt->clients - done < opt->wave ? opt->clients - done : opt->wave;
        int epoll = new_epoll();
        open_clients(opt, c, n);
        if (done == 0)
            begin = now();
        failed += connect_clients(opt, epoll, c, n);
        end = now();
        if (done + n == opt->clients && !opt->echo && ping_all(c, n) < n)
            fprintf(stderr, "store_load: not all of the last wave were held\n");
        reset_clients(c, n);
        close(epoll);
    }
    free(c);
    printf("{\"seconds\": %.6f, \"failed\": %u}\n", end - begin, failed);
}

static void wait_all(struct client *c, uint32_t n)
{
    uint8_t request[64];
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].fd >= 0)
            send_all(&c[i], request, put_wait(request, 'h', i));
    }
}

void run_hold(const struct options *opt)
{
    struct client *c = new_clients(opt->clients);
    int epoll = new_epoll();
    open_clients(opt, c, opt->clients);
    double begin = now();
    uint32_t failed = connect_clients(opt, epoll, c, opt->clients);
    printf("{\"seconds\": %.6f, \"failed\": %u}\n", now() - begin, failed);
    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "ping\n") == 0) {
            printf("{\"alive\": %u}\n", ping_all(c, opt->clients));
        } else if (strcmp(line, "wait\n") == 0) {
            wait_all(c, opt->clients);
            printf("{}\n");
        } else {
            die("hold knows ping and wait, not %s", line);
        }
    }
    reset_clients(c, opt->clients);
    free(c);
}
