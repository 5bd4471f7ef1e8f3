"""Tensors of torch and numpy, saved and loaded: every dtype, shape, layout, and what is refused."""

import re

import pytest

from rallypoint import ckpt, errors

torch = pytest.importorskip("torch", reason="torch is not installed")
np = pytest.importorskip("numpy", reason="numpy is not installed")

TORCH_DTYPES = [name for name in (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
    "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu", "complex64", "complex128") if hasattr(torch, name)]
NUMPY_DTYPES = ["bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8",
                "c16"]
SHAPES = [(), (1,), (7,), (0,), (3, 0, 2), (2, 3), (2, 1, 3), (1, 1, 1, 1, 5)]


def random_tensor(dtype, shape):
    """All bit patterns of a dtype, so also NaN; bool has two."""
    size = torch.empty((), dtype=dtype).element_size()
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).to(torch.bool)
    raw = torch.randint(0, 256, (*shape, size), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


def bits(tensor):
    tensor = tensor.detach().cpu().contiguous()
    if tensor.numel() == 0:
        return b""
    if tensor.dtype == torch.bool:
        tensor = tensor.to(torch.uint8)
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def through(root, tree, **options):
    with ckpt.Checkpointer(root) as saver:
        saver.save(1, tree, wait=True)
        return saver.load(**options).state


def assert_same(found, expected):
    assert type(found) is torch.Tensor
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert bits(found) == bits(expected)


def test_every_torch_dtype_and_shape(root, strict_memory):
    torch.manual_seed(1)
    tree = {name: {str(shape): random_tensor(getattr(torch, name), shape) for shape in SHAPES}
            for name in TORCH_DTYPES}
    back = through(root, tree)
    for name in TORCH_DTYPES:
        for shape in SHAPES:
            assert_same(back[name][str(shape)], tree[name][str(shape)])


def test_every_numpy_dtype_and_shape(root):
    rng = np.random.default_rng(1)
    tree = {}
    for name in NUMPY_DTYPES:
        dtype = np.dtype(name)
        raws = [rng.integers(0, 2 if name == "bool" else 256, (*shape, dtype.itemsize), np.uint8)
                for shape in SHAPES]
        tree[name] = [raw.view(dtype).reshape(shape) for raw, shape in zip(raws, SHAPES)]
    back = through(root, tree)
    for name in NUMPY_DTYPES:
        for found, expected in zip(back[name], tree[name]):
            assert type(found) is np.ndarray
            assert found.dtype == expected.dtype and found.shape == expected.shape
            assert found.tobytes() == expected.tobytes()


def test_numpy_scalars_come_back_as_arrays(root):
    back = through(root, [np.float32(1.5), np.int64(-3), np.bool_(True), np.complex128(1 + 2j),
                          np.float64(0.1)])
    for found, expected in zip(back, [np.float32(1.5), np.int64(-3), np.True_,
                                      np.complex128(1 + 2j), np.float64(0.1)]):
        assert found.shape == () and found.dtype == expected.dtype and found[()] == expected


def test_views_keep_their_values_and_only_their_size_is_written(root):
    base = torch.arange(1 << 20, dtype=torch.float32).reshape(1024, 1024)
    tree = {"row": base[5], "column": base[:, 7], "turned": base[:50].t(), "step": base[::100, ::3],
            "spread": torch.tensor([1.0, 2.0]).expand(300, 2), "part": base[10:20, 30:40],
            "permuted": torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)}
    with ckpt.Checkpointer(root) as saver:
        saved = saver.save(1, tree, wait=True)
        back = saver.load().state
    for name, expected in tree.items():
        assert_same(back[name], expected)
        assert back[name].is_contiguous()
    logical = sum(tensor.numel() * 4 for tensor in tree.values())
    assert logical <= saved.shard_bytes <= logical + 3 * 4096


def test_numpy_views_with_negative_strides(root):
    base = np.arange(1000, dtype=np.int32).reshape(10, 100)
    tree = {"back": base[::-1, ::-2], "turned": base.T, "one": base[:, 3:4], "zero": base[:, :0],
            "spread": np.broadcast_to(base[0], (3, 100)), "fortran": np.asfortranarray(base)}
    back = through(root, tree)
    for name, expected in tree.items():
        assert np.array_equal(back[name], expected) and back[name].shape == expected.shape


