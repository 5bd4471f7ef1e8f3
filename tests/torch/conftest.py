"""Fixtures of the torch suites. This folder must never get an __init__.py: `torch` is taken.

The battery runs against rdzvd and against torch's own server, so what it expects is torch's
behaviour and not our reading of it. test_torch_differences.py holds what differs on purpose.
"""
import multiprocessing
import os
import threading
from datetime import timedelta

import pytest

import servers as under_test
import source_tree

# torch looks up the name of every peer for its log lines; where no name server answers, that
# takes 5 s each time unless told otherwise.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

source_tree.use_package()


@pytest.fixture(scope="session")
def torch_servers():
    pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")
    started = under_test.TorchServers()
    yield started
    started.close()


@pytest.fixture
def rdzvd(tmp_path):
    """An rdzvd of the test's own; it must end with status 0 after SIGTERM."""
    if not under_test.rdzvd_path():
        pytest.skip(under_test.NO_RDZVD)
    server = under_test.Rdzvd(tmp_path / "rdzvd.log")
    yield server
    assert server.stop() == 0, (tmp_path / "rdzvd.log").read_text()


@pytest.fixture(params=["rdzvd", "torch"])
def server(request):
    if request.param == "rdzvd":
        yield request.getfixturevalue("rdzvd")
        return
    server = under_test.TorchServer(request.getfixturevalue("torch_servers"))
    yield server
    server.stop()


@pytest.fixture
def connect(server):
    """connect(timeout=seconds) makes one more client of the server under test."""
    dist = pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")

    def client(timeout=10.0, **options):
        return dist.TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False,
                             timeout=timedelta(seconds=timeout), **options)

    return client


@pytest.fixture
def store(connect):
    return connect()


class Background:
    """A call in another thread; result() gives what it returned or raises what it raised."""

    def __init__(self, call, *args):
        self.outcome = None
        self.thread = threading.Thread(target=self._run, args=(call, *args), daemon=True)
        self.thread.start()

    def _run(self, call, *args):
        try:
            self.outcome = (call(*args), None)
        except Exception as e:
            self.outcome = (None, e)

    def running(self):
        return self.thread.is_alive()

    def result(self, timeout=10):
        self.thread.join(timeout)
        assert self.outcome, f"the call did not return within {timeout} s"
        value, error = self.outcome
        if error:
            raise error
        return value


@pytest.fixture
def background():
    return Background


@pytest.fixture(scope="session")
def processes():
    """Cheap child processes that have torch already: forked from a server that imported it."""
    pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed"])
    return context
