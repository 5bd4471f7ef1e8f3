"""rallypoint.torch.Store: under process groups and threads, interrupted, lost, and at its end."""
import contextlib
import copy
import gc
import os
import pathlib
import pickle
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

import servers
from alarms import handled_at_any_moment, interrupted_at_any_moment, on_alarm
from servers import raw
from source_tree import TOP
from waits import eventually

dist = pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")
import rallypoint.torch  # noqa: E402  (it needs torch)
import ranks  # noqa: E402
from rallypoint import rdzv  # noqa: E402

WORLD = 4
SHORT = timedelta(milliseconds=300)


@pytest.fixture
def local():
    """A server in this process, which counts its connections."""
    with rdzv.Server() as server:
        yield server


@pytest.fixture
def store(local):
    with rallypoint.torch.Store("127.0.0.1", local.port, 20) as store:
        yield store


def test_a_process_group_of_four(server, processes):
    seen = ranks.run(processes, ranks.our_store, WORLD, server.port)
    for rank in range(WORLD):
        assert seen[rank] == {
            "all_reduce": [10.0] * 4,
            "broadcast": [2.0] * 2,
            "all_gather": [0.0, 1.0, 2.0, 3.0],
            "new_group": 2.0 if rank in (0, 2) else 4.0,
            "objects": [{"from": 1, "bytes": b"\0"}],
            "gathered": [0, 1, 2, 3],
            "gradient": [1.5, 1.5],
        }


def test_our_store_and_torchs_own_in_one_group(server, processes):
    """Half of the ranks use each client: the keys are the same ones."""
    assert ranks.run(processes, ranks.either_store, 2, server.port) == {0: 3.0, 1: 3.0}


def test_barriers_of_both_clients(server, background):
    """They meet, also in those that torch makes of other calls."""
    theirs = ranks.client(server.port, timeout=10)
    with rallypoint.torch.Store("127.0.0.1", server.port, 10) as ours:
        for one, other in ((theirs, ours), (dist.PrefixStore("p", theirs),
                                            dist.PrefixStore("p", ours))):
            waiter = background(one.barrier, "b", 2)
            other.barrier("b", 2)
            waiter.result(timeout=5)


def test_the_store_is_one_of_torchs(store):
    assert isinstance(store, dist.Store)
    assert store.timeout == timedelta(seconds=20)
    with rallypoint.torch.Store(store.host, store.port) as other:
        assert other.timeout == dist.Store().timeout == timedelta(seconds=300)


def test_bytes_and_text_are_both_taken(store):
    store.set(b"k", "text")
    assert store.get("k") == store.get(b"k") == b"text"
    assert store.compare_set("k", b"text", b"\xff") == b"\xff"
    store.multi_set([b"a", "b"], ["1", b"\xfe"])
    assert store.multi_get(["a", b"b"]) == [b"1", b"\xfe"]
    with pytest.raises(TypeError):
        store.set("k", 1)
    with pytest.raises(TypeError):
        store.wait("k")
    with pytest.raises(dist.DistStoreError, match="2 keys and 1 values"):
        store.multi_set(["a", "b"], ["1"])


def test_what_cpp_clones_lives(local):
    """C++ holds the only reference to these objects, and calls them."""
    prefix = dist.PrefixStore("p", rallypoint.torch.Store("127.0.0.1", local.port, 10))
    clone = prefix.clone()
    gc.collect()
    clone.set("k", "v")
    assert prefix.get("k") == b"v"
    clone.set_timeout(SHORT)
    assert clone.timeout == SHORT and prefix.timeout == timedelta(seconds=10)
    assert local.stats().connections == 1


# -- threads -----------------------------------------------------------------------------------


def test_one_connection_serves_one_thread(local, store):
    threading.Timer(0.2, rdzv.Store(local.address).set, ("late", "v")).start()
    assert store.get("late") == b"v"
    store.set("k", "v")
    store.wait(["k", "late"])
    with pytest.raises(dist.DistStoreError):
        store.wait(["never"], SHORT)
    assert store.clone().get("k") == b"v"
    assert local.stats().accepted == 2  # one of them set "late"


@pytest.mark.parametrize("prefix, call, release", [
    (False, lambda s: s.get("k"), lambda s: s.set("k", "v")),
    (False, lambda s: s.wait(["k"]), lambda s: s.add("k", 1)),
    (False, lambda s: s.multi_get(["k", "other"]), lambda s: s.set("k", "v")),
    (False, lambda s: s.queue_pop("k"), lambda s: s.queue_push("k", "v")),
    (False, lambda s: s.barrier("k", 2), lambda s: s.barrier("k", 2)),
    (True, lambda s: s.get("k"), lambda s: s.set("k", "v")),
    (True, lambda s: s.barrier("k", 2), lambda s: s.barrier("k", 2)),
], ids=["get", "wait", "multi_get", "queue_pop", "barrier", "prefix get", "prefix barrier"])
def test_a_thread_that_waits_holds_up_no_other(store, background, prefix, call, release):
    used = dist.PrefixStore("p", store) if prefix else store
    waiter = background(call, used)
    time.sleep(0.25)
    begun = time.monotonic()
    used.set("other", "1")
    assert used.get("other") == b"1" and used.add("n", 1) == 1
    assert time.monotonic() - begun < 5 and waiter.running()
    release(used)
    waiter.result(timeout=5)


