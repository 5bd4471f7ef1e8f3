/* socket.h: the end of a TCP socket. */
#ifndef RDZV_UV_SOCKET_H
#define RDZV_UV_SOCKET_H

#include <sys/socket.h>
#include <unistd.h>

/* A child that the embedding program has forked holds a copy, and close alone would then end
 * nothing: the peer would hear of no end, the port would stay taken. For a socket that others have
 * on purpose, close is the right call. */
static inline void rdzv__socket_close(int fd)
{
    shutdown(fd, SHUT_RDWR);
    close(fd);
}

#endif
