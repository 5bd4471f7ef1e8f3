"""Runs torch's own TCPStore servers for the tests: "start" or "start old" (the back end
before libuv) answers a port, "stop PORT" ends one."""
import sys

from torch.distributed import TCPStore

servers = {}
for line in sys.stdin:
    request = line.split()
    if request[0] == "start":
        server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False,
                          use_libuv=request[1:] != ["old"])
        servers[server.port] = server
        print(server.port, flush=True)
        del server
    else:
        del servers[int(request[1])]
        print("stopped", flush=True)