def test_many_threads_wait_on_one_store(local, store, background):
    for turn in range(3):  # the connections of one turn serve the next
        waiters = [background(store.get, f"{turn}/{number}") for number in range(20)]
        eventually(lambda: local.stats().waiting == 20)
        for number in range(20):
            store.set(f"{turn}/{number}", str(number))
        assert [waiter.result(timeout=5) for waiter in waiters] == \
            [str(number).encode() for number in range(20)]
    assert local.stats().connections <= 22


def test_a_thread_reads_what_it_wrote(store, background):
    """Also while waits of other threads take connections away and bring them back."""
    stop = threading.Event()

    def wait_often():
        while not stop.is_set():
            try:
                store.wait(["never"], timedelta(milliseconds=2))
            except dist.DistStoreError:
                pass

    waiters = [background(wait_often) for _ in range(3)]
    try:
        for number in range(500):
            store.set("k", str(number))
            assert store.get("k") == str(number).encode()
            store.queue_push("q", str(number))
            assert store.queue_len("q") == number + 1
    finally:
        stop.set()
    for waiter in waiters:
        waiter.result()


def test_close_does_not_wait_for_a_waiting_thread(local, background):
    store = rallypoint.torch.Store("127.0.0.1", local.port, 20)
    waiter = background(store.get, "k")
    eventually(lambda: local.stats().waiting == 1)
    begun = time.monotonic()
    store.close()
    assert time.monotonic() - begun < 2
    with rdzv.Store(local.address) as other:
        other.set("k", "v")
        other.flush()
    assert waiter.result(timeout=3) == b"v"
    eventually(lambda: local.stats().connections == 0)


def test_a_close_at_any_line_of_a_wait_leaves_no_connection(local):
    """Whether the connection is with the one that waits, or in its way back."""
    lines = rallypoint.torch._Lines
    codes = [method.__code__ for method in (lines.wait, lines._put_back, lines._leave)]

    def close_at(store, line):
        """Runs a wait, and a close in another thread before the line; whether there is one."""
        closer, left = threading.Thread(target=store.close), [line]

        def trace(frame, event, _):
            if frame.f_code not in codes:
                return None
            if event == "line":
                left[0] -= 1
                if left[0] == 0:
                    closer.start()
                    closer.join(0.2)  # unless it has to wait for this thread
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            store.wait(["k"])
        except dist.DistStoreError as error:
            assert "closed" in str(error)
        finally:
            sys.settrace(before)
        if left[0] > 0:
            store.close()
            return False
        closer.join()
        return True

    with rdzv.Store(local.address) as other:
        other.set("k", "v")
        other.flush()
        line = 1
        while True:
            store = rallypoint.torch.Store("127.0.0.1", local.port, 10)
            reached = close_at(store, line)
            eventually(lambda: local.stats().connections == 1)
            if not reached:
                break
            line += 1
    assert line > 10


# -- deadlines, loss ---------------------------------------------------------------------------


def test_a_stopped_server_holds_up_no_deadline(rdzvd):
    store = rallypoint.torch.Store("127.0.0.1", rdzvd.port, 20)
    store.set("k", "v")  # nothing says that it has arrived
    os.kill(rdzvd.popen.pid, signal.SIGSTOP)
    try:
        for call in (lambda: store.wait(["k"], SHORT), lambda: store.barrier("b", 2, SHORT)):
            begun = time.monotonic()
            with pytest.raises(dist.DistStoreError, match="timeout after 300ms"):
                call()
            assert time.monotonic() - begun < 10  # and not the 20 s of the store
    finally:
        os.kill(rdzvd.popen.pid, signal.SIGCONT)
    store.wait(["k"])
    assert store.get("k") == b"v"
    store.close()


def test_a_call_that_has_the_turn_holds_up_no_deadline_of_another(rdzvd, background):
    with rallypoint.torch.Store("127.0.0.1", rdzvd.port, 20) as store:
        short = background(store.wait, ["never"], timedelta(seconds=1))
        time.sleep(0.3)
        assert not store.check(["k"])  # there is a second connection
        os.kill(rdzvd.popen.pid, signal.SIGSTOP)
        try:
            store.set("k", "v")
            long = background(store.wait, ["k"])  # first of all that the set has arrived
            with pytest.raises(dist.DistStoreError, match="timeout after 1000ms"):
                short.result(timeout=4)
            assert long.running()
        finally:
            os.kill(rdzvd.popen.pid, signal.SIGCONT)
        long.result()


