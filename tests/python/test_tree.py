"""The tree and its note: pure, no file and no library."""

import collections
import ctypes
import json
import math
import random
import re
import struct
import sys
import time

import pytest

from rallypoint import _tensors, _tree


def packed(tree, label="state", prefix=None):
    packer = _tree.Packer()
    node = packer.pack(tree, label, prefix)
    note = _tree.parse(_tree.dump({"state": node}))
    return packer, note["state"]


def again(tree):
    """Through the note and back; bytes from their tensors."""
    packer, node = packed(tree)
    values = {name: tensor.owner for name, tensor in packer.tensors}
    return _tree.build(node, lambda kind, name, path: values[name])


def same(a, b):
    """Equal, with types, and floats by their bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(ka, kb) and same(a[ka], b[kb]) for ka, kb in zip(a, b))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


LEAVES = [
    None, True, False, 0, 1, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**5000, -(7**999),
    0.0, -0.0, 1.5, math.pi, 5e-324, sys.float_info.max, math.inf, -math.inf, math.nan,
    struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0],
    "", "x", "line\nfeed", 'quote"', "nul\0", "\u00e9", "\u6f22", "\U0001f600", "\ud7ff\ue000",
    b"", b"\0", bytes(range(256)),
    [], (), {}, collections.Counter(), [[]], ([],), {"": {}},
]


def short(value):
    return (hex(value) if type(value) is int else ascii(value))[:20]


@pytest.mark.parametrize("leaf", LEAVES, ids=short)
def test_leaf_is_kept_exactly(leaf):
    for tree in (leaf, [leaf], (leaf, leaf), {"key": leaf}, {1: [leaf]}):
        assert same(again(tree), tree)


KEYS = ["a", "", "a.b", "a/b", "../x", "__metadata__", "new\nline", 'qu"ote', "\0", "\U0001f600",
        0, 1, -5, 2**200, 1.5, -0.0, math.inf, None, True, "0", "None"]


@pytest.mark.parametrize("key", KEYS, ids=short)
def test_key_keeps_its_type(key):
    tree = {key: b"value", "other": {key: 1}}
    assert same(again(tree), tree)


def test_dicts_and_tuples_of_torch():
    ordered = collections.OrderedDict([("b", 1), ("a", 2)])
    back = again({"o": ordered, "c": collections.Counter("abca")})
    assert same(back["o"], {"b": 1, "a": 2})
    assert same(back["c"], collections.Counter("abca"))


def random_tree(rng, depth):
    kind = rng.randrange(8) if depth else 0
    size = rng.randrange(5)
    if kind == 1:
        return [random_tree(rng, depth - 1) for _ in range(size)]
    if kind == 2:
        return tuple(random_tree(rng, depth - 1) for _ in range(size))
    if kind in (3, 4):
        return {rng.choice(KEYS): random_tree(rng, depth - 1) for _ in range(size)}
    if kind == 5:
        return "".join(chr(rng.choice([rng.randrange(128), rng.randrange(0xD800),
                                       rng.randrange(0xE000, 0x110000)])) for _ in range(size))
    if kind == 6:
        return struct.unpack("<d", rng.getrandbits(64).to_bytes(8, "little"))[0]
    if kind == 7:
        return rng.getrandbits(rng.randrange(1, 300)) - rng.getrandbits(70)
    return rng.choice(LEAVES)


@pytest.mark.parametrize("seed", range(300))
def test_random_tree_round_trips(seed):
    tree = random_tree(random.Random(seed), 6)
    assert same(again(tree), tree), f"seed {seed}"


def test_names_are_paths():
    packer, _ = packed({"model": {"fc.weight": b"", 0: [b"", {None: b""}]}})
    assert [name for name, _ in packer.tensors] == \
        ["model.fc.weight", "model.0.0", "model.0.1.None"]
    packer, _ = packed([b""], prefix="local")
    assert packer.tensors[0][0] == "local.0"
    assert packed(b"")[0].tensors[0][0] == "tensor"


def test_colliding_names_are_made_unique():
    tree = {"a": {"b": b"1"}, "a.b": b"2", "a.b~2": b"3", 1: b"4", "1": b"5", "1~2": b"6",
            "__metadata__": b"7", "": b"8"}
    packer, _ = packed(tree)
    names = [name for name, _ in packer.tensors]
    assert len(set(names)) == len(names)
    assert "__metadata__" not in names and all(names)
    assert same(again(tree), tree)


def test_many_colliding_names_take_linear_time():
    tree = {"x": [{"a.b": b"", "a": {"b": b""}} for _ in range(3)]}
    tree["y"] = {f"{'k.' * (i % 3)}k": b"" for i in range(1000)}
    started = time.monotonic()
    packer = _tree.Packer()
    for _ in range(30000):
        packer.pack({"same": b""}, "state")
    assert len({name for name, _ in packer.tensors}) == 30000
    assert time.monotonic() - started < 10
    assert same(again(tree), tree)


@pytest.mark.parametrize("character", ["x", "\u00e9", "\U0001f600"])
def test_long_and_odd_names_fit(character):
    tree = {character * 5000: b"1", character * 5001: b"2", "a": {character * 1019: b"3"}}
    packer, _ = packed(tree)
    names = [name for name, _ in packer.tensors]
    assert len(set(names)) == 3
    assert all(0 < len(name.encode()) <= 4096 and "\0" not in name for name in names)
    assert same(again(tree), tree)


class Thing:
    pass


class Model:
    def state_dict(self):
        return {}


def function():
    pass


def pattern(text):
    return ".*".join(re.escape(part) for part in text.split(".*"))


@pytest.mark.parametrize("tree, text", [
    ({"optim": {"state": [{"fn": function}]}},
     "state['optim']['state'][0]['fn']: function cannot be saved; only tensors"),
    (Thing(), "state: Thing cannot be saved"),
    ({"m": Model()}, "state['m']: Model cannot be saved; .* save its state_dict()"),
    ([1, {2, 3}], "state[1]: set cannot be saved"),
    ({1: bytearray(b"")}, "state[1]: bytearray cannot be saved"),
    ([1j], "state[0]: complex cannot be saved"),
    ([collections.defaultdict(list)], "state[0]: defaultdict cannot be saved.* plain dict"),
    ([collections.namedtuple("P", "x y")(1, 2)], "state[0]: P cannot be saved.* plain tuple"),
    ({"a": {(1, 2): 3}}, "state['a'][(1, 2)]: a tuple cannot be saved as a key"),
    ({b"k": 1}, "state[b'k']: a bytes cannot be saved as a key"),
])
def test_other_values_are_type_errors(tree, text):
    with pytest.raises(TypeError, match=pattern(text)):
        packed(tree)


@pytest.mark.parametrize("tree, text", [
    ({"a": "x\ud800"}, "state['a']: has a lone surrogate at character 1"),
    ({"\udfff": 1}, "state['\\udfff']: has a lone surrogate"),
])
def test_lone_surrogates_are_errors(tree, text):
    with pytest.raises(ValueError, match=pattern(text)):
        packed(tree)


def test_cycles_are_errors():
    ring = {"a": [1]}
    ring["a"].append(ring)
    with pytest.raises(ValueError, match=pattern("state['a'][1]: contains itself")):
        packed(ring)
    shared = [1]
    assert again([shared, shared]) == [[1], [1]]  # twice the same is no cycle


def nested(depth):
    tree = 1
    for _ in range(depth):
        tree = [tree]
    return tree


def test_deep_nesting_is_a_clear_error():
    assert again(nested(_tree.MAX_DEPTH)) == nested(_tree.MAX_DEPTH)
    for depth in (_tree.MAX_DEPTH + 1, 100000):
        with pytest.raises(ValueError, match="is nested more than 200 levels deep"):
            packed(nested(depth))


def test_a_small_graph_that_unfolds_into_a_huge_tree_is_an_error(monkeypatch):
    monkeypatch.setattr(_tree, "MAX_VALUES", 10000)
    tree = []
    for _ in range(60):
        tree = [tree, tree]
    with pytest.raises(ValueError, match="more than 10000 values"):
        packed(tree)


def test_too_many_plain_values_are_an_error(monkeypatch):
    monkeypatch.setattr(_tree._ffi, "CKPT_MAX_NOTE_BYTES", 1000)
    _tree.dump({"state": ["l"] + [1] * 400})
    with pytest.raises(ValueError, match="take .* bytes as JSON, more than 1000"):
        _tree.dump({"state": ["l"] + [1] * 600})


def test_big_trees_take_linear_time():
    def seconds(size):
        tree = {f"layer{i}": {"w": b"", "step": i, "lr": 0.5, "betas": (0.9, 0.99)}
                for i in range(size)}
        started = time.process_time()
        again(tree)
        return time.process_time() - started

    seconds(2000)
    small, big = min(seconds(5000) for _ in range(3)), seconds(50000)
    assert big < small * 40 + 0.5  # ten times the work, with room for a busy machine


@pytest.mark.parametrize("text", [
    b"", b"[]", b"{", b"\xff", b'{"state": NaN}', b'{"state": Infinity}',
    b'{"state": ' + b"1" * 100 + b"}", b'{"state":' + b"[" * 100000 + b"]" * 100000 + b"}",
])
def test_note_that_is_not_ours_is_refused(text):
    with pytest.raises(ValueError, match="note"):
        _tree.parse(text)


@pytest.mark.parametrize("node", [
    [], ["?"], ["t"], ["t", 1], ["t", "a", "b"], ["d", "k"], ["d", {}, 1], ["d", ["t", "x"], 1],
    {}, {"a": 1}, ["l", {}], ["i", "zz"], ["i", 5], ["f", "00"], ["f", "x" * 16], ["l", ["l", []]],
])
def test_tree_that_is_not_ours_is_refused(node):
    with pytest.raises(ValueError):
        _tree.build(node, lambda kind, name, path: None)


def test_deep_note_is_refused():
    node = 1
    for _ in range(250):
        node = ["l", node]
    with pytest.raises(ValueError, match="nested"):
        _tree.build(json.loads(json.dumps(node)), lambda kind, name, path: None)


def test_random_json_never_does_anything_but_raise_value_error():
    rng = random.Random(5)

    def value(depth):
        kind = rng.randrange(7) if depth else rng.randrange(4)
        if kind < 4:
            return rng.choice([None, True, 1, -1.5, "t", "l", "d", "c", "f", "i", "b", "0" * 16])
        if kind == 6:
            return {"k": value(depth - 1)}
        return [rng.choice(["t", "l", "u", "d", "c", "f", "i", "n", "b", "x"])] + \
            [value(depth - 1) for _ in range(rng.randrange(4))]

    refused = 0
    for _ in range(20000):
        try:
            _tree.build(value(5), lambda kind, name, path: (kind, name))
        except ValueError:
            refused += 1
    assert 0 < refused < 20000


def test_leaves_of_a_users_tree():
    tree = {"a": [1, (2,)], 3: None}
    assert dict(_tree.leaves(tree)) == {("a", 0): 1, ("a", 1, 0): 2, (3,): None}
    ring = []
    ring.append(ring)
    with pytest.raises(ValueError, match="contains itself"):
        list(_tree.leaves(ring))


def test_bytes_are_described_without_a_copy():
    value = b"hello"
    tensor = _tensors.describe_bytes(value)
    assert ctypes.string_at(tensor.pointer, 5) == value
    assert tensor.shape == (5,) and tensor.owner is value


def test_the_note_is_what_the_documentation_says():
    _, node = packed({"a": [1, 1.5, (None, True)], 2: math.nan, "i": -(2**63) - 1, "b": b"x",
                      "c": collections.Counter("a")})
    assert node == ["d", "a", ["l", 1, 1.5, ["u", None, True]], 2, ["f", "7ff8000000000000"],
                    "i", ["i", "-0x8000000000000001"], "b", ["b", "b"], "c", ["c", "a", 1]]
