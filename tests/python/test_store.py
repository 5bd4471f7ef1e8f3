"""The store client of Python, against the server of this package."""

import logging
import os
import random
import signal
import socket
import sys
import threading
import time

import pytest

from alarms import handled_at_any_moment, interrupted_at_any_moment, on_alarm
from rallypoint import errors, rdzv
from waits import eventually


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
    with pytest.raises(errors.InvalidArgument, match="connect_timeout is -3, expected seconds"):
        rdzv.Store(server.address, connect_timeout=-3)
    with pytest.raises(errors.LimitExceeded, match="max_key_bytes"):
        store.get("k" * 9000)
    store.close()
    store.close()
    with pytest.raises(errors.StateError, match="closed"):
        store.get("a")
    assert repr(store) == f"<Store at {server.address}, closed>"


def test_integers_do_not_wrap_round(store):
    for amount in (2**63, 2**64 + 5, -2**63 - 1):
        with pytest.raises(errors.InvalidArgument, match=f"amount is {amount}, expected -92233720"):
            store.add("n", amount)
    assert store.add("n", -2**63) == -2**63
    for world_size in (2**64 + 1, 2**63):
        with pytest.raises(errors.InvalidArgument, match=f"world_size is {world_size}, expected"):
            store.barrier("b", world_size, timeout=1)
    with pytest.raises(TypeError):
        store.add("n", 1.5)
    for timeout in (2147484, 2**64, float("nan"), float("inf")):
        with pytest.raises(errors.InvalidArgument, match="timeout is .*, expected seconds from 0"):
            store.add("n", 1, timeout=timeout)


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
    begin = time.monotonic()
    with rdzv.Store(server.address, connect_timeout=0.3) as absent:
        with pytest.raises(errors.TimedOut, match="no connection to .*refused"):
            absent.get("a", timeout=0)
    assert time.monotonic() - begin >= 0.3


def test_a_silent_peer_and_what_to_write_for_an_old_store(caplog):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with rdzv.Store(f"127.0.0.1:{silent.getsockname()[1]}", connect_timeout=0.3) as store:
            for _ in range(2):  # what the connecting failed with, and what every later call says
                with pytest.raises(errors.TimedOut, match=r"2.0 or older needs legacy=True\)"):
                    store.get("a")
    assert "needs legacy=True" in caplog.text and "dialect" not in caplog.text.lower()


def test_a_script_that_waits_for_its_server_shows_why(server, caplog):
    server.close()
    with rdzv.Store(server.address, connect_timeout=6) as store:
        with pytest.raises(errors.TimedOut):
            store.get("a", timeout=0)
    first, *_ = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert "refused; trying until 6000 ms are over" in first.getMessage()


def test_a_signal_handler_that_raises(store):
    begin = time.monotonic()
    with pytest.raises(Interrupt), on_alarm(0.2, interrupt):
        store.get("none", timeout=15)
    assert time.monotonic() - begin < 5
    assert store.add("n", 1) == 1  # in step


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_moment(store):
    """Before, in and after the reply's callback: no hang, and no call gets another's answer."""
    rng = random.Random(1)
    for number in range(50):
        store.set(f"k{number}", f"v{number}")

    def work():
        number = rng.randrange(50)
        assert store.get(f"k{number}") == f"v{number}".encode()
        store.add("n", 1)

    def after():
        assert store.get("k7", timeout=10) == b"v7"

    assert interrupted_at_any_moment(work, after) > 100


class Interrupt(Exception):
    pass


def interrupt():
    raise Interrupt


