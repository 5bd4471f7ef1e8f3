"""A c10d store in this process, for tests and notebooks; `rdzvd` is the one for a cluster.

    with rallypoint.rdzv.Server() as server:
        store = torch.distributed.TCPStore("127.0.0.1", server.port, is_master=False)
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import os
from ctypes import byref, c_uint16, c_void_p
from typing import Any, Optional

from . import _ffi, errors

__all__ = ["Server", "Stats"]

_ffi.rdzv()  # a missing or wrong library is an error of this import

_log = logging.getLogger("rallypoint.rdzv")
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, 5)


@dataclasses.dataclass(frozen=True)
class Stats:
    """Counters of a server, a few milliseconds old at most."""

    connections: int  # open now
    accepted: int  # since it was opened
    refused: int  # closed because of a bad start, a bad request or a limit
    requests: int  # answered or applied
    keys: int  # in the store now, queues not counted
    store_bytes: int  # keys and values in all
    waiting: int  # connections in a WAIT or BARRIER now
    buffer_bytes: int  # unfinished requests and unread answers now


@_ffi.rdzv_log_fn
def _on_log(_: Any, level: int, line: bytes) -> None:
    _log.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.DEBUG,
             "%s", line.decode(errors="replace"))


class Server:
    """Serves a store on a thread of its own until closed. One Python thread owns it.

    Args:
        listen: "HOST:PORT" with a numeric IPv4 address, "[IPv6]:PORT" or "localhost:PORT". Port 0
            takes any free one. "*:PORT" listens on all addresses, for anybody to read and write.

    Attributes:
        address: "HOST:PORT" that clients connect to.
        port: its port.

    Raises:
        AddressInUse, AddressNotAvailable, AccessDenied, InvalidArgument: it cannot listen there.
    """

    def __init__(self, listen: str = "127.0.0.1:0") -> None:
        self._lib = _ffi.rdzv()
        self._pointer: Optional[int] = None
        self._pid = os.getpid()
        host, port = _parse(listen)
        options = _ffi.rdzv_server_options()
        self._lib.rdzv_server_options_init(byref(options), ctypes.sizeof(options))
        options.host = host.encode()
        options.port = port
        options.log = _on_log
        pointer, error = c_void_p(), _ffi.rdzv_error()
        code = self._lib.rdzv_server_open(byref(pointer), byref(options), byref(error))
        if code < 0:
            raise errors.from_rdzv(code, error.text.decode(errors="replace"), error.sys_errno)
        self._pointer = pointer.value
        number = c_uint16()
        self.address = self._lib.rdzv_server_address(self._pointer, byref(number)).decode()
        self.port = number.value

    def stats(self) -> Stats:
        """Counters; also delivers the server's log lines to logging. Never waits."""
        pointer = self._alive()
        raw = _ffi.rdzv_server_stats(size=ctypes.sizeof(_ffi.rdzv_server_stats))
        code = self._lib.rdzv_server_get_stats(pointer, byref(raw))
        if code < 0:
            raise errors.from_rdzv(code)
        self._lib.rdzv_server_dispatch(pointer)
        names = [field.name for field in dataclasses.fields(Stats)]
        return Stats(**{name: getattr(raw, name) for name in names})

    def close(self) -> None:
        """Closes every connection. May be called twice; in a child after fork it does nothing."""
        if self._pointer is not None and self._pid == os.getpid():
            pointer, self._pointer = self._pointer, None
            self._lib.rdzv_server_close(pointer, _ffi.rdzv_closed_fn(), None)

    def _alive(self) -> int:
        if self._pointer is None:
            raise errors.from_rdzv(errors.RDZV_ERRORS["ESTATE"][0], "the server is closed")
        if self._pid != os.getpid():
            raise errors.from_rdzv(errors.RDZV_ERRORS["ESTATE"][0],
                                   f"the server belongs to process {self._pid}, not to its child")
        return self._pointer

    def __enter__(self) -> Server:
        self._alive()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"<Server on {self.address}{'' if self._pointer else ', closed'}>"


def _parse(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise errors.from_rdzv(errors.RDZV_ERRORS["EINVAL"][0],
                               f"listen is {listen!r}, expected HOST:PORT, for example 127.0.0.1:0")
    return host, int(port)
