"""Nested Python values <-> a list of named tensors and a JSON note. Pure: no file, no library.

The note is the tree; a tensor stands in it by kind and name, so a name never has to be parsed.
docs/python.md draws its grammar:

    value  = null | true | false | int | float | string
           | ["l", value...]  list          | ["u", value...]  tuple
           | ["d", key, value...]  dict     | ["c", key, value...]  collections.Counter
           | ["t", name]  torch tensor      | ["n", name]  numpy array   | ["b", name]  bytes
           | ["f", 16 hex digits]  a float that is not finite, its 64 bits
           | ["i", "-0x..."]  an int of more than 63 bits
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections import Counter, OrderedDict
from typing import Any, Callable, Iterator, Optional

from . import _ffi, _tensors
from ._tensors import Tensor

MAX_DEPTH = 200  # of nesting; json and the interpreter both recurse
MAX_VALUES = 10_000_000  # also bounds a small graph that unfolds into a huge tree
NOTE_VERSION = 1

_KINDS = (_tensors.TORCH, _tensors.NUMPY, _tensors.BYTES)
_RESERVED = "__metadata__"  # has its own meaning in a safetensors header
_ACCEPTED = ("only tensors, numpy arrays, int, float, bool, None, str, bytes, "
             "lists, tuples and dicts can")


def path_text(label: str, path: list) -> str:
    """For people: state['optim'][0]."""
    return label + "".join(f"[{_short(key)}]" for key in path)


def _short(key: Any) -> str:
    text = _key_text(key) if type(key) is int else repr(key)
    return text if len(text) <= 60 else text[:40] + "..." + text[-12:]


def _key_text(key: Any) -> str:
    huge = type(key) is int and key.bit_length() > 64  # the interpreter may refuse its digits
    return hex(key) if huge else str(key)


# ---------------------------------------------------------------------------------------------
# Tree to tensors and note


class Packer:
    """Collects the tensors of one or more trees that go into one shard.

    Attributes:
        tensors: (name, Tensor) in the order of the trees; names are unique.
        aliases: (name, name of the tensor that it is), for tied tensors.
    """

    def __init__(self) -> None:
        self.tensors: list[tuple[str, Tensor]] = []
        self.aliases: list[tuple[str, str]] = []
        self._next_suffix = {_RESERVED: 2}  # of every name taken
        self._tied: dict[Any, str] = {}
        self._values = 0

    def pack(self, tree: Any, label: str, prefix: Optional[str] = None) -> Any:
        """The JSON value of `tree`. `label` starts key paths in errors, `prefix` tensor names.

        TypeError for a value that cannot be saved, ValueError for a cycle, too deep nesting, or
        text that is not Unicode; both name the key path.
        """
        return self._value(tree, _Place(label, prefix))

    def _value(self, value: Any, place: _Place) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return _checked_text(value, place.text)
        if kind is int:
            return _int(value)
        if kind is float:
            return _float(value)
        if kind is bytes:
            return self._tensor(_tensors.describe_bytes(value), place)
        tensor = _tensors.describe(value, place.text)
        if tensor is not None:
            return self._tensor(tensor, place)
        if kind in (dict, OrderedDict, Counter):
            return self._container(value, "c" if kind is Counter else "d", place)
        if kind is list:
            return self._container(value, "l", place)
        if kind is tuple or kind is _torch_size():
            return self._container(value, "u", place)
        raise TypeError(f"{place.text()}: {_cannot_be_saved(value)}")

    def _container(self, value: Any, tag: str, place: _Place) -> list:
        if id(value) in place.open:
            raise ValueError(f"{place.text()}: contains itself, which cannot be saved")
        if len(place.path) >= MAX_DEPTH:
            raise ValueError(f"{place.text()[:400]}...: is nested more than {MAX_DEPTH} levels "
                             f"deep")
        self._values += len(value)
        if self._values > MAX_VALUES:
            raise ValueError(f"{place.text()}: the state has more than {MAX_VALUES} values: "
                             f"put long lists of numbers into tensors")
        place.open.add(id(value))
        node: list = [tag]
        keyed = tag in "dc"
        for key, item in value.items() if keyed else enumerate(value):
            place.path.append(key)
            if keyed:
                node.append(_key(key, place.text))
            node.append(self._value(item, place))
            place.path.pop()
        place.open.discard(id(value))
        return node

    def _tensor(self, tensor: Tensor, place: _Place) -> list:
        if len(tensor.shape) > _ffi.CKPT_MAX_DIMS:
            raise ValueError(f"{place.text()}: has {len(tensor.shape)} dimensions, "
                             f"more than {_ffi.CKPT_MAX_DIMS}")
        name = self._unique_name(place)
        target = None if tensor.tie is None else self._tied.setdefault(tensor.tie, name)
        if target is None or target == name:
            self.tensors.append((name, tensor))
        else:
            self.aliases.append((name, target))
        return [tensor.kind, name]

    def _unique_name(self, place: _Place) -> str:
        parts = ([place.prefix] if place.prefix else []) + [_key_text(key) for key in place.path]
        base = ".".join(parts).replace("\0", "\u2400") or "tensor"
        if len(base) > _ffi.CKPT_MAX_NAME_BYTES // 4 - 16:  # characters take up to 4 bytes
            room = _ffi.CKPT_MAX_NAME_BYTES - 64
            base = base.encode()[:room].decode(errors="ignore")
        name = base
        while name in self._next_suffix:
            number = self._next_suffix[base]
            self._next_suffix[base] = number + 1
            name = f"{base}~{number}"
        self._next_suffix[name] = 2
        return name


class _Place:
    """Where in a tree the packer is, and which containers it is inside of."""

    def __init__(self, label: str, prefix: Optional[str]) -> None:
        self.label = label
        self.prefix = prefix
        self.path: list = []
        self.open: set = set()

    def text(self) -> str:
        return path_text(self.label, self.path)


def _int(value: int) -> Any:
    return value if -(2**63) <= value < 2**63 else ["i", hex(value)]


def _float(value: float) -> Any:
    return value if math.isfinite(value) else ["f", struct.pack(">d", value).hex()]


def _key(key: Any, where: Callable[[], str]) -> Any:
    kind = type(key)
    if kind is str:
        return _checked_text(key, where)
    if kind is int:
        return _int(key)
    if kind is float:
        return _float(key)
    if key is None or kind is bool:
        return key
    raise TypeError(f"{where()}: a {kind.__name__} cannot be saved as a key of a dict; "
                    f"only str, int, float, bool and None can")


def _checked_text(text: str, where: Callable[[], str]) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{where()}: has a lone surrogate at character {error.start}, "
                             f"so it is not Unicode text: save it as bytes") from None
    return text


def _torch_size() -> Any:
    return getattr(sys.modules.get("torch"), "Size", None)


def _cannot_be_saved(value: Any) -> str:
    text = f"{type(value).__name__} cannot be saved; {_ACCEPTED}"
    if callable(getattr(value, "state_dict", None)):
        return f"{text}: save its state_dict()"
    if isinstance(value, tuple):
        return f"{text}: make it a plain tuple or dict"
    if isinstance(value, dict):
        return f"{text}: make it a plain dict"
    return text


def dump(note: dict) -> bytes:
    """The note as bytes. ValueError when it is more than a checkpoint takes."""
    text = json.dumps(note, ensure_ascii=False, allow_nan=False, check_circular=False,
                      separators=(",", ":")).encode()
    if len(text) > _ffi.CKPT_MAX_NOTE_BYTES:
        raise ValueError(f"the values that are not tensors take {len(text)} bytes as JSON, more "
                         f"than {_ffi.CKPT_MAX_NOTE_BYTES}: put long lists of numbers into "
                         f"tensors and long text into bytes")
    return text


# ---------------------------------------------------------------------------------------------
# Note and tensors to tree


def parse(text: bytes) -> dict:
    """The note as an object of JSON. ValueError says what is wrong with it."""
    try:
        note = json.loads(text.decode(), parse_int=_bounded_int, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"note is not the JSON that this package writes: {error}") from None
    if not isinstance(note, dict):
        raise ValueError("note is not a JSON object")
    return note


def _bounded_int(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"integer of {len(digits)} digits")
    return int(digits)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def build(node: Any, tensor: Callable[[str, str, list], Any]) -> Any:
    """The tree of a JSON value; `tensor(kind, name, path)` gives what stands for each tensor.

    ValueError for a value that this package does not write.
    """
    return _build(node, tensor, [])


def _build(node: Any, tensor: Callable[[str, str, list], Any], path: list) -> Any:
    if not isinstance(node, list):
        if isinstance(node, dict):
            raise ValueError("note has a JSON object inside the tree")
        return node
    if len(path) > MAX_DEPTH:
        raise ValueError(f"note is nested more than {MAX_DEPTH} levels deep")
    tag = node[0] if node else None
    if tag in ("d", "c") and len(node) % 2 == 1:
        return _build_dict(node, tensor, path)
    if tag in ("l", "u"):
        items = []
        for index in range(1, len(node)):
            path.append(index - 1)
            items.append(_build(node[index], tensor, path))
            path.pop()
        return items if tag == "l" else tuple(items)
    if tag in _KINDS and len(node) == 2 and isinstance(node[1], str):
        return tensor(tag, node[1], path)
    return _build_number(node)


def _build_dict(node: list, tensor: Callable[[str, str, list], Any], path: list) -> dict:
    tree: dict = Counter() if node[0] == "c" else {}
    for index in range(1, len(node), 2):
        key = node[index]
        key = _build_number(key) if isinstance(key, list) else key
        if isinstance(key, dict):
            raise ValueError("note has a JSON object as a key")
        path.append(key)
        tree[key] = _build(node[index + 1], tensor, path)
        path.pop()
    return tree


def _build_number(node: list) -> Any:
    if len(node) == 2 and isinstance(node[1], str):
        if node[0] == "i":
            return int(node[1], 16)
        if node[0] == "f" and len(node[1]) == 16:
            return struct.unpack(">d", bytes.fromhex(node[1]))[0]
    raise ValueError(f"note has a value that is not known: {str(node)[:80]}")


def leaves(tree: Any, path: Optional[list] = None) -> Iterator[tuple[tuple, Any]]:
    """(path, value) of everything in a user's tree that is not a dict, list or tuple."""
    path = [] if path is None else path
    if isinstance(tree, dict):
        items: Any = tree.items()
    elif isinstance(tree, (list, tuple)):
        items = enumerate(tree)
    else:
        yield tuple(path), tree
        return
    if len(path) >= MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep, or contains itself")
    for key, value in items:
        yield from leaves(value, path + [key])