def test_lazy_conjugate_and_negative_are_resolved(root):
    value = torch.tensor([1 + 2j, 3 - 4j])
    conj = value.conj()
    negative = conj.imag
    assert conj.is_conj() and negative.is_neg()
    back = through(root, [value, conj, negative])
    assert_same(back[1], conj.resolve_conj())
    assert_same(back[2], negative.resolve_neg())


def test_grad_and_parameters(root):
    layer = torch.nn.Linear(3, 2)
    (layer(torch.ones(3)).sum() * 2).backward()
    hidden = layer.weight * 2
    back = through(root, {"p": layer.weight, "g": layer.weight.grad, "h": hidden})
    assert_same(back["p"], layer.weight)
    assert_same(back["g"], layer.weight.grad)
    assert_same(back["h"], hidden)
    assert not any(tensor.requires_grad for tensor in back.values())
    assert layer.weight.requires_grad


def test_tied_tensors_are_stored_once_and_come_back_as_one(root):
    shared = torch.randn(100, 100)
    array = np.ones((50, 50))
    empty, other = torch.empty(0), torch.empty(0)
    tree = {"embed": {"weight": shared}, "head": {"weight": shared}, "turned": shared.t(),
            "param": torch.nn.Parameter(shared), "again": shared.detach(), "copy": shared.clone(),
            "arrays": [array, array, array.copy(), array.T], "empty": [empty, empty, other]}
    with ckpt.Checkpointer(root) as saver:
        saved = saver.save(1, tree, wait=True)
        back = saver.load().state
    assert back["embed"]["weight"] is back["head"]["weight"]
    assert back["param"] is back["head"]["weight"] and back["again"] is back["param"]
    assert back["turned"] is not back["param"] and back["copy"] is not back["param"]
    assert torch.equal(back["turned"], shared.t()) and torch.equal(back["copy"], shared)
    assert back["arrays"][0] is back["arrays"][1]
    assert back["arrays"][0] is not back["arrays"][2]
    assert back["empty"][0] is back["empty"][1] and back["empty"][0] is not back["empty"][2]
    assert saved.shard_bytes < 3 * 40000 + 3 * 20000 + 8192


def test_memory_shared_by_torch_and_numpy_keeps_both_kinds(root):
    tensor = torch.arange(4.0)
    back = through(root, [tensor, tensor.numpy()])
    assert type(back[0]) is torch.Tensor and type(back[1]) is np.ndarray
    assert np.array_equal(back[0].numpy(), back[1])


def test_odd_names_round_trip_and_stay_inside(root):
    tree = {key: torch.tensor([number]) for number, key in enumerate(
        ["a/b", "../../x", "..", "new\nline", 'quo"te\\', "\U0001f600", "nul\0", "", "__metadata__",
         "a.b", "\x7f\x01", "x" * 5000])}
    back = through(root, {**tree, "a": {"b": torch.tensor([99])}})
    assert list(back)[:-1] == list(tree)
    for key, expected in tree.items():
        assert_same(back[key], expected)
    assert sorted(path.name for path in root.parent.iterdir()) == [root.name]


def test_torch_size_and_state_dicts(root):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optim = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 4)).sum().backward()
    optim.step()
    schedulers = [
        torch.optim.lr_scheduler.CosineAnnealingLR(optim, 10),
        torch.optim.lr_scheduler.MultiStepLR(optim, [3, 5, 5]),
        torch.optim.lr_scheduler.OneCycleLR(optim, 0.1, total_steps=10),
        torch.optim.lr_scheduler.ReduceLROnPlateau(optim),
    ]
    tree = {"model": model.state_dict(), "optim": optim.state_dict(), "size": torch.Size([2, 3]),
            "schedulers": [each.state_dict() for each in schedulers], "rng": torch.get_rng_state()}
    back = through(root, tree)
    assert back["size"] == (2, 3) and type(back["size"]) is tuple
    model.load_state_dict(back["model"])
    optim.load_state_dict(back["optim"])
    for each, state in zip(schedulers, back["schedulers"]):
        each.load_state_dict(state)
    torch.set_rng_state(back["rng"])
    assert set(back["optim"]["state"]) == {0, 1, 2, 3}
    for index, state in optim.state_dict()["state"].items():
        for name, value in state.items():
            assert torch.equal(value, tree["optim"]["state"][index][name])