@pytest.fixture
def during_a_log_line():
    """during_a_log_line(what): the next line runs it, in a signal handler."""
    class Handler(logging.Handler):
        def emit(self, _):
            what, self.what = self.what, None
            if what is not None:
                with on_alarm(0.05, what):
                    time.sleep(0.2)

    handler, logger = Handler(), logging.getLogger("rallypoint.rdzv")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(1)
    handler.what = None
    yield lambda what: setattr(handler, "what", what)
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_an_interrupt_during_a_log_line(server, during_a_log_line):
    """Of a call, of what a server says, and of what it says at its end."""
    with rdzv.Store(server.address, timeout=20) as store:  # the first call says that it connects
        during_a_log_line(interrupt)
        begin = time.monotonic()
        with pytest.raises(Interrupt):
            store.get("none", timeout=15)
        assert time.monotonic() - begin < 5
        assert store.add("n", 1) == 1
    for name in ("stats", "close"):
        with rdzv.Server() as other:  # what it said since is delivered by either
            during_a_log_line(interrupt)
            with pytest.raises(Interrupt):
                getattr(other, name)()


@pytest.mark.parametrize("end", ["return", "exit"])
def test_a_signal_handler_closes_the_store(server, end):
    """While a call waits: the call ends, and what it uses is freed after it, once."""
    freed, store = [], rdzv.Store(server.address)
    real = store._free
    store._free = lambda pointer: (freed.append(bool(store._calls)), real(pointer))

    def handler():
        store.close()
        assert not freed  # the call under way has it
        if end == "exit":
            sys.exit(7)

    with on_alarm(0.2, handler):
        with pytest.raises(SystemExit if end == "exit" else errors.Canceled):
            store.get("none", timeout=15)
    assert freed == [False]
    store.close()
    with pytest.raises(errors.StateError, match="closed"):
        store.get("none")
    eventually(lambda: server.stats().connections == 0)


def test_a_signal_handler_uses_the_store(store):
    """The interrupted call gets its own answer or deadline, and the handler's call its own."""
    begin = time.monotonic()
    with on_alarm(0.2, lambda: store.set("k", "v")):
        with pytest.raises(errors.TimedOut, match='get "none"'):
            store.get("none", timeout=1)
    assert 1 <= time.monotonic() - begin < 3
    assert store.get("k") == b"v"
    with on_alarm(0.2, lambda: store.set("awaited", "v")):
        assert store.get("awaited", timeout=15) == b"v"
    with on_alarm(0.2, lambda: pytest.raises(errors.NoSuchKey, store.get, "none", timeout=0)):
        with pytest.raises(errors.TimedOut):
            store.get("other", timeout=1)


def test_a_signal_handler_in_a_log_line(server, during_a_log_line):
    """Where the library can do nothing before the handler has returned."""
    with rdzv.Store(server.address, timeout=20) as store:
        during_a_log_line(lambda: store.set("k", store.add("n", 1).__str__()))
        assert store.get("k", timeout=15) == b"1"
    store = rdzv.Store(server.address, timeout=20)
    during_a_log_line(store.close)
    with pytest.raises(errors.Canceled):
        store.get("none", timeout=5)
    with rdzv.Server() as other:
        job = other.open_job("run")
        during_a_log_line(job.close)
        other.stats()
        assert other.open_job("run").stats().keys == 0
    other = rdzv.Server()
    during_a_log_line(other.close)
    other.stats()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", other.port)).close()


def test_signal_handlers_use_the_store_at_any_moment(store):
    handled_at_any_moment(store)


def status_of_a_child_that_gets(store):
    """0 when it is told whose store that is. A hang ends it, too."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        try:
            store.get("a")
        except errors.StateError as error:
            store.close()
            os._exit(0 if "its child" in str(error) else 2)
        os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_after_fork(store):
    store.set("a", "1")
    assert status_of_a_child_that_gets(store) == 0
    assert store.get("a") == b"1"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_after_fork_while_a_thread_waits(server, store):
    """The thread has the store's lock, and does not exist in the child to give it back."""
    waiter = threading.Thread(target=store.get, args=("late",))
    waiter.start()
    eventually(lambda: server.stats().waiting == 1)
    status = status_of_a_child_that_gets(store)
    with rdzv.Store(server.address) as other:
        other.set("late", "")
        other.flush()
    waiter.join(20)
    assert status == 0 and not waiter.is_alive()
