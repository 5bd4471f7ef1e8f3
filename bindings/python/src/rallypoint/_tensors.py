"""Tensors of torch and numpy as libckpt sees them: dtype, shape, strides in bytes, an address.

Neither package is imported to look at a value: an object of theirs can only exist once they are
in sys.modules. They are imported to make one, when a checkpoint that holds theirs is loaded.
Nothing here copies data that lies in host memory.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from typing import Any, Callable, NamedTuple, Optional

from . import _ffi
from .errors import CKPT_CODE, Error, from_ckpt

TORCH, NUMPY, BYTES = "t", "n", "b"  # kinds, as the note of a checkpoint spells them

_TORCH_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "complex128": "C128",
}
_NUMPY_NAMES = {  # kind and item size of a numpy dtype
    "b1": "BOOL",
    "u1": "U8",
    "i1": "I8",
    "u2": "U16",
    "i2": "I16",
    "u4": "U32",
    "i4": "I32",
    "u8": "U64",
    "i8": "I64",
    "f2": "F16",
    "f4": "F32",
    "f8": "F64",
    "c8": "C64",
    "c16": "C128",
}
_VALUE = {name: value for name, (value, _) in _ffi.CKPT_DTYPES.items()}
_NAME = {value: name for name, value in _VALUE.items()}
U8 = _VALUE["U8"]


class Tensor(NamedTuple):
    """What libckpt must know of one tensor to read or to write its memory."""

    kind: str
    dtype: int
    shape: tuple
    strides_bytes: Optional[tuple]  # None = C order, no holes
    pointer: int
    owner: Any  # keeps the memory; the pointer is good while this is referenced
    tie: Any  # equal for two tensors that are the same memory seen alike; None = never


class Memory(NamedTuple):
    """Where the elements of a tensor of the user's lie."""

    device: str
    pointer: int
    item_bytes: int
    shape: tuple
    strides_bytes: tuple

    @property
    def place(self) -> tuple[str, int]:
        return self.device, self.start

    @property
    def start(self) -> int:
        return self.pointer + sum(min((n - 1) * stride, 0)
                                  for n, stride in zip(self.shape, self.strides_bytes))

    @property
    def end(self) -> int:
        return self.pointer + self.item_bytes + sum(
            max((n - 1) * stride, 0) for n, stride in zip(self.shape, self.strides_bytes))

    def shares_elements(self) -> bool:
        """Unless each dimension steps over all the smaller ones."""
        reach = self.item_bytes
        for stride, n in sorted((abs(stride), n) for n, stride in
                                zip(self.shape, self.strides_bytes) if n > 1):
            if stride < reach:
                return True
            reach += (n - 1) * stride
        return False

    def overlaps(self, other: Memory) -> bool:
        """Where intervals do. Exact as far as numpy can tell without long search."""
        numpy = _import("numpy")
        if numpy is None:
            return True
        try:
            return numpy.shares_memory(self._array(numpy), other._array(numpy), max_work=1 << 16)
        except RuntimeError:  # numpy's TooHardError
            return True

    def _array(self, numpy: Any) -> Any:
        """Never read: it may be another device's."""

        class Array:
            __array_interface__ = {"version": 3, "typestr": f"|V{self.item_bytes}",
                                   "data": (self.pointer, True), "shape": self.shape,
                                   "strides": self.strides_bytes}

        return numpy.asarray(Array())


class Slot(NamedTuple):
    """Memory that a load fills, and how the filled memory becomes the value for the user."""

    tensor: Tensor
    finish: Callable[[], Any]
    memory: Optional[Memory] = None  # of the user's own


Where = Callable[[], str]