@pytest.mark.parametrize("call", ["get", "prefix", "init_process_group"])
def test_a_killed_server_is_an_error_of_all_calls(background, tmp_path, call):
    if not servers.rdzvd_path():
        pytest.skip(servers.NO_RDZVD)
    server = servers.Rdzvd(tmp_path / "log")
    store = rallypoint.torch.Store("127.0.0.1", server.port, 60)
    prefix = dist.PrefixStore("p", store)
    waiter = background({
        "get": lambda: store.get("k"), "prefix": lambda: prefix.get("k"),
        "init_process_group": lambda: dist.init_process_group("gloo", store=prefix, rank=0,
                                                              world_size=2)}[call])
    time.sleep(0.5)
    assert waiter.running()
    server.popen.kill()
    server.popen.wait()
    server.popen.stdout.close()
    with pytest.raises(dist.DistNetworkError, match=f"127.0.0.1:{server.port}"):
        waiter.result(timeout=5)
    for late in (lambda: store.get("k"), lambda: store.set("k", "v"), lambda: prefix.add("n", 1),
                 lambda: store.clone().check(["k"])):
        begun = time.monotonic()
        with pytest.raises(dist.DistNetworkError):
            late()
        assert time.monotonic() - begun < 1
    store.close()


def test_no_server_and_no_store():
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        port = mute.getsockname()[1]
        with pytest.raises(dist.DistNetworkError, match="refused"):
            rallypoint.torch.Store("127.0.0.1", port, 60, connect_timeout=0.4)
        mute.listen()
        with pytest.raises(dist.DistNetworkError, match="not a c10d store"):
            rallypoint.torch.Store("127.0.0.1", port, timedelta(seconds=60), connect_timeout=0.5)
    with pytest.raises(ValueError, match="address"):
        rallypoint.torch.Store("127.0.0.1", 65536)


# -- interrupts --------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, time
import torch.distributed as dist
import rallypoint.torch
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
store = rallypoint.torch.Store("127.0.0.1", int(sys.argv[1]), 60)
prefix = dist.PrefixStore("p", store)
calls = {
    "get": lambda: store.get("k"),
    "prefix": lambda: prefix.get("k"),
    "group": lambda: dist.init_process_group("gloo", store=prefix, rank=0, world_size=2),
}
print("ready", flush=True)
try:
    calls[sys.argv[2]]()
except KeyboardInterrupt:
    print("interrupted", store.add("n", 1), flush=True)
"""


@pytest.mark.parametrize("call", ["get", "prefix", "group"])
def test_an_interrupt_ends_a_wait(local, call):
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(local.port), call],
                             stdout=subprocess.PIPE,
                             env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    try:
        assert servers.read_line(child.stdout, timeout=60) == "ready\n"
        eventually(lambda: local.stats().waiting == 1)
        child.send_signal(signal.SIGINT)
        assert servers.read_line(child.stdout, timeout=10) == "interrupted 1\n"
        assert child.wait(timeout=60) == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_interrupts_at_any_moment(local, store, monkeypatch):
    """Also where a connection changes hands: no call hangs, and none gets another's answer."""
    # pytest would keep what is raised in a finalizer, and with its frames their connections
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    rng = random.Random(1)
    prefix = dist.PrefixStore("p", store)
    for number in range(50):
        prefix.set(f"k{number}", f"v{number}")

    def work():
        number = rng.randrange(50)
        assert prefix.get(f"k{number}") == f"v{number}".encode()
        store.add("n", 1)
        store.set("k", "v")

    def after():
        assert prefix.get("k7") == b"v7"

    assert interrupted_at_any_moment(work, after, longest=400e-6) > 100
    gc.collect()
    eventually(lambda: local.stats().connections <= 2)


