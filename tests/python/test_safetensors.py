"""Shards are plain safetensors files, and files of safetensors are read."""

import json
import struct

import pytest

from rallypoint import ckpt, errors

torch = pytest.importorskip("torch", reason="torch is not installed")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

from test_tensors import TORCH_DTYPES, assert_same, random_tensor  # noqa: E402

KNOWN = [name for name in TORCH_DTYPES if getattr(torch, name) in safetensors_torch._SIZE]

def tensors_of_every_dtype():
    torch.manual_seed(2)
    return {f"{name}.{number}": random_tensor(getattr(torch, name), shape)
            for name in KNOWN for number, shape in enumerate([(), (5,), (0, 2), (2, 3)])}


def shard(root):
    (path,) = root.glob("step-*/shard-*.safetensors")
    return path


def test_safetensors_reads_a_shard_with_every_dtype_it_knows(root):
    tensors = {name: value for name, value in tensors_of_every_dtype().items()
               if getattr(torch, name.split(".")[0]) in safetensors_torch._TYPES.values()}
    assert len({value.dtype for value in tensors.values()}) >= 17
    ckpt.save(root, 1, tensors)
    found = safetensors_torch.load_file(shard(root))
    assert set(found) == set(tensors)
    for name, expected in tensors.items():
        if expected.dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
            # the format of older readers has no name for them: bytes with one more dimension
            assert found[name].dtype == torch.uint8
            found[name] = found[name].view(expected.dtype).reshape(expected.shape)
        assert_same(found[name], expected)


def test_files_of_safetensors_are_read_with_every_dtype(tmp_path):
    tensors = tensors_of_every_dtype()
    path = tmp_path / "theirs.safetensors"
    safetensors_torch.save_file(tensors, path, metadata={"format": "pt"})
    found = ckpt.load_file(path)
    assert set(found) == set(tensors)
    for name, expected in tensors.items():
        assert_same(found[name], expected)


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no float4")
def test_a_dtype_of_half_bytes_is_a_clear_refusal(tmp_path):
    path = tmp_path / "half.safetensors"
    value = torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    safetensors_torch.save_file({"w": value}, path)
    with pytest.raises(errors.NotSupported, match="half.safetensors.*\"w\" has dtype F4"):
        ckpt.load_file(path)


def test_numpy_framework(tmp_path):
    np = pytest.importorskip("numpy")
    path = tmp_path / "x.safetensors"
    safetensors_torch.save_file({"a": torch.arange(6).reshape(2, 3)}, path)
    found = ckpt.load_file(path, framework="numpy")
    assert type(found["a"]) is np.ndarray and np.array_equal(found["a"], [[0, 1, 2], [3, 4, 5]])
    safetensors_torch.save_file({"a": torch.ones(2, dtype=torch.bfloat16)}, path)
    with pytest.raises(errors.NotSupported, match="'a': has dtype BF16, which numpy lacks"):
        ckpt.load_file(path, framework="numpy")
    with pytest.raises(ValueError, match="framework is 'jax'"):
        ckpt.load_file(path, framework="jax")


def test_an_empty_file_of_safetensors(tmp_path):
    path = tmp_path / "empty.safetensors"
    safetensors_torch.save_file({}, path)
    assert ckpt.load_file(path) == {}


def file_of(tmp_path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


@pytest.mark.parametrize("header, data, length", [
    (b"", b"", 2**63), (b"", b"", 1 << 40), (b"{}", b"x", None), (b"[]", b"", None),
    (b"{", b"", None), (b"\xff\xfe", b"", None),
    ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"1234567", None),
    ({"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]}}, b"12345678", None),
    ({"a": {"dtype": "Q99", "shape": [2], "data_offsets": [0, 8]}}, b"12345678", None),
    ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, b"12345678", None),
    ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]}}, b"123456789", None),
])
def test_bad_files_are_unreadable(tmp_path, header, data, length):
    path = file_of(tmp_path, header, data, length)
    with pytest.raises((errors.Unreadable, errors.NotSupported), match="bad.safetensors"):
        ckpt.load_file(path)


def test_missing_and_short_files(tmp_path):
    with pytest.raises(errors.NotFound, match="no such path"):
        ckpt.load_file(tmp_path / "nowhere" / "x")
    short = tmp_path / "short"
    short.write_bytes(b"abc")
    with pytest.raises(errors.Unreadable, match="short"):
        ckpt.load_file(short)
    with pytest.raises(errors.Error):
        ckpt.load_file(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["short"]  # nothing was made
