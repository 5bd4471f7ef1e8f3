/*
 * listen.c: a job's listening socket. Owns its descriptor from a successful bind to close. Accepted
 * sockets inherit TCP_NODELAY and keep-alive from it. When the process or the system is out of
 * descriptors, or the socket is broken, accepting pauses and comes back by itself; clients wait in
 * the backlog meanwhile. Looks up no names.
 */
#include "clock.h"
#include "error.h"
#include "uv/server.h"
#include "uv/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    ACCEPTS_PER_EVENT = 512, /* the backlog is what a storm overflows */
    PAUSE_MS = 100,
    BROKEN_PAUSE_MS = 1000,
    KEEPALIVE_IDLE_S = 60,
    KEEPALIVE_INTERVAL_S = 15,
    KEEPALIVE_PROBES = 4
};

uint16_t rdzv__address_text(const struct sockaddr_storage *addr, char *ret, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (addr->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
        uint16_t port = ntohs(in6->sin6_port);
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        snprintf(ret, size, "[%s]:%u", host, port);
        return port;
    }
    const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
    uint16_t port = addr->ss_family == AF_INET ? ntohs(in->sin_port) : 0;
    if (addr->ss_family == AF_INET)
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
    snprintf(ret, size, "%s:%u", host, port);
    return port;
}

/* Numeric forms only. Returns 0 when `host` is none. */
static int parse_host(const char *host, uint16_t port, struct sockaddr_storage *ret,
                      socklen_t *ret_len)
{
    char text[INET6_ADDRSTRLEN + 24];
    size_t len = strlen(host);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    }
    if (len == 0 || len >= sizeof text)
        return 0;
    memcpy(text, host, len);
    text[len] = '\0';
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_PASSIVE};
    struct addrinfo *found = NULL;
    const char *name = strcmp(text, "localhost") == 0 ? "127.0.0.1" : text;
    if (strcmp(text, "*") == 0)
        name = "::";
    if (getaddrinfo(name, NULL, &hints, &found) != 0)
        return 0;
    memset(ret, 0, sizeof *ret);
    memcpy(ret, found->ai_addr, found->ai_addrlen);
    *ret_len = found->ai_addrlen;
    freeaddrinfo(found);
    if (ret->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)ret)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)ret)->sin_port = htons(port);
    return 1;
}

static int fail_listen(rdzv_error *err, int error, const char *step, const char *address)
{
    int code = RDZV_EIO;
    if (error == EADDRINUSE)
        code = RDZV_EADDRINUSE;
    else if (error == EADDRNOTAVAIL || error == ENODEV)
        code = RDZV_EADDRNOTAVAIL;
    else if (error == EACCES || error == EPERM)
        code = RDZV_EACCES;
    return rdzv__fail_sys(err, code, error, "%s %s", step, address);
}

/* Returns the bound socket, or -1 with errno. */
static int bind_new(const struct sockaddr_storage *addr, socklen_t len)
{
    int fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int on = 1;
    int off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (addr->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, (const struct sockaddr *)addr, len) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int bind_host(struct rdzv__listener *l, const struct rdzv__listen_at *at, rdzv_error *err)
{
    struct sockaddr_storage addr;
    socklen_t len;
    if (!parse_host(at->host, at->port, &addr, &len))
        return rdzv__fail(err, RDZV_EINVAL, 0,
                          "listen on \"%.80s\": not a numeric IPv4 or IPv6 address, \"localhost\" "
                          "or \"*\"; names are not looked up",
                          at->host);
    char text[sizeof l->address];
    rdzv__address_text(&addr, text, sizeof text);
    l->fd = bind_new(&addr, len);
    if (l->fd < 0 && errno == EAFNOSUPPORT && strcmp(at->host, "*") == 0) {
        parse_host("0.0.0.0", at->port, &addr, &len); /* a kernel without IPv6 */
        rdzv__address_text(&addr, text, sizeof text);
        l->fd = bind_new(&addr, len);
    }
    return l->fd >= 0 ? RDZV_OK : fail_listen(err, errno, "bind to", text);
}

/* A socket of the caller's: checked, but not closed when it does not fit. */
static int adopt(struct rdzv__listener *l, int fd, rdzv_error *err)
{
    int type = 0;
    socklen_t len = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0)
        return rdzv__fail_sys(err, RDZV_EINVAL, errno, "listen_fd %d is not a socket", fd);
    struct sockaddr_storage addr = {0};
    len = sizeof addr;
    if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
        return rdzv__fail_sys(err, RDZV_EINVAL, errno, "address of listen_fd %d", fd);
    char text[sizeof l->address];
    if (type != SOCK_STREAM || (addr.ss_family != AF_INET && addr.ss_family != AF_INET6) ||
        rdzv__address_text(&addr, text, sizeof text) == 0)
        return rdzv__fail(err, RDZV_EINVAL, 0,
                          "listen_fd %d is not a TCP socket that is bound to a port", fd);
    l->fd = fd;
    return RDZV_OK;
}

