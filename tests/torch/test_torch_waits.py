"""Waits, barriers and blocking pops: released by what torch releases, timed out, abandoned."""
import os
import signal
import time
from datetime import timedelta

import pytest

import servers
from waits import eventually

dist = pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")
import ranks  # noqa: E402  (it needs torch)

SHORT = timedelta(milliseconds=300)
LONG = timedelta(seconds=10)


def parked():
    """Gives a request in another thread the time to reach the server."""
    time.sleep(0.25)


def test_wait_for_what_is_there(store):
    store.set("a", "1")
    store.wait([])
    store.wait(["a"])
    store.wait(["a", "a"], LONG)


@pytest.mark.parametrize("write", [
    lambda s: s.set("k", "v"),
    lambda s: s.add("k", 0),
    lambda s: s.append("k", ""),
    lambda s: s.multi_set(["x", "k"], ["", ""]),
    lambda s: s.compare_set("k", "", ""),
    lambda s: s.queue_push("k", "v"),
], ids=["set", "add", "append", "multi_set", "compare_set", "queue_push"])
def test_wait_is_released_by_every_write(store, connect, background, write):
    waiter = background(connect().wait, ["k"], LONG)
    parked()
    assert waiter.running()
    write(store)
    waiter.result(timeout=3)


def test_get_and_multi_get_wait(store, connect, background):
    one, several = background(connect().get, "a"), background(connect().multi_get, ["a", "b"])
    parked()
    store.set("a", "1")
    assert one.result(timeout=3) == b"1"
    assert several.running()
    store.set("b", "2")
    assert several.result(timeout=3) == [b"1", b"2"]


def test_all_waiters_of_a_key_are_released(store, connect, background):
    waiters = [background(connect().wait, ["k"], LONG) for _ in range(20)]
    parked()
    store.set("k", "v")
    for waiter in waiters:
        waiter.result(timeout=3)


def test_deleted_key_stays_counted_off(store, connect, background):
    store.set("a", "1")
    waiter = background(connect().wait, ["a", "b"], LONG)
    parked()
    store.delete_key("a")
    store.set("b", "2")
    waiter.result(timeout=3)


def test_delete_while_waiting_releases_nobody(store, connect, background):
    waiter = background(connect().wait, ["k"], LONG)
    parked()
    assert not store.delete_key("k")
    parked()
    assert waiter.running()
    store.set("k", "v")
    waiter.result(timeout=3)


def test_failed_compare_set_of_another_key_releases_nobody(store, connect, background):
    waiter = background(connect().wait, ["k"], LONG)
    parked()
    store.compare_set("other", "", "v")
    store.compare_set("other", "not it", "w")
    parked()
    assert waiter.running()
    store.set("k", "v")
    waiter.result(timeout=3)


def test_timed_out_wait(store):
    store.set("there", "v")
    begun = time.monotonic()
    with pytest.raises(dist.DistStoreError,
                       match="wait timeout after 300ms, keys: /nope, /there"):
        store.wait(["nope", "there"], SHORT)
    assert 0.25 < time.monotonic() - begun < 2


def test_timed_out_get_takes_the_stores_timeout(connect):
    store = connect(timeout=0.3)
    with pytest.raises(dist.DistStoreError, match="wait timeout after 300ms, keys: /nope"):
        store.get("nope")
    with pytest.raises(dist.DistStoreError):
        store.multi_get(["nope", "neither"])
    store.set_timeout(timedelta(seconds=5))
    store.set("nope", "v")
    assert store.get("nope") == b"v"


def test_timed_out_wait_does_not_poison_the_connection(store, connect):
    other = connect()
    for i in range(5):
        with pytest.raises(dist.DistStoreError):
            store.wait([f"k{i}"], timedelta(milliseconds=50))
        other.set(f"k{i}", str(i))  # what it waited for comes too late
        assert store.get(f"k{i}") == str(i).encode()
        assert store.add("n", 1) == i + 1
        assert store.multi_get([f"k{j}" for j in range(i)]) == [str(j).encode() for j in range(i)]


def test_zero_timeout_is_over_at_once(store):
    """Even a key that is there may be too late for it; one that is not there always is."""
    store.set_timeout(timedelta(0))
    begun = time.monotonic()
    with pytest.raises(dist.DistStoreError):
        store.get("nope")
    assert time.monotonic() - begun < 1
    store.set_timeout(LONG)
    store.set("nope", "v")
    assert store.get("nope") == b"v"


