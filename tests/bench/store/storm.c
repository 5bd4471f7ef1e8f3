/*
 * storm.c: many connections. A storm is timed from the first connect to the last answered
 * handshake, the closing of the waves between included. Several threads connect faster than one:
 * on loopback the caller of connect does most of the kernel's work for both ends. `hold` keeps the
 * connections and does what its standard input says, so that the server can be looked at meanwhile.
 */
#include "load.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One thread's share of a wave. */
struct part {
    struct options opt;
    struct client *c;
    uint32_t n;
    uint32_t failed;
    pthread_t thread;
};

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

static void *connect_part(void *arg)
{
    struct part *p = arg;
    int epoll = new_epoll();
    p->failed = connect_clients(&p->opt, epoll, p->c, p->n);
    close(epoll);
    return NULL;
}

/* Returns how many failed. */
static uint32_t connect_wave(const struct options *opt, struct client *c, uint32_t n)
{
    struct part parts[MAX_THREADS] = {0};
    uint32_t given = 0;
    for (uint32_t i = 0; i < opt->threads; i++) {
        struct part *p = &parts[i];
        *p = (struct part){.opt = *opt, .c = c + given, .n = (n - given) / (opt->threads - i)};
        p->opt.window = (opt->window + opt->threads - 1) / opt->threads;
        given += p->n;
        if (i > 0 && pthread_create(&p->thread, NULL, connect_part, p) != 0)
            die("cannot start a thread");
    }
    connect_part(&parts[0]);
    uint32_t failed = parts[0].failed;
    for (uint32_t i = 1; i < opt->threads; i++) {
        pthread_join(parts[i].thread, NULL);
        failed += parts[i].failed;
    }
    return failed;
}

/* Those that a full backlog made send something again. */
static uint32_t count_resent(const struct client *c, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct tcp_info info = {0};
        socklen_t len = sizeof info;
        if (c[i].fd >= 0 && getsockopt(c[i].fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0)
            count += info.tcpi_total_retrans > 0;
    }
    return count;
}

void run_storm(const struct options *opt)
{
    struct client *c = new_clients(opt->wave);
    uint32_t failed = 0;
    uint32_t resent = 0;
    double begin = 0;
    double end = 0;
    for (uint32_t done = 0; done < opt->clients; done += opt->wave) {
        uint32_t n = opt->clients - done < opt->wave ? opt->clients - done : opt->wave;
        open_clients(opt, c, n);
        if (done == 0)
            begin = now();
        failed += connect_wave(opt, c, n);
        end = now();
        resent += count_resent(c, n);
        if (done + n == opt->clients && !opt->echo && ping_all(c, n) < n)
            fprintf(stderr, "store_load: not all of the last wave were held\n");
        reset_clients(c, n);
    }
    free(c);
    printf("{\"seconds\": %.6f, \"failed\": %u, \"resent\": %u}\n", end - begin, failed, resent);
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
