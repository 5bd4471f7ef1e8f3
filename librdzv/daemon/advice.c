/*
 * advice.c: what an SRE is told of a command line that cannot work, or not as it was meant. Prints
 * and changes nothing else.
 */
#include "advice.h"

#include <string.h>

/* Where this process listens on `port` already, else NULL. */
static const char *own_address(const struct args *a, const rdzv_server *server, unsigned port)
{
    uint16_t own;
    const char *address = server != NULL ? rdzv_server_address(server, &own) : NULL;
    if (address == NULL || own == port)
        return address;
    for (size_t i = 0; i < a->job_count && a->jobs[i].handle != NULL; i++) {
        address = rdzv_job_address(a->jobs[i].handle, &own);
        if (own == port)
            return address;
    }
    return NULL;
}

static void advise_in_use(struct log *log, const char *own, const char *flag, unsigned port)
{
    if (own != NULL)
        log_say(log, RDZV_LOG_ERROR,
                "this rdzvd listens on %s itself: --listen (default " DEFAULT_LISTEN
                ") and each --job need a port of their own",
                own);
    else
        log_say(
            log, RDZV_LOG_ERROR,
            "another process listens there; to see which one: ss -ltnp 'sport = :%u'; end it, or "
            "choose another port with %s",
            port, flag);
}

int advise_open(struct log *log, const struct args *a, const rdzv_server *server, int code,
                const rdzv_error *err, const char *flag, unsigned port)
{
    log_say(log, RDZV_LOG_ERROR, "cannot start: %s: %s", flag, err->text);
    switch (code) {
    case RDZV_EADDRINUSE:
        advise_in_use(log, own_address(a, server, port), flag, port);
        return EXIT_LISTEN;
    case RDZV_EADDRNOTAVAIL:
        log_say(log, RDZV_LOG_ERROR, "to see this machine's addresses: ip -brief address");
        return EXIT_LISTEN;
    case RDZV_EACCES:
        log_say(log, RDZV_LOG_ERROR, "ports below 1024 need privileges; choose a higher one");
        return EXIT_LISTEN;
    case RDZV_EINVAL:
    case RDZV_EBUSY: /* a run id given twice */
        return EXIT_USAGE;
    default:
        return EXIT_OTHER;
    }
}

void advise_address(struct log *log, const char *address)
{
    if (strncmp(address, "127.", 4) != 0 && strncmp(address, "[::1]", 5) != 0 &&
        strncmp(address, "[::ffff:127.", 12) != 0)
        log_say(
            log, RDZV_LOG_WARN,
            "%s is reachable from other machines and the protocol has no authentication: keep it "
            "on a trusted network",
            address);
}

/* What has no effect was meant to have one. */
static void advise_shares(struct log *log, const struct args *a)
{
    const rdzv_server_options *all = &a->server;
    const rdzv_job_options *each = &a->each_job;
    const struct {
        const char *name;
        uint64_t share;
        uint64_t all;
    } shares[] = {{"connections", each->max_connections, all->max_connections},
                  {"keys", each->max_keys, all->max_keys},
                  {"store-bytes", each->max_store_bytes, all->max_store_bytes},
                  {"buffer-bytes", each->max_buffer_bytes, all->max_buffer_bytes}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        const char *name = shares[i].name;
        if (shares[i].share != 0 && a->job_count == 0)
            log_say(log, RDZV_LOG_WARN, "--job-max-%s has no effect: there is no --job", name);
        else if (shares[i].share > shares[i].all)
            log_say(log, RDZV_LOG_WARN,
                    "--job-max-%s (%llu) has no effect: --max-%s lets all jobs together have %llu",
                    name, (unsigned long long)shares[i].share, name,
                    (unsigned long long)shares[i].all);
    }
}

/* Limits that do not go together would be found out by a client, late. */
void advise_limits(struct log *log, const struct args *a)
{
    const rdzv_server_options *o = &a->server;
    unsigned long long value = o->max_value_bytes;
    if (value > o->max_request_bytes)
        log_say(
            log, RDZV_LOG_WARN,
            "a value of --max-value-bytes (%llu) is longer than --max-request-bytes (%llu) lets a "
            "request be",
            value, (unsigned long long)o->max_request_bytes);
    if (value > o->max_unread_bytes)
        log_say(
            log, RDZV_LOG_WARN,
            "a value of --max-value-bytes (%llu) is longer than --max-unread-bytes (%llu) lets an "
            "answer be",
            value, (unsigned long long)o->max_unread_bytes);
    advise_shares(log, a);
}
