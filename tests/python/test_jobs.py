"""Several jobs on one store server: torch's clients of one see nothing of another."""

import gc
import logging
import os
import socket
import threading
import weakref
from datetime import timedelta

import pytest

from rallypoint import _ffi, errors, rdzv
from waits import eventually


def torch_client(job, timeout=20):
    dist = pytest.importorskip("torch.distributed", reason="torch is not installed")
    return dist.TCPStore("127.0.0.1", job.port, is_master=False, timeout=timedelta(seconds=timeout))


def test_torch_clients_of_two_jobs():
    with rdzv.Server() as server, server.open_job("run-1") as one, server.open_job("run-2") as two:
        assert len({server.port, one.port, two.port}) == 3
        stores = [torch_client(job) for job in (server, one, two)]
        for i, store in enumerate(stores):
            store.set("k", str(i))
            assert store.add("n", i) == i
        for i, store in enumerate(stores):
            assert store.get("k") == str(i).encode()
            assert store.add("n", 1) == i + 1
        stores[1].delete_key("k")
        stores[1].set("only-1", "x")
        assert stores[1].check(["only-1"]) and not stores[2].check(["only-1"])
        assert stores[2].get("k") == b"2"
        keys = [store.num_keys() for store in stores]
        assert keys[0] == keys[1] == keys[2]
        eventually(lambda: one.stats().connections == two.stats().connections == 1)
        eventually(lambda: server.stats().keys == sum(keys))
        assert [job.stats().keys for job in (one, two)] == keys[1:]


def test_a_set_wakes_no_torch_client_of_another_job():
    with rdzv.Server() as server, server.open_job("run-1") as one, server.open_job("run-2") as two:
        woken = []

        def wait(job, store):
            store.wait(["go"], timedelta(seconds=15))
            woken.append(job)

        threads = [threading.Thread(target=wait, args=(job, torch_client(job)))
                   for job in (one, two)]
        for thread in threads:
            thread.start()
        eventually(lambda: (one.stats().waiting, two.stats().waiting) == (1, 1))
        torch_client(two).set("go", "x")
        threads[1].join(15)
        assert woken == [two] and one.stats().waiting == 1
        torch_client(one).set("go", "x")
        threads[0].join(15)
        assert woken == [two, one]


def test_a_run_id_is_open_once_and_starts_empty():
    with rdzv.Server() as server:
        job = server.open_job("run")
        with pytest.raises(errors.Busy, match='"run"'):
            server.open_job("run")
        store = rdzv.Store(job.address)
        store.set("k", "v")
        store.flush()
        assert repr(job) == f"<Job 'run' on {job.address}>"
        job.close()
        job.close()
        assert repr(job) == f"<Job 'run' on {job.address}, closed>"
        with pytest.raises(errors.ConnectionLost):
            store.get("k", timeout=5)
        store.close()
        with pytest.raises(errors.StateError, match="closed"):
            job.stats()
        with server.open_job("run", port=job.port) as again, rdzv.Store(again.address) as store:
            assert again.port == job.port and store.num_keys() == 0


def test_a_full_job_refuses_and_says_so(caplog):
    caplog.set_level(logging.WARNING, "rallypoint.rdzv")
    with rdzv.Server() as server, server.open_job("small", max_keys=2) as small, \
            server.open_job("large") as large:
        with rdzv.Store(small.address) as store, rdzv.Store(large.address) as other:
            store.multi_set({"1": "", "2": ""})
            store.set("3", "")
            with pytest.raises(errors.ConnectionLost):
                store.flush()
            other.multi_set({str(i): "" for i in range(100)})
            other.flush()
        assert small.stats().refused == 1 and large.stats().refused == 0
        assert 'job "small": closed client' in caplog.text
        assert "max_keys names (of this job)" in caplog.text


