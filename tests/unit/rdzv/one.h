/* one.h: one client of a real server, driven in one of the three ways. */
#ifndef TESTS_RDZV_ONE_H
#define TESTS_RDZV_ONE_H

#include "net.h"
#include "uv/client.h"

enum { ONE_WAYS = 3, ONE_NO_PORT = 1 /* nobody listens there */ };

struct one {
    rdzv_server *server;
    rdzv_client *client;
    int drive;
    uv_loop_t loop; /* with RDZV_DRIVE_LOOP */
    int fds_before;
};
extern struct one the;

/* What a callback brought. */
struct outcome {
    int calls;
    int code;
    int sys_errno;
    char text[256];
    int64_t number;
    size_t count;
    char value[64]; /* of the first value */
};

/* Opens the server. */
void one_start(int drive);
/* Closes both; nothing of them is left. */
void one_finish(void);
rdzv_client_options one_options(uint16_t port);
/* Opens the client. */
void one_open(const rdzv_client_options *opt);
/* The same; names are looked up by `lookup`. */
void one_open_with(const rdzv_client_options *opt, rdzv__lookup_fn lookup);
void one_close(void);

rdzv_bytes one_text(const char *s);
/* For a call whose ctx is a struct outcome. */
void one_on_reply(void *ctx, const rdzv_reply *reply, const rdzv_error *result);
/* Drives the client until the call is over. */
void one_until(const struct outcome *o);
/* The same, and with that code; empties o. */
void one_ends(struct outcome *o, int code);

#endif
