"""A store for torch.distributed that speaks through librdzv.

    store = rallypoint.torch.Store("10.0.0.1", 29400)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world_size)

What it talks to is rdzvd, `rallypoint.rdzv.Server`, or a TCPStore that PyTorch hosts, and it shares
keys with the TCPStore clients of other processes.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from datetime import timedelta
from typing import Any, Callable, Optional, Sequence, Union

import torch.distributed as dist

from . import errors, rdzv
from .rdzv import UNANSWERED, Bytes

if not dist.is_available():
    raise ImportError("rallypoint.torch needs a torch that was built with torch.distributed")

__all__ = ["Store"]

Timeout = Union[timedelta, float]  # a number is in seconds

_FURTHER_S = 10.0  # to connect once more to a store that answered before

# Where a release of torch lacks a class, its TCPStore raises RuntimeError, the base of all of them.
_StoreError = getattr(dist, "DistStoreError", RuntimeError)
_NetworkError = getattr(dist, "DistNetworkError", RuntimeError)
_QueueEmptyError = getattr(dist, "QueueEmptyError", _StoreError)


class _Lines:
    """The connections of a Store and its clones.

    Calls take turns on one of them, so each sees what those before it did. A call that may wait for
    another process takes that connection away, once all that was sent there is known to be
    executed; who comes meanwhile goes on with another. So there are as many as calls at a time.
    """

    def __init__(self, connect: Callable[[float], rdzv.Store], connect_s: float) -> None:
        self._connect = connect
        self._turn = threading.RLock()
        self._busy = False  # a call has the turn; if of this thread, a signal handler asks
        self._current: Optional[rdzv.Store] = connect(connect_s)
        self._unconfirmed = False  # something was sent on the current one that nothing answered
        self._idle: list[rdzv.Store] = []  # any thread appends and pops, with or without the turn
        self._end: Optional[errors.Error] = None  # why there are no calls any more
        self.pid = os.getpid()

    def close(self) -> None:
        """A call under way goes on, and closes its connection when it ends."""
        self._end = errors.rdzv_error("ESTATE", "the store is closed")
        with self._turn:
            if not self._busy:
                self._close_unused()

    def ask(self, name: str, *arguments: Any) -> Any:
        """A call that the store answers at once, or never."""
        with self._turn:
            if self._busy:
                return self._aside(name, *arguments)
            self._busy = True
            try:
                line = self._here()
                unanswered = name in UNANSWERED
                self._unconfirmed |= unanswered  # also if an interrupt ends this call
                result = self._run(line, name, *arguments)
                self._unconfirmed = unanswered
            finally:
                self._leave()
        return result

    def wait(self, name: str, timeout_s: float, *arguments: Any) -> Any:
        """A call that may have to wait for another process."""
        deadline = time.monotonic() + timeout_s
        with self._turn:
            if self._busy:
                return self._aside(name, *arguments, timeout_s)
            self._busy = True
            try:
                line = self._here()
                if self._unconfirmed:
                    self._run(line, "flush", timeout_s)
                    self._unconfirmed = False
                self._current = None
            finally:
                self._leave()
        try:
            return self._run(line, name, *arguments, max(0.0, deadline - time.monotonic()))
        finally:
            self._put_back(line)  # without a turn: a deadline may pass during another's call

    def _aside(self, name: str, *arguments: Any) -> Any:
        """A signal handler's call, while the call that it interrupts has the current connection.
        It may not see what was sent there unanswered; what follows it sees what it did."""
        line = self._further()
        try:
            result = self._run(line, name, *arguments)
            if name in UNANSWERED:
                self._run(line, "flush")
        except BaseException:
            line.close()
            raise
        self._put_back(line)
        return result

    def _here(self) -> rdzv.Store:
        if self._current is None or self._end is not None:
            self._current = self._further()
        return self._current

    def _further(self) -> rdzv.Store:
        if self._end is not None:
            raise copy.copy(self._end)  # a copy: each traceback is its own
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect(_FURTHER_S)

    def _leave(self) -> None:
        self._busy = False
        if self._end is not None:
            self._close_unused()

    def _put_back(self, line: rdzv.Store) -> None:
        self._idle.append(line)
        if self._end is not None:  # looked at after that: who ends it looks at _idle after that
            self._close_idle()

    def _close_unused(self) -> None:
        line, self._current = self._current, None
        if line is not None:
            line.close()
        self._close_idle()

    def _close_idle(self) -> None:
        while True:
            try:
                line = self._idle.pop()
            except IndexError:
                return
            line.close()

    def _run(self, line: rdzv.Store, name: str, *arguments: Any) -> Any:
        try:
            return getattr(line, name)(*arguments)
        except (errors.ConnectionLost, errors.NotAStore) as error:
            self._end = copy.copy(error)  # nothing reconnects: what was executed is unknown
            raise


class Store(dist.Store):
    """A client of a c10d store, for `init_process_group(store=...)` and wherever torch takes one.

    Keys and values are bytes or text (UTF-8); what comes back is bytes. Any number of threads may
    use a store: a call that waits holds up no other, which then goes over a further connection.
    `timeout` is a timedelta or seconds; None is the store's own, see `set_timeout`.

    C++ code of torch does not keep the Python object alive, so the module does: a store, and a
    clone of it, lives until `close` or the end of the process.

    Args:
        host: name, IPv4 or IPv6 address; the name may appear later than this call.
        port: of the store.
        timeout: of calls that wait for keys, and of connecting.
        connect_timeout: for all tries to connect together; as `timeout` if None.
        legacy: the store is one of PyTorch 2.0 or older, which lacks append, queues, list_keys and
            barrier (NotImplementedError).

    Raises:
        torch.distributed.DistStoreError: a deadline passed, or the call cannot be right for this
            store; QueueEmptyError of the same module is one of them.
        torch.distributed.DistNetworkError: no connection, or it is lost. It stays lost.
        RuntimeError: either, with a torch that has no such class; it is a base of both.
        ValueError: an argument of this call, for example the port.
    """

    def __init__(self, host: str, port: int, timeout: Timeout = timedelta(seconds=300), *,
                 connect_timeout: Optional[Timeout] = None, legacy: bool = False) -> None:
        super().__init__()
        self.host = host
        self.port = port
        self._legacy = legacy
        self._is_clone = False
        self.set_timeout(timedelta(seconds=_seconds(timeout)))
        address = f"[{host}]:{port}" if ":" in host and not host.startswith("[") \
            else f"{host}:{port}"

        def connect(limit_s: float) -> rdzv.Store:
            line = rdzv.Store(address, connect_timeout=limit_s, legacy=legacy)
            try:
                line.flush(limit_s + _FURTHER_S)  # the first call connects
            except BaseException as error:
                line.close()
                if isinstance(error, errors.TimedOut):
                    raise errors.rdzv_error("ECONN", error.text) from None
                raise
            return line

        limit = timeout if connect_timeout is None else connect_timeout
        try:
            self._lines = _Lines(connect, _seconds(limit))
        except errors.Error as error:
            raise _torch_error(error) from error
        _open.add(self)

    def set(self, key: Bytes, value: Bytes) -> None:
        """Sets; returns when the bytes are on their way. The next call that has an answer sees it
        done."""
        self._ask("set", key, _bytes(value))

    def get(self, key: Bytes) -> bytes:
        """The value; waits until the key is there."""
        return self._wait("get", None, key)

    def add(self, key: Bytes, amount: int) -> int:
        """Adds to the decimal number that the key holds, 0 if it is absent; returns the sum. A
        value that is no number is DistNetworkError: rdzvd closes the connection."""
        return self._ask("add", key, amount)

    def compare_set(self, key: Bytes, expected: Bytes, desired: Bytes) -> bytes:
        """Sets if the key holds `expected`, or is absent and that is empty. Returns `desired` then,
        else what it holds, or `expected` if it is absent."""
        return self._ask("compare_set", key, _bytes(expected), _bytes(desired))

    def check(self, keys: Sequence[Bytes]) -> bool:
        """Whether all of the keys are there."""
        return self._ask("check", keys)

    def wait(self, keys: Sequence[Bytes], timeout: Optional[Timeout] = None) -> None:
        """Returns when all of the keys were there."""
        self._wait("wait", timeout, keys)

    def delete_key(self, key: Bytes) -> bool:
        """Deletes; returns whether the key was there."""
        return self._ask("delete_key", key)

    def num_keys(self) -> int:
        """Number of keys in the whole store, also of those that others set."""
        return self._ask("num_keys")

    # C++ calls these two by its own names.
    deleteKey = delete_key
    getNumKeys = num_keys

    def append(self, key: Bytes, value: Bytes) -> None:
        """Adds to the end of the value, an empty one if the key is absent; returns as `set`."""
        self._ask("append", key, _bytes(value))

    def multi_get(self, keys: Sequence[Bytes]) -> list[bytes]:
        """The values, in the order of the keys; waits until all of the keys are there."""
        return self._wait("multi_get", None, keys)

    def multi_set(self, keys: Sequence[Bytes], values: Sequence[Bytes]) -> None:
        """Sets each key to the value at the same place; returns as `set`."""
        if len(keys) != len(values):
            raise _StoreError(f"multi_set got {len(keys)} keys and {len(values)} values")
        self._ask("multi_set", dict(zip(keys, map(_bytes, values))))

    def queue_push(self, key: Bytes, value: Bytes) -> None:
        """Puts an element at the end of the queue; returns as `set`."""
        self._ask("queue_push", key, _bytes(value))

    def queue_pop(self, key: Bytes, block: bool = True) -> bytes:
        """The oldest element; waits until there is one, or, without `block`, raises
        QueueEmptyError."""
        if block:
            return self._wait("queue_pop", None, key)
        return self._ask("queue_pop", key, 0.0)

    def queue_len(self, key: Bytes) -> int:
        """Number of elements, 0 if there is no such queue."""
        return self._ask("queue_len", key)

    def list_keys(self) -> list[str]:
        """All keys of the store, in any order, also those that others set."""
        return [key.decode() for key in self._ask("list_keys")]

    def barrier(self, key: Bytes, world_size: int, timeout: Optional[Timeout] = None) -> None:
        """Returns when world_size clients are in the barrier of this key, which serves once."""
        self._wait("barrier", timeout, key, world_size)

    def has_extended_api(self) -> bool:
        """Whether append, multi_get and multi_set work."""
        return not self._legacy

    def clone(self) -> Store:
        """A store on the same connections, with a time-out of its own."""
        self._check()
        other = Store.__new__(Store)
        dist.Store.__init__(other)
        other.host, other.port, other._legacy = self.host, self.port, self._legacy
        other.set_timeout(self.timeout)
        other._lines, other._is_clone = self._lines, True
        _open.add(other)
        return other

    def close(self) -> None:
        """Disconnects, which ends the clones too; a clone only ends itself. A call that waits in
        another thread goes on to its end. May be called twice; does nothing after fork."""
        if self._lines.pid != os.getpid() or self not in _open:
            return
        if self._is_clone:
            _open.discard(self)
            return
        _open.difference_update([store for store in list(_open) if store._lines is self._lines])
        self._lines.close()

    def __enter__(self) -> Store:
        self._check()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a rallypoint.torch.Store is a connection of this process and cannot be "
                        "copied or pickled: make one in each process, or use clone()")

    def __repr__(self) -> str:
        state = "" if self in _open else ", closed"
        return f"<rallypoint.torch.Store at {self.host}:{self.port}{state}>"

    def _check(self) -> None:
        if self._lines.pid != os.getpid():
            raise _StoreError(f"the store belongs to process {self._lines.pid}, not to its child")
        if self not in _open:
            raise _StoreError("the store is closed")

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._check()
        try:
            return self._lines.ask(name, *arguments)
        except errors.Error as error:
            raise _torch_error(error) from error

    def _wait(self, name: str, timeout: Optional[Timeout], keys: Union[Bytes, Sequence[Bytes]],
              *arguments: Any) -> Any:
        self._check()
        limit_s = _seconds(self.timeout if timeout is None else timeout)
        try:
            return self._lines.wait(name, limit_s, keys, *arguments)
        except (errors.TimedOut, errors.NoSuchKey) as error:
            raise _StoreError(_late(name, limit_s, keys)) from error
        except errors.Error as error:
            raise _torch_error(error) from error


_open: set[Store] = set()  # see Store: C++ does not keep them


def _seconds(timeout: Timeout) -> float:
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    return min(seconds, float(rdzv.LONGEST_S))


def _bytes(value: Union[Bytes, list[int]]) -> Bytes:
    """C++ of torch 1.13 hands the values of compare_set over as lists of numbers."""
    return bytes(value) if isinstance(value, list) else value


def _late(name: str, limit_s: float, keys: Union[Bytes, Sequence[Bytes]]) -> str:
    """What torch says of a deadline that passed; launchers look for it in their logs."""
    names = [key.decode(errors="replace") if isinstance(key, bytes) else key
             for key in ([keys] if isinstance(keys, (bytes, str)) else keys)]
    if name == "barrier":
        return f"barrier timeout after {limit_s * 1000:.0f}ms, key: {names[0]}"
    return f"wait timeout after {limit_s * 1000:.0f}ms, keys: /" + ", /".join(names)


def _torch_error(error: errors.Error) -> Exception:
    """The exception of torch for one of ours."""
    if isinstance(error, (errors.InvalidArgument, errors.OutOfMemory)):
        raise error  # torch has no class of its own for these
    if isinstance(error, (errors.ConnectionLost, errors.NotAStore)):
        return _NetworkError(error.text)
    if isinstance(error, errors.NotSupported):
        return NotImplementedError(error.text)
    if isinstance(error, errors.NoSuchKey):
        return _QueueEmptyError(error.text)
    return _StoreError(error.text)
