"""Checkpoints of nested dicts of tensors: atomic over all ranks, verified on restore.

    from rallypoint import ckpt, errors

    with ckpt.Checkpointer("/data/run7") as saver:  # on every rank
        try:
            found = saver.load()
            model.load_state_dict(found.state["model"])
            first = found.step + 1
        except errors.NotFound:  # nothing there; damaged is another error
            first = 0
        for step in range(first, steps):
            train_one_step()
            saver.save(step, {"model": model.state_dict(), "optim": optim.state_dict()})

A tree may hold torch tensors of any plain dtype, numpy arrays, int, float, bool, None, str, bytes,
lists, tuples, dicts with str, int, float, bool or None keys, and collections.Counter. OrderedDict
comes back as dict, torch.Size as tuple, a numpy scalar as a 0-dim array, bytes as bytes. Whatever
a tensor's device, memory layout and requires_grad were, it comes back on the CPU, in C order,
without grad (or in your own tensor, see `into`). Tensors that are the same memory seen alike (tied
weights) are written once and come back as one object. Nothing is ever pickled or executed.

Errors are subclasses of `rallypoint.Error`, see `rallypoint.errors`; a value that cannot be saved
is a TypeError that names its key path.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import importlib
import logging
import os
import threading
import warnings
import weakref
from typing import Any, Iterator, Optional, Union

from . import _ffi, _restore, _tensors, _tree, errors
from ._handle import Handle, Operation
from ._restore import Checkpoint, Info
from .groups import DirGroup, Group, TorchGroup, resolve

__all__ = [
    "Checkpoint",
    "Checkpointer",
    "DirGroup",
    "Group",
    "Info",
    "Saved",
    "TorchGroup",
    "latest",
    "load",
    "load_file",
    "save",
]

_ffi.ckpt()  # a missing or wrong library is an error of this import

_log = logging.getLogger("rallypoint")
_Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Saved:
    """A save that is durable and acknowledged by all ranks.

    The times are in seconds, all from the same moment: when the tree was packed and the library
    began to copy.

    Attributes:
        step: training step.
        sequence: grows by one with each checkpoint of a root.
        generation: fencing number of this run, 0 if it has none.
        path: directory of the checkpoint.
        shard_bytes: size of this rank's file.
        staged_s: until the tensors were free again.
        written_s: until the last block was written.
        synced_s: until this rank's shard and index were durable.
        committed_s: until all ranks acknowledged.
    """

    step: int
    sequence: int
    generation: int
    path: str
    shard_bytes: int
    staged_s: float
    written_s: float
    synced_s: float
    committed_s: float


class Checkpointer:
    """One root of checkpoints, open for saving and loading.

    Keeps its memory and its thread from save to save, and lets training go on while a save is
    written. Use it as a context manager, or call `close`: what a background save reports last is
    raised there. All ranks make, call and close it in the same order.

    Args:
        root: directory of the checkpoints; made if its parent exists.
        group: how ranks agree. "auto": torch.distributed, when it is initialised with more than
            one rank, else alone. None: this process is alone. Or a DirGroup or TorchGroup.
        engine: "auto", "uring" (io_uring or fail) or "sync" (plain system calls).
        staging_bytes: host memory for copies of tensors on their way to disk, default 64 MiB. A
            bigger shard flows through it, then `save` returns when the last part was copied.
        timeout: seconds that a wait for other ranks may take, 0.001 to 2147483; default 120.
        generation: fencing number of this run. A run with a lower one can no longer save here.
        run_id: recorded in each checkpoint.
        strict: True raises what a background save failed with, at the next call and at close.
            False only logs it and keeps it in `last_error`, so that training goes on.

    Attributes:
        last_error: what the last background save that failed did so with, or None.

    Raises:
        InvalidArgument: an option is wrong, root is a file, or the directory above it does not
            exist.
        AccessDenied, IOFailed, OutOfMemory, NotSupported: it cannot be opened; the text says why.
    """

    _handle: Optional[Handle] = None  # also when __init__ failed and __del__ looks

    def __init__(
        self,
        root: _Path,
        *,
        group: Union[None, str, Group] = "auto",
        engine: str = "auto",
        staging_bytes: Optional[int] = None,
        timeout: Optional[float] = None,
        generation: int = 0,
        run_id: str = "",
        strict: bool = True,
    ) -> None:
        self._lock = threading.RLock()
        self._busy = False  # a call has the lock; if of this thread, a signal handler asks
        self._ended = False  # closed, if perhaps after the call under way
        self._failure: Optional[errors.Error] = None  # of a background save, not raised yet
        self._last: Optional[Saved] = None
        self._strict = strict
        self.last_error: Optional[errors.Error] = None
        self._handle = Handle(
            errors.path_of("root", root),
            group=resolve(group, run_id),
            engine=engine,
            staging_bytes=staging_bytes,
            timeout=timeout,
            generation=generation,
            run_id=run_id,
        )
        _open_ones.add(self)

    @property
    def root(self) -> str:
        """Directory of the checkpoints, as given."""
        return self._alive().root

    @property
    def rank(self) -> int:
        """Of this process in the group, 0 if it is alone."""
        return self._alive().rank

    @property
    def world_size(self) -> int:
        """Number of ranks in the group, 1 if this process is alone."""
        return self._alive().world_size

    def save(
        self, step: int, state: Any, local: Any = None, *, wait: bool = False
    ) -> Optional[Saved]:
        """Saves a checkpoint; collective over the group.

        Returns when every tensor has been copied: they are yours to change, while the write goes
        on behind. A save that is still being written is waited for first.

        Args:
            step: training step, at least 0, the same on all ranks.
            state: tree that is the same on every rank; rank 0's is written, others may pass None.
            local: tree of this rank's own, for example its random state.
            wait: True returns only when the checkpoint is durable and acknowledged by all ranks.

        Returns:
            What was saved if `wait`, else None.

        Raises:
            TypeError, ValueError: something in the tree cannot be saved; the text has its key path.
            NoSpace, IOFailed, PeerFailed, TimedOut, Fenced, Busy, Mismatch, ...: this save failed,
                or, before anything is saved, the one before it. The previous checkpoint stands.
        """
        with self._use() as handle:
            self._settle()
            self._surface()
            running = self._begin(handle, step, state, local)
            handle.wait_or_close(running, staged=True)
            running.keep = None
            if not (wait or running.done):
                return None
            saved = self._finish_save(running)
            return saved if wait else None

    def wait(self) -> Optional[Saved]:
        """Waits for the save that is being written.

        Returns the last save of this object that succeeded, None when there is none. Raises what
        the save failed with.
        """
        with self._use():
            self._settle()
            self._surface()
            return self._last

    def load(self, *, step: Optional[int] = None, into: Any = None) -> Checkpoint:
        """Loads the newest checkpoint that verifies; collective over the group.

        A checkpoint that turns out damaged is logged and the next older one is tried, on all ranks
        alike; `skipped` of the result says so. Later saves of this object name the loaded
        checkpoint as their parent.

        Args:
            step: a training step, None for the newest checkpoint. Newest is by generation and
                sequence, never by step: a run may have gone back.
            into: tree shaped like `state` or a part of it. Tensors of the checkpoint are read
                straight into its tensors (numpy arrays likewise), which are then in the result.
                After an error their content is undefined.

        Raises:
            NotFound: nothing was ever saved there (NoSuchItem: not this step).
            Unreadable: something is there, and none of it verifies. Do not start from nothing.
            Mismatch: `into` has a tensor that the checkpoint lacks or has in another form, or two
                tensors that overlap.
            NotSupported: a tensor needs torch or numpy, and it cannot be imported.
        """
        with self._use() as handle:
            self._settle()
            self._surface()
            return _restore.load(handle, step, into)

    def latest(self) -> Optional[Info]:
        """The newest checkpoint whose records verify, None when nothing was ever saved.

        Looks for this rank only and reads no tensor, so ranks that ask at different times may get
        different answers: to resume, call `load` and catch NotFound, which all ranks do alike.
        Unreadable when something is there and nothing verifies.
        """
        with self._use() as handle:
            self._settle()
            self._surface()
            return _restore.latest(handle)

    def close(self) -> None:
        """Waits for the save that is being written, and releases everything. May be called twice.
        In a signal handler during a call: that call does it when it ends.

        Raises what a background save failed with, if nobody was told yet.
        """
        if self._handle is None or self._handle.closed:
            return
        with self._lock:
            self._ended = True
            if not self._busy:  # else we are in a signal handler, and the call under way closes
                self._busy = True
                try:
                    self._close()
                finally:
                    self._busy = False

    def __enter__(self) -> Checkpointer:
        self._alive()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._close_quietly("while another error is on its way")

    def __del__(self) -> None:
        if self._handle is not None and not self._handle.closed:
            warnings.warn(f"Checkpointer of {self._handle.root} was not closed", ResourceWarning,
                          stacklevel=2, source=self)
            if not self._close_quietly("in a Checkpointer that was not closed"):
                _lost.append(self._handle.root)

    def __repr__(self) -> str:
        if self._handle is None or self._handle.closed:
            return "<Checkpointer, closed>"
        handle = self._handle
        return f"<Checkpointer of {handle.root!r}, rank {handle.rank} of {handle.world_size}>"

    # -- inside --------------------------------------------------------------------------------

    def _alive(self) -> Handle:
        assert self._handle is not None
        self._handle.check()
        if self._ended:
            raise errors.from_ckpt(errors.CKPT_CODE["ESTATE"], f"{self._handle.root} is closed")
        return self._handle

    @contextlib.contextmanager
    def _use(self) -> Iterator[Handle]:
        handle = self._alive()  # before the lock, which a fork may have copied in a locked state
        with self._lock:
            if self._busy:
                raise errors.from_ckpt(
                    errors.CKPT_CODE["EBUSY"],
                    f"{handle.root}: a signal handler cannot use the Checkpointer in the middle of "
                    "a call of it; let it set a flag, and look at that after the call")
            self._busy = True
            try:
                yield handle
            except BaseException as error:
                handle.give_up(error)
                self._busy = False
                if self._ended:
                    self._close_quietly("in a Checkpointer that a signal handler closed")
                raise
            finally:
                self._busy = False
            if self._ended:
                self.close()

    def _close(self) -> None:
        assert self._handle is not None
        try:
            self._settle()
            self._handle.flush_abort()
        finally:
            _open_ones.discard(self)
            self._handle.close()
        self._surface()

    def _settle(self) -> None:
        """Waits for what runs: a save, whose error becomes `_failure`, or what an interrupted
        call has left."""
        assert self._handle is not None
        running = self._handle.running
        if running is not None:
            self._handle.wait(running)
        self._handle.give_up(KeyboardInterrupt())
        if running is None or not running.saves:
            return
        try:
            self._finish_save(running)
        except errors.Error as error:
            self._failure = error
            self.last_error = error

    def _surface(self) -> None:
        """Raises the failure of a background save, once."""
        failure, self._failure = self._failure, None
        if failure is not None and self._strict:
            raise failure

    def _finish_save(self, running: Operation) -> Saved:
        assert self._handle is not None
        self._handle.wait(running)
        try:
            self._last = _saved(running.value())
            return self._last
        finally:
            self._handle.running = None

    def _begin(self, handle: Handle, step: int, state: Any, local: Any) -> Operation:
        handle.begin(step)
        packer = _tree.Packer()
        note: dict[str, Any] = {"version": _tree.NOTE_VERSION}
        if handle.rank == 0:
            note["state"] = packer.pack(state, "state")
        note["local"] = packer.pack(local, "local", "local")
        for name, tensor in packer.tensors:
            handle.put(name, tensor)
        for name, target in packer.aliases:
            handle.alias(name, target)
        handle.note(_tree.dump(note))
        return handle.commit(packer)

    def _close_quietly(self, when: str) -> bool:
        """For places that cannot raise. False when a save failed and nobody was told."""
        try:
            self.close()
            return True
        except errors.Error as error:
            _log.error("a save failed, %s: %s", when, error)
            return False


# ---------------------------------------------------------------------------------------------
# One-shot functions


def save(
    root: _Path,
    step: int,
    state: Any,
    *,
    local: Any = None,
    group: Union[None, str, Group] = "auto",
    **options: Any,
) -> Saved:
    """Saves one checkpoint and waits until it is durable on all ranks.

    A loop that saves again and again is better served by a `Checkpointer`.

    Args:
        root: directory of the checkpoints; made if its parent exists.
        step, state, local: as in `Checkpointer.save`.
        group, options: as in `Checkpointer`.

    Returns:
        What was saved.

    Raises:
        TypeError, ValueError: something in the tree cannot be saved; the text has its key path.
        InvalidArgument: an option is wrong, root is a file, or the directory above it does not
            exist.
        NoSpace, IOFailed, PeerFailed, ...: as in `Checkpointer.save`. The previous checkpoint
            stands.
    """
    _check_names("save", options)
    with Checkpointer(root, group=group, **options) as saver:
        saved = saver.save(step, state, local, wait=True)
        assert saved is not None
        return saved


def load(
    root: _Path,
    *,
    step: Optional[int] = None,
    group: Union[None, str, Group] = "auto",
    into: Any = None,
    **options: Any,
) -> Checkpoint:
    """Loads the newest checkpoint that verifies, see `Checkpointer.load`.

    A run that goes on saving should load with its `Checkpointer`: then its checkpoints know their
    parent.

    Args:
        root: directory of the checkpoints.
        step, into: as in `Checkpointer.load`.
        group, options: as in `Checkpointer`.

    Returns:
        The checkpoint, with its `state` and this rank's `local`.

    Raises:
        NotFound: nothing was ever saved there (NoSuchItem: not this step).
        Unreadable: something is there, and none of it verifies. Do not start from nothing.
        InvalidArgument: an option is wrong, root is a file, or the directory above it does not
            exist: is its file system mounted?
        Mismatch, NotSupported, ...: as in `Checkpointer.load`.
    """
    _check_names("load", options)
    root = errors.path_of("root", root)
    members = resolve(group)
    if members is None and _is_absent(root):
        raise _not_found(root)
    with Checkpointer(root, group=members, **options) as loader:
        return loader.load(step=step, into=into)


def latest(root: _Path) -> Optional[Info]:
    """The newest checkpoint whose records verify, None when nothing was ever saved.

    For this process only; reads no tensor.

    Raises:
        Unreadable: something is there and nothing verifies.
        InvalidArgument: root is a file, or the directory above it does not exist: is its file
            system mounted?
        AccessDenied, IOFailed, OutOfMemory: root cannot be read; the text says why.
    """
    root = errors.path_of("root", root)
    if _is_absent(root):
        return None
    handle = Handle(root, staging_bytes=2 << 20, block_bytes=1 << 20)  # for records
    try:
        return _restore.latest(handle)
    finally:
        handle.close()


def load_file(path: _Path, *, framework: Optional[str] = None) -> dict[str, Any]:
    """Reads any plain safetensors file, also one shard of a checkpoint.

    Args:
        path: the file.
        framework: "torch" or "numpy"; None is torch where it can be imported.

    Returns:
        Tensors by name, on the CPU, in C order, with the dtypes and shapes of the file's header.
        (What a checkpoint's index adds, as complex128, only `load` knows.)

    Raises:
        NotFound: there is no such file.
        Unreadable: it is not a complete safetensors file; the text says what is wrong.
    """
    if framework not in (None, "torch", "numpy"):
        raise ValueError(f'framework is {framework!r}, expected "torch", "numpy" or None')
    path = errors.path_of("path", path)
    if not os.path.exists(path):
        raise _not_found(path)
    kind = _tensors.NUMPY if framework == "numpy" else _tensors.TORCH
    if framework == "torch":
        importlib.import_module("torch")  # its ImportError is the answer
    full = os.path.abspath(path)
    handle = Handle(os.path.dirname(full))
    try:
        load = _restore.opened(handle, handle.open_load(file=full, alone=True))
        slots = {}
        for name, dtype, shape, _ in handle.entries(load, 0):
            slots[name] = _tensors.allocate(kind, dtype, shape, functools.partial(repr, name))
            handle.get(load, 0, name, slots[name].tensor)
        _restore.read(handle, load, slots)
        return {name: slot.finish() for name, slot in slots.items()}
    finally:
        handle.close()


# ---------------------------------------------------------------------------------------------
# Results and the end of the process


def _saved(raw: dict[str, Any]) -> Saved:
    return Saved(
        step=raw["step"],
        sequence=raw["sequence"],
        generation=raw["generation"],
        path=os.fsdecode(raw["path"]),
        shard_bytes=raw["shard_bytes"],
        staged_s=raw["staged_ns"] / 1e9,
        written_s=raw["written_ns"] / 1e9,
        synced_s=raw["synced_ns"] / 1e9,
        committed_s=raw["committed_ns"] / 1e9,
    )


def _check_names(function: str, options: dict[str, Any]) -> None:
    """For options of Checkpointer, which may never be made: then nobody else would look at them."""
    for name in options:
        if name not in (Checkpointer.__init__.__kwdefaults__ or {}):
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def _is_absent(root: str) -> bool:
    """Whether nothing is there, in a directory that is. Any other trouble is not for us to judge:
    the library, which opens the root, says what it is."""
    try:
        os.lstat(root)
    except FileNotFoundError:
        return os.path.isdir(os.path.dirname(os.path.abspath(root)))
    except (OSError, ValueError):
        pass
    return False


def _not_found(path: str) -> errors.Error:
    return errors.from_ckpt(errors.CKPT_CODE["ENONE"], f"{path}: no such path")


_open_ones: weakref.WeakSet = weakref.WeakSet()
_exit_status: Optional[_ExitStatus] = None
_lost: list[str] = []  # roots of saves that failed in objects nobody closed


class _ExitStatus:
    """Makes the exit status 1 when the interpreter has wound down: not earlier, so that the exit
    functions of others run and the standard streams are flushed."""

    def __init__(self) -> None:
        self._exit = os._exit

    def __del__(self) -> None:
        self._exit(1)


def _at_exit() -> None:
    """A process that leaves a failed save behind does not end with success."""
    global _exit_status
    for saver in list(_open_ones):
        if not saver._close_quietly("and the process ends without having closed its Checkpointer"):
            _lost.append(saver._handle.root)
    if _lost:
        _log.error("exit status 1: a checkpoint was not saved in %s", ", ".join(_lost))
        _exit_status = _ExitStatus()


atexit.register(_at_exit)
