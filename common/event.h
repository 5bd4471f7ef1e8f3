/* event.h: an eventfd as a hint, not a count: it is set or not, and settings merge. */
#ifndef COMMON_EVENT_H
#define COMMON_EVENT_H

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Returns a descriptor or a negative errno. */
static inline int event_open(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

static inline void event_set(int fd)
{
    uint64_t one = 1;
    /* EAGAIN means that the counter is full, so the descriptor is readable: all that is wanted. */
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static inline void event_drain(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}

/* Until it is set. */
static inline void event_wait(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
}

#endif
