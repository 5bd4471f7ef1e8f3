"""Exceptions for the error codes of libckpt and librdzv.

One class says one thing that a caller can do about it; the text is the C library's and names the
path, the rank and the byte where there is one. `CKPT_ERRORS` and `RDZV_ERRORS` repeat the tables
of the headers; a test compares them.
"""

from __future__ import annotations

import errno as _errno
import operator
import os
from typing import Any, Callable, Optional, Type


class Error(Exception):
    """Base of all errors of this package.

    Attributes:
        code: negative code of the C library, see `name`.
        name: the same as text, for example "CKPT_ENOSPC".
        sys_errno: the errno behind it, or 0.
    """

    _errno_if_unknown = 0  # of those that are an OSError too

    def __init__(self, text: str, code: int = 0, sys_errno: int = 0, name: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.sys_errno = sys_errno
        self.name = name
        if isinstance(self, OSError):
            setattr(self, "errno", sys_errno or self._errno_if_unknown)
            setattr(self, "strerror", text)

    def __str__(self) -> str:
        return self.text

    def __reduce__(self):
        return type(self), (self.text, self.code, self.sys_errno, self.name)


class InvalidArgument(Error, ValueError):
    """An argument or option cannot be right; the text says which."""


class OutOfMemory(Error, MemoryError):
    """The C library could not allocate."""


class StateError(Error):
    """The object cannot be used: closed, failed, or in a child process after fork."""


class Busy(Error):
    """Another operation or another writer is at work on the same thing."""


class TimedOut(Error, TimeoutError):
    """The deadline passed; the text says what or who was waited for."""

    _errno_if_unknown = _errno.ETIMEDOUT


class Canceled(Error):
    """The operation was cancelled, by close for example."""


class NotFound(Error, LookupError):
    """No checkpoint was ever committed there: start from nothing."""


class NoSuchItem(NotFound):
    """There are checkpoints, but not this step, shard or tensor."""


class Unreadable(Error):
    """Something is there, and none of it can be read and verified: do not start from nothing."""


class NotSupported(Error):
    """Needs a feature that this build, kernel, file or Python environment lacks."""


class NoSpace(Error, OSError):
    """No space left on the device, or the quota is used up. The previous checkpoint stands."""

    _errno_if_unknown = _errno.ENOSPC


class IOFailed(Error, OSError):
    """Input or output failed; `errno` has the kernel's answer."""

    _errno_if_unknown = _errno.EIO


class AccessDenied(Error, PermissionError):
    """Permission denied, or the file system is read-only."""

    _errno_if_unknown = _errno.EACCES


class PeerFailed(Error):
    """Another rank gave up this operation; the text says which and why."""


class Fenced(Error):
    """A newer generation owns this root: this process belongs to an old round and must end."""


class Mismatch(Error):
    """Ranks, shapes or types do not agree."""


class AddressInUse(Error, OSError):
    """Another process listens at this address."""

    _errno_if_unknown = _errno.EADDRINUSE


class AddressNotAvailable(Error, OSError):
    """The address is not one of this machine."""

    _errno_if_unknown = _errno.EADDRNOTAVAIL


class NotAStore(Error):
    """The peer is not a c10d store, or does not answer as one."""


class ConnectionLost(Error, ConnectionError):
    """The store is gone, and with it the answers that were due. Nothing reconnects by itself."""

    _errno_if_unknown = _errno.ECONNRESET


class NoSuchKey(Error, LookupError):
    """The store has no such key now, or the queue is empty."""


class LimitExceeded(Error, ValueError):
    """A key, a value or an answer is longer than an option allows."""


# name -> (value, text of the header, class)
CKPT_ERRORS: dict[str, tuple[int, str, Optional[Type[Error]]]] = {
    "OK": (0, "success", None),
    "EINVAL": (-1, "invalid argument or option", InvalidArgument),
    "ENOMEM": (-2, "out of memory", OutOfMemory),
    "ESTATE": (-3, "handle cannot be used: closed, failed, or in a child after fork", StateError),
    "EBUSY": (-4, "another operation or another writer is at work", Busy),
    "ETIMEDOUT": (-5, "deadline passed", TimedOut),
    "ECANCELED": (-6, "operation cancelled", Canceled),
    "ENONE": (-7, "no checkpoint there", NotFound),
    "EUNREADABLE": (-8, "checkpoint is there but cannot be read or does not verify", Unreadable),
    "ENOTSUP": (-9, "needs a feature that this build, kernel or file lacks", NotSupported),
    "ENOSPC": (-10, "no space left on the device or quota used up", NoSpace),
    "EIO": (-11, "input or output failed", IOFailed),
    "EACCES": (-12, "permission denied or read-only", AccessDenied),
    "EPEER": (-13, "another rank gave up; the text says which and why", PeerFailed),
    "EFENCED": (-14, "a newer generation owns this root", Fenced),
    "EMISMATCH": (-15, "ranks, shapes or types do not agree", Mismatch),
    "ENOENT": (-16, "no such tensor, shard or step", NoSuchItem),
}

RDZV_ERRORS: dict[str, tuple[int, str, Optional[Type[Error]]]] = {
    "OK": (0, "success", None),
    "EINVAL": (-1, "invalid argument or option", InvalidArgument),
    "ENOMEM": (-2, "out of memory", OutOfMemory),
    "ESTATE": (-3, "handle cannot be used: closed, failed, or in a child after fork", StateError),
    "EBUSY": (-4, "called from a callback, or another operation is at work", Busy),
    "ETIMEDOUT": (-5, "deadline passed", TimedOut),
    "ECANCELED": (-6, "operation cancelled", Canceled),
    "EADDRINUSE": (-7, "address is in use", AddressInUse),
    "EADDRNOTAVAIL": (-8, "address is not one of this machine", AddressNotAvailable),
    "EACCES": (-9, "permission denied", AccessDenied),
    "ENOTSUP": (-10, "not available in this mode or build", NotSupported),
    "EIO": (-11, "system call failed", IOFailed),
    "ENOTSTORE": (-12, "the peer is not a c10d store", NotAStore),
    "ECONN": (-13, "the connection is lost, or was closed by the peer", ConnectionLost),
    "ENOENT": (-14, "no such key, or the queue is empty", NoSuchKey),
    "ELIMIT": (-15, "a limit of the options is exceeded", LimitExceeded),
}


def _by_value(table: dict) -> dict[int, tuple[str, str, Type[Error]]]:
    return {value: (name, text, cls) for name, (value, text, cls) in table.items() if cls}


_CKPT_BY_VALUE = _by_value(CKPT_ERRORS)
_RDZV_BY_VALUE = _by_value(RDZV_ERRORS)
CKPT_CODE = {name: value for name, (value, _, _) in CKPT_ERRORS.items()}


def from_ckpt(code: int, text: str = "", sys_errno: int = 0) -> Error:
    """The exception for an error of libckpt; `text` may be empty."""
    return _make("CKPT_", _CKPT_BY_VALUE, code, text, sys_errno)


def from_rdzv(code: int, text: str = "", sys_errno: int = 0) -> Error:
    """The exception for an error of librdzv; `text` may be empty."""
    return _make("RDZV_", _RDZV_BY_VALUE, code, text, sys_errno)


def rdzv_error(name: str, text: str) -> Error:
    """The exception of librdzv's error of this name, "EINVAL"; what the package itself found."""
    return from_rdzv(RDZV_ERRORS[name][0], text)


def _make(prefix: str, table: dict, code: int, text: str, sys_errno: int) -> Error:
    name, default, cls = table.get(code, (str(code), f"unknown error {code}", Error))
    return cls(text or default, code, sys_errno, prefix + name)


def bounded(what: str, value: Any, least: int, most: int, invalid: Callable[[str], Error]) -> int:
    """The value, for an integer of C, which would wrap round in silence."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}, expected an integer") from None
    if not least <= number <= most:
        raise invalid(f"{what} is {value!r}, expected {least} to {most}")
    return number


def bounded_ms(what: str, value: Any, least: float, most: int,
               invalid: Callable[[str], Error]) -> int:
    """A number of seconds as whole milliseconds, rounded down, but 0 only if it is 0."""
    text = f"{what} is {value!r}, expected seconds from {least} to {most}"
    try:
        fits = least <= value <= most
    except TypeError:
        raise TypeError(text) from None
    if not fits:
        raise invalid(text)
    return 0 if value == 0 else max(1, int(value * 1000))


def text_of(what: str, value: Any) -> str:
    """The value, which must be a str."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {value!r}, expected str")
    return value


def path_of(what: str, value: Any) -> str:
    """The value as a path."""
    try:
        return os.fspath(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}, expected str or os.PathLike") from None
