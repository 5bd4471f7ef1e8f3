/* container.h: from a member back to the struct that it is in. */
#ifndef COMMON_CONTAINER_H
#define COMMON_CONTAINER_H

#include <stddef.h>

/* The way over void * says that the alignment is right: the member came from such a struct. */
#define CONTAINER_OF(member_ptr, type, member)                                                     \
    ((type *)(void *)((char *)(member_ptr)-offsetof(type, member)))

#endif