def test_keys_are_forgotten(caplog):
    caplog.set_level(logging.INFO, "rallypoint.rdzv")
    with rdzv.Server() as server, server.open_job("run", forget_after=0.1) as job:
        with rdzv.Store(job.address) as store:
            store.set("k", "v")
            store.flush()
        eventually(lambda: job.stats().keys == 0 and 'job "run": forgot 1 keys' in caplog.text)
        with rdzv.Store(job.address) as store:
            assert store.num_keys() == 0
        server.stats()
        assert 'job "run": forgot 1 keys' in caplog.text


def test_the_server_closes_its_jobs():
    server = rdzv.Server()
    job = server.open_job("run")
    server.close()
    with pytest.raises(errors.StateError, match="the job is closed"):
        job.stats()
    job.close()
    with pytest.raises(errors.StateError, match="the server is closed"):
        server.open_job("another")


def test_a_job_that_nobody_keeps_is_open_until_the_server_is_closed():
    with rdzv.Server() as server:
        address = server.open_job("run").address
        gc.collect()
        with rdzv.Store(address, connect_timeout=20) as store:
            assert store.add("n", 1) == 1
        with pytest.raises(errors.Busy):
            server.open_job("run")
        server.stats()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(address.split(":")[1]))).close()


def test_a_job_keeps_its_server_and_a_closed_one_leaves_nothing():
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    job = rdzv.Server().open_job("run")
    idle = len(os.listdir("/proc/self/fd"))
    with rdzv.Store(job.address) as store:
        assert store.num_keys() == 0
    for _ in range(10):
        with job._server.open_job("closed") as other:
            gone = weakref.ref(other)
        del other
        assert gone() is None
    eventually(lambda: len(os.listdir("/proc/self/fd")) == idle)
    job._server.open_job("not closed")
    del job  # and with it the server
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_job_whose_opening_is_interrupted_is_closed(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with rdzv.Server() as server:
        monkeypatch.setattr(rdzv.Job, "_read_address", interrupt)
        with pytest.raises(KeyboardInterrupt):
            server.open_job("run")
        monkeypatch.undo()
        server.open_job("run").close()


def test_a_job_in_one_cycle_with_its_server_is_closed_once(monkeypatch):
    """The collector finishes the two in any order."""
    freed = []  # by the C library, which frees the jobs of a server with it

    def watch(lib, name):
        real = getattr(lib, name)
        monkeypatch.setattr(lib, name, lambda pointer, *rest: (freed.append((name, pointer)),
                                                               real(pointer, *rest)))

    class Cycle:
        pass

    watch(_ffi.rdzv(), "rdzv_server_close")
    watch(_ffi.rdzv(), "rdzv_job_close")
    for _ in range(10):
        cycle = Cycle()
        cycle.server = rdzv.Server()
        cycle.job = cycle.server.open_job("run")
        cycle.itself = cycle
        freed.clear()
        del cycle
        gc.collect()
        assert [name for name, _ in freed].count("rdzv_server_close") == 1
        assert freed[-1][0] == "rdzv_server_close"  # no job of a server that is gone


@pytest.mark.parametrize("run_id, options", [
    ("", {}), ("x" * 256, {}), ("two\nlines", {}), ("nul\0", {}), ("é", {}),
    ("run", {"port": 65536}), ("run", {"port": -1}), ("run", {"max_keys": -1}),
    ("run", {"forget_after": -1}), ("run", {"max_store_bytes": 2**64}),
    ("run", {"port": 2**64 + 1})])
def test_bad_arguments(run_id, options):
    with rdzv.Server() as server:
        with pytest.raises(errors.InvalidArgument):
            server.open_job(run_id, **options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_after_fork():
    with rdzv.Server() as server, server.open_job("run") as job:
        child = os.fork()
        if child == 0:
            try:
                for call in (job.stats, lambda: server.open_job("second")):
                    with pytest.raises(errors.StateError, match="belongs to process"):
                        call()
                job.close()
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with rdzv.Store(job.address) as store:
            assert store.num_keys() == 0
