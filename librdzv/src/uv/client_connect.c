/*
 * client_connect.c: from a host name to a store: look-up, tries with back-off, handshake, until the
 * one deadline of all tries. Names are looked up anew before each round of tries, never in reverse.
 * Invariant: c->fd is open in the phases CONNECT, HELLO and UP only; once the phase is DOWN it
 * stays so, and the core has failed.
 */
#include "error.h"
#include "uv/client.h"
#include "uv/random.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

enum {
    TRY_MS = 5000,      /* for one address */
    PATIENCE_MS = 3000, /* a store may start later than its clients */
    KEEPALIVE_IDLE_S = 60,
    KEEPALIVE_INTERVAL_S = 15,
    KEEPALIVE_PROBES = 4
};

static uint32_t random_number(void)
{
    return (uint32_t)(rdzv__random() >> 32); /* the upper half of a product is the mixed one */
}

int rdzv__client_set_host(struct rdzv_client *c, const char *host, rdzv_error *err)
{
    size_t len = strlen(host);
    int brackets = len >= 2 && host[0] == '[' && host[len - 1] == ']';
    if (brackets) {
        host++;
        len -= 2;
    }
    if (len == 0 || len >= sizeof c->host)
        return rdzv__fail(err, RDZV_EINVAL, 0, "client options: host is empty or too long");
    memcpy(c->host, host, len);
    c->host[len] = '\0';
    snprintf(c->service, sizeof c->service, "%u", c->options.port);
    int colon = strchr(c->host, ':') != NULL;
    snprintf(c->peer, sizeof c->peer, colon ? "[%s]:%s" : "%s:%s", c->host, c->service);
    struct addrinfo hints = {.ai_family = brackets ? AF_INET6 : AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    int result = getaddrinfo(c->host, c->service, &hints, &c->literal);
    if (result == 0)
        return RDZV_OK;
    c->literal = NULL;
    if (result == EAI_MEMORY)
        return rdzv__fail(err, RDZV_ENOMEM, ENOMEM, "out of memory for a client");
    if (brackets || colon)
        return rdzv__fail(err, RDZV_EINVAL, 0,
                          "client options: host \"%.80s\" is no IPv6 address%s", c->host,
                          strchr(c->host, '%') != NULL ? " of an interface here" : "");
    return RDZV_OK;
}

void rdzv__client_free_addresses(struct rdzv_client *c)
{
    if (c->found != NULL)
        uv_freeaddrinfo(c->found);
    c->found = NULL;
    c->next = NULL;
}

static void set_phase(struct rdzv_client *c, int phase, uint64_t end_ms)
{
    c->phase = phase;
    c->phase_end_ms = end_ms;
}

static uint64_t at_most(const struct rdzv_client *c, int32_t ms)
{
    uint64_t end = clock_in_ms(ms);
    return end < c->connect_end_ms ? end : c->connect_end_ms;
}

static void try_next(struct rdzv_client *c);

void rdzv__client_down(struct rdzv_client *c)
{
    if (c->phase == RDZV__PHASE_DOWN)
        return;
    rdzv__client_drop_socket(c);
    set_phase(c, RDZV__PHASE_DOWN, UINT64_MAX);
    if (!c->closing)
        rdzv__client_log(c, RDZV_LOG_WARN, "store %s is lost: %s", c->peer, c->core.failure.text);
}

/* A line for each new reason, and one that is harder to miss once it lasts. */
static void tell_trouble(struct rdzv_client *c, int trouble)
{
    int lasts =
        clock_ms() + (uint64_t)c->options.connect_timeout_ms > c->connect_end_ms + PATIENCE_MS;
    if (lasts && !c->told_patience)
        rdzv__client_log(c, RDZV_LOG_WARN, "store %s: %s; trying until %d ms are over", c->peer,
                         c->trouble, c->options.connect_timeout_ms);
    else if (c->told_trouble != trouble)
        rdzv__client_log(c, RDZV_LOG_INFO, "store %s: %s; trying again", c->peer, c->trouble);
    c->told_patience = c->told_patience || lasts;
    c->told_trouble = trouble;
}

/* One try is over. `what` and strerror(error) say why. */
static void try_failed(struct rdzv_client *c, int error, const char *what, const char *why)
{
    rdzv__client_drop_socket(c);
    rdzv__client_core_disconnect(&c->core);
    snprintf(c->trouble, sizeof c->trouble, "%s: %s", what, why);
    c->trouble_errno = error;
    if (c->next != NULL) {
        try_next(c);
        return;
    }
    rdzv__client_free_addresses(c);
    tell_trouble(c, error != 0 ? error : -1);
    if (c->closing)
        return; /* whoever was told has closed us */
    uint32_t pause = rdzv__client_backoff_ms(c->tries, random_number());
    c->tries++;
    set_phase(c, RDZV__PHASE_PAUSE, at_most(c, (int32_t)pause));
}

static void set_socket_options(int fd)
{
    int on = 1;
    int idle = KEEPALIVE_IDLE_S;
    int interval = KEEPALIVE_INTERVAL_S;
    int probes = KEEPALIVE_PROBES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static void try_next(struct rdzv_client *c)
{
    const struct addrinfo *address = c->next;
    c->next = address->ai_next;
    c->fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0) {
        try_failed(c, errno, "socket", strerror(errno));
        return;
    }
    set_socket_options(c->fd);
    int error = rdzv__client_watch_new(c);
    if (error != 0) {
        try_failed(c, error, "watching the socket", strerror(error));
        return;
    }
    if (connect(c->fd, address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS) {
        try_failed(c, errno, "connecting", strerror(errno));
        return;
    }
    set_phase(c, RDZV__PHASE_CONNECT, at_most(c, TRY_MS));
    rdzv__client_watch(c, UV_WRITABLE);
}

static void begin_hello(struct rdzv_client *c)
{
    set_phase(c, RDZV__PHASE_HELLO, at_most(c, c->options.hello_timeout_ms));
    rdzv__client_core_hello(&c->core, random_number(), clock_ms());
    if (c->core.state == RDZV__CLIENT_FAILED)
        rdzv__client_down(c);
    else
        rdzv__client_watch(c, UV_READABLE);
}

/* Nobody listens there, and the kernel has connected the socket with itself. */
static int is_self(int fd)
{
    struct sockaddr_storage here = {0};
    struct sockaddr_storage there = {0};
    socklen_t here_len = sizeof here;
    socklen_t there_len = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 && here_len == there_len &&
           memcmp(&here, &there, here_len) == 0;
}

void rdzv__client_connected(struct rdzv_client *c)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        error = errno;
    if (error == 0 && is_self(c->fd))
        error = ECONNREFUSED;
    if (error != 0)
        try_failed(c, error, "connecting", strerror(error));
    else
        begin_hello(c);
}

static void on_found(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct rdzv_client *c = request->data;
    c->looking_up = 0;
    if (c->closing || c->phase != RDZV__PHASE_LOOKUP) {
        uv_freeaddrinfo(found);
    } else if (status != 0 || found == NULL) {
        uv_freeaddrinfo(found);
        try_failed(c, 0, "looking the name up",
                   status != 0 ? uv_strerror(status) : "it has no address");
    } else {
        c->found = found;
        c->next = found;
        try_next(c);
    }
    if (!c->closing)
        rdzv__client_settle(c);
    rdzv__client_handle_gone(c);
}

static void look_up(struct rdzv_client *c)
{
    set_phase(c, RDZV__PHASE_LOOKUP, c->connect_end_ms);
    if (c->looking_up)
        return; /* an earlier one that was given up will do */
    int result = rdzv__client_need_loop(c);
    if (result == 0) {
        struct addrinfo hints = {
            .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
        c->lookup_request.data = c;
        result = c->lookup(c->loop, &c->lookup_request, on_found, c->host, c->service, &hints);
    }
    if (result != 0) {
        try_failed(c, -result, "looking the name up", uv_strerror(result));
        return;
    }
    c->looking_up = 1;
    c->handles++;
}

static void begin_round(struct rdzv_client *c)
{
    if (c->literal == NULL) {
        look_up(c);
        return;
    }
    c->next = c->literal;
    try_next(c);
}

void rdzv__client_connect(struct rdzv_client *c)
{
    c->connect_end_ms = clock_in_ms(c->options.connect_timeout_ms);
    begin_round(c);
}

void rdzv__client_lost(struct rdzv_client *c, int error)
{
    const char *why = error != 0 ? strerror(error) : "closed by the peer";
    if (c->phase == RDZV__PHASE_UP) {
        const struct rdzv__call *call = rdzv__client_core_owed(&c->core);
        const char *hint = "; the server ended, or refused it (a limit, or add to what is no "
                           "number): its log says which";
        rdzv__client_core_fail(&c->core, RDZV_ECONN, error, "connection to %s lost: %s%s%s%s",
                               c->peer, why, call != NULL ? " with an answer due to " : "",
                               call != NULL ? rdzv__op_name(call->op) : "",
                               call != NULL ? hint : "");
        rdzv__client_down(c);
        return;
    }
    if (c->core.hello_answered && !c->core.wait_first) {
        /* PyTorch's older server, which closes at a GET of a key that is not there. */
        rdzv__client_log(c, RDZV_LOG_INFO,
                         "store %s closes at a get of a missing key: it is asked with care",
                         c->peer);
        if (c->closing)
            return;
        c->core.wait_first = 1;
        rdzv__client_drop_socket(c);
        rdzv__client_core_disconnect(&c->core);
        rdzv__client_free_addresses(c);
        begin_round(c);
        return;
    }
    try_failed(c, error != 0 ? error : ECONNRESET, "handshake", why);
}

/* For rdzv__client_receive_waiting. */
static void make_blocking(struct rdzv_client *c)
{
    struct timeval limit = {.tv_sec = RDZV__RECEIVE_MS / 1000};
    int flags = fcntl(c->fd, F_GETFL);
    c->blocking = setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
                  flags >= 0 && fcntl(c->fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

void rdzv__client_follow_core(struct rdzv_client *c)
{
    if (c->core.state == RDZV__CLIENT_FAILED) {
        rdzv__client_down(c);
        return;
    }
    if (c->phase != RDZV__PHASE_HELLO || c->core.state != RDZV__CLIENT_UP)
        return;
    set_phase(c, RDZV__PHASE_UP, UINT64_MAX);
    rdzv__client_free_addresses(c);
    if (c->drive == RDZV_DRIVE_CALLER)
        make_blocking(c);
    rdzv__client_log(c, RDZV_LOG_INFO, "store %s: connected", c->peer);
}

static const char *dialect_hint(const struct rdzv_client *c)
{
    return c->core.config.legacy
               ? ""
               : " (a store of PyTorch 2.0 or older needs dialect A, RDZV_DIALECT_A)";
}

/* The deadline of all tries has come. A try that it cuts short says less than one that failed, but
 * a peer that took the connection may be a store that came up a moment ago. */
static void out_of_time(struct rdzv_client *c)
{
    if (c->phase == RDZV__PHASE_HELLO) {
        snprintf(c->trouble, sizeof c->trouble,
                 "the peer took the connection and is silent: not a c10d store, stuck, or just "
                 "starting%s",
                 dialect_hint(c));
        c->trouble_errno = 0;
    } else if (c->trouble[0] == '\0') {
        snprintf(c->trouble, sizeof c->trouble, "no answer to %s",
                 c->phase == RDZV__PHASE_CONNECT ? "connecting" : "looking the name up");
    }
    rdzv__client_core_fail(&c->core, RDZV_ETIMEDOUT, c->trouble_errno,
                           "no connection to %s within %d ms; last: %s%s", c->peer,
                           c->options.connect_timeout_ms, c->trouble,
                           c->trouble_errno == ECONNREFUSED ? " (does a store listen there?)" : "");
    rdzv__client_down(c);
}

void rdzv__client_phase_over(struct rdzv_client *c, uint64_t now_ms)
{
    if (c->phase == RDZV__PHASE_HELLO && c->phase_end_ms < c->connect_end_ms) {
        rdzv__client_core_fail(&c->core, RDZV_ENOTSTORE, 0,
                               "not a c10d store, or stuck: %s took the connection and is silent%s",
                               c->peer, dialect_hint(c));
        rdzv__client_down(c);
    } else if (now_ms >= c->connect_end_ms) {
        out_of_time(c);
    } else if (c->phase == RDZV__PHASE_CONNECT) {
        try_failed(c, ETIMEDOUT, "connecting", strerror(ETIMEDOUT));
    } else if (c->phase == RDZV__PHASE_PAUSE) {
        begin_round(c);
    }
}