def describe(value: Any, where: Where) -> Optional[Tensor]:
    """The tensor that `value` is, or None when it is not one.

    A torch tensor on another device is copied to the host. TypeError, with the key path from
    `where`, for a tensor that a checkpoint cannot hold.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
        return _describe_torch(torch, value, where)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (getattr(numpy, "ndarray", ()), _generic(numpy))):
        return _describe_numpy(numpy, value, where)
    return None


def describe_bytes(value: bytes) -> Tensor:
    pointer = ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p).value
    return Tensor(BYTES, U8, (len(value),), None, pointer or 0, value, None)


def allocate(kind: str, dtype: int, shape: tuple, where: Where) -> Slot:
    """Fresh C-ordered memory for a tensor of a checkpoint.

    A torch tensor becomes a numpy array where torch is missing and numpy has the dtype.
    NotSupported, with the key path, when nothing installed can hold it.
    """
    if kind == BYTES:
        return _allocate_bytes(dtype, shape)
    name = dtype_name(dtype)
    if kind == TORCH:
        torch = _import("torch")
        if torch is not None:
            return _allocate_torch(torch, name, shape, where)
    numpy = _import("numpy")
    if numpy is None:
        needed = "torch or numpy" if kind == TORCH else "numpy"
        raise _error("ENOTSUP", f"{where()}: needs {needed} to be loaded, which cannot be imported")
    code = next((code for code, known in _NUMPY_NAMES.items() if known == name), None)
    if code is None:
        raise _error("ENOTSUP", f"{where()}: has dtype {name}, which numpy lacks: install torch")
    value = numpy.empty(shape, dtype=code)
    return Slot(_describe_numpy(numpy, value, where), lambda: value)


def into(value: Any, dtype: int, shape: tuple, where: Where) -> Slot:
    """A slot over the memory of the user's own tensor, or over a host copy of it.

    Mismatch when dtype or shape are not those of the checkpoint, InvalidArgument when it cannot
    be written to; both name the key path.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        found = (_torch_dtype(torch, value, where), tuple(value.shape))
        direct = value.device.type == "cpu" and not (value.is_conj() or value.is_neg())
    else:
        array = _describe_numpy(sys.modules["numpy"], value, where)
        found = (array.dtype, array.shape)
        direct = True
    if found != (dtype, shape):
        raise _error("EMISMATCH", f"{where()}: the checkpoint has {_NAME[dtype]} of shape "
                                  f"{list(shape)}, the tensor to load into is "
                                  f"{_NAME[found[0]]} of shape {list(found[1])}")
    memory = _memory(value, shape)
    if 0 not in shape and memory.shares_elements():
        raise _error("EINVAL", f"{where()}: is an expanded view whose elements share memory, "
                               f"so it cannot be loaded into")
    if not direct:
        return _through_host(torch, value, dtype, shape, where)._replace(memory=memory)
    tensor = describe(value, where)
    assert tensor is not None
    if tensor.kind == NUMPY and not value.flags.writeable:
        raise _error("EINVAL", f"{where()}: is read-only, so it cannot be loaded into")
    return Slot(tensor, lambda: value, memory)


def _memory(value: Any, shape: tuple) -> Memory:
    if hasattr(value, "data_ptr"):
        item = value.element_size()
        strides = tuple(stride * item for stride in value.stride())
        return Memory(str(value.device), value.data_ptr(), item, shape, strides)
    pointer = value.__array_interface__["data"][0]
    return Memory("cpu", pointer, value.itemsize, shape, tuple(value.strides))


def _through_host(torch: Any, value: Any, dtype: int, shape: tuple, where: Where) -> Slot:
    host = allocate(TORCH, dtype, shape, where)

    def copy() -> Any:
        with torch.no_grad():
            value.copy_(host.finish())
        return value

    return Slot(host.tensor, copy)


def dtype_name(dtype: int) -> str:
    return _NAME.get(dtype, f"unknown dtype {dtype}")


