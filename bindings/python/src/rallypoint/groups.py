"""How the ranks of a job agree on a checkpoint: a shared directory, or torch.distributed."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import logging
import os
import sys
from ctypes import byref
from datetime import timedelta
from typing import Any, Callable, Optional, Union

from . import _ffi, errors

_log = logging.getLogger("rallypoint.ckpt")
_ABSENT = b"\x00rallypoint: no such key"


class Group:
    """Ranks that save and load together. Each Checkpointer makes its own connection of it."""

    rank: int
    world_size: int

    def _table(self, lib: ctypes.CDLL) -> tuple[Any, Any]:
        """A ckpt_group that ckpt_open takes over, and the board behind it that is to be released
        when the handle is closed, or None."""
        raise NotImplementedError

    def _take_failure(self) -> Optional[BaseException]:
        """What a callback raised since the last call."""
        return None


class DirGroup(Group):
    """Ranks agree through files in a directory that all of them see.

    Two Checkpointers that are open at the same time need two directories.

    Args:
        dir: made if its parent exists; may be inside the checkpoint root's file system.
        rank: of this process, 0 to world_size - 1.
        world_size: number of ranks; the same on all.

    Raises:
        InvalidArgument: rank or world_size. The directory is made and opened by the Checkpointer,
            which raises InvalidArgument if the one above it does not exist, else AccessDenied or
            IOFailed.
    """

    def __init__(self, dir: Union[str, os.PathLike], rank: int, world_size: int) -> None:
        self.dir = errors.path_of("dir", dir)
        self.world_size = errors.bounded("world_size", world_size, 1, 2**31 - 1, _invalid)
        self.rank = errors.bounded("rank", rank, 0, self.world_size - 1, _invalid)

    def __repr__(self) -> str:
        return f"DirGroup({self.dir!r}, rank={self.rank}, world_size={self.world_size})"

    def _table(self, lib: ctypes.CDLL) -> tuple[Any, Any]:
        table, error = _ffi.ckpt_group(), _ffi.ckpt_error()
        folder = c_string("dir", os.fsencode(self.dir))
        code = lib.ckpt_group_dir(byref(table), folder, self.rank, self.world_size, byref(error))
        return _made(code, error, table), None


class TorchGroup(Group):
    """Ranks agree through the store of torch.distributed.

    The store gets a connection of its own (`Store.clone`, or for older releases of torch a second
    client of the same TCPStore), so that a save never waits for what the training loop does there;
    only where neither is possible (a FileStore of an old torch) the store itself is used.
    No collective runs. Every rank must make its Checkpointers in the same order: their number is
    part of the names in the store.

    Args:
        process_group: of torch.distributed; None is the default group.
        prefix: of the names in the store; give it when several programs share one store.

    Raises:
        InvalidArgument: torch.distributed is not initialised. A store that fails later is an error
            of the Checkpointer, whose `__cause__` is what the store raised.
    """

    def __init__(self, process_group: Any = None, prefix: str = "") -> None:
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_initialized():
            raise errors.from_ckpt(
                errors.CKPT_CODE["EINVAL"],
                "TorchGroup needs torch.distributed: call init_process_group first",
            )
        self.rank = distributed.get_rank(process_group)
        self.world_size = distributed.get_world_size(process_group)
        self._store = distributed.distributed_c10d._get_default_store()
        self._prefix = f"rallypoint/{prefix}/{_members(distributed, process_group)}"
        self._failure: Optional[BaseException] = None

    def __repr__(self) -> str:
        return f"TorchGroup(rank={self.rank}, world_size={self.world_size})"

    def _table(self, lib: ctypes.CDLL) -> tuple[Any, Any]:
        number = next(_numbers.setdefault(self._prefix, itertools.count()))
        board = _StoreBoard(_own_connection(self._store), f"{self._prefix}/{number}/", self._failed)
        table, error = _ffi.ckpt_group(), _ffi.ckpt_error()
        code = lib.ckpt_group_board(byref(table), byref(board.struct), self.rank, self.world_size,
                                    byref(error))
        return _made(code, error, table), board

    def _failed(self, what: str, failure: BaseException) -> int:
        self._failure = failure
        _log.error("%s in the store of torch.distributed: %s", what, failure)
        return errors.CKPT_CODE["EIO"]

    def _take_failure(self) -> Optional[BaseException]:
        failure, self._failure = self._failure, None
        return failure


_numbers: dict[str, Any] = {}


class _StoreBoard:
    """A ckpt_board over a torch store. Its callbacks come on the handle's C thread."""

    def __init__(
        self, store: Any, prefix: str, failed: Callable[[str, BaseException], int]
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._failed = failed
        self.struct: Any = _ffi.ckpt_board(size=ctypes.sizeof(_ffi.ckpt_board))
        self.struct.put = _ffi.board_put_fn(self._put)
        self.struct.get = _ffi.board_get_fn(self._get)
        setattr(self.struct, "del", _ffi.board_del_fn(self._del))

    def release(self) -> None:
        """Drops the connection: the callbacks refer to this object, and it to them."""
        self._store = self.struct = None

    def _put(self, _: Any, key: bytes, data: int, length: int) -> int:
        try:
            self._store.set(self._name(key), ctypes.string_at(data, length) if length else b"")
            return 0
        except BaseException as failure:
            return self._failed(f"set {key!r}", failure)

    def _get(self, _: Any, key: bytes, buffer: int, capacity: int) -> int:
        try:
            value = self._read(self._name(key))
            if value is None:
                return errors.CKPT_CODE["ENOENT"]
            if len(value) > capacity:
                return errors.CKPT_CODE["EINVAL"]
            ctypes.memmove(buffer, value, len(value))
            return len(value)
        except BaseException as failure:
            return self._failed(f"get {key!r}", failure)

    def _del(self, _: Any, key: bytes) -> None:
        try:
            self._store.delete_key(self._name(key))
        except BaseException as failure:
            _log.debug("delete %r in the store of torch.distributed: %s", key, failure)

    def _name(self, key: bytes) -> str:
        return self._prefix + key.decode()

    def _read(self, name: str) -> Optional[bytes]:
        """The value, or None when it is absent; never waits for it."""
        if hasattr(self._store, "check"):
            return self._store.get(name) if self._store.check([name]) else None
        # Older torch cannot ask. A comparison with what no rank writes changes nothing: an absent
        # key then answers with the expected value.
        value = self._store.compare_set(name, _ABSENT.decode(), _ABSENT.decode())
        return None if value == _ABSENT else value


def _members(distributed: Any, process_group: Any) -> str:
    """The same short name on all ranks of a group, another for a group of others."""
    if process_group is None:
        return "all"
    ranks = sorted(distributed.get_process_group_ranks(process_group))
    return hashlib.sha256(",".join(map(str, ranks)).encode()).hexdigest()[:16]


def _own_connection(store: Any) -> Any:
    if hasattr(store, "clone"):
        own = store.clone()
        own.set_timeout(timedelta(seconds=30))
        return own
    base = store
    while hasattr(base, "underlying_store"):
        base = base.underlying_store
    if type(base).__name__ == "TCPStore":
        return type(base)(base.host, base.port, is_master=False, wait_for_workers=False,
                          timeout=timedelta(seconds=30))
    return store


def _made(code: int, error: Any, table: Any) -> Any:
    if code < 0:
        raise errors.from_ckpt(code, error.text.decode(errors="replace"), error.sys_errno)
    return table


def _invalid(text: str) -> errors.Error:
    return errors.from_ckpt(errors.CKPT_CODE["EINVAL"], text)


def c_string(what: str, text: bytes) -> bytes:
    if b"\0" in text:  # C would end there
        raise errors.from_ckpt(errors.CKPT_CODE["EINVAL"], f"{what} {text!r} has a NUL character")
    return text


def resolve(group: Union[None, str, Group], run_id: str = "") -> Optional[Group]:
    """None (alone), a Group, or "auto": torch.distributed where it has more than one rank."""
    if group is None or isinstance(group, Group):
        return group
    if group != "auto":
        raise errors.from_ckpt(errors.CKPT_CODE["EINVAL"],
                               f"group is {group!r}, expected \"auto\", None or a Group")
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return TorchGroup(prefix=run_id) if distributed.get_world_size() > 1 else None
    world = os.environ.get("WORLD_SIZE", "1")
    if world.isdigit() and int(world) > 1:
        raise errors.from_ckpt(
            errors.CKPT_CODE["EINVAL"],
            f"WORLD_SIZE is {world}, but torch.distributed is not initialised: call "
            f"init_process_group first, or pass group=None if this process is alone",
        )
    return None
