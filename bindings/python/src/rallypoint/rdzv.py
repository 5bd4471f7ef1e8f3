"""The c10d store without torch: a client, and a server in this process.

    with rallypoint.rdzv.Server() as server:  # for tests; rdzvd is the one for a cluster
        with rallypoint.rdzv.Store(server.address) as store:
            store.set("lr", b"0.1")
            assert store.get("lr", timeout=5) == b"0.1"
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import logging
import os
import re
import threading
import time
from ctypes import byref, c_uint16, c_void_p
from typing import Any, Callable, Iterable, Mapping, Optional, TypeVar, Union

from . import _callbacks, _ffi, errors

__all__ = ["Job", "Server", "Stats", "Store"]

_ffi.rdzv()  # a missing or wrong library is an error of this import

_log = logging.getLogger("rallypoint.rdzv")
Bytes = Union[bytes, str]
UNANSWERED = frozenset(["set", "append", "multi_set", "queue_push"])
_CANCEL_S = 2.0  # the library ends a cancelled call within one
LONGEST_S = 2147483  # what a time-out of the C library, in int32_t milliseconds, holds
_Self = TypeVar("_Self", bound="_Owner")
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, 5)


@dataclasses.dataclass(frozen=True)
class Stats:
    """Counters of a server or of one job, a few milliseconds old at most.

    Attributes:
        connections: open now.
        accepted: connections since it was opened.
        refused: connections closed because of a bad start, a bad request or a limit.
        requests: answered or applied.
        keys: in the store now; queues are not counted.
        store_bytes: of keys, values and queues now: what counts against max_store_bytes.
        waiting: connections in a wait or a barrier now.
        buffer_bytes: of unfinished requests and unread answers now: what counts against
            max_buffer_bytes.
    """

    connections: int
    accepted: int
    refused: int
    requests: int
    keys: int
    store_bytes: int
    waiting: int
    buffer_bytes: int


def _deliver(_: Any, level: int, line: bytes) -> None:
    _log.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.DEBUG,
             "%s", _text(line))


def _text(line: bytes) -> str:
    """Of the C library, with Python's word for its option."""
    return re.sub("needs dialect A[^)]*", "needs legacy=True", line.decode(errors="replace"))


_on_log = _ffi.rdzv_log_fn(_callbacks.guarded(_deliver))


class _Owner:
    """The life of an object that owns a C handle: `_pointer`, opened by process `_pid`.

    A signal handler may close it in the middle of a call of the same thread. So whoever uses the
    pointer counts itself in `_calls` meanwhile, and the last to leave frees it.
    """

    _pointer: Any
    _pid: int
    _calls = 0  # under way
    _ended = False  # closed, if perhaps not freed

    def _open(self, call: Callable[[Any, Any], int]) -> None:
        """Makes the handle: call(where to put it, error) -> code."""
        pointer, error = c_void_p(), _ffi.rdzv_error()
        code = call(byref(pointer), byref(error))
        if code < 0:
            raise errors.from_rdzv(code, _text(error.text), error.sys_errno)
        self._pointer = pointer.value

    def close(self) -> None:
        raise NotImplementedError

    def _free(self, pointer: int) -> None:
        raise NotImplementedError

    def _settle(self) -> None:
        """Frees what was closed, unless a call is under way."""
        if self._ended and not self._calls and self._pointer is not None:
            pointer, self._pointer = self._pointer, None
            self._free(pointer)
            _callbacks.raise_kept()

    @property
    def _closed(self) -> bool:
        return self._pointer is None or self._ended

    def _alive(self) -> int:
        name = f"the {type(self).__name__.lower()}"
        if self._closed:
            raise errors.rdzv_error("ESTATE", f"{name} is closed")
        if self._pid != os.getpid():
            raise errors.rdzv_error(
                "ESTATE", f"{name} belongs to process {self._pid}, not to its child")
        return self._pointer

    def __enter__(self: _Self) -> _Self:
        self._alive()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self.close()


_ADVICE = {  # where a server or job cannot listen; as rdzvd prints it
    "RDZV_EADDRINUSE": "a process, perhaps this one, listens there (to see which: ss -ltnp "
                       "'sport = :{port}'): end it, or choose another port",
    "RDZV_EADDRNOTAVAIL": "to see this machine's addresses: ip -brief address",
    "RDZV_EACCES": "ports below 1024 need privileges; choose a higher one",
}


