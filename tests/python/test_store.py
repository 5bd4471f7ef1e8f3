"""The store client of Python, against the server of this package."""

import faulthandler
import os
import random
import signal
import threading
import time

import pytest

from rallypoint import errors, rdzv


@pytest.fixture
def server():
    with rdzv.Server() as server:
        yield server


@pytest.fixture
def store(server):
    with rdzv.Store(server.address, timeout=20) as store:
        yield store


def test_every_call(store):
    store.set("a", "1")
    assert store.get("a") == b"1" and store.get(b"a") == b"1"
    store.append("a", b"\x00\xff")
    store.flush()
    assert store.get("a") == b"1\x00\xff"
    assert store.add("n", 5) == 5 and store.add("n", -7) == -2
    assert store.compare_set("c", "", "x") == b"x" and store.compare_set("c", "y", "z") == b"x"
    store.multi_set({"k1": "v1", "k2": ""})
    assert store.multi_get(["k1", "k2"]) == [b"v1", b""]
    assert store.multi_get([]) == []
    assert store.check(["k1", "k2"]) and not store.check(["k1", "none"])
    store.wait(["a", "n"])
    assert store.delete_key("k1") and not store.delete_key("k1")
    assert store.num_keys() == 4 and sorted(store.list_keys()) == [b"a", b"c", b"k2", b"n"]
    store.queue_push("q", "e1")
    assert store.queue_len("q") == 1 and store.queue_pop("q") == b"e1"
    store.barrier("b", 1)
    big = os.urandom(3 << 20)
    store.set("big", big)
    assert store.get("big") == big


def test_deadlines(store):
    begin = time.monotonic()
    with pytest.raises(errors.TimedOut, match='get "none"'):
        store.get("none", timeout=0.2)
    assert 0.2 <= time.monotonic() - begin < 3
    for ask in (lambda: store.get("none", timeout=0), lambda: store.queue_pop("q", timeout=0),
                lambda: store.wait(["none"], timeout=0)):
        with pytest.raises(errors.NoSuchKey):
            ask()
    with pytest.raises(LookupError):
        store.get("none", timeout=0)
    assert store.add("n", 1) == 1


def test_a_key_that_comes_later(server, store):
    def later():
        time.sleep(0.2)
        with rdzv.Store(server.address) as other:
            other.set("late", "now")
            other.flush()

    thread = threading.Thread(target=later)
    thread.start()
    assert store.get("late", timeout=10) == b"now"
    thread.join()


def test_bad_arguments(server, store):
    for address in ("", "127.0.0.1", ":1", "[nowhere]:1", "127.0.0.1:0"):
        with pytest.raises(errors.InvalidArgument):
            rdzv.Store(address)
    with pytest.raises(TypeError, match="int"):
        store.set("a", 1)
    with pytest.raises(TypeError, match="several"):
        store.wait("a")
    with pytest.raises(errors.InvalidArgument, match="timeout"):
        store.get("a", timeout=-1)
    with pytest.raises(errors.LimitExceeded, match="max_key_bytes"):
        store.get("k" * 9000)
    store.close()
    store.close()
    with pytest.raises(errors.StateError, match="closed"):
        store.get("a")
    assert repr(store) == f"<Store at {server.address}, closed>"


def test_lost_and_absent_servers():
    server = rdzv.Server()
    store = rdzv.Store(server.address, timeout=20)
    store.set("a", "1")
    store.flush()
    server.close()
    with pytest.raises(errors.ConnectionLost):
        store.get("a")
    with pytest.raises(ConnectionError):
        store.set("a", "2")
    with rdzv.Store(server.address, connect_timeout=0.3) as absent:
        with pytest.raises(errors.TimedOut, match="no connection to .*refused"):
            absent.get("a")


def test_a_signal_handler_that_raises(store):
    class Interrupt(Exception):
        pass

    def handler(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        begin = time.monotonic()
        with pytest.raises(Interrupt):
            store.get("none", timeout=15)
        assert time.monotonic() - begin < 5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert store.add("n", 1) == 1  # in step


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_moment(store):
    """Before, in and after the reply's callback: no hang, and no call gets another's answer."""
    rng = random.Random(1)
    for number in range(50):
        store.set(f"k{number}", f"v{number}")
    faulthandler.dump_traceback_later(60, exit=True)

    def handler(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    end, interrupted = time.monotonic() + 4, 0
    try:
        while time.monotonic() < end:
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(20e-6, 300e-6))
                    while True:
                        number = rng.randrange(50)
                        assert store.get(f"k{number}") == f"v{number}".encode()
                        store.add("n", 1)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
            assert store.get("k7", timeout=10) == b"v7"
    finally:
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()
    assert interrupted > 100


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_after_fork(store):
    store.set("a", "1")
    child = os.fork()
    if child == 0:
        try:
            store.get("a")
        except errors.StateError as error:
            store.close()
            os._exit(0 if "its child" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get("a") == b"1"