@contextlib.contextmanager
def stopped(server, seconds):
    """A server that does nothing for some time."""
    os.kill(server.popen.pid, signal.SIGSTOP)
    for task in os.listdir(f"/proc/{server.popen.pid}/task"):  # each stops when it next runs
        stat = pathlib.Path(f"/proc/{server.popen.pid}/task/{task}/stat")
        eventually(lambda: stat.read_text().rpartition(") ")[2][0] == "T")
    timer = threading.Timer(seconds, os.kill, (server.popen.pid, signal.SIGCONT))
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.parametrize("call", ["check", "flush"])
def test_a_signal_handler_uses_the_store(rdzvd, call):
    """While a call of its thread has the turn, be it for the flush before a wait."""
    store = rallypoint.torch.Store("127.0.0.1", rdzvd.port, 20)
    store.set("x", "1")
    seen = []

    def handler():
        store.set("h", "1")
        seen.append((store.add("n", 1), store.get("h")))

    with stopped(rdzvd, 1.0), on_alarm(0.3, handler):
        begun = time.monotonic()
        if call == "check":
            assert store.check(["x"])
        else:
            store.wait(["x"])
        assert 0.5 < time.monotonic() - begun < 5
    assert seen == [(1, b"1")]
    assert store.check(["h"]) and store.add("n", 1) == 2
    store.close()


@pytest.mark.parametrize("call", ["check", "get"])
def test_a_signal_handler_closes_the_store(rdzvd, call):
    """The call under way goes on to its end; no later one begins, and no connection is left."""
    with raw(rdzvd.port):  # who is served, so the loop has opened what it needs
        before = rdzvd.descriptors() - 1
    store = rallypoint.torch.Store("127.0.0.1", rdzvd.port, 20)
    store.set("x", "1")
    with stopped(rdzvd, 1.0), on_alarm(0.3, store.close):
        assert store.check(["x"]) if call == "check" else store.get("x") == b"1"
    with pytest.raises(dist.DistStoreError, match="closed"):
        store.check(["x"])
    eventually(lambda: rdzvd.descriptors() == before)


def test_signal_handlers_use_the_store_at_any_moment(local, store):
    handled_at_any_moment(store)
    assert local.stats().connections <= 3


# -- the end -----------------------------------------------------------------------------------


def test_close(local):
    store = rallypoint.torch.Store("127.0.0.1", local.port, 10)
    prefix = dist.PrefixStore("p", store)
    clone, other = store.clone(), store.clone()
    clone.close()
    with pytest.raises(dist.DistStoreError, match="closed"):
        clone.get("k")
    store.set("k", "v")
    assert other.get("k") == b"v"
    assert repr(store) == f"<rallypoint.torch.Store at 127.0.0.1:{local.port}>"
    store.close()
    store.close()
    for closed in (store, prefix, other):
        with pytest.raises(dist.DistStoreError, match="closed"):
            closed.get("k")
    with pytest.raises(dist.DistStoreError, match="closed"):
        store.clone()
    assert repr(store) == f"<rallypoint.torch.Store at 127.0.0.1:{local.port}, closed>"
    eventually(lambda: local.stats().connections == 0)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_store_is_not_copied(store, copied):
    with pytest.raises(TypeError, match="make one in each process"):
        copied(store)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_after_fork(store, background):
    """Even of a process whose other thread is in the middle of a call."""
    store.set("k", "v")
    waiter = background(store.get, "later")
    time.sleep(0.2)
    child = os.fork()
    if child == 0:
        try:
            store.get("k")
        except dist.DistStoreError as error:
            store.close()
            os._exit(0 if "its child" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    store.set("later", "v")
    assert waiter.result() == b"v" and store.get("k") == b"v"


LEFT_OPEN = """
import sys, threading, time
import torch.distributed as dist
import rallypoint.torch
store = rallypoint.torch.Store("127.0.0.1", int(sys.argv[1]), 60)
prefix = dist.PrefixStore("p", store)
clone = prefix.clone()
threading.Thread(target=prefix.get, args=("never",), daemon=True).start()
time.sleep(0.3)
clone.set("k", "v")
print(prefix.get("k").decode())
"""


def test_a_process_may_end_with_open_stores(local):
    done = subprocess.run([sys.executable, "-c", LEFT_OPEN, str(local.port)], text=True,
                          capture_output=True, timeout=60,
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    assert (done.returncode, done.stdout, done.stderr) == (0, "v\n", "")


def test_the_code_of_the_page(local):
    page = (TOP / "docs" / "python.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, flags=re.S)
               if "rallypoint.torch" in block)
    code = code.replace('"192.0.2.10", 29400', f'"127.0.0.1", {local.port}')
    exec(code, {"run_id": "run", "restart_count": 0, "rank": 0, "world_size": 1})
    dist.barrier()
    dist.destroy_process_group()
    with rdzv.Store(local.address) as other:
        assert any(b"cpu//" in key for key in other.list_keys())


def test_importing_the_package_does_not_import_torch():
    script = ("import sys, rallypoint, rallypoint.rdzv; assert 'torch' not in sys.modules; "
              "from rallypoint import *; assert 'torch' not in globals(); "
              "import torch; assert hasattr(torch, 'Tensor'); print(rallypoint.torch.Store)")
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True,
                          timeout=60, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    assert done.stdout == "<class 'rallypoint.torch.Store'>\n", done.stderr
