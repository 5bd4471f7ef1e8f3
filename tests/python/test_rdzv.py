"""The store server in a Python process."""

import errno
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

from rallypoint import errors, rdzv
from waits import eventually


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
        eventually(lambda: server.stats().keys >= 3)


def test_two_servers_and_a_port_in_use():
    with rdzv.Server("localhost:0") as one, rdzv.Server("127.0.0.1:0") as two:
        assert one.port != two.port
        with pytest.raises(errors.AddressInUse) as caught:
            rdzv.Server(f"127.0.0.1:{two.port}")
        assert isinstance(caught.value, OSError) and str(two.port) in str(caught.value)
        assert caught.value.errno == errno.EADDRINUSE
        advice = f"ss -ltnp 'sport = :{two.port}'): end it, or choose another port"
        with pytest.raises(errors.AddressInUse) as of_a_job:
            one.open_job("run", two.port)
        assert advice in str(caught.value) and advice in str(of_a_job.value)


@pytest.mark.parametrize("listen", ["", "127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:x",
                                    "127.0.0.1:65536", "127.0.0.1:-1", "no.such.host.example:0"])
def test_bad_addresses(listen):
    with pytest.raises(errors.InvalidArgument):
        rdzv.Server(listen)


def test_an_address_that_cannot_be_says_what_can():
    with pytest.raises(errors.InvalidArgument, match="from 0 to 65535, for example 127.0.0.1:0"):
        rdzv.Server("127.0.0.1:99999")
    for address in ("127.0.0.1:99999", "127.0.0.1:0"):
        with pytest.raises(errors.InvalidArgument, match="1 to 65535, for example 10.0.0.1:29400"):
            rdzv.Store(address)


def test_limits_of_the_server():
    with rdzv.Server(max_keys=2, max_value_bytes=100) as server:
        with rdzv.Store(server.address, timeout=20) as store:
            store.multi_set({"a": "", "b": "x" * 100})
            store.flush()
            store.set("c", "")
            with pytest.raises(errors.ConnectionLost, match="its log says which"):
                store.flush()
        with rdzv.Store(server.address, timeout=20) as store:
            store.set("a", "x" * 101)
            with pytest.raises(errors.ConnectionLost):
                store.flush()
        assert server.stats().keys == 2
        with server.open_job("j") as job, rdzv.Store(job.address, timeout=20) as store:
            store.set("a", "")
            with pytest.raises(errors.ConnectionLost):  # the limit is of all jobs together
                store.flush()


def test_a_server_forgets_and_does_not_wait_for_ever():
    with rdzv.Server(forget_after=0.05, request_timeout=0.1) as server:
        with rdzv.Store(server.address, timeout=20) as store:
            store.add("n", 1)
        deadline = time.monotonic() + 15
        while server.stats().keys != 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as slow:
            slow.sendall(b"\x00")
            assert slow.recv(1) == b""


@pytest.mark.parametrize("name", ["max_keys", "max_connections", "max_store_bytes",
                                  "max_buffer_bytes", "max_value_bytes", "max_request_bytes",
                                  "max_unread_bytes", "forget_after", "request_timeout"])
def test_limits_that_cannot_be(name):
    for value in (-1, 2**64):
        with pytest.raises(errors.InvalidArgument, match=name):
            rdzv.Server(**{name: value})


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_clients_are_lines_at_debug(caplog, level):
    caplog.set_level(level, "rallypoint.rdzv")
    with rdzv.Server() as server:
        with rdzv.Store(server.address, timeout=20) as store:
            store.add("n", 1)
        deadline = time.monotonic() + 15
        while server.stats().connections != 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        server.stats()
    found = [record for record in caplog.records if record.levelno == logging.DEBUG]
    assert bool(found) == (level == logging.DEBUG)


def test_foreign_address():
    with pytest.raises(errors.AddressNotAvailable, match="192.0.2.1:0: .*; .*: ip -brief address"):
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