class _Listener(_Owner):
    """What clients can connect to."""

    def _listen(self, port: int, call: Callable[[Any, Any], int]) -> None:
        """As `_open`, for a handle that listens on the port."""
        try:
            self._open(call)
        except errors.Error as error:
            if error.name not in _ADVICE:
                raise
            advice = _ADVICE[error.name].format(port=port)
            raise errors.from_rdzv(error.code, f"{error.text}; {advice}",
                                   error.sys_errno) from None

    def _read_address(self, read: Any) -> None:
        number = c_uint16()
        self.address = read(self._pointer, byref(number)).decode()
        self.port = number.value


class Server(_Listener):
    """Serves a store on a thread of its own until closed. One Python thread owns it.

    Args:
        listen: "HOST:PORT" with a numeric IPv4 address, "[IPv6]:PORT" or "localhost:PORT". Port 0
            takes any free one. "*:PORT" listens on all addresses, for anybody to read and write.
        max_store_bytes, max_keys, max_connections, max_buffer_bytes: what all jobs together may
            take, as the limits of rdzvd; 0 for the default, as for the next three.
        max_value_bytes, max_request_bytes, max_unread_bytes: of one client.
        request_timeout: seconds for a request that has begun to come in whole; 0 for no limit.
        forget_after: as in `open_job`, for what `listen` serves.

    Attributes:
        address: "HOST:PORT" that clients connect to.
        port: its port.

    Raises:
        AddressInUse, AddressNotAvailable, AccessDenied, InvalidArgument: it cannot listen there.
    """

    def __init__(self, listen: str = "127.0.0.1:0", *, max_store_bytes: int = 0, max_keys: int = 0,
                 max_connections: int = 0, max_buffer_bytes: int = 0, max_value_bytes: int = 0,
                 max_request_bytes: int = 0, max_unread_bytes: int = 0,
                 request_timeout: float = 60, forget_after: float = 0) -> None:
        self._lib = _ffi.rdzv()
        self._pointer: Optional[int] = None
        self._pid = os.getpid()
        host, port = _parse(listen, "listen", 0, "127.0.0.1:0")
        self._host = host.encode()
        self._dropped: list[int] = []  # jobs that were closed and are yet to be freed
        options = _ffi.rdzv_server_options()
        self._lib.rdzv_server_options_init(byref(options), ctypes.sizeof(options))
        options.host = self._host
        options.port = port
        options.log = _on_log
        if _log.isEnabledFor(logging.DEBUG):
            options.log_level = _ffi.RDZV_LOG_DEBUG
        limits = {
            "max_store_bytes": max_store_bytes, "max_keys": max_keys,
            "max_connections": max_connections, "max_buffer_bytes": max_buffer_bytes,
            "max_value_bytes": max_value_bytes, "max_request_bytes": max_request_bytes,
            "max_unread_bytes": max_unread_bytes}
        _fill(options, "the server", {
            **{name: limit for name, limit in limits.items() if limit != 0},
            "request_timeout_ms": _milliseconds(request_timeout, "request_timeout"),
            "forget_after_ms": _milliseconds(forget_after, "forget_after")})
        self._listen(port, lambda ret, error: self._lib.rdzv_server_open(
            ret, byref(options), error))
        self._read_address(self._lib.rdzv_server_address)

    def open_job(self, run_id: str, port: int = 0, *, max_store_bytes: int = 0, max_keys: int = 0,
                 max_connections: int = 0, max_buffer_bytes: int = 0,
                 forget_after: float = 0) -> Job:
        """A job with a port of its own, on the server's host: its clients see only its keys.

        Args:
            run_id: 1 to 255 printable ASCII characters.
            port: 0 takes any free one.
            max_store_bytes, max_keys, max_connections, max_buffer_bytes: the job's share of what
                the server may take; 0 for all of it.
            forget_after: seconds without a client after which all keys are forgotten, so that the
                next run on this port finds none; 0 for never.

        Raises:
            Busy: this run id is open on this server.
            StateError: the server is closed.
            AddressInUse, AddressNotAvailable, AccessDenied, InvalidArgument: as for the server.
        """
        return Job(self, run_id, port, {
            "max_store_bytes": max_store_bytes, "max_keys": max_keys,
            "max_connections": max_connections, "max_buffer_bytes": max_buffer_bytes,
            "forget_after_ms": _milliseconds(forget_after, "forget_after")})

    def stats(self) -> Stats:
        """Counters of all jobs; also delivers the server's log lines to logging. Never waits."""
        return self._read_stats(self._lib.rdzv_server_get_stats, self)

    def _read_stats(self, read: Any, of: _Listener) -> Stats:
        raw = _ffi.rdzv_server_stats(size=ctypes.sizeof(_ffi.rdzv_server_stats))
        self._calls += 1
        try:
            code = read(of._alive(), byref(raw))
            if code < 0:
                raise errors.from_rdzv(code)
            self._lib.rdzv_server_dispatch(self._pointer)
            _callbacks.raise_kept()
        finally:
            self._calls -= 1
            self._settle()
        names = [field.name for field in dataclasses.fields(Stats)]
        return Stats(**{name: getattr(raw, name) for name in names})

    def close(self) -> None:
        """Closes every connection and job. May be called twice; in a child after fork it does
        nothing."""
        if self._pid == os.getpid():
            self._ended = True
            self._settle()

    def _settle(self) -> None:
        if not self._calls and self._pointer is not None:
            self._calls += 1  # also while its jobs are closed
            try:
                while self._dropped:
                    self._lib.rdzv_job_close(self._dropped.pop(), _ffi.rdzv_closed_fn(), None)
            finally:
                self._calls -= 1
        super()._settle()

    def _free(self, pointer: int) -> None:
        self._lib.rdzv_server_close(pointer, _ffi.rdzv_closed_fn(), None)

    def __repr__(self) -> str:
        return f"<Server on {self.address}{', closed' if self._closed else ''}>"


