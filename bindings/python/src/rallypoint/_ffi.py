"""The C interface of libckpt and librdzv as ctypes sees it, and nothing else.

Every public function has its argument and result types here, every public struct its layout; a
test compares both with the headers. Libraries are loaded as CDLL, so each call releases the GIL:
the callbacks take it again by themselves, on whatever thread they come.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Callable, Optional

VERSION = (0, 1, 0)
LIB_DIR_VARIABLE = "RALLYPOINT_LIB_DIR"

CKPT_NEWEST = -(2**63)
CKPT_MAX_DIMS = 32
CKPT_MAX_NAME_BYTES = 4096
CKPT_MAX_NOTE_BYTES = 64 << 20
CKPT_ENGINES = {"auto": 0, "uring": 1, "sync": 2}
CKPT_DRIVE_THREAD = 0
RDZV_DRIVE_CALLER = 1
RDZV_LOG_DEBUG = 3

# name -> (value, item size in bytes)
CKPT_DTYPES = {
    "BOOL": (1, 1),
    "U8": (2, 1),
    "I8": (3, 1),
    "U16": (4, 2),
    "I16": (5, 2),
    "U32": (6, 4),
    "I32": (7, 4),
    "U64": (8, 8),
    "I64": (9, 8),
    "F8_E4M3": (10, 1),
    "F8_E5M2": (11, 1),
    "F8_E8M0": (12, 1),
    "F8_E4M3FNUZ": (13, 1),
    "F8_E5M2FNUZ": (14, 1),
    "F16": (15, 2),
    "BF16": (16, 2),
    "F32": (17, 4),
    "F64": (18, 8),
    "C64": (19, 8),
    "C128": (20, 16),
}


# ---------------------------------------------------------------------------------------------
# Structs and callbacks of ckpt.h


class ckpt_error(Structure):
    _fields_ = [("code", c_int32), ("sys_errno", c_int32), ("text", c_char * 248)]


ckpt_alloc_fn = CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
ckpt_free_fn = CFUNCTYPE(None, c_void_p, c_void_p)


class ckpt_allocator(Structure):
    _fields_ = [("alloc", ckpt_alloc_fn), ("free", ckpt_free_fn), ("ctx", c_void_p)]


ckpt_log_fn = CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class ckpt_blob(Structure):
    _fields_ = [("bytes", c_void_p), ("len_bytes", c_size_t)]


ckpt_exchanged_fn = CFUNCTYPE(None, c_void_p, POINTER(ckpt_blob), POINTER(ckpt_error))
group_exchange_fn = CFUNCTYPE(
    None, c_void_p, c_void_p, c_size_t, c_int32, ckpt_exchanged_fn, c_void_p
)
group_fd_fn = CFUNCTYPE(c_int, c_void_p)
group_void_fn = CFUNCTYPE(None, c_void_p)


class ckpt_group(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("ctx", c_void_p),
        ("rank", c_int32),
        ("world_size", c_int32),
        ("exchange", group_exchange_fn),
        ("fd", group_fd_fn),
        ("dispatch", group_void_fn),
        ("cancel", group_void_fn),
        ("close", group_void_fn),
    ]


board_put_fn = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_size_t)
board_get_fn = CFUNCTYPE(c_int64, c_void_p, c_char_p, c_void_p, c_size_t)
board_del_fn = CFUNCTYPE(None, c_void_p, c_char_p)
board_close_fn = CFUNCTYPE(None, c_void_p)


class ckpt_board(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("ctx", c_void_p),
        ("put", board_put_fn),
        ("get", board_get_fn),
        ("del", board_del_fn),
        ("close", board_close_fn),
    ]


class ckpt_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("root", c_char_p),
        ("drive", c_uint32),
        ("engine", c_uint32),
        ("staging_bytes", c_uint64),
        ("block_bytes", c_uint32),
        ("queue_depth", c_uint32),
        ("timeout_ms", c_int32),
        ("generation", c_uint64),
        ("run_id", c_char_p),
        ("group", POINTER(ckpt_group)),
        ("allocator", POINTER(ckpt_allocator)),
        ("log", ckpt_log_fn),
        ("log_ctx", c_void_p),
    ]


class ckpt_tensor(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("dtype", c_uint32),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("strides_bytes", POINTER(c_int64)),
        ("global_shape", POINTER(c_int64)),
        ("offset", POINTER(c_int64)),
        ("data", c_void_p),
    ]


class ckpt_saved(Structure):
    _fields_ = [
        ("step", c_int64),
        ("sequence", c_uint64),
        ("generation", c_uint64),
        ("path", c_char_p),
        ("shard_bytes", c_uint64),
        ("staged_ns", c_uint64),
        ("written_ns", c_uint64),
        ("synced_ns", c_uint64),
        ("committed_ns", c_uint64),
    ]


class ckpt_load_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("step", c_int64),
        ("file", c_char_p),
        ("has_older_than", c_uint32),
        ("alone", c_uint32),
        ("older_generation", c_uint64),
        ("older_sequence", c_uint64),
    ]


class ckpt_info(Structure):
    _fields_ = [
        ("step", c_int64),
        ("sequence", c_uint64),
        ("generation", c_uint64),
        ("world_size", c_int32),
        ("skipped", c_int32),
        ("path", c_char_p),
        ("run_id", c_char_p),
        ("saved_unix_ms", c_int64),
        ("digest", c_uint8 * 16),
        ("parent", c_uint8 * 16),
    ]


ckpt_staged_fn = CFUNCTYPE(None, c_void_p)
ckpt_saved_fn = CFUNCTYPE(None, c_void_p, POINTER(ckpt_saved), POINTER(ckpt_error))
ckpt_opened_fn = CFUNCTYPE(None, c_void_p, c_void_p, POINTER(ckpt_error))
ckpt_loaded_fn = CFUNCTYPE(None, c_void_p, POINTER(ckpt_error))

_err = POINTER(ckpt_error)
_handle = c_void_p  # ckpt *, ckpt_save *, ckpt_load *: opaque
_ret = POINTER(c_void_p)

# name -> (result, arguments)
CKPT_FUNCTIONS = {
    "ckpt_version": (c_int32, []),
    "ckpt_strerror": (c_char_p, [c_int]),
    "ckpt_options_init": (None, [POINTER(ckpt_options), c_size_t]),
    "ckpt_open": (c_int, [_ret, POINTER(ckpt_options), _err]),
    "ckpt_close": (None, [_handle]),
    "ckpt_fd": (c_int, [_handle]),
    "ckpt_dispatch": (c_int, [_handle]),
    "ckpt_wait": (c_int, [_handle, c_int]),
    "ckpt_engine_name": (c_char_p, [_handle]),
    "ckpt_dtype_size": (c_size_t, [c_uint32]),
    "ckpt_tensor_init": (None, [POINTER(ckpt_tensor), c_size_t]),
    "ckpt_save_begin": (c_int, [_ret, _handle, c_int64, _err]),
    "ckpt_save_put": (c_int, [_handle, POINTER(ckpt_tensor), _err]),
    "ckpt_save_alias": (c_int, [_handle, c_char_p, c_char_p, _err]),
    "ckpt_save_note": (c_int, [_handle, c_void_p, c_size_t, _err]),
    "ckpt_save_commit": (c_int, [_handle, ckpt_staged_fn, ckpt_saved_fn, c_void_p, _err]),
    "ckpt_save_abort": (None, [_handle, c_char_p]),
    "ckpt_load_options_init": (None, [POINTER(ckpt_load_options), c_size_t]),
    "ckpt_load_open": (
        c_int,
        [_handle, POINTER(ckpt_load_options), ckpt_opened_fn, c_void_p, _err],
    ),
    "ckpt_load_info": (POINTER(ckpt_info), [_handle]),
    "ckpt_load_count": (c_int64, [_handle, c_int32]),
    "ckpt_load_at": (
        c_int,
        [_handle, c_int32, c_int64, POINTER(ckpt_tensor), POINTER(c_char_p)],
    ),
    "ckpt_load_note": (c_int, [_handle, c_int32, POINTER(c_void_p), POINTER(c_size_t)]),
    "ckpt_load_get": (c_int, [_handle, c_int32, POINTER(ckpt_tensor), _err]),
    "ckpt_load_start": (c_int, [_handle, ckpt_loaded_fn, c_void_p, _err]),
    "ckpt_load_abort": (None, [_handle, c_int32, c_char_p]),
    "ckpt_load_close": (c_int, [_handle]),
    "ckpt_group_board": (
        c_int,
        [POINTER(ckpt_group), POINTER(ckpt_board), c_int32, c_int32, _err],
    ),
    "ckpt_group_dir": (c_int, [POINTER(ckpt_group), c_char_p, c_int32, c_int32, _err]),
}


# ---------------------------------------------------------------------------------------------
# Structs and callbacks of rdzv.h and rdzv_client.h


class rdzv_error(Structure):
    _fields_ = [("code", c_int32), ("sys_errno", c_int32), ("text", c_char * 248)]


rdzv_alloc_fn = CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
rdzv_free_fn = CFUNCTYPE(None, c_void_p, c_void_p)


class rdzv_allocator(Structure):
    _fields_ = [("alloc", rdzv_alloc_fn), ("free", rdzv_free_fn), ("ctx", c_void_p)]


rdzv_log_fn = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
rdzv_closed_fn = CFUNCTYPE(None, c_void_p)


class rdzv_server_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("loop", c_void_p),
        ("host", c_char_p),
        ("port", c_uint16),
        ("listen_fd", c_int32),
        ("backlog", c_uint32),
        ("max_key_bytes", c_uint64),
        ("max_value_bytes", c_uint64),
        ("max_request_keys", c_uint64),
        ("max_request_bytes", c_uint64),
        ("max_store_bytes", c_uint64),
        ("max_unread_bytes", c_uint64),
        ("allocator", POINTER(rdzv_allocator)),
        ("log", rdzv_log_fn),
        ("log_ctx", c_void_p),
        ("max_connections", c_uint64),
        ("max_buffer_bytes", c_uint64),
        ("request_timeout_ms", c_uint32),
        ("max_keys", c_uint64),
        ("forget_after_ms", c_uint32),
        ("log_level", c_int32),
    ]


class rdzv_server_stats(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("connections", c_uint64),
        ("accepted", c_uint64),
        ("refused", c_uint64),
        ("requests", c_uint64),
        ("keys", c_uint64),
        ("store_bytes", c_uint64),
        ("waiting", c_uint64),
        ("buffer_bytes", c_uint64),
    ]


class rdzv_job_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("run_id", c_char_p),
        ("host", c_char_p),
        ("port", c_uint16),
        ("listen_fd", c_int32),
        ("backlog", c_uint32),
        ("max_store_bytes", c_uint64),
        ("max_keys", c_uint64),
        ("max_connections", c_uint64),
        ("max_buffer_bytes", c_uint64),
        ("forget_after_ms", c_uint32),
    ]


class rdzv_bytes(Structure):
    _fields_ = [("data", c_void_p), ("len_bytes", c_size_t)]


class rdzv_reply(Structure):
    _fields_ = [("number", c_int64), ("values", POINTER(rdzv_bytes)), ("count", c_size_t)]


class rdzv_client_options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("drive", c_uint32),
        ("dialect", c_uint32),
        ("loop", c_void_p),
        ("host", c_char_p),
        ("port", c_uint16),
        ("flags", c_uint16),
        ("connect_timeout_ms", c_int32),
        ("hello_timeout_ms", c_int32),
        ("timeout_ms", c_int32),
        ("reply_timeout_ms", c_int32),
        ("max_key_bytes", c_uint64),
        ("max_value_bytes", c_uint64),
        ("max_request_keys", c_uint64),
        ("max_reply_bytes", c_uint64),
        ("max_pending_bytes", c_uint64),
        ("allocator", POINTER(rdzv_allocator)),
        ("log", rdzv_log_fn),
        ("log_ctx", c_void_p),
    ]


rdzv_reply_fn = CFUNCTYPE(None, c_void_p, POINTER(rdzv_reply), POINTER(rdzv_error))

_keys = POINTER(rdzv_bytes)
_how = [c_int32, rdzv_reply_fn, c_void_p, POINTER(rdzv_error)]  # the last four of every call

RDZV_FUNCTIONS = {
    "rdzv_version": (c_int32, []),
    "rdzv_strerror": (c_char_p, [c_int]),
    "rdzv_server_options_init": (None, [POINTER(rdzv_server_options), c_size_t]),
    "rdzv_server_open": (c_int, [_ret, POINTER(rdzv_server_options), POINTER(rdzv_error)]),
    "rdzv_server_address": (c_char_p, [_handle, POINTER(c_uint16)]),
    "rdzv_server_get_stats": (c_int, [_handle, POINTER(rdzv_server_stats)]),
    "rdzv_server_drain": (c_int, [_handle, c_int32, rdzv_closed_fn, c_void_p]),
    "rdzv_server_fd": (c_int, [_handle]),
    "rdzv_server_dispatch": (c_int, [_handle]),
    "rdzv_server_wait": (c_int, [_handle, c_int]),
    "rdzv_server_close": (None, [_handle, rdzv_closed_fn, c_void_p]),
    "rdzv_job_options_init": (None, [POINTER(rdzv_job_options), c_size_t]),
    "rdzv_server_open_job": (c_int, [_handle, _ret, POINTER(rdzv_job_options),
                                     POINTER(rdzv_error)]),
    "rdzv_job_address": (c_char_p, [_handle, POINTER(c_uint16)]),
    "rdzv_job_get_stats": (c_int, [_handle, POINTER(rdzv_server_stats)]),
    "rdzv_job_close": (None, [_handle, rdzv_closed_fn, c_void_p]),
    "rdzv_client_options_init": (None, [POINTER(rdzv_client_options), c_size_t]),
    "rdzv_client_open": (c_int, [_ret, POINTER(rdzv_client_options), POINTER(rdzv_error)]),
    "rdzv_client_fd": (c_int, [_handle]),
    "rdzv_client_dispatch": (c_int, [_handle]),
    "rdzv_client_wait": (c_int, [_handle, c_int]),
    "rdzv_client_close": (None, [_handle, rdzv_closed_fn, c_void_p]),
    "rdzv_client_set": (c_int64, [_handle, rdzv_bytes, rdzv_bytes, *_how]),
    "rdzv_client_append": (c_int64, [_handle, rdzv_bytes, rdzv_bytes, *_how]),
    "rdzv_client_multi_set": (c_int64, [_handle, _keys, _keys, c_size_t, *_how]),
    "rdzv_client_queue_push": (c_int64, [_handle, rdzv_bytes, rdzv_bytes, *_how]),
    "rdzv_client_flush": (c_int64, [_handle, *_how]),
    "rdzv_client_get": (c_int64, [_handle, rdzv_bytes, *_how]),
    "rdzv_client_multi_get": (c_int64, [_handle, _keys, c_size_t, *_how]),
    "rdzv_client_wait_keys": (c_int64, [_handle, _keys, c_size_t, *_how]),
    "rdzv_client_check": (c_int64, [_handle, _keys, c_size_t, *_how]),
    "rdzv_client_add": (c_int64, [_handle, rdzv_bytes, c_int64, *_how]),
    "rdzv_client_compare_set": (c_int64, [_handle, rdzv_bytes, rdzv_bytes, rdzv_bytes, *_how]),
    "rdzv_client_delete_key": (c_int64, [_handle, rdzv_bytes, *_how]),
    "rdzv_client_num_keys": (c_int64, [_handle, *_how]),
    "rdzv_client_list_keys": (c_int64, [_handle, *_how]),
    "rdzv_client_queue_pop": (c_int64, [_handle, rdzv_bytes, *_how]),
    "rdzv_client_queue_len": (c_int64, [_handle, rdzv_bytes, *_how]),
    "rdzv_client_barrier": (c_int64, [_handle, rdzv_bytes, c_int64, *_how]),
    "rdzv_client_cancel": (c_int, [_handle, c_int64]),
}


# ---------------------------------------------------------------------------------------------
# Loading


def _candidates(product: str) -> list[str]:
    """Paths to try, in order; the last is a soname for the dynamic linker."""
    soname = f"lib{product}.so.{VERSION[0]}"
    override = os.environ.get(LIB_DIR_VARIABLE)
    if override:
        found = []
        for folder in override.split(os.pathsep):
            for place in (folder, os.path.join(folder, f"lib{product}")):
                for name in (soname, f"lib{product}.so"):
                    found.append(os.path.join(place, name))
        found = [path for path in found if os.path.exists(path)]
        if not found:
            raise ImportError(
                f"{LIB_DIR_VARIABLE} is {override!r}, but there is no {soname} or "
                f"lib{product}.so in it: build the libraries there or unset the variable"
            )
        return found[:1]
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib", f"lib{product}.so")
    return [bundled] if os.path.exists(bundled) else [soname]


def _load(product: str, functions: dict) -> ctypes.CDLL:
    (path,) = _candidates(product)
    try:
        lib = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"cannot load lib{product}: {error}. Install the package with its libraries "
            f"(pip install ./bindings/python) or set {LIB_DIR_VARIABLE} to their directory"
        ) from None
    check_version(product, path, _function(lib, f"{product}_version", c_int32, [], path)())
    for name, (restype, argtypes) in functions.items():
        _function(lib, name, restype, argtypes, path)
    return lib


def _function(lib: ctypes.CDLL, name: str, restype, argtypes: list, path: str) -> Callable:
    try:
        function = getattr(lib, name)
    except AttributeError:
        raise ImportError(f"{path} has no function {name}: it is not the library of "
                          f"rallypoint {VERSION[0]}.{VERSION[1]}") from None
    function.restype = restype
    function.argtypes = argtypes
    return function


def check_version(product: str, path: str, number: int) -> None:
    """Refuses a library whose major and minor version differ from the package's."""
    found = (number // 10000, number // 100 % 100)
    if found != VERSION[:2]:
        raise ImportError(
            f"{path} is lib{product} {found[0]}.{found[1]}.{number % 100}, but this is the Python "
            f"package rallypoint {'.'.join(map(str, VERSION))}, which needs {VERSION[0]}."
            f"{VERSION[1]}: install both from one source"
        )


_ckpt: Optional[ctypes.CDLL] = None
_rdzv: Optional[ctypes.CDLL] = None


def ckpt() -> ctypes.CDLL:
    """libckpt, loaded on first use. ImportError says what is wrong with it."""
    global _ckpt
    if _ckpt is None:
        _ckpt = _load("ckpt", CKPT_FUNCTIONS)
    return _ckpt


def rdzv() -> ctypes.CDLL:
    """librdzv, loaded on first use. ImportError says what is wrong with it."""
    global _rdzv
    if _rdzv is None:
        _rdzv = _load("rdzv", RDZV_FUNCTIONS)
    return _rdzv