def test_waits_that_race_with_sets(store, connect, background):
    """The answer of a wait and its cancellation cross on the wire; no reply may be out of step."""
    rounds = 300
    writer = connect()

    def write():
        for i in range(rounds):
            time.sleep(0.005)
            writer.set(f"k{i}", str(i))

    writing = background(write)
    timed_out = 0
    for i in range(rounds):
        try:
            store.wait([f"k{i}"], timedelta(milliseconds=5))
        except dist.DistStoreError:
            timed_out += 1
        assert store.add("n", 1) == i + 1
        assert store.get(f"k{i}") == str(i).encode()
    writing.result()
    assert timed_out > 0


def test_one_store_in_many_threads(store, background):
    calls = [background(lambda i=i: [store.add(f"n{i}", 1) for _ in range(100)][-1])
             for i in range(8)]
    assert [call.result() for call in calls] == [100] * 8


def test_barrier(store, connect, background):
    waiting = [background(connect().barrier, "b", 3) for _ in range(2)]
    eventually(lambda: store.check(["b"]) and store.get("b") == b"2")
    assert all(w.running() for w in waiting)
    store.barrier("b", 3)
    for w in waiting:
        w.result(timeout=3)
    store.barrier("b", 3)  # a name serves once: now it is open


def test_barrier_times_out_and_its_count_stays(store, connect):
    with pytest.raises(dist.DistStoreError, match="barrier timeout after 300ms, key: b"):
        store.barrier("b", 2, SHORT)
    connect().barrier("b", 2, SHORT)
    assert store.get("b") == b"2"


def test_barrier_of_nobody_is_open(store):
    store.barrier("b", 0)
    store.barrier("c", 1)


def test_barrier_through_a_prefix_store(store, connect, background):
    others = [background(dist.PrefixStore("p", connect()).barrier, "b", 3) for _ in range(2)]
    dist.PrefixStore("p", store).barrier("b", 3)
    for other in others:
        other.result(timeout=3)


def test_blocking_pop_waits_and_times_out(store, connect, background):
    popper = background(connect().queue_pop, "q")
    parked()
    assert popper.running()
    store.queue_push("q", "v")
    assert popper.result(timeout=3) == b"v"
    store.set_timeout(SHORT)
    with pytest.raises(dist.DistStoreError, match="wait timeout") as failure:
        store.queue_pop("q")
    assert not isinstance(failure.value, dist.QueueEmptyError)
    store.queue_push("q", "w")
    assert store.queue_pop("q") == b"w"


def test_one_push_releases_the_longest_waiter(store, connect, background):
    poppers = []
    for _ in range(3):
        poppers.append(background(connect().queue_pop, "q"))
        parked()
    for i, popper in enumerate(poppers):
        store.queue_push("q", str(i))
        assert popper.result(timeout=3) == str(i).encode()
        assert all(p.running() for p in poppers[i + 1:])


def test_wait_on_a_dying_server(torch_servers, background, tmp_path):
    """A server that ends in the middle of a wait is an error of the wait, not a hang."""
    for server in (servers.Rdzvd(tmp_path / "log") if servers.rdzvd_path() else None,
                   servers.TorchServer(torch_servers)):
        if not server:
            continue
        store = dist.TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False)
        waiter = background(store.wait, ["k"], LONG)
        parked()
        if server.kind == "rdzvd":
            server.popen.kill()
            server.popen.wait()
            server.popen.stdout.close()
        else:
            server.stop()
        with pytest.raises(dist.DistNetworkError):
            waiter.result(timeout=5)


@pytest.mark.parametrize("request_", ["wait", "pop", "barrier"])
def test_client_killed_in_a_wait(server, store, connect, background, processes, request_):
    """Its place is given up: a push goes to the living waiter behind it, a set to all."""
    ready = processes.Event()
    dying = processes.Process(target=ranks.wait_for_ever, args=(server.port, request_, ready))
    dying.start()
    assert ready.wait(30)
    parked()
    before = server.descriptors() if server.kind == "rdzvd" else None
    other = connect()
    survivor = background({"wait": lambda: other.get("k"), "pop": lambda: other.queue_pop("k"),
                           "barrier": lambda: other.barrier("k", 3)}[request_])
    parked()
    os.kill(dying.pid, signal.SIGKILL)
    dying.join()
    parked()
    if request_ == "pop":
        store.queue_push("k", "v")
    elif request_ == "wait":
        store.set("k", "v")
    else:
        store.barrier("k", 3)  # the dead one's count stays, as torch's server has it
    assert survivor.result(timeout=3) in (b"v", None)
    if before is not None:
        eventually(lambda: server.descriptors() == before)  # one went and one came
