"""What PyTorch's own store tests check and no other test here does, on rdzvd and on torch's server.

docs/formats/c10d.md, section 7, says which test stands for which of theirs.
"""
import signal
import threading
import time
from datetime import timedelta

import pytest

dist = pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")


@pytest.fixture
def worker(server):
    def join(world_size):
        return dist.TCPStore("127.0.0.1", server.port, world_size=world_size, is_master=False,
                             timeout=timedelta(seconds=10))
    return join


@pytest.mark.parametrize("prefix", ["", "testPrefix"])
def test_sixteen_clients_hammer(server, worker, connect, background, prefix):
    """Counters, writes and reads of 16 clients, seen by all, and still there when all have left."""
    clients, times = 16, 200
    main = dist.PrefixStore(prefix, connect())
    stores = [dist.PrefixStore(prefix, worker(clients + 1)) for _ in range(clients)]
    all_done = threading.Barrier(clients)

    def hammer(i):
        for _ in range(times):
            stores[i].add("counter", 1)
        for n in range(times):
            stores[i].set(f"thread_{i}", f"value_{n}")
            assert stores[i].get(f"thread_{i}") == f"value_{n}".encode()
        all_done.wait(30)
        assert stores[i].get("counter") == str(clients * times).encode()
        for other in range(clients):
            assert stores[i].get(f"thread_{other}") == f"value_{times - 1}".encode()

    calls = [background(hammer, i) for i in range(clients)]
    for call in calls:
        call.result(timeout=60)
    assert main.num_keys() == clients + 2  # theirs, the counter, and init/ of the workers
    stores.clear()
    calls.clear()
    assert main.get("counter") == str(clients * times).encode()
    assert main.get("thread_7") == f"value_{times - 1}".encode()
    assert connect().add("again", 1) == 1


def test_keys_are_counted_as_they_come_and_go(worker):
    store = worker(1)
    assert store.num_keys() == 1  # the worker's own count
    for n in (1, 2, 3):
        store.add("counter", n)
    store.set("a", "1")
    store.set("b", "2")
    store.add("other", 1)
    assert store.num_keys() == 5
    assert store.delete_key("counter")
    assert not store.delete_key("never there")
    assert store.num_keys() == 4
    store.set_timeout(timedelta(milliseconds=300))
    with pytest.raises(RuntimeError, match="[tT]imeout"):
        store.get("counter")
    store.set("-odd", "7")
    assert store.get("-odd") == b"7"
    assert store.delete_key("-odd")
    assert store.num_keys() == 4


@pytest.mark.parametrize("world_size", [5, None])
def test_workers_of_a_world_with_and_without_a_size(worker, connect, world_size):
    owner = connect()
    owner.set("key", "value")
    for i in range(world_size or 1):
        store = worker(world_size)
        assert store.get("key") == b"value"
        store.set(f"new{i}", "first")
        assert store.compare_set(f"new{i}", "first", "second") == b"second"
    assert owner.check(["init/"]) is False  # the count has no slash: no user's key can meet it
    assert owner.num_keys() == 1 + (world_size or 1) + (world_size is not None)


def test_a_signal_does_not_break_a_wait(store, connect):
    """The wait goes on after a handler has run, and ends when its key comes."""
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.monotonic()))
    main = threading.main_thread().ident

    def disturb():
        for _ in range(3):
            time.sleep(0.15)
            signal.pthread_kill(main, signal.SIGUSR1)
        connect().set("k", "v")

    other = threading.Thread(target=disturb)
    try:
        other.start()
        store.wait(["k"], timedelta(seconds=10))
        other.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(seen) >= 1
    assert store.get("k") == b"v"


def test_a_wait_in_one_thread_a_set_in_another(connect, background):
    waiting, setting = connect(timeout=2), connect(timeout=2)
    waiter = background(lambda: (waiting.wait(["k"]), waiting.get("k"))[1])
    setting.set("k", "value1")
    assert waiter.result(timeout=5) == b"value1"


def test_the_last_handle_of_several_in_one_process(connect):
    """Two stores of one process on one server: the end of one leaves the other alone."""
    one, two = connect(), connect()
    one.set("k", "v")
    assert two.get("k") == b"v"
    del two
    one.set("k", "w")
    assert one.get("k") == b"w"

