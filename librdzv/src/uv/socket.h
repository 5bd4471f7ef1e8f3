/* socket.h: the end of a TCP socket, and what the kernel is to watch one for. */
#ifndef RDZV_UV_SOCKET_H
#define RDZV_UV_SOCKET_H

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

/* A child that the embedding program has forked holds a copy, and close alone would then end
 * nothing: the peer would hear of no end, the port would stay taken. For a socket that others have
 * on purpose, close is the right call. */
static inline void rdzv__socket_close(int fd)
{
    shutdown(fd, SHUT_RDWR);
    close(fd);
}

_Static_assert((int)EPOLLIN == POLLIN && (int)EPOLLOUT == POLLOUT, "poll's bits are epoll's");

/* For poll and epoll, of UV_READABLE and UV_WRITABLE. */
static inline short rdzv__poll_bits(int uv_events)
{
    return (short)(((uv_events & UV_READABLE) != 0 ? POLLIN : 0) |
                   ((uv_events & UV_WRITABLE) != 0 ? POLLOUT : 0));
}

#endif
