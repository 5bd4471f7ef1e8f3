"""Signal handlers that raise at the worst moment: nothing hangs, nothing is freed twice, and no
buffer stays with the library.

A signal is not timed but placed: a library of the test's own raises it right before or right after
one call, which is where the interpreter would run the handler.
"""

import contextlib
import ctypes
import faulthandler
import functools
import operator
import os
import random
import select
import signal
import sys

import pytest

from alarms import alarms, interrupted_at_any_moment
from rallypoint import _ffi, _handle, ckpt, errors

np = pytest.importorskip("numpy", reason="numpy is not installed")


@pytest.fixture(autouse=True)
def end_of_a_hang():
    faulthandler.dump_traceback_later(60, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    assert not _handle._operations


class Interrupting:
    """libckpt, with a KeyboardInterrupt as soon as a function has done its work, once."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        real = getattr(_ffi.ckpt(), name)
        if name != self._name:
            return real

        def function(*arguments):
            self._name = None
            real(*arguments)
            raise KeyboardInterrupt

        return function


@contextlib.contextmanager
def interrupted_after(saver, name):
    saver._handle._lib = Interrupting(name)
    with pytest.raises(KeyboardInterrupt):
        yield
    saver._handle._lib = _ffi.ckpt()


def usable_or_closed(root, saver):
    try:
        saver.save(7, {"x": np.arange(3)}, wait=True)
        assert saver.load().step == 7
    except errors.StateError as error:
        assert "is closed" in str(error)
    saver.close()
    with ckpt.Checkpointer(root) as other:
        other.save(8, {"x": 8}, wait=True)
        assert other.load().step == 8


@pytest.mark.parametrize("name", ["begin", "put", "note", "commit"])
def test_an_interrupt_right_after_a_step_of_a_save(root, name):
    saver = ckpt.Checkpointer(root)
    with interrupted_after(saver, f"ckpt_save_{name}"):
        saver.save(1, {"x": np.arange(1000000)})
    assert saver._handle.closed == (name == "commit")
    usable_or_closed(root, saver)


@pytest.mark.parametrize("name", ["open", "get", "start", "close"])
def test_an_interrupt_right_after_a_step_of_a_load(root, name):
    ckpt.save(root, 1, {"x": np.arange(1000)})
    saver = ckpt.Checkpointer(root)
    with interrupted_after(saver, f"ckpt_load_{name}"):
        saver.load()
    usable_or_closed(root, saver)


def test_an_interrupt_right_after_a_look_for_the_latest(root):
    ckpt.save(root, 1, {"x": 1})
    saver = ckpt.Checkpointer(root)
    with interrupted_after(saver, "ckpt_load_open"):
        saver.latest()
    usable_or_closed(root, saver)


def test_an_operation_that_nobody_waited_for(root, monkeypatch):
    """Two interrupts: the second one keeps the first from being tidied up after."""
    ckpt.save(root, 1, {"x": 1})
    saver = ckpt.Checkpointer(root)
    monkeypatch.setattr(type(saver._handle), "give_up", lambda *_: None)
    monkeypatch.setattr(type(saver._handle), "close", lambda *_: None)
    for call in (saver.load, saver.latest):
        with interrupted_after(saver, "ckpt_load_open"):
            call()
    with interrupted_after(saver, "ckpt_save_begin"):
        saver.save(2, {"x": 2})
    monkeypatch.undo()
    saver.save(3, {"x": 3}, wait=True)
    saver.close()
    assert ckpt.latest(root).step == 3


class InterruptedDispatch:
    """libckpt, with a SIGINT that arrives when ckpt_dispatch has begun and a callback is ready:
    its handler runs where the callback is entered. Everything from the signal to there is C."""

    def __init__(self, skip):
        self._skip = skip  # dispatches with a callback that are left alone

    def __getattr__(self, name):
        return self._dispatch if name == "ckpt_dispatch" else getattr(_ffi.ckpt(), name)

    def _dispatch(self, pointer):
        real = _ffi.ckpt().ckpt_dispatch
        ready = select.poll()
        ready.register(_ffi.ckpt().ckpt_fd(pointer), select.POLLIN)
        if not ready.poll(0):
            return real(pointer)
        self._skip -= 1
        if self._skip != -1:
            return real(pointer)
        steps = (functools.partial(ctypes.CDLL(None)["raise"], int(signal.SIGINT)),
                 functools.partial(real, pointer))
        return list(map(operator.methodcaller("__call__"), steps))[1]


@pytest.mark.parametrize("skip", range(5))
@pytest.mark.parametrize("call", ["save", "load", "latest"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_where_a_callback_is_entered(root, call, skip):
    ckpt.save(root, 1, {"x": 1})
    saver = ckpt.Checkpointer(root)
    saver._handle._lib = lib = InterruptedDispatch(skip)
    calls = {"save": lambda: saver.save(2, {"x": np.arange(9)}, wait=True), "load": saver.load,
             "latest": saver.latest}
    try:
        calls[call]()
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    assert interrupted or call == "save" or lib._skip >= 0  # a save waits for `done` all the same
    if skip == 0 and call != "save":
        assert interrupted
    saver._handle._lib = _ffi.ckpt()
    usable_or_closed(root, saver)


class Interrupt(Exception):
    pass


@pytest.mark.parametrize("name", ["_on_log", "_finish"])
def test_an_interrupt_inside_a_callback(root, monkeypatch, name):
    """That of a handler need not be a KeyboardInterrupt. It surfaces, and on its own thread."""
    real, left = getattr(_handle, name), [1]

    def handler(*_):
        raise Interrupt

    def strike(*_):
        if left[0]:
            left[0] = 0
            signal.raise_signal(signal.SIGALRM)

    with alarms(handler):
        if name == "_on_log":
            monkeypatch.setattr(_handle._log, "log", strike)
        else:
            monkeypatch.setattr(_handle, name, lambda *rest: (strike(), real(*rest))[1])
        saver = ckpt.Checkpointer(root)
        (root / ".staging-x").mkdir()
        with pytest.raises(Interrupt):
            saver.save(1, {"x": np.arange(9)}, wait=True)
            saver.close()
    monkeypatch.undo()
    saver.close()
    with ckpt.Checkpointer(root) as other:
        other.save(2, {"x": 1}, wait=True)
        assert other.load().step == 2


@pytest.mark.parametrize("end", ["return", "exit"])
@pytest.mark.parametrize("call", ["save", "load"])
def test_a_signal_handler_closes_the_checkpointer(root, call, end):
    """At any line of a call, which has the handle: it is closed when the call ends."""
    state = {f"t{number}": np.arange(10) for number in range(20)}
    ckpt.save(root, 1, state)

    def handler(*_):
        saver.close()
        with pytest.raises(errors.StateError, match="is closed"):
            saver.latest()
        if end == "exit":
            raise SystemExit(7)

    def trace(frame, event, _):
        if os.path.dirname(frame.f_code.co_filename) != package or frame.f_code.co_name == "_use":
            return None  # in _use, no handler runs between the lines that matter: they call nothing
        if event == "line" and saver._busy:
            left[0] -= 1
            if left[0] == 0:
                handler()
        return trace

    package, line, left = os.path.dirname(ckpt.__file__), 1, [0]
    while left[0] <= 0:
        saver, left[0] = ckpt.Checkpointer(root), line
        sys.settrace(trace)
        try:
            if call == "load":
                assert saver.load().state["t7"].sum() == 45
            else:
                saver.save(2, state, wait=True)
        except (SystemExit, errors.StateError):
            pass
        finally:
            sys.settrace(None)
        if left[0] <= 0:
            assert saver._handle.closed
        saver.close()
        line += 1 + line // 10
    assert line > 100


def test_a_signal_handler_cannot_save_in_a_save(root, monkeypatch):
    saver, texts, real = ckpt.Checkpointer(root), [], _handle.Handle.put

    def handler(*_):
        for call in (lambda: saver.save(2, {"x": 2}), saver.load, saver.latest, saver.wait):
            with pytest.raises(errors.Busy, match="let it set a flag") as caught:
                call()
            texts.append(str(caught.value))

    def put(*arguments):
        signal.raise_signal(signal.SIGALRM)
        return real(*arguments)

    monkeypatch.setattr(_handle.Handle, "put", put)
    with alarms(handler):
        saver.save(1, {"x": np.arange(3)}, wait=True)
    assert len(texts) == 4 and saver.load().step == 1
    saver.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_moment(root):
    """The moments that the other tests do not name; a hang or a crash is the failure."""
    rng, saver, state = random.Random(1), None, {"a": np.arange(1000), "b": [1, 2, 3]}

    def work():
        nonlocal saver
        if saver is None or saver._handle.closed:
            saver = ckpt.Checkpointer(root, staging_bytes=8 << 20)
        with contextlib.suppress(errors.Canceled):
            saver.save(1, state, wait=rng.random() < 0.5)
            assert saver.load().state["a"].sum() == 499500

    assert interrupted_at_any_moment(work, longest=0.012) > 20
    usable_or_closed(root, saver)
