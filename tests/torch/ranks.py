"""What the child processes of the tests do; here, so that they need not import a test module."""
import gc
import os
import queue
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist


def run(processes, target, world, *arguments):
    """target(rank, world, *arguments, results) in a process for each rank; what each has put there,
    by rank. Each must end well."""
    results = processes.Queue()
    children = [processes.Process(target=target, args=(rank, world, *arguments, results))
                for rank in range(world)]
    for child in children:
        child.start()
    seen = {}
    try:
        while len(seen) < world:
            rank, outcome = results.get(timeout=90)
            assert not isinstance(outcome, str), f"rank {rank}: {outcome}"
            seen[rank] = outcome
        for child in children:
            child.join(20)
    except queue.Empty:
        raise AssertionError(f"only ranks {sorted(seen)} came to an end") from None
    finally:
        for child in children:
            if child.is_alive():
                child.kill()
            child.join()
    assert [child.exitcode for child in children] == [0] * world
    return seen


def client(port, timeout=60):
    return dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False,
                         timeout=timedelta(seconds=timeout))


def wait_for_ever(port, request, ready):
    store = client(port)
    ready.set()
    if request == "wait":
        store.wait(["k"], timedelta(seconds=60))
    elif request == "pop":
        store.queue_pop("k")
    else:
        store.barrier("k", 3)


def collectives(rank, world):
    """A bit of everything that a process group does; returns what this rank saw."""
    seen = {}
    x = torch.full((4,), float(rank + 1))
    dist.all_reduce(x)
    seen["all_reduce"] = x.tolist()
    x = torch.full((2,), float(rank))
    dist.broadcast(x, src=2)
    seen["broadcast"] = x.tolist()
    parts = [torch.zeros(1) for _ in range(world)]
    dist.all_gather(parts, torch.tensor([float(rank)]))
    seen["all_gather"] = [p.item() for p in parts]
    dist.barrier()
    for members in ([0, 2], [1, 3]):
        group = dist.new_group(members)
        if rank in members:
            x = torch.tensor([float(rank)])
            dist.all_reduce(x, group=group)
            seen["new_group"] = x.item()
    dist.barrier()
    return seen


def our_store(rank, world, port, results):
    """One rank of a gloo group on a rallypoint.torch.Store that Python has no reference to, and of
    a second one with a PrefixStore around it."""
    import rallypoint.torch

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    limit = timedelta(seconds=30)
    try:
        dist.init_process_group("gloo", store=rallypoint.torch.Store("127.0.0.1", port, limit),
                                rank=rank, world_size=world, timeout=limit)
        gc.collect()
        seen = collectives(rank, world)
        objects = [{"from": rank, "bytes": b"\0"}]
        dist.broadcast_object_list(objects, src=1)
        seen["objects"] = objects
        gathered = [None] * world
        dist.all_gather_object(gathered, rank)
        seen["gathered"] = gathered
        dist.monitored_barrier(timeout=limit)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
        model(torch.full((1, 2), float(rank))).sum().backward()
        seen["gradient"] = model.module.weight.grad.flatten().tolist()
        dist.destroy_process_group()
        again = dist.PrefixStore("again", rallypoint.torch.Store("127.0.0.1", port, limit))
        dist.init_process_group("gloo", store=again, rank=rank, world_size=world, timeout=limit)
        del again
        gc.collect()
        assert collectives(rank, world)["all_reduce"] == seen["all_reduce"]
        dist.destroy_process_group()
        results.put((rank, seen))
    except Exception:
        results.put((rank, traceback.format_exc()))


def either_store(rank, world, port, results):
    """A rank of a group in which the odd ones have our client and the others torch's."""
    import rallypoint.torch

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    limit = timedelta(seconds=30)
    try:
        store = rallypoint.torch.Store("127.0.0.1", port, limit) if rank % 2 else client(port)
        dist.init_process_group("gloo", store=dist.PrefixStore("job", store), rank=rank,
                                world_size=world, timeout=limit)
        x = torch.tensor([float(rank + 1)])
        dist.all_reduce(x)
        dist.barrier()
        dist.destroy_process_group()
        results.put((rank, x.item()))
    except Exception:
        results.put((rank, traceback.format_exc()))


def gloo(rank, world, port, how, results):
    """One rank of a gloo group whose store is the server at `port`, found in one of three ways."""
    os.environ.update(GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      RANK=str(rank), WORLD_SIZE=str(world), TORCHELASTIC_USE_AGENT_STORE="True",
                      TORCHELASTIC_RESTART_COUNT="0")
    limit = timedelta(seconds=30)
    try:
        if how == "env":
            dist.init_process_group("gloo", timeout=limit)
        elif how == "tcp":
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                                    world_size=world, timeout=limit)
        else:
            dist.init_process_group("gloo", store=dist.PrefixStore("job", client(port)), rank=rank,
                                    world_size=world, timeout=limit)
        results.put((rank, collectives(rank, world)))
        dist.destroy_process_group()
    except Exception:
        results.put((rank, traceback.format_exc()))
