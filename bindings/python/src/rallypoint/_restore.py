"""From a committed checkpoint to the user's tree: which one, into what memory, what is skipped.

Tensors are read straight into the memory that the user gets. Nothing of a checkpoint reaches the
user before the library has verified all that was asked for.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
import os
from typing import Any, Callable, Optional

from . import _tensors, _tree, errors
from ._handle import Handle, Operation

_log = logging.getLogger("rallypoint")


@dataclasses.dataclass(frozen=True)
class Info:
    """A committed checkpoint.

    Attributes:
        step: training step.
        sequence: grows by one with each checkpoint of a root.
        generation: fencing number of the run that saved it, 0 if it had none.
        world_size: number of ranks that saved it.
        path: directory of the checkpoint.
        run_id: as its run gave it, "" if it did not.
        saved_at: time of the writer's clock, UTC; information only. None if that clock was beyond
            the calendar.
        digest: identity of the checkpoint, 32 hex digits.
        parent: digest of the checkpoint that its run resumed from, or None.
        skipped: newer checkpoints that were there but could not be read, and why.
    """

    step: int
    sequence: int
    generation: int
    world_size: int
    path: str
    run_id: str
    saved_at: Optional[datetime.datetime]
    digest: str
    parent: Optional[str]
    skipped: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Checkpoint(Info):
    """A checkpoint that was loaded, every byte of it verified. Has what `Info` has, too.

    Attributes:
        state: tree that is the same on every rank.
        local: what this rank gave as `local`, or None; also None if another number of ranks saved.
    """

    state: Any = dataclasses.field(repr=False)
    local: Any = dataclasses.field(repr=False)


def opened(handle: Handle, operation: Operation) -> int:
    handle.wait_or_close(operation)
    return operation.value()


def read(handle: Handle, load: int, keep: Any) -> None:
    operation = handle.start(load, keep)
    handle.wait_or_close(operation)
    operation.value()


def latest(handle: Handle) -> Optional[Info]:
    try:
        found = opened(handle, handle.open_load(alone=True))
    except errors.NotFound:
        return None
    try:
        return Info(**_info(handle, found, []))
    finally:
        handle.close_load(found)


def load(handle: Handle, step: Optional[int], into: Any) -> Checkpoint:
    """The newest that can be read; each failure of the data leads to the next older one."""
    skipped: list[str] = []
    older_than = None
    while True:
        try:
            found = opened(handle, handle.open_load(step=step, older_than=older_than))
        except (errors.NotFound, errors.Unreadable) as error:
            if not skipped:
                raise
            raise errors.from_ckpt(errors.CKPT_CODE["EUNREADABLE"],
                                   f"{skipped[0]}; and no older checkpoint can be read") from error
        info = _info(handle, found, skipped)
        try:
            return _read_checkpoint(handle, found, info, into)
        except errors.Unreadable as error:
            _log.warning("skip checkpoint %s and look for an older one: %s", info["path"], error)
            skipped.append(f"{info['path']}: {error}")
            older_than = (info["generation"], info["sequence"])


def _read_checkpoint(handle: Handle, load: int, info: dict, into: Any) -> Checkpoint:
    """Consumes load."""
    try:
        plan, state, local = _plan(handle, load, info, into)
    except BaseException as error:
        handle.abort_load(load, error)  # the other ranks may be reading already
        raise
    try:
        read(handle, load, plan)
        return Checkpoint(**info, state=state.value(), local=local.value() if local else None)
    finally:
        handle.close_load(load)


def _plan(handle: Handle, load: int, info: dict, into: Any) -> tuple:
    note = _note(handle, load, 0, info)
    plan = _Plan(handle, load)
    state = plan.add(0, note.get("state"), "state", into)
    local = None
    if info["world_size"] == handle.world_size:
        own = note if handle.rank == 0 else _note(handle, load, handle.rank, info)
        local = plan.add(handle.rank, own.get("local"), "local", None)
    elif note.get("local") is not None:
        _log.warning("%s was saved by %d ranks and is loaded by %d: what each rank saved as its "
                     "own (local) is left out", info["path"], info["world_size"], handle.world_size)
    plan.check_memory()
    return plan, state, local


class _Plan:
    """The tensors of a checkpoint that are asked for, and the memory that they go to."""

    def __init__(self, handle: Handle, load: int) -> None:
        self._handle = handle
        self._load = load
        self._entries: dict[int, dict] = {}  # by shard, then by name
        self._taken: list[tuple[_tensors.Memory, str, str]] = []  # the user's, what goes there

    def add(self, shard: int, node: Any, label: str, into: Any) -> _Part:
        return _Part(self, shard, node, label, into)

    def entry(self, shard: int, name: str) -> tuple[int, tuple, str]:
        """(dtype, shape, name of the tensor itself)"""
        if shard not in self._entries:
            self._entries[shard] = {
                name: (dtype, shape, target or name)
                for name, dtype, shape, target in self._handle.entries(self._load, shard)
            }
        try:
            return self._entries[shard][name]
        except KeyError:
            raise _damaged(f"its note names a tensor {name!r} that shard {shard} lacks") from None

    def take(self, slot: _tensors.Slot, name: str, where: Callable[[], str]) -> None:
        if slot.memory is not None and 0 not in slot.memory.shape:
            self._taken.append((slot.memory, name, where()))

    def check_memory(self) -> None:
        """Memory of the user's own gets one tensor, not two in some order."""
        reach: list[tuple[_tensors.Memory, str, str]] = []  # those that go on beyond `memory.start`
        for memory, name, text in sorted(self._taken, key=lambda taken: taken[0].place):
            reach = [other for other in reach if other[0].device == memory.device
                     and other[0].end > memory.start]
            for other, other_name, other_text in reach:
                if (memory, name) == (other, other_name) or not memory.overlaps(other):
                    continue
                raise errors.from_ckpt(
                    errors.CKPT_CODE["EMISMATCH"],
                    f"{text}: is the same memory in `into` as another tensor, {other_text}, or "
                    f"overlaps it, but not in the checkpoint, where they are {name!r} and "
                    f"{other_name!r}" if name != other_name else
                    f"{text}: overlaps {other_text} in `into`, but does not see the memory alike, "
                    f"while in the checkpoint they are one tensor, {name!r}",
                )
            if not any(memory == other for other, _, _ in reach):
                reach.append((memory, name, text))

    def get(self, shard: int, name: str, slot: _tensors.Slot) -> None:
        self._handle.get(self._load, shard, name, slot.tensor)


