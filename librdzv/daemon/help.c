/*
 * help.c: the text of rdzvd --help. The man page says the same at more length.
 */
#include "args.h"

#include <stdio.h>

void help_print(void)
{
    fputs(
        "usage: rdzvd [--listen ADDR:PORT] [--log-level LEVEL] [--drain-timeout SECONDS]\n"
        "             [LIMIT ...]\n"
        "\n"
        "Serves a c10d store: unmodified PyTorch processes use it as their TCPStore.\n"
        "\n"
        "  --listen ADDR:PORT         numeric IPv4 address, IPv6 address in brackets, localhost,\n"
        "                             or * for all; port 0 takes a free one\n"
        "                             (default " DEFAULT_LISTEN ")\n"
        "  --log-level LEVEL          error, warn, info, debug or trace (default info)\n"
        "  --drain-timeout SECONDS    how long a SIGTERM waits for clients to leave (default 10)\n"
        "  --help, --version\n"
        "\n"
        "Limits. Whoever goes beyond one is closed, and the log says which: --max-value-bytes is\n"
        "called max_value_bytes there. A SIZE is a number of bytes, or of K, M or G (1024, 1024^2\n"
        "or 1024^3 bytes).\n"
        "\n"
        "  --max-connections N        clients at once (default 1048576); each is a descriptor\n"
        "  --max-store-bytes SIZE     keys, values, queues and waits (default 4G)\n"
        "  --max-buffer-bytes SIZE    unfinished requests and unread answers of all clients\n"
        "                             (default 4G)\n"
        "  --max-unread-bytes SIZE    answers that one client has not read (default 256M)\n"
        "  --max-request-bytes SIZE   one request (default 256M)\n"
        "  --max-value-bytes SIZE     one value (default 8M, as PyTorch's own server)\n"
        "  --request-timeout SECONDS  for a request that has begun to come in whole; 0 = no limit\n"
        "                             (default 60)\n"
        "\n"
        "When it serves, it prints one line on standard output: rdzvd ready on ADDR:PORT\n"
        "SIGTERM, SIGINT, SIGHUP: no new clients, ends when the last one has left or the time\n"
        "is over; a second signal ends it at once. There is no authentication: whoever reaches\n"
        "the port can read and write every key.\n"
        "\n"
        "Exit codes: 0 ended as asked, 1 cut short by a second signal, 2 wrong command line,\n"
        "3 the address cannot be listened on, 4 anything else.\n"
        "\n"
        "Examples:\n"
        "  rdzvd\n"
        "  rdzvd --listen '[::1]:0' --log-level warn\n"
        "  rdzvd --listen 10.0.0.5:29400 --drain-timeout 60\n"
        "  rdzvd --listen 10.0.0.5:29400 --max-connections 20000 --max-store-bytes 512M\n"
        "  torchrun --nnodes=1:2 --rdzv-backend=c10d --rdzv-conf=is_host=false \\\n"
        "           --rdzv-endpoint=127.0.0.1:29400 --rdzv-id=my-job-1 train.py\n"
        "(a new --rdzv-id for each job; rdzvd(8) has the settings for quick recovery)\n",
        stdout);
}