class Job(_Listener):
    """One job of a `Server`, see `Server.open_job`. Open until it or the server is closed, also
    when nobody keeps this object.

    Attributes:
        run_id: as given.
        address: "HOST:PORT" that its clients connect to.
        port: its port.
    """

    def __init__(self, server: Server, run_id: str, port: int, limits: Mapping[str, int]) -> None:
        self._pointer: Optional[int] = None
        self._pid = server._pid
        self._server = server
        self._lib = server._lib
        self.run_id = errors.text_of("run_id", run_id)
        options = _ffi.rdzv_job_options()
        self._lib.rdzv_job_options_init(byref(options), ctypes.sizeof(options))
        options.host = server._host
        _fill(options, f"job {run_id!r}", {"run_id": run_id.encode(), "port": port, **limits})
        server._calls += 1
        try:
            parent = server._alive()
            self._listen(port, lambda ret, error: self._lib.rdzv_server_open_job(
                parent, ret, byref(options), error))
            self._read_address(self._lib.rdzv_job_address)
        except BaseException:  # an interrupt: nobody would ever close it
            self.close()
            raise
        finally:
            server._calls -= 1
            server._settle()

    @property
    def _closed(self) -> bool:
        # The server frees its jobs, and the collector may finish it before them. It is asked, and
        # tells nobody: weak references are gone by then.
        return self._pointer is None or self._server._closed

    def stats(self) -> Stats:
        """Counters of this job; also delivers the server's log lines to logging. Never waits."""
        return self._server._read_stats(self._lib.rdzv_job_get_stats, self)

    def close(self) -> None:
        """Closes its connections and forgets its keys; the run id may be opened again at once. May
        be called twice; in a child after fork it does nothing."""
        if not self._closed and self._pid == os.getpid():
            pointer, self._pointer = self._pointer, None
            if pointer is not None:
                self._server._dropped.append(pointer)
                self._server._settle()

    def __del__(self) -> None:
        """The server has it, and frees it with itself."""

    def __repr__(self) -> str:
        return f"<Job {self.run_id!r} on {self.address}{', closed' if self._closed else ''}>"


class _Call:
    """One call of a Store that is under way."""

    ident = 0  # of the library
    outcome: Optional[tuple] = None  # see _outcome
    lost = False  # perhaps it has ended without one


