"""One libckpt handle: open, submit, wait for callbacks, close. Knows nothing of Python trees.

A handle is driven by its own C thread; callbacks and log lines are delivered here, inside
`dispatch`, on the caller's thread. While an operation runs, `_operations` holds it together with
the memory that the library reads or writes, so neither can go away. A handle does not cross fork.

A signal handler may raise between any two steps of Python. So whatever the library is given is
recorded on the handle before the call that gives it, and what the library gives is written by the
call itself (`running`, `_save`, `_loads`): after an exception, `give_up` sees all there is.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import select
from ctypes import byref, c_void_p
from typing import Any, Callable, Iterable, Optional

from . import _callbacks, _ffi, errors
from ._tensors import Tensor
from .groups import Group, c_string

_log = logging.getLogger("rallypoint.ckpt")
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, 5)


class Operation:
    """Something that the library calls back exactly once, if it accepts it."""

    def __init__(self, keep: Any = None, *, saves: bool = False,
                 loads: Optional[list[int]] = None) -> None:
        self.saves = saves
        self.loads = loads  # of the handle: what is opened goes there
        self.staged = False
        self.done = False
        self.error: Optional[errors.Error] = None
        self.result: Any = None
        self.keep = keep
        self.ident = next(_idents)

    def forget(self) -> None:
        """It has called back, or never will."""
        _operations.pop(self.ident, None)

    def value(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


_idents = itertools.count(1)  # 0 would arrive as None
_operations: dict[int, Operation] = {}


def _finish(ident: int, result: Any, read: Callable[[], Any]) -> None:
    operation = _operations.get(ident)
    if operation is None:
        return
    code = result.contents.code
    if code == 0:
        operation.result = read()
    else:
        operation.error = error_of(result.contents)
    operation.done = True
    operation.keep = None
    operation.forget()


@_ffi.ckpt_staged_fn
@_callbacks.whole
def _on_staged(ident: int) -> None:
    operation = _operations.get(ident)
    if operation is not None:
        operation.staged = True


@_ffi.ckpt_saved_fn
@_callbacks.whole
def _on_saved(ident: int, saved: Any, result: Any) -> None:
    _finish(ident, result, lambda: _copy(saved.contents))


@_ffi.ckpt_opened_fn
@_callbacks.whole
def _on_opened(ident: int, load: int, result: Any) -> None:
    operation = _operations.get(ident)
    if load and operation is not None and operation.loads is not None:
        operation.loads[:] = [load]
    _finish(ident, result, lambda: load)


@_ffi.ckpt_loaded_fn
@_callbacks.whole
def _on_loaded(ident: int, result: Any) -> None:
    _finish(ident, result, lambda: True)


@_ffi.ckpt_log_fn
@_callbacks.guarded
def _on_log(_: int, level: int, line: bytes) -> None:
    _log.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.DEBUG,
             "%s", line.decode(errors="replace"))


def _copy(struct: Any) -> dict[str, Any]:
    values = ((name, getattr(struct, name)) for name, *_ in struct._fields_)
    return {name: bytes(value) if isinstance(value, ctypes.Array) else value
            for name, value in values}


def error_of(error: Any) -> errors.Error:
    return errors.from_ckpt(error.code, error.text.decode(errors="replace"), error.sys_errno)


class Handle:
    """An open root. Every method but `close` raises StateError once closed or after fork."""

    def __init__(
        self,
        root: str,
        *,
        group: Optional[Group] = None,
        engine: str = "auto",
        staging_bytes: Optional[int] = None,
        block_bytes: Optional[int] = None,
        timeout: Optional[float] = None,
        generation: int = 0,
        run_id: str = "",
    ) -> None:
        self.root = root
        self.rank = group.rank if group else 0
        self.world_size = group.world_size if group else 1
        self._pid = os.getpid()
        self._pointer = c_void_p()
        self._save = c_void_p()  # begun, neither committed nor aborted
        self._loads: list[int] = []  # open
        self.running: Optional[Operation] = None  # or the last one that ran
        self._group = group
        self._aborting = False
        self._lib = _ffi.ckpt()
        options = _ffi.ckpt_options()
        self._lib.ckpt_options_init(byref(options), ctypes.sizeof(options))
        if engine not in _ffi.CKPT_ENGINES:
            raise _invalid(f"engine {engine!r} is not one of {', '.join(_ffi.CKPT_ENGINES)}")
        options.root = _path_bytes(root)
        options.drive = _ffi.CKPT_DRIVE_THREAD
        options.engine = _ffi.CKPT_ENGINES[engine]
        options.generation = _ranged("generation", generation, 0, 2**64)
        options.run_id = c_string("run_id", errors.text_of("run_id", run_id).encode())
        options.log = _on_log
        if staging_bytes is not None:
            options.staging_bytes = _ranged("staging_bytes", staging_bytes, 1, 2**63)
        if block_bytes is not None:
            options.block_bytes = _ranged("block_bytes", block_bytes, 1, 2**32)
        if timeout is not None:
            options.timeout_ms = errors.bounded_ms("timeout", timeout, 0.001, 2147483, _invalid)
        self._open(options)

    def _open(self, options: Any) -> None:
        self._board: Any = None  # callbacks of a Python group, alive until close has returned
        if self._group is not None:
            table, self._board = self._group._table(self._lib)
            options.group = ctypes.pointer(table)
        try:
            self._checked(self._lib.ckpt_open, byref(self._pointer), byref(options))
        except errors.Error:
            self._release_board()
            raise
        self._poll = select.poll()
        self._poll.register(self._lib.ckpt_fd(self._pointer), select.POLLIN)

    # -- calls ---------------------------------------------------------------------------------

    def check(self) -> None:
        if self._pid != os.getpid():
            raise errors.from_ckpt(
                errors.CKPT_CODE["ESTATE"],
                f"{self.root} was opened by process {self._pid} and cannot be used in its child "
                f"{os.getpid()}: open it again after fork",
            )
        if not self._pointer:
            raise errors.from_ckpt(errors.CKPT_CODE["ESTATE"], f"{self.root} is closed")

    def _checked(self, function: Callable, *arguments: Any) -> int:
        """Calls a function whose last argument is a ckpt_error."""
        error = _ffi.ckpt_error()
        code = function(*arguments, byref(error))
        if code < 0:
            raise self._explain(errors.from_ckpt(code, error.text.decode(errors="replace"),
                                                 error.sys_errno))
        return code

    def _submit(self, operation: Operation, function: Callable, *arguments: Any) -> Operation:
        self.running = operation
        _operations[operation.ident] = operation
        try:
            self._checked(function, *arguments, operation.ident)
        except errors.Error:  # refused; after any other exception nobody knows
            operation.forget()
            self.running = None
            raise
        return operation

    def _explain(self, error: errors.Error) -> errors.Error:
        """Adds what a group of Python callbacks raised, which C cannot carry."""
        failure = self._group._take_failure() if self._group is not None else None
        if failure is not None:
            error.__cause__ = failure
        return error

    def dispatch(self) -> None:
        self._lib.ckpt_dispatch(self._pointer)
        _callbacks.raise_kept()

    def _busy(self) -> bool:
        """Whether the library still has a callback to make: then it begins nothing."""
        code = self._lib.ckpt_save_begin(byref(c_void_p()), self._pointer, -1, None)
        return code == errors.CKPT_CODE["EBUSY"]

    def wait(self, operation: Operation, *, staged: bool = False) -> None:
        """Until the operation is done, or its buffers are free; signal handlers run meanwhile."""
        self.check()
        self.dispatch()
        while not (operation.done or (staged and operation.staged)):
            if not self._busy():
                # A signal handler raised before the first line of the callback, or between an
                # operation's record and the call: what it was can never be known.
                self.close()
                raise KeyboardInterrupt
            self._poll.poll()
            self.dispatch()
        if operation.done:
            operation.forget()
        if operation.error is not None:
            self._explain(operation.error)

    def wait_or_close(self, operation: Operation, *, staged: bool = False) -> None:
        """`wait`, for buffers that the caller may touch as soon as this returns or raises.

        An interrupt closes the handle: only then has the library let go of the buffers.
        """
        try:
            self.wait(operation, staged=staged)
        except BaseException:
            self.close()
            raise

    # -- save ----------------------------------------------------------------------------------

    def begin(self, step: int) -> None:
        self.check()
        self._checked(self._lib.ckpt_save_begin, byref(self._save), self._pointer,
                      _ranged("step", step, 0, 2**63))

    def put(self, name: str, tensor: Tensor) -> None:
        struct = _tensor_struct(c_string("name", name.encode()), tensor)
        self._checked(self._lib.ckpt_save_put, self._save, byref(struct))

    def alias(self, name: str, target: str) -> None:
        self._checked(self._lib.ckpt_save_alias, self._save,
                      c_string("name", name.encode()), target.encode())

    def note(self, note: bytes) -> None:
        self._checked(self._lib.ckpt_save_note, self._save, note, len(note))

    def commit(self, keep: Any) -> Operation:
        operation = Operation(keep, saves=True)
        save, self._save = self._save, c_void_p()  # from here on it may be the library's
        try:
            return self._submit(operation, self._lib.ckpt_save_commit, save, _on_staged, _on_saved)
        except errors.Error:
            self._save = save
            raise

    def _abort(self, reason: str) -> None:
        save, self._save = self._save, c_void_p()
        self._lib.ckpt_save_abort(save, " ".join(reason.split()).encode(errors="replace"))
        self._aborting = self.world_size > 1

    # -- load ----------------------------------------------------------------------------------

    def open_load(
        self,
        *,
        step: Optional[int] = None,
        older_than: Optional[tuple[int, int]] = None,
        alone: bool = False,
        file: Optional[str] = None,
    ) -> Operation:
        self.check()
        options = _ffi.ckpt_load_options()
        self._lib.ckpt_load_options_init(byref(options), ctypes.sizeof(options))
        if step is not None:
            options.step = _ranged("step", step, 0, 2**63)
        if file is not None:
            options.file = _path_bytes(file)
        options.alone = alone
        if older_than is not None:
            options.has_older_than = 1
            options.older_generation, options.older_sequence = older_than
        return self._submit(Operation(options, loads=self._loads), self._lib.ckpt_load_open,
                            self._pointer, byref(options), _on_opened)

    def info(self, load: int) -> dict[str, Any]:
        return _copy(self._lib.ckpt_load_info(load).contents)

    def entries(self, load: int, shard: int) -> Iterable[tuple[str, int, tuple, Optional[str]]]:
        """(name, dtype, shape, name of the tensor that it is an alias of) of a shard."""
        count = self._lib.ckpt_load_count(load, shard)
        if count < 0:
            raise errors.from_ckpt(count, f"shard {shard} is not in the checkpoint")
        tensor = _ffi.ckpt_tensor()
        self._lib.ckpt_tensor_init(byref(tensor), ctypes.sizeof(tensor))
        target = ctypes.c_char_p()
        for index in range(count):
            code = self._lib.ckpt_load_at(load, shard, index, byref(tensor), byref(target))
            if code < 0:
                raise errors.from_ckpt(code)
            shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
            yield (tensor.name.decode(), tensor.dtype, shape,
                   target.value.decode() if target.value is not None else None)

    def load_note(self, load: int, shard: int) -> bytes:
        pointer, length = c_void_p(), ctypes.c_size_t()
        code = self._lib.ckpt_load_note(load, shard, byref(pointer), byref(length))
        if code < 0:
            raise errors.from_ckpt(code, f"shard {shard} is not in the checkpoint")
        return ctypes.string_at(pointer.value or 0, length.value) if length.value else b""

    def get(self, load: int, shard: int, name: str, tensor: Tensor) -> None:
        struct = _tensor_struct(name.encode(), tensor)
        self._checked(self._lib.ckpt_load_get, load, shard, byref(struct))

    def start(self, load: int, keep: Any) -> Operation:
        return self._submit(Operation(keep), self._lib.ckpt_load_start, load, _on_loaded)

    def abort_load(self, load: int, error: BaseException) -> None:
        """Gives up a load that was not started; the other ranks learn of it."""
        unreadable = isinstance(error, errors.Unreadable)
        code = errors.CKPT_CODE["EUNREADABLE" if unreadable else "ECANCELED"]
        if self._pointer and load in self._loads:
            self._loads.clear()
            self._aborting = True
            self._lib.ckpt_load_abort(load, code, str(error).encode(errors="replace"))

    def close_load(self, load: int) -> None:
        if self._pointer and load in self._loads:  # else ckpt_close has freed it
            self._loads.clear()
            self._lib.ckpt_load_close(load)

    # -- end -----------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return not self._pointer or self._pid != os.getpid()

    def give_up(self, error: BaseException) -> None:
        """What an exception left half done: a save that was begun, a load, an operation.

        While the library may read or write the caller's memory, only `close` takes it back.
        """
        if self.closed:
            return
        running = self.running
        if running is not None and not (running.done or running.staged):
            self.close()
            return
        if self._save:
            self._abort(f"{type(error).__name__}: {error}")
        for load in list(self._loads):
            self.abort_load(load, error)

    def flush_abort(self) -> None:
        """Waits until the other ranks know of an abort, or its deadline has passed.

        An abort has no callback of its own; what is asked for after it comes after it.
        """
        if self._aborting and not self.closed:
            self._aborting = False
            operation = self.open_load(alone=True)
            self.wait(operation)
            if operation.result:
                self.close_load(operation.result)

    def close(self) -> None:
        """Cancels what runs, lets go of every buffer. In a child after fork: does nothing."""
        if self.closed:
            return
        close = self._lib.ckpt_close
        pointer, self._pointer = self._pointer, c_void_p()
        close(pointer)
        self._save = c_void_p()
        self._loads.clear()
        running = self.running
        if running is not None:
            running.forget()
            if not running.done:  # its callback was interrupted
                running.error = errors.from_ckpt(errors.CKPT_CODE["ECANCELED"],
                                                 f"{self.root} was closed")
                running.done = True
        self._release_board()
        _callbacks.raise_kept()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self.close()

    def _release_board(self) -> None:
        if self._board is not None:
            self._board.release()
            self._board = None


def _tensor_struct(name: bytes, tensor: Tensor) -> Any:
    ndim = len(tensor.shape)
    dims = ctypes.c_int64 * ndim
    struct = _ffi.ckpt_tensor(
        size=ctypes.sizeof(_ffi.ckpt_tensor),
        name=name,
        dtype=tensor.dtype,
        ndim=ndim,
        data=tensor.pointer,
    )
    struct.shape = dims(*tensor.shape)
    if tensor.strides_bytes is not None:
        struct.strides_bytes = dims(*tensor.strides_bytes)
    return struct


def _path_bytes(path: str) -> bytes:
    return c_string("path", os.fsencode(path))


def _ranged(name: str, value: int, low: int, end: int) -> int:
    return errors.bounded(name, value, low, end - 1, _invalid)


def _invalid(text: str) -> errors.Error:
    return errors.from_ckpt(errors.CKPT_CODE["EINVAL"], text)
