r"""Handwritten digits with DistributedDataParallel; survives losing nodes.

    torchrun --nnodes=1:2 --nproc-per-node=1 --max-restarts=10 ... \
        examples/ddp_digits.py --root /shared/ckpt

Every rank cuts its slice out of the same global batch and the same global dropout mask, so the
course of the training does not depend on the world size beyond float rounding. Model, optimizer,
scheduler and random state are saved every --every steps; a start resumes from the newest commit.
"""
import argparse
import hashlib
import json
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

from rallypoint.ckpt import Checkpointer
from rallypoint.errors import NotFound

HELD_OUT = 360
MAX_BATCH = 1797 - HELD_OUT  # the data set has 1797 images
HIDDEN = 128
DROP = 0.2


class Net(nn.Module):
    """Two convolutions and two linear layers over 8 x 8 grey pixels."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, 10)

    def forward(self, x, mask=None):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x if mask is None else x * mask)


class Metrics:
    """One JSON line per event; rank 0 writes, to the end of a file that outlives this process."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1) if path and dist.get_rank() == 0 else None

    def write(self, **line):
        if self.file:
            self.file.write(json.dumps({"time": round(time.time(), 3), **line}) + "\n")


def digits(seed):
    """Training and held-out images and labels, split the same way on every rank."""
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.get_default_dtype()).unsqueeze(1) / 16
    y = torch.tensor(data.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    held_out, train = order[:HELD_OUT], order[HELD_OUT:]
    return x[train], y[train], x[held_out], y[held_out]


def epoch_order(seed, epoch, count):
    """The order of the training set in an epoch: a function of seed and epoch alone."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed * 100003 + epoch))


def digest(model):
    """SHA-256 over all weights, to compare two runs bit by bit."""
    h = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        h.update(name.encode())
        h.update(tensor.contiguous().numpy().tobytes())
    return h.hexdigest()


def resume(ck, net, optimizer, scheduler, rng):
    """Takes over the newest commit; returns its step, 0 for a fresh run."""
    try:
        saved = ck.load()
    except NotFound:  # a checkpoint that is there but unreadable is another error
        return 0
    net.load_state_dict(saved.state["model"])
    optimizer.load_state_dict(saved.state["optimizer"])
    scheduler.load_state_dict(saved.state["scheduler"])
    rng.set_state(saved.state["rng"])
    return saved.step


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--root", required=True, help="directory of the checkpoints, seen by all nodes")
    p.add_argument("--steps", type=int, default=330,
                   help="how many steps to train in all (%(default)s)")
    p.add_argument("--batch", type=int, default=128,
                   help="global batch, over all ranks (%(default)s)")
    p.add_argument("--every", type=int, default=10,
                   help="steps between two checkpoints (%(default)s)")
    p.add_argument("--lr", type=float, default=0.004,
                   help="learning rate of the first step (%(default)s)")
    p.add_argument("--seed", type=int, default=1,
                   help="of weights, dropout and the order of the images (%(default)s)")
    p.add_argument("--pace", type=float, default=0.0,
                   help="seconds to sleep after each step (%(default)s)")
    p.add_argument("--metrics", help="file that gets one JSON line per step")
    args = p.parse_args()
    if min(args.steps, args.every) < 1 or not 1 <= args.batch <= MAX_BATCH:
        p.error(f"--steps and --every are at least 1, --batch is 1 to {MAX_BATCH}")
    return args


@record
def main():
    args = parse_args()
    if "RANK" not in os.environ:
        raise SystemExit("ddp_digits.py: start it with torchrun, see README.md")
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)  # another world size then changes losses by 1e-14 only
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    if args.batch % world:
        raise SystemExit(f"--batch {args.batch} cannot be shared evenly by {world} ranks; "
                         f"choose a multiple of {world}")
    share = args.batch // world
    mine = slice(rank * share, (rank + 1) * share)
    metrics = Metrics(args.metrics)

    x, y, x_test, y_test = digits(args.seed)
    net = Net()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    rng = torch.Generator().manual_seed(args.seed)  # drives dropout, in the same state on all ranks

    def state():
        return {"model": net.state_dict(), "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(), "rng": rng.get_state()}

    with Checkpointer(args.root) as ck:  # all ranks together, through torch.distributed
        step = resume(ck, net, optimizer, scheduler, rng)
        metrics.write(event="start", step=step, world=world, store_host=os.environ["MASTER_ADDR"])

        per_epoch = len(y) // args.batch
        while step < args.steps:
            epoch, i = divmod(step, per_epoch)
            order = epoch_order(args.seed, epoch, len(y))
            batch = order[i * args.batch:(i + 1) * args.batch][mine]
            keep = torch.rand(args.batch, HIDDEN, generator=rng)[mine] >= DROP
            loss = F.cross_entropy(model(x[batch], keep / (1 - DROP)), y[batch])
            optimizer.zero_grad()
            loss.backward()  # averages the gradients over the ranks, whose slices are equal
            optimizer.step()
            scheduler.step()
            step += 1

            mean = loss.detach().clone()
            dist.all_reduce(mean)
            metrics.write(step=step, loss=mean.item() / world, world=world)
            if step % args.every == 0 or step == args.steps:
                # Without wait=True the write goes on behind the next steps, and a loss may cost
                # those as well as the steps since the last commit.
                done = ck.save(step, state(), wait=True)
                metrics.write(event="saved", step=step, bytes=done.shard_bytes,
                              staged=done.staged_s, seconds=done.committed_s)
            time.sleep(args.pace)

    with torch.no_grad():
        accuracy = (net(x_test).argmax(1) == y_test).float().mean().item()
    metrics.write(event="done", step=step, world=world, accuracy=accuracy, digest=digest(net))
    if rank == 0:
        print(f"step {step}, world size {world}: held-out accuracy {accuracy:.4f}, "
              f"weights {digest(net)[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