int rdzv__listener_bind(struct rdzv__listener *l, const struct rdzv__listen_at *at, rdzv_error *err)
{
    l->fd = -1;
    l->shared = at->fd >= 0;
    int code = at->fd >= 0 ? adopt(l, at->fd, err) : bind_host(l, at, err);
    if (code != RDZV_OK)
        return code;
    int on = 1;
    int idle = KEEPALIVE_IDLE_S;
    int interval = KEEPALIVE_INTERVAL_S;
    int probes = KEEPALIVE_PROBES;
    setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(l->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(l->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(l->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(l->fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    fcntl(l->fd, F_SETFD, FD_CLOEXEC);
    fcntl(l->fd, F_SETFL, fcntl(l->fd, F_GETFL) | O_NONBLOCK); /* the caller's may block */
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    int backlog = at->backlog < INT32_MAX ? (int)at->backlog : INT32_MAX;
    int failed =
        listen(l->fd, backlog) != 0 || getsockname(l->fd, (struct sockaddr *)&addr, &len) != 0;
    int error = errno;
    l->port = rdzv__address_text(&addr, l->address, sizeof l->address);
    if (!failed)
        return RDZV_OK;
    /* Linux finds some conflicts only now. */
    code = fail_listen(err, error, "listen on", at->fd >= 0 ? "listen_fd" : at->host);
    if (at->fd < 0)
        close(l->fd);
    l->fd = -1;
    return code;
}

static int watch(struct rdzv_job *job, int what, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.u64 = rdzv__events_listener(job)};
    return epoll_ctl(job->server->epoll, what, job->listener.fd, &e) == 0 ? 0 : -errno;
}

int rdzv__listener_start(struct rdzv_job *job)
{
    return watch(job, EPOLL_CTL_ADD, EPOLLIN);
}

/* What to raise, for the log line. */
static void name_limit(int error, char *ret, size_t size)
{
    struct rlimit limit;
    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        snprintf(ret, size, "this process may have %llu files open (RLIMIT_NOFILE, ulimit -n)",
                 (unsigned long long)limit.rlim_cur);
    else if (error == ENFILE)
        snprintf(ret, size, "the whole system may have fs.file-max files open");
    else
        snprintf(ret, size, "%s", strerror(error));
}

/* Level-triggered polling would spin as long as the cause lasts, and a socket that was shut down
 * reports that in the set whatever is asked for: so out of the set. */
static void pause_accepting(struct rdzv_job *job, uint64_t pause_ms)
{
    watch(job, EPOLL_CTL_DEL, 0);
    job->listener.retry_ms = clock_ms() + pause_ms;
    rdzv__jobs_due(job->server, pause_ms);
}

/* Its log line is one for all jobs: they are out of descriptors together. */
static void pause_for_room(struct rdzv_job *job, int error)
{
    struct rdzv_server *s = job->server;
    char limit[96];
    pause_accepting(job, PAUSE_MS);
    name_limit(error, limit, sizeof limit);
    rdzv__log_kind(&s->unnamed, RDZV__LOG_ACCEPT_PAUSED, RDZV_LOG_ERROR,
                   "cannot accept clients on %s with %llu connected: %s; new ones wait",
                   job->listener.address, (unsigned long long)s->conn_count, limit);
}

/* What is wrong is the socket, which others may hold, too, and can mend. Said once. */
static void pause_broken(struct rdzv_job *job, int error)
{
    struct rdzv__listener *l = &job->listener;
    pause_accepting(job, BROKEN_PAUSE_MS);
    if (l->broken == error)
        return;
    l->broken = error;
    rdzv__log_job(job, RDZV_LOG_ERROR,
                  "cannot accept clients on %s: %s%s; the %llu connected are served, and accepting "
                  "is tried again every second",
                  l->address, strerror(error),
                  error == EINVAL ? " (the socket listens no more: was it shut down?)" : "",
                  (unsigned long long)job->conn_count);
}

void rdzv__listener_retry(struct rdzv_job *job)
{
    job->listener.retry_ms = 0;
    if (job->listener.fd >= 0 && watch(job, EPOLL_CTL_ADD, EPOLLIN) != 0)
        job->listener.retry_ms = clock_ms() + PAUSE_MS;
}

int rdzv__listener_waits(const struct rdzv_job *job)
{
    struct pollfd p = {.fd = job->listener.fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1 && p.revents == POLLIN; /* one that is broken hangs up */
}

/* Whether a new client is one too many; says so. */
static int too_many(struct rdzv_job *job)
{
    const struct rdzv_server *s = job->server;
    uint64_t all = s->options.max_connections;
    int of_job = job->conn_count >= job->max_connections && job->max_connections < all;
    if (!of_job && s->conn_count < all)
        return 0;
    rdzv__log_kind(job, RDZV__LOG_TOO_MANY, RDZV_LOG_WARN,
                   "closed a new client: %llu are connected, which is max_connections%s",
                   (unsigned long long)(of_job ? job->conn_count : s->conn_count),
                   rdzv__whose_limit(of_job, job->conn_count < s->conn_count));
    return 1;
}

/* accept returned `error`. Returns whether there may be more clients to take now. */
static int accept_failed(struct rdzv_job *job, int error)
{
    switch (error) {
    case EAGAIN:
        return 0;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
        pause_for_room(job, error);
        return 0;
    case EINTR:
    case ECONNABORTED:
        return 1;
    case EPROTO: /* from here on Linux reports what the new connection has met, and drops it */
    case ENOPROTOOPT:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
        rdzv__log_kind(job, RDZV__LOG_ACCEPT_FAILED, RDZV_LOG_WARN, "accepting a client on %s: %s",
                       job->listener.address, strerror(error));
        return 1;
    default:
        pause_broken(job, error);
        return 0;
    }
}

void rdzv__listener_accept(struct rdzv_job *job)
{
    struct rdzv__listener *l = &job->listener;
    rdzv__job_enter(job);
    for (int i = 0; i < ACCEPTS_PER_EVENT && l->fd >= 0; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (!accept_failed(job, errno))
                break;
            continue;
        }
        l->broken = 0;
        if (too_many(job)) {
            rdzv__socket_close(fd);
            job->refused++;
        } else {
            rdzv__conn_open(job, fd);
        }
    }
}

void rdzv__listener_close(struct rdzv_job *job)
{
    struct rdzv__listener *l = &job->listener;
    if (l->fd < 0)
        return;
    watch(job, EPOLL_CTL_DEL, 0);
    l->retry_ms = 0;
    if (l->keep_fd)
        return;
    if (l->shared)
        close(l->fd);
    else
        rdzv__socket_close(l->fd);
    l->fd = -1;
}
