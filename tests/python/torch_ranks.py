"""One rank of test_torch_group.py: python torch_ranks.py RANK WORLD INIT ROOT CASE.

A program of its own, so that any interpreter with any torch can be a rank."""

import json
import sys
import time

import torch
import torch.distributed as dist

from rallypoint import ckpt, errors

rank, world, init, root, case = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]
dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world)
answer = {"torch": torch.__version__}


def tree(step):
    return {"w": torch.full((1000,), float(step)), "step": step}


if case == "auto":
    with ckpt.Checkpointer(root, timeout=30) as saver, \
            ckpt.Checkpointer(root + "-2", timeout=30) as other:
        assert saver.world_size == world and saver.rank == rank
        for step in range(4):
            saver.save(step, tree(step), {"rng": torch.get_rng_state(), "rank": rank})
            other.save(step, tree(step * 10))
            work = torch.ones(10)
            dist.all_reduce(work)
            assert work[0] == world
        saver.wait()
        other.wait()
        found = saver.load()
        assert torch.equal(found.state["w"], torch.full((1000,), 3.0))
        assert found.local["rank"] == rank
        assert other.load().state["w"][0] == 30
    saved = ckpt.save(root, 9, tree(9), timeout=30)
    found = ckpt.load(root, timeout=30)
    answer["found"] = [saved.sequence, found.step, found.world_size]
elif case == "subgroup":
    members = [0, world - 1]
    group = dist.new_group(members)
    if rank in members:
        own = ckpt.TorchGroup(group, prefix="sub")
        with ckpt.Checkpointer(root, group=own, timeout=30) as saver:
            saver.save(1, tree(1), rank, wait=True)
            found = saver.load()
            answer["found"] = [saver.rank, saver.world_size, found.local]
elif case == "unsavable":
    with ckpt.Checkpointer(root, timeout=30) as saver:
        started = time.monotonic()
        try:
            saver.save(1, tree(1), {"fn": print} if rank == 1 else None, wait=True)
        except (TypeError, errors.Error) as error:
            answer["error"] = [type(error).__name__, str(error)]
        answer["seconds"] = time.monotonic() - started
        saver.save(2, tree(2), wait=True)
elif case == "busy":
    # the training thread waits in the default store, which must not hold up a save
    store = dist.distributed_c10d._get_default_store()
    with ckpt.Checkpointer(root, timeout=30) as saver:
        saver.save(1, tree(1))
        started = time.monotonic()
        if rank == 0:
            store.wait(["from-1"])  # rank 1 sets it only after the commit that needs rank 0
        else:
            saver.wait()
            answer["seconds"] = time.monotonic() - started
            store.set("from-1", "x")
        saver.wait()
dist.barrier()
dist.destroy_process_group()
print(json.dumps(answer))