REFUSED = [
    (lambda: torch.eye(3).to_sparse(), "of layout torch.sparse_coo cannot be saved"),
    (lambda: torch.eye(3).to_sparse_csr(), "of layout torch.sparse_csr cannot be saved"),
    (lambda: torch.empty(3, device="meta"), "on the meta device has no data"),
    (lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), "quantized"),
    (lambda: torch.zeros(2, dtype=torch.complex32), "a tensor of torch.complex32 cannot be saved"),
    (lambda: torch.nn.parameter.UninitializedParameter(), "UninitializedParameter cannot be saved"),
    (lambda: torch.ones(2).as_subclass(type("Mine", (torch.Tensor,), {})),
     "a Mine cannot be saved"),
    (lambda: torch.float32, "dtype cannot be saved"),
    (lambda: torch.device("cpu"), "device cannot be saved"),
    (lambda: torch.Generator(), "Generator cannot be saved"),
    (lambda: torch.nn.Linear(1, 1), "save its state_dict()"),
    (lambda: torch.ones([1] * 33), "has 33 dimensions, more than 32"),
    (lambda: np.array([object()]), "dtype object cannot be saved"),
    (lambda: np.array(["a"]), "dtype <U1 cannot be saved"),
    (lambda: np.array([b"a"]), "dtype |S1 cannot be saved"),
    (lambda: np.array(["2020-01-01"], "M8[s]"), "dtype datetime64[s] cannot be saved"),
    (lambda: np.zeros(2, [("x", "f4"), ("y", "i4")]), "cannot be saved"),
    (lambda: np.zeros(2, "g"), "cannot be saved"),
    (lambda: np.zeros(2, ">f4"), "dtype >f4 is not in the byte order of this machine"),
    (lambda: np.ma.masked_array([1, 2], [0, 1]), "a MaskedArray cannot be saved as it is"),
    (lambda: np.str_("x"), "dtype <U1 cannot be saved"),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make, text", REFUSED)
def test_refused_tensors_name_their_key(root, make, text):
    try:
        value = make()
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"this torch cannot make it: {error}")
    with ckpt.Checkpointer(root) as saver:
        with pytest.raises((TypeError, ValueError),
                           match=re.escape("state['a'][0]: ") + ".*" + re.escape(text)):
            saver.save(1, {"a": [value]})
        assert saver.latest() is None
        saver.save(1, {"a": 1}, wait=True)  # the object goes on


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_tensors_come_back_on_the_cpu(root):
    value = torch.randn(1000, 7, device="cuda")
    target = torch.zeros(1000, 7, device="cuda")
    tree = {"a": value, "b": value, "t": value.t()}
    back = through(root, tree)
    assert back["a"].device.type == "cpu" and back["a"] is back["b"]
    assert torch.equal(back["a"], value.cpu()) and torch.equal(back["t"], value.t().cpu())
    with ckpt.Checkpointer(root) as saver:
        state = saver.load(into={"a": target}).state
    assert state["a"] is target and torch.equal(target, value)


# ---------------------------------------------------------------------------------------------
# into=


def test_into_fills_the_users_tensors(root):
    weight, bias, array = torch.randn(4, 6), torch.randn(6), np.arange(5.0)
    backing = torch.zeros(6, 8)
    target = {"model": {"weight": backing.t()[1:5], "bias": torch.nn.Parameter(torch.zeros(6))},
              "list": [np.zeros(10)[::2]]}
    tree = {"model": {"weight": weight, "bias": bias, "more": torch.ones(1)}, "list": [array],
            "step": 3}
    state = through(root, tree, into=target)
    assert state["model"]["weight"] is target["model"]["weight"]
    assert state["model"]["bias"] is target["model"]["bias"]
    assert torch.equal(target["model"]["weight"], weight)
    assert torch.equal(target["model"]["bias"].detach(), bias)
    assert target["model"]["bias"].requires_grad
    assert state["list"][0] is target["list"][0] and np.array_equal(target["list"][0], array)
    assert torch.equal(state["model"]["more"], torch.ones(1)) and state["step"] == 3
    assert torch.equal(backing[:, 0], torch.zeros(6))
    assert torch.equal(backing[:, 5:], torch.zeros(6, 3))


def test_into_a_live_model(root):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 3)
    expected = model.weight.detach().clone()
    with ckpt.Checkpointer(root) as saver:
        saver.save(1, {"model": model.state_dict()}, wait=True)
        with torch.no_grad():
            model.weight.zero_()
        saver.load(into={"model": model.state_dict()})
    assert torch.equal(model.weight, expected)


