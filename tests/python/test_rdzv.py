"""The store server in a Python process."""

import os
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

from rallypoint import errors, rdzv


def client(server):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import torch.distributed as dist

    assert torch
    return dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=timedelta(seconds=20))


def test_address_stats_and_close():
    with rdzv.Server() as server:
        assert server.address == f"127.0.0.1:{server.port}" and server.port > 0
        assert repr(server) == f"<Server on {server.address}>"
        stats = server.stats()
        assert (stats.connections, stats.keys, stats.requests) == (0, 0, 0)
    server.close()
    with pytest.raises(errors.StateError, match="closed"):
        server.stats()
    assert repr(server) == f"<Server on {server.address}, closed>"


def test_torch_client():
    with rdzv.Server() as server:
        store = client(server)
        store.set("a", "1")
        assert store.get("a") == b"1" and store.add("n", 5) == 5
        waiter = threading.Thread(target=lambda: client(server).wait(["later"]))
        waiter.start()
        other = client(server)
        other.set("later", "x")
        waiter.join(20)
        assert not waiter.is_alive()
        assert server.stats().keys >= 3


def test_two_servers_and_a_port_in_use():
    with rdzv.Server("localhost:0") as one, rdzv.Server("127.0.0.1:0") as two:
        assert one.port != two.port
        with pytest.raises(errors.AddressInUse) as caught:
            rdzv.Server(f"127.0.0.1:{two.port}")
        assert isinstance(caught.value, OSError) and str(two.port) in str(caught.value)


@pytest.mark.parametrize("listen", ["", "127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:x",
                                    "127.0.0.1:65536", "127.0.0.1:-1", "no.such.host.example:0"])
def test_bad_addresses(listen):
    with pytest.raises(errors.InvalidArgument):
        rdzv.Server(listen)


def test_foreign_address():
    with pytest.raises(errors.AddressNotAvailable):
        rdzv.Server("192.0.2.1:0")


def test_many_servers_leak_nothing():
    rdzv.Server().close()
    before = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    for _ in range(20):
        rdzv.Server().close()
    assert (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))) == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_after_fork():
    with rdzv.Server() as server:
        child = os.fork()
        if child == 0:
            try:
                server.stats()
            except errors.StateError as error:
                server.close()
                os._exit(0 if "its child" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert server.stats().connections == 0


def test_a_process_may_end_without_close(package_env):
    code = "from rallypoint import rdzv; s = rdzv.Server(); print(s.port)"
    done = subprocess.run([sys.executable, "-c", code], env=package_env, capture_output=True,
                          text=True, timeout=30)
    assert done.returncode == 0 and int(done.stdout) > 0 and not done.stderr
