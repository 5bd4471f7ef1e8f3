"""PyTorch's own store server as a process of its own: prints its address, ends with its input."""

import resource
import sys

import torch
import torch.distributed as dist

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(f"torch {torch.__version__} ready on 127.0.0.1:{store.port}", flush=True)
sys.stdin.read()
