"""rdzvd as a process, seen by torch clients: SIGTERM lets those that are there finish."""
import signal
import socket
import subprocess
import time
from datetime import timedelta

import pytest

import servers

dist = pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")


@pytest.fixture
def draining(tmp_path):
    """An rdzvd that waits up to 15 s for its clients after SIGTERM."""
    if not servers.rdzvd_path():
        pytest.skip("no rdzvd: set RDZVD to its path, or build it (build/*/librdzv/rdzvd)")
    server = servers.Rdzvd(tmp_path / "rdzvd.log", drain_timeout=15)
    yield server
    if server.popen.poll() is None:
        server.popen.kill()
        server.popen.wait()
    server.popen.stdout.close()


def connect(port):
    return dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False,
                         timeout=timedelta(seconds=5))


def test_sigterm_drains(draining, background):
    first, second = connect(draining.port), connect(draining.port)
    waiter = background(first.get, "k")
    time.sleep(0.15)
    draining.popen.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert draining.popen.poll() is None
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", draining.port), timeout=2)
    second.set("k", "v")  # those that are there are still served
    assert waiter.result(timeout=3) == b"v"
    assert second.add("n", 1) == 1
    del first, second, waiter
    assert draining.popen.wait(timeout=5) == 0  # the last client has left


def test_port_in_use(draining):
    """The second one ends at once, with an error that names the address."""
    result = subprocess.run(
        [servers.rdzvd_path(), "--listen", f"127.0.0.1:{draining.port}"], capture_output=True,
        text=True, timeout=10)
    assert result.returncode != 0
    assert str(draining.port) in result.stderr
    assert result.stdout == ""