class _Part:
    """One tree of a checkpoint, `state` or `local`: planned when made, built when read."""

    def __init__(self, plan: _Plan, shard: int, node: Any, label: str, into: Any) -> None:
        self._plan = plan
        self._shard = shard
        self._node = node
        self._label = label
        self._slots: list[_tensors.Slot] = []  # in the order of the tree
        self._shared: dict[tuple[str, str], _tensors.Slot] = {}  # tied tensors are one object
        self._into = {path: value for path, value in _tree.leaves(into)
                      if _tensors.is_tensor(value)}
        try:
            _tree.build(node, self._want)
        except (ValueError, RecursionError) as error:
            if isinstance(error, errors.Error):
                raise
            raise _damaged(str(error)) from None
        if self._into:
            path = next(iter(self._into))
            raise errors.from_ckpt(errors.CKPT_CODE["EMISMATCH"],
                                   f"{_tree.path_text(label, list(path))}: is a tensor in `into`, "
                                   f"but not in the checkpoint")

    def _want(self, kind: str, name: str, path: list) -> None:
        dtype, shape, target = self._plan.entry(self._shard, name)

        def where() -> str:
            return _tree.path_text(self._label, path)

        own = self._into.pop(tuple(path), None) if self._into else None
        slot = self._shared.get((kind, target)) if own is None else None
        if slot is None:
            if own is None:
                slot = self._shared[kind, target] = _tensors.allocate(kind, dtype, shape, where)
            else:
                slot = _tensors.into(own, dtype, shape, where)
                self._plan.take(slot, target, where)
            self._plan.get(self._shard, target, slot)
        self._slots.append(slot)

    def value(self) -> Any:
        finished: dict[int, Any] = {}
        slots = iter(self._slots)

        def take(kind: str, name: str, path: list) -> Any:
            slot = next(slots)
            if id(slot) not in finished:
                finished[id(slot)] = slot.finish()
            return finished[id(slot)]

        return _tree.build(self._node, take)


def _note(handle: Handle, load: int, shard: int, info: dict) -> dict:
    text = handle.load_note(load, shard)
    try:
        note = _tree.parse(text)
    except ValueError as error:
        raise _damaged(f"{info['path']}, shard {shard}: {error}") from None
    version = note.get("version")
    if version != _tree.NOTE_VERSION:
        raise errors.from_ckpt(
            errors.CKPT_CODE["ENOTSUP"],
            f"{info['path']}, shard {shard}: its note has version {version!r}, this package reads "
            f"{_tree.NOTE_VERSION}: it was saved by a newer release or another program",
        )
    return note


def _info(handle: Handle, load: int, skipped: list) -> dict[str, Any]:
    raw = handle.info(load)
    unread = list(skipped)
    if raw["skipped"]:
        unread.append(f"{raw['skipped']} newer in {handle.root}: the log says why")
    return {
        "step": raw["step"],
        "sequence": raw["sequence"],
        "generation": raw["generation"],
        "world_size": raw["world_size"],
        "path": os.fsdecode(raw["path"]),
        "run_id": raw["run_id"].decode(errors="replace"),
        "saved_at": _saved_at(raw["saved_unix_ms"]),
        "digest": raw["digest"].hex(),
        "parent": raw["parent"].hex() if any(raw["parent"]) else None,
        "skipped": tuple(unread),
    }


def _saved_at(unix_ms: int) -> Optional[datetime.datetime]:
    """None for a clock that was beyond the calendar."""
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    try:
        return epoch + datetime.timedelta(milliseconds=unix_ms)
    except OverflowError:
        return None


def _damaged(text: str) -> errors.Error:
    return errors.from_ckpt(errors.CKPT_CODE["EUNREADABLE"], text)