def test_into_untied_tensors_both_get_the_tied_value(root):
    shared = torch.randn(3)
    target = [torch.zeros(3), torch.zeros(3)]
    through(root, [shared, shared], into=target)
    assert torch.equal(target[0], shared) and torch.equal(target[1], shared)


def test_into_lazy_conjugate(root):
    value = torch.tensor([1 + 2j])
    memory = torch.zeros(1, dtype=torch.complex64)
    state = through(root, [value], into=[memory.conj()])
    assert torch.equal(state[0].resolve_conj(), value)


@pytest.mark.parametrize("into, error, text", [
    ([torch.zeros(3)], errors.Mismatch, "state[0]: the checkpoint has F32 of shape [2], the tensor "
                                        "to load into is F32 of shape [3]"),
    ([torch.zeros(2, dtype=torch.float64)], errors.Mismatch, "to load into is F64 of shape [2]"),
    ([torch.zeros(2), torch.zeros(2)], errors.Mismatch, "state[1]: is a tensor in `into`, but not "
                                                        "in the checkpoint"),
    ([torch.zeros(1).expand(2)], errors.InvalidArgument, "state[0]: is an expanded view"),
    ([torch.zeros(2).to_sparse()], TypeError, "state[0]: a tensor of layout torch.sparse_coo"),
])
def test_into_that_does_not_fit(root, into, error, text):
    with ckpt.Checkpointer(root) as saver:
        saver.save(1, [torch.ones(2)], wait=True)
        with pytest.raises(error, match=re.escape(text)):
            saver.load(into=into)
        assert torch.equal(saver.load().state[0], torch.ones(2))


def test_into_read_only_and_shared_memory(root):
    array = np.ones(2)
    array.flags.writeable = False
    memory = torch.zeros(2)
    with ckpt.Checkpointer(root) as saver:
        saver.save(1, {"n": np.ones(2), "a": torch.ones(2), "b": torch.zeros(2)}, wait=True)
        with pytest.raises(errors.InvalidArgument, match="state\\['n'\\]: is read-only"):
            saver.load(into={"n": array})
        with pytest.raises(errors.Mismatch, match="is the same memory in `into` as another"):
            saver.load(into={"a": memory, "b": memory})


def test_into_memory_that_overlaps(root):
    strided = np.lib.stride_tricks.as_strided
    memory, tied = np.zeros(8), np.zeros((2, 2))
    wide = torch.zeros(4)
    with ckpt.Checkpointer(root) as saver:
        square = torch.arange(4.0).reshape(2, 2)
        w = np.arange(4.0).reshape(2, 2)
        saver.save(1, {"m": square, "a": np.ones(4), "b": np.ones(4), "v": w, "w": w}, wait=True)
        for into, error, texts in (
            ({"m": torch.as_strided(wide, (2, 2), (1, 1))}, errors.InvalidArgument, ["state['m']"]),
            ({"v": strided(memory, (2, 2), (8, 8))}, errors.InvalidArgument, ["state['v']"]),
            ({"a": memory[:4], "b": memory[2:6]}, errors.Mismatch, ["state['a']", "state['b']"]),
            ({"a": memory[3::-1], "b": memory[::2]}, errors.Mismatch, ["state['a']", "state['b']"]),
            ({"v": tied, "w": tied.T}, errors.Mismatch, ["state['v']", "state['w']"]),
        ):
            with pytest.raises(error) as caught:
                saver.load(into=into)
            assert all(text in str(caught.value) for text in texts)
        assert not memory.any() and not tied.any() and not wide.any()


def test_into_parts_of_one_memory(root):
    """Columns, interleaved elements and tied views lie within each other but do not collide."""
    rng = np.random.default_rng(3)
    memory, columns, tied = np.zeros(8), torch.zeros(4, 6), torch.zeros(3)
    a, b, v = rng.random(4), rng.random(4), torch.randn(3)
    left, right = torch.randn(4, 2), torch.randn(4, 4)
    tree = {"a": a, "b": b, "left": left, "right": right, "v": v, "w": v}
    through(root, tree, into={"a": memory[::2], "b": memory[::-2], "left": columns[:, :2],
                              "right": columns[:, 2:], "v": tied, "w": tied.view(3)})
    assert np.array_equal(memory[::2], a) and np.array_equal(memory[::-2], b)
    assert torch.equal(columns, torch.cat([left, right], 1)) and torch.equal(tied, v)
