"""Worker of the torchrun tests, for any torch: one JSON line per step to FILE, until STOP exists.

    elastic_worker.py FILE STOP
"""
import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist

out, stop = sys.argv[1:]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
rank, world = dist.get_rank(), dist.get_world_size()
step = 0
while True:
    seen = torch.tensor([1.0, float(os.path.exists(stop))])
    dist.all_reduce(seen)  # all see the same sum, so all stop at the same step
    step += 1
    with open(out, "a") as f:
        f.write(json.dumps({"node": os.environ["NODE"], "rank": rank, "world": world, "step": step,
                            "sum": int(seen[0]), "pid": os.getpid()}) + "\n")
    if seen[1] > 0:
        break
    time.sleep(0.1)
dist.destroy_process_group()