def is_tensor(value: Any) -> bool:
    """Of torch or numpy, whether or not a checkpoint can hold it."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    return isinstance(value, (getattr(torch, "Tensor", ()), getattr(numpy, "ndarray", ())))


# ---------------------------------------------------------------------------------------------
# torch


def _describe_torch(torch: Any, value: Any, where: Where) -> Tensor:
    dtype = _torch_dtype(torch, value, where)
    shape, strides = tuple(value.shape), tuple(value.stride())
    lazy = (value.is_conj(), value.is_neg())  # then the memory is not what the tensor says
    tie: Any = (TORCH, id(value))
    if value.numel():
        tie = (TORCH, value.data_ptr(), shape, strides, dtype, str(value.device), lazy)
    host = value.detach()
    if any(lazy):
        host = host.resolve_conj().resolve_neg()
    if host.device.type != "cpu":
        host = host.cpu()
    strides_bytes = None
    if not host.is_contiguous():
        item = host.element_size()
        strides_bytes = tuple(stride * item for stride in host.stride())
    return Tensor(TORCH, dtype, shape, strides_bytes, host.data_ptr(), host, tie)


def _torch_dtype(torch: Any, value: Any, where: Where) -> int:
    problem = _torch_problem(torch, value)
    if problem:
        raise TypeError(f"{where()}: {problem}")
    name = _torch_dtypes(torch).get(value.dtype)
    if name is None:
        raise TypeError(f"{where()}: a tensor of {value.dtype} cannot be saved: "
                        f"convert it to another dtype first")
    return _VALUE[name]


def _torch_problem(torch: Any, value: Any) -> Optional[str]:
    if getattr(value, "is_quantized", False):
        return "a quantized tensor cannot be saved: dequantize() it first"
    if getattr(value, "is_nested", False):
        return "a nested tensor cannot be saved: unbind() it first"
    if value.layout != torch.strided:
        return f"a tensor of layout {value.layout} cannot be saved: to_dense() it first"
    if value.is_meta:
        return "a tensor on the meta device has no data to save"
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        name = type(value).__name__
        return (f"a {name} cannot be saved as it is: turn it to a plain torch.Tensor first "
                f"(full_tensor(), to_local() or as_subclass(torch.Tensor))")
    return None


def _torch_dtypes(torch: Any) -> dict:
    if not _torch_dtype_cache:
        for attribute, name in _TORCH_NAMES.items():
            if hasattr(torch, attribute):
                _torch_dtype_cache[getattr(torch, attribute)] = name
    return _torch_dtype_cache


_torch_dtype_cache: dict = {}


def _allocate_torch(torch: Any, name: str, shape: tuple, where: Where) -> Slot:
    attribute = next(attribute for attribute, known in _TORCH_NAMES.items() if known == name)
    dtype = getattr(torch, attribute, None)
    if dtype is None:
        raise _error("ENOTSUP", f"{where()}: has dtype {attribute}, which torch "
                                f"{torch.__version__} lacks: install a newer torch")
    value = torch.empty(shape, dtype=dtype)
    tensor = Tensor(TORCH, _VALUE[name], shape, None, value.data_ptr(), value, None)
    return Slot(tensor, lambda: value)


# ---------------------------------------------------------------------------------------------
# numpy and bytes


def _generic(numpy: Any) -> Any:
    return getattr(numpy, "generic", ())


def _describe_numpy(numpy: Any, value: Any, where: Where) -> Tensor:
    if isinstance(value, numpy.generic):
        array = numpy.asarray(value)
    elif type(value) in (numpy.ndarray, numpy.memmap):
        array = value
    else:
        raise TypeError(f"{where()}: a {type(value).__name__} cannot be saved as it is: "
                        f"turn it to a plain numpy.ndarray first")
    dtype = array.dtype
    name = None if dtype.names else _NUMPY_NAMES.get(f"{dtype.kind}{dtype.itemsize}")
    if name is None:
        raise TypeError(f"{where()}: a numpy array of dtype {dtype} cannot be saved: only bool, "
                        f"integers, floats up to 64 bits and complex numbers up to 128 bits can")
    if not dtype.isnative:
        raise TypeError(f"{where()}: a numpy array of dtype {dtype.str} is not in the byte order "
                        f"of this machine: convert it with astype({dtype.newbyteorder('=').str!r})")
    pointer = array.__array_interface__["data"][0]
    strides = None if array.flags.c_contiguous else tuple(array.strides)
    tie: Any = (NUMPY, id(value))
    if array is not value:
        tie = None
    elif array.size:
        tie = (NUMPY, pointer, array.shape, array.strides, name)
    return Tensor(NUMPY, _VALUE[name], tuple(array.shape), strides, pointer, array, tie)


def _allocate_bytes(dtype: int, shape: tuple) -> Slot:
    if dtype != U8 or len(shape) != 1:
        raise ValueError(f"bytes are stored as {dtype_name(dtype)} of shape {list(shape)}, "
                         f"expected U8 of one dimension")
    memory = (ctypes.c_char * shape[0])()
    tensor = Tensor(BYTES, U8, shape, None, ctypes.addressof(memory), memory, None)
    return Slot(tensor, lambda: memory.raw)


@functools.lru_cache(maxsize=None)
def _import(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        return None


def _error(name: str, text: str) -> Error:
    return from_ckpt(CKPT_CODE[name], text)
