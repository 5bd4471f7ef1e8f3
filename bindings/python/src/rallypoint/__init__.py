"""Rallypoint: checkpoints and rendezvous for distributed training.

`rallypoint.ckpt` saves and restores nested dicts of tensors, `rallypoint.rdzv` is a store and a
client of one; neither torch nor numpy is needed to import them. `rallypoint.torch` needs torch.
"""

from __future__ import annotations

import importlib

from .errors import (
    AccessDenied,
    AddressInUse,
    AddressNotAvailable,
    Busy,
    Canceled,
    ConnectionLost,
    Error,
    Fenced,
    InvalidArgument,
    IOFailed,
    LimitExceeded,
    Mismatch,
    NoSpace,
    NoSuchItem,
    NoSuchKey,
    NotAStore,
    NotFound,
    NotSupported,
    OutOfMemory,
    PeerFailed,
    StateError,
    TimedOut,
    Unreadable,
)

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "ckpt",
    "errors",
    "rdzv",
    "AccessDenied",
    "AddressInUse",
    "AddressNotAvailable",
    "Busy",
    "Canceled",
    "ConnectionLost",
    "Error",
    "Fenced",
    "InvalidArgument",
    "IOFailed",
    "LimitExceeded",
    "Mismatch",
    "NoSpace",
    "NoSuchItem",
    "NoSuchKey",
    "NotAStore",
    "NotFound",
    "NotSupported",
    "OutOfMemory",
    "PeerFailed",
    "StateError",
    "TimedOut",
    "Unreadable",
]


def __getattr__(name: str):
    if name in ("ckpt", "rdzv", "torch"):  # `import *` must not bring the last one: see __all__
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
