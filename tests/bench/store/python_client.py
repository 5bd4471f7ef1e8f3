"""Gets of one key: python_client.py rallypoint|torch HOST PORT MILLISECONDS. Prints JSON."""

import json
import sys
import time

which, host, port, milliseconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if which == "torch":
    import torch.distributed

    store = torch.distributed.TCPStore(host, port, is_master=False, wait_for_workers=False)
else:
    import rallypoint.rdzv

    store = rallypoint.rdzv.Store(f"{host}:{port}")
VALUE = b"127.0.0.1:43210"
store.set("bench-get-python", VALUE)
gets = 0
begin = end = time.monotonic()
while end - begin < milliseconds / 1e3:
    if store.get("bench-get-python") != VALUE:
        sys.exit("python_client.py: a wrong answer")
    gets += 1
    end = time.monotonic()
print(json.dumps({"ops": gets, "seconds": end - begin}))