class Store(_Owner):
    """A client of a c10d store: of rdzvd, of `Server`, or of a TCPStore of PyTorch.

    Calls block, with the global lock released; threads may share a store, and take turns. Keys and
    values are bytes or text (UTF-8); what comes back is bytes. Every call takes `timeout` in
    seconds: None is the store's own, 0 asks for what is there now. The first call connects, which
    is under `connect_timeout` alone: with a wrong address it blocks for 300 seconds if nothing else
    is given, whatever its own `timeout` is, 0 too. Why the tries fail goes to the logger
    `rallypoint.rdzv`, as a warning once that lasts three seconds.

    Args:
        address: "HOST:PORT" or "[IPv6]:PORT"; the name may appear later than this call.
        timeout: seconds for a call that is given none, 0 to 2147483.
        connect_timeout: seconds for all tries to connect together; as `timeout` if None.
        legacy: the store is one of PyTorch 2.0 or older; else it is one of 2.5 or later.

    Raises:
        InvalidArgument: an argument of this call or of a later one.
        TimedOut, NoSuchKey (with timeout=0), ConnectionLost, NotAStore, LimitExceeded: any call.
        NotSupported: append, list_keys, barrier and queues, with legacy=True.
        StateError: any call after `close`, or in a child after fork.
    """

    def __init__(self, address: str, *, timeout: float = 300.0,
                 connect_timeout: Optional[float] = None, legacy: bool = False) -> None:
        self._lib = _ffi.rdzv()
        self._pointer: Optional[int] = None
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._done = _ffi.rdzv_reply_fn(_callbacks.whole(self._on_reply))
        self._on_log = _ffi.rdzv_log_fn(_callbacks.guarded(_deliver, self._end_wait))
        self._numbers = itertools.count(1)
        self._open_calls: dict[int, _Call] = {}  # by number; more than one: see _call
        self._heard = 0  # callbacks that did their work
        self._options = {"timeout": timeout, "connect_timeout": connect_timeout, "legacy": legacy}
        self.address = address
        host, port = _parse(address, "address", 1, "10.0.0.1:29400")
        options = _ffi.rdzv_client_options()
        self._lib.rdzv_client_options_init(byref(options), ctypes.sizeof(options))
        options.drive = _ffi.RDZV_DRIVE_CALLER
        options.dialect = int(legacy)
        options.host = host.encode()
        options.port = port
        options.timeout_ms = _milliseconds(timeout)
        options.connect_timeout_ms = options.timeout_ms if connect_timeout is None \
            else _milliseconds(connect_timeout, "connect_timeout")
        options.log = self._on_log
        self._open(lambda ret, error: self._lib.rdzv_client_open(ret, byref(options), error))

    def set(self, key: Bytes, value: Bytes, timeout: Optional[float] = None) -> None:
        """Sets; returns when the bytes are on their way, see `flush`."""
        self._call("set", timeout, _bytes(key), _bytes(value))

    def append(self, key: Bytes, value: Bytes, timeout: Optional[float] = None) -> None:
        """Adds to the end of the value, an empty one if the key is absent; returns when the bytes
        are on their way, see `flush`."""
        self._call("append", timeout, _bytes(key), _bytes(value))

    def flush(self, timeout: Optional[float] = None) -> None:
        """Returns when the store has executed every call before it."""
        self._call("flush", timeout)

    def get(self, key: Bytes, timeout: Optional[float] = None) -> bytes:
        """The value; waits until the key is there."""
        return self._call("get", timeout, _bytes(key))[1][0]

    def multi_get(self, keys: Iterable[Bytes], timeout: Optional[float] = None) -> list[bytes]:
        """The values, in the order of the keys; waits until all of the keys are there."""
        return self._call("multi_get", timeout, *_array(keys))[1]

    def multi_set(self, items: Mapping[Bytes, Bytes], timeout: Optional[float] = None) -> None:
        """Sets each key of the mapping; returns when the bytes are on their way, see `flush`."""
        keys, count = _array(items.keys())
        self._call("multi_set", timeout, keys, _array(items.values())[0], count)

    def compare_set(self, key: Bytes, expected: Bytes, desired: Bytes,
                    timeout: Optional[float] = None) -> bytes:
        """Sets if the key holds `expected`, or is absent and that is empty. Returns `desired` then,
        else what it holds, or `expected` if it is absent."""
        return self._call("compare_set", timeout, _bytes(key), _bytes(expected),
                          _bytes(desired))[1][0]

    def add(self, key: Bytes, amount: int, timeout: Optional[float] = None) -> int:
        """Adds to the decimal number that the key holds, 0 if it is absent; returns the sum.

        Both are 64-bit numbers with sign. What the key holds is no such number: rdzvd and `Server`
        close the connection, which is ConnectionLost here, and say so in their log.
        """
        amount = errors.bounded("amount", amount, -2**63, 2**63 - 1, _invalid)
        return self._call("add", timeout, _bytes(key), amount)[0]

    def check(self, keys: Iterable[Bytes], timeout: Optional[float] = None) -> bool:
        """Whether all of the keys are there; a queue that has elements counts as one."""
        return self._call("check", timeout, *_array(keys))[0] == 1

    def wait(self, keys: Iterable[Bytes], timeout: Optional[float] = None) -> None:
        """Returns when all of the keys were there."""
        self._call("wait_keys", timeout, *_array(keys))

    def delete_key(self, key: Bytes, timeout: Optional[float] = None) -> bool:
        """Deletes; returns whether the key was there."""
        return self._call("delete_key", timeout, _bytes(key))[0] == 1

    def num_keys(self, timeout: Optional[float] = None) -> int:
        """Number of keys in the whole store, also of those that others set."""
        return self._call("num_keys", timeout)[0]

    def list_keys(self, timeout: Optional[float] = None) -> list[bytes]:
        """All keys of the store, in any order."""
        return self._call("list_keys", timeout)[1]

    def queue_push(self, key: Bytes, value: Bytes, timeout: Optional[float] = None) -> None:
        """Puts an element at the end of the queue; returns when the bytes are on their way, see
        `flush`. Queues and keys of the same name are two things."""
        self._call("queue_push", timeout, _bytes(key), _bytes(value))

    def queue_pop(self, key: Bytes, timeout: Optional[float] = None) -> bytes:
        """The oldest element; waits until there is one."""
        return self._call("queue_pop", timeout, _bytes(key))[1][0]

    def queue_len(self, key: Bytes, timeout: Optional[float] = None) -> int:
        """Number of elements, 0 if there is no such queue."""
        return self._call("queue_len", timeout, _bytes(key))[0]

    def barrier(self, key: Bytes, world_size: int, timeout: Optional[float] = None) -> None:
        """Returns when world_size clients are in the barrier of this key, which serves once."""
        world_size = errors.bounded("world_size", world_size, -2**63, 2**63 - 1, _invalid)
        self._call("barrier", timeout, _bytes(key), world_size)

    def close(self) -> None:
        """Disconnects. May be called twice; in a child after fork it does nothing."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._ended = True
            self._end_wait()
            self._settle()

    def _free(self, pointer: int) -> None:
        self._lib.rdzv_client_close(pointer, _ffi.rdzv_closed_fn(), None)

    def _call(self, name: str, timeout: Optional[float], *arguments: Any) -> tuple:
        """One call. A signal handler may make another one meanwhile, on the same thread."""
        milliseconds = -1 if timeout is None else _milliseconds(timeout)
        self._alive()  # before the lock, which a fork may have copied in a locked state
        with self._lock:
            self._calls += 1
            try:
                self._alive()
                if self._calls > 1 and self._in_callback():
                    return self._aside(name, timeout, *arguments)
                return self._ask(name, *arguments, milliseconds)
            finally:
                self._calls -= 1
                self._settle()

    def _in_callback(self) -> bool:
        """Whether the library waits for a callback to return, and can do nothing before."""
        try:
            self._wait(0)
        except errors.Busy:
            return True
        return False

    def _aside(self, name: str, timeout: Optional[float], *arguments: Any) -> tuple:
        with Store(self.address, **self._options) as other:
            result = other._call(name, timeout, *arguments)
            if name in UNANSWERED:
                other.flush(timeout)
        return result

    def _ask(self, name: str, *arguments: Any) -> tuple:
        number, call, heard = next(self._numbers), _Call(), self._heard
        error = _ffi.rdzv_error()
        self._open_calls[number] = call
        try:
            call.ident = getattr(self._lib, f"rdzv_client_{name}")(
                self._pointer, *arguments, self._done, number, byref(error))
            _callbacks.raise_kept()
            if call.ident < 0:
                raise errors.from_rdzv(call.ident, _text(error.text))
            while call.outcome is None:
                if call.lost:
                    raise KeyboardInterrupt
                self._wait(-1)
        except BaseException:
            self._drop(call)
            raise
        finally:
            self._open_calls.pop(number, None)
            self._heard = heard  # for a wait of an interrupted call, which counts its own
        result, values, failure = call.outcome
        if failure is not None:
            raise errors.from_rdzv(*failure)
        return result, values

    def _wait(self, milliseconds: int) -> None:
        if self._ended:
            raise errors.rdzv_error("ECANCELED", "the store was closed during the call")
        heard = self._heard
        code = self._lib.rdzv_client_wait(self._pointer, milliseconds)
        if code < 0:
            raise errors.from_rdzv(code)
        _callbacks.raise_kept()
        if code > self._heard - heard:
            # A signal handler raised where a callback begins or ends. What it was, and perhaps
            # the reply, can never be known.
            for call in list(self._open_calls.values()):
                call.lost = True
            raise KeyboardInterrupt

    def _drop(self, call: _Call) -> None:
        """After Ctrl-C nothing of the call may be left, neither here nor in the server."""
        if self._ended or call.ident <= 0:
            return  # closing does it, or there is nothing
        self._lib.rdzv_client_cancel(self._pointer, call.ident)
        end = time.monotonic() + _CANCEL_S
        while call.outcome is None and not call.lost and time.monotonic() < end:
            self._wait(int(_CANCEL_S * 1000))

    def _end_wait(self) -> None:
        """For a signal handler in a log line: else the library would go on waiting after it."""
        for call in reversed(list(self._open_calls.values())):
            if call.ident > 0:
                self._lib.rdzv_client_cancel(self._pointer, call.ident)
            return

    def _on_reply(self, number: int, reply: Any, result: Any) -> None:
        call = self._open_calls.get(number)
        if call is not None:  # else it was interrupted
            call.outcome = _outcome(reply, result)
        self._heard += 1

    def __repr__(self) -> str:
        return f"<Store at {self.address}{', closed' if self._closed else ''}>"


def _fill(options: Any, whose: str, values: Mapping[str, Any]) -> None:
    kinds = dict(options._fields_)
    for name, value in values.items():
        if isinstance(value, bytes):
            if b"\0" in value:  # C would end there
                raise _invalid(f"{name} of {whose} has a NUL character")
        else:
            most = 2 ** (8 * ctypes.sizeof(kinds[name])) - 1  # none of them has a sign
            value = errors.bounded(f"{name} of {whose}", value, 0, most, _invalid)
        setattr(options, name, value)


def _invalid(text: str) -> errors.Error:
    return errors.rdzv_error("EINVAL", text)


def _outcome(reply: Any, result: Any) -> tuple:
    """(number, values, arguments of the exception or None) of a callback's arguments."""
    if not reply:
        error = result.contents
        return 0, [], (error.code, _text(error.text), error.sys_errno)
    got = reply.contents
    values = [ctypes.string_at(got.values[i].data, got.values[i].len_bytes)
              if got.values[i].len_bytes else b"" for i in range(got.count)]
    return got.number, values, None


def _milliseconds(seconds: float, what: str = "timeout") -> int:
    return errors.bounded_ms(what, seconds, 0, LONGEST_S, _invalid)


def _bytes(value: Bytes) -> _ffi.rdzv_bytes:
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes or str, not {type(value).__name__}")
    ret = _ffi.rdzv_bytes(ctypes.cast(ctypes.c_char_p(value), c_void_p), len(value))
    ret.owner = value  # the C side borrows it during the call
    return ret


def _array(values: Iterable[Bytes]) -> tuple[Any, int]:
    if isinstance(values, (bytes, str)):
        raise TypeError("expected several keys, not one")
    items = [_bytes(value) for value in values]
    ret = (_ffi.rdzv_bytes * len(items))(*items)
    ret.owners = items
    return ret, len(items)


def _parse(address: str, what: str, least_port: int, example: str) -> tuple[str, int]:
    host, colon, port = errors.text_of(what, address).rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit()
            and least_port <= int(port) < 65536):
        raise errors.rdzv_error(
            "EINVAL", f"{what} is {address!r}, expected HOST:PORT with a port from {least_port} to "
            f"65535, for example {example}")
    return host, int(port)
