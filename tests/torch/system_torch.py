"""The battery for the distribution's own torch, whichever that is; needs nothing but torch.

    system_torch.py version | store PORT | gloo PORT | mixed PORT | ours PORT | ours-gloo PORT

The last two take rallypoint.torch.Store for the client. A plain script: the system's Python may
have no pytest. It ends with status 0 and one JSON line that says which torch ran and which methods
were exercised; a failed assertion is a traceback.
"""
import datetime
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

DONE = []
# Debian builds torch without libuv, which a TCPStore of 2.4 and later asks for unless it is told;
# the agent's store of env:// cannot be told.
WITHOUT_LIBUV = {"use_libuv": False} if "use_libuv" in dist.TCPStore.__init__.__doc__ else {}


def seconds(s):
    return datetime.timedelta(seconds=s)


def client(port, timeout=10):
    if OURS:
        import rallypoint.torch
        return rallypoint.torch.Store("127.0.0.1", port, seconds(timeout))
    return dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False,
                         timeout=seconds(timeout), **WITHOUT_LIBUV)


def methods():
    return [m for m in dir(dist.TCPStore) if not m.startswith("_")]


def raises(call, *args):
    """The call must fail with a RuntimeError; returns its text."""
    try:
        call(*args)
    except RuntimeError as e:
        return str(e)
    raise AssertionError("no error from %s%r" % (call.__name__, args))


def case(name):
    """Runs the function below if this torch has the method; its argument is a client."""
    def run(function):
        if name in methods():
            function(client(PORT))
            DONE.append(name)
    return run


def store_battery():
    @case("set")
    def _(s):
        for value in ("", "text", b"\0\xff binary", "x" * (1 << 20)):
            s.set("k", value)
            assert s.get("k") == (value.encode() if isinstance(value, str) else value)

    @case("get")
    def _(s):
        threading.Timer(0.3, client(PORT).set, ("late", "v")).start()
        assert s.get("late") == b"v"

    @case("add")
    def _(s):
        assert [s.add("n", 5), s.add("n", -7), s.add("n", 0)] == [5, -2, -2]
        assert s.get("n") == b"-2"

    @case("compare_set")
    def _(s):
        assert s.compare_set("c", "", "one") == b"one"
        assert s.compare_set("c", "one", "two") == b"two"
        assert s.compare_set("c", "zz", "three") == b"two"
        assert s.compare_set("none", "expected", "new") == b"expected"

    @case("num_keys")
    def _(s):
        before = s.num_keys()
        s.set("one more", "")
        assert s.num_keys() == before + 1

    @case("delete_key")
    def _(s):
        s.set("d", "v")
        assert s.delete_key("d") and not s.delete_key("d")

    @case("set_timeout")
    def _(s):
        s.set_timeout(seconds(1))
        begun = time.time()
        raises(s.get, "never")
        assert 0.8 < time.time() - begun < 5

    @case("wait")
    def _(s):
        other = client(PORT)
        s.wait(["k", "n"], seconds(5))
        for i in range(3):
            text = raises(s.wait, ["w%d" % i], seconds(1))
            assert "imeout" in text, text
            # An old client tells nobody that it gave up; its next request does, and from then on
            # the key may appear without an answer to the dead wait.
            assert s.add("after", 1) == i + 1
            other.set("w%d" % i, "v")
            assert s.get("w%d" % i) == b"v"
        threading.Timer(0.3, other.set, ("soon", "v")).start()
        s.wait(["soon"], seconds(5))

    @case("append")
    def _(s):
        s.append("a", "x")
        s.append("a", "y")
        assert s.get("a") == b"xy"

    @case("check")
    def _(s):
        assert s.check(["k"]) and not s.check(["k", "nope"])

    @case("multi_set")
    def _(s):
        s.multi_set(["m1", "m2"], ["1", "2"])
        assert s.multi_get(["m1", "m2"]) == [b"1", b"2"]

    @case("queue_push")
    def _(s):
        s.queue_push("q", "1")
        assert s.queue_len("q") == 1 and s.queue_pop("q") == b"1"


def prefix_battery():
    prefix = dist.PrefixStore("outer", dist.PrefixStore("inner", client(PORT)))
    prefix.set("k", "v")
    assert client(PORT).get("inner/outer/k") == b"v"
    assert prefix.add("n", 3) == 3 and prefix.delete_key("n")
    assert prefix.compare_set("c", "", "x") == b"x"
    raises(prefix.wait, ["nope"], seconds(1))
    assert prefix.get("k") == b"v" and prefix.num_keys() == client(PORT).num_keys()
    DONE.append("PrefixStore")


def battery():
    store_battery()
    prefix_battery()


def gloo_rank(rank, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(PORT), RANK=str(rank),
                      WORLD_SIZE=str(world), GLOO_SOCKET_IFNAME="lo",
                      TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    if OURS or WITHOUT_LIBUV:
        dist.init_process_group("gloo", store=client(PORT), rank=rank, world_size=world,
                                timeout=seconds(30))
    else:
        dist.init_process_group("gloo", timeout=seconds(30))
    x = torch.tensor([float(rank + 1)])
    dist.all_reduce(x)
    assert x.item() == world * (world + 1) / 2
    x = torch.tensor([float(rank)])
    dist.broadcast(x, src=2)
    assert x.item() == 2
    dist.barrier()
    group = dist.new_group([0, 2])
    if rank in (0, 2):
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=group)
        assert x.item() == 2
    objects = [rank]
    dist.broadcast_object_list(objects, src=1)
    assert objects == [1]
    dist.monitored_barrier(timeout=seconds(30))
    dist.barrier()
    dist.destroy_process_group()


def gloo(world=4):
    children = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                gloo_rank(rank, world)
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * world
    DONE.append("init_process_group")


def ours():
    """The same battery, and what this torch's own client may have no method for."""
    battery()
    s = client(PORT)
    s.append("list", "a")
    s.append("list", b"\xff")
    assert s.get("list") == b"a\xff"
    s.queue_push("queue", "e")
    assert s.queue_len("queue") == 1 and s.queue_pop("queue") == b"e"
    assert "empty" in raises(s.queue_pop, "queue", False)
    assert s.check(["list"]) and "list" in s.list_keys()
    s.barrier("barrier", 1)
    waiting = threading.Thread(target=dist.PrefixStore("p", s).get, args=("later",))
    waiting.start()
    time.sleep(0.3)
    s.set("p/later", "v")
    waiting.join(10)
    assert not waiting.is_alive()
    s.close()
    assert "closed" in raises(s.get, "list")
    DONE.append("ours")


def mixed():
    """The other side of test_two_generations_share_one_store."""
    s = client(PORT)
    assert s.get("from new") == b"\0new"
    s.set("from old", b"\0old")
    assert s.add("both", 10) == 11
    s.wait(["released by new"], seconds(20))
    assert s.compare_set("cas", "new", "old") == b"old"
    DONE.append("mixed")


if __name__ == "__main__":
    PORT = int(sys.argv[2]) if len(sys.argv) > 2 else None
    OURS = sys.argv[1].startswith("ours")
    {"version": methods, "store": battery, "gloo": gloo, "mixed": mixed, "ours": ours,
     "ours-gloo": gloo}[sys.argv[1]]()
    left = [m for m in methods() if m not in DONE]
    print(json.dumps({"torch": torch.__version__, "done": DONE, "left": left}), flush=True)
