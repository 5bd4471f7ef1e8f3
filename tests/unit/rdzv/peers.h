/* peers.h: a core with a few connections, without sockets: send bytes, take answers. */
#ifndef TESTS_RDZV_PEERS_H
#define TESTS_RDZV_PEERS_H

#include "alloc_fault.h"
#include "core/core.h"
#include "wire.h"

enum { PEERS = 8 };

struct peers {
    struct rdzv__core core;
    struct rdzv__session s[PEERS];
    struct wire got[PEERS]; /* answers that have not been expected yet */
    int open[PEERS];
    int why[PEERS]; /* of a connection that the core ended; -1 = after its end of file */
};

/* Limits as rdzv_server_options_init gives them. */
struct rdzv__core_options peers_options(void);
void peers_open(struct peers *p, const struct rdzv__core_options *options);
void peers_close(struct peers *p);
/* A new connection under number `i`, which is closed. */
void peers_connect(struct peers *p, int i);
void peers_disconnect(struct peers *p, int i);
/* Feeds bytes and does for every connection what the shell would. */
void peers_send(struct peers *p, int i, const void *bytes, size_t len);
void peers_send_wire(struct peers *p, int i, struct wire *w); /* and empties w */
void peers_eof(struct peers *p, int i);
/* Takes what may be sent now; ends connections that are over. */
void peers_settle(struct peers *p);

#endif
