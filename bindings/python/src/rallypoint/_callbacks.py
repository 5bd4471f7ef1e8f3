"""What a signal handler raises in a callback, which C cannot carry.

It is kept for the thread that it was raised on, and raised again by whoever called the C function
that made the callback. Nothing of one thread ever surfaces in another.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional


class _Kept(threading.local):
    first: Optional[BaseException] = None


_kept = _Kept()


def raise_kept() -> None:
    """After every C function that may have made a callback."""
    first, _kept.first = _kept.first, None
    if first is not None:
        raise first


def guarded(body: Callable, interrupted: Callable[[], None] = lambda: None) -> Callable:
    """A callback that ends where it was interrupted, after `interrupted()`: for log lines."""

    def callback(*arguments: Any) -> None:
        try:
            body(*arguments)
        except BaseException as error:
            _kept.first = _kept.first or error
            interrupted()

    return callback


def whole(body: Callable) -> Callable:
    """A callback that is run again when it was interrupted: the library makes it only once."""

    def callback(*arguments: Any) -> None:
        try:
            body(*arguments)
        except BaseException as error:
            _kept.first = _kept.first or error
            body(*arguments)

    return callback
