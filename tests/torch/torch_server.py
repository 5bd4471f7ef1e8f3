"""Runs torch's own TCPStore servers for the tests: "start" answers a port, "stop PORT" ends one."""
import sys

from torch.distributed import TCPStore

servers = {}
for line in sys.stdin:
    request = line.split()
    if request[0] == "start":
        server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        servers[server.port] = server
        print(server.port, flush=True)
        del server
    else:
        del servers[int(request[1])]
        print("stopped", flush=True)
