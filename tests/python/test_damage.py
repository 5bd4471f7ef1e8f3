"""Damaged files, full and read-only disks: a clear error, nothing lost, the older one found."""

import errno
import logging
import os
import struct
import subprocess

import pytest

from rallypoint import ckpt, errors

np = pytest.importorskip("numpy", reason="numpy is not installed")


def save(root, *steps):
    for step in steps:
        ckpt.save(root, step, {"step": step, "x": np.full(50000, step)}, local={"own": step})


def part(root, step, pattern):
    (path,) = root.glob(f"step-*{step}.*/{pattern}")
    return path


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("offset", [5000, 100000, -1])
def test_a_flipped_byte_leads_to_the_older_checkpoint(root, caplog, offset):
    save(root, 1, 2, 3)
    shard = part(root, 3, "*.safetensors")
    flip(shard, offset)
    with caplog.at_level(logging.WARNING):
        found = ckpt.load(root)
    assert found.step == 2 and (found.state["x"] == 2).all() and found.local == {"own": 2}
    assert len(found.skipped) == 1 and str(shard) in found.skipped[0]
    assert any(record.name == "rallypoint" and "skip checkpoint" in record.getMessage()
               for record in caplog.records)
    flip(shard, offset)
    assert ckpt.load(root).step == 3


def test_all_damaged_is_unreadable_not_missing(root):
    save(root, 1, 2)
    for step in (1, 2):
        flip(part(root, step, "*.safetensors"), 90000)
    with pytest.raises(errors.Unreadable, match="no older checkpoint can be read") as caught:
        ckpt.load(root)
    assert "safetensors" in str(caught.value)
    with pytest.raises(errors.Unreadable):
        ckpt.load(root, step=1)
    assert ckpt.latest(root).step == 2  # its records are fine, which is all that latest looks at


@pytest.mark.parametrize("cut", [1, 4096, 200000])
def test_a_truncated_shard_leads_to_the_older_checkpoint(root, cut):
    save(root, 1, 2)
    shard = part(root, 2, "*.safetensors")
    os.truncate(shard, shard.stat().st_size - cut)
    found = ckpt.load(root)
    assert found.step == 1 and len(found.skipped) == 1
    assert ckpt.latest(root).step == 1
    shard = part(root, 1, "*.safetensors")
    os.truncate(shard, shard.stat().st_size - cut)
    with pytest.raises(errors.Unreadable, match="step-0*2"):
        ckpt.load(root)
    with pytest.raises(errors.Unreadable):
        ckpt.latest(root)


@pytest.mark.parametrize("name", ["COMMIT", "*.index", "*.safetensors"])
@pytest.mark.parametrize("how", ["missing", "empty", "garbage", "flipped"])
def test_every_file_of_a_checkpoint_is_needed(root, name, how):
    save(root, 1, 2)
    path = part(root, 2, name)
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "garbage":
        path.write_bytes(os.urandom(path.stat().st_size))
    else:
        flip(path, path.stat().st_size // 2)
    found = ckpt.load(root)
    assert found.step == 1 and (found.state["x"] == 1).all()
    ckpt.save(root, 3, {"step": 3})
    assert ckpt.load(root).step == 3


def test_into_after_damage_has_the_older_values(root):
    save(root, 1, 2)
    flip(part(root, 2, "*.safetensors"), 90000)
    target = np.zeros(50000, dtype=np.int64)
    found = ckpt.load(root, into={"x": target})
    assert found.step == 1 and found.state["x"] is target and (target == 1).all()


def test_a_full_disk(mount):
    folder = mount("size=12m")
    root = folder / "root"
    ckpt.save(root, 1, {"x": np.ones(4 << 20, np.uint8)})
    with ckpt.Checkpointer(root) as saver:
        with pytest.raises(errors.NoSpace) as caught:
            saver.save(2, {"x": np.ones(20 << 20, np.uint8)}, wait=True)
        assert caught.value.errno == errno.ENOSPC and isinstance(caught.value, OSError)
        assert str(root) in str(caught.value)
        assert saver.load().step == 1
        saver.save(3, {"x": np.ones(5 << 20, np.uint8)}, wait=True)  # what was cut off is gone
        assert saver.load().step == 3


def test_a_read_only_file_system(mount):
    folder = mount("size=12m")
    root = folder / "root"
    ckpt.save(root, 1, {"x": np.ones(100)})
    done = subprocess.run(["mount", "-o", "remount,ro", str(folder)], capture_output=True,
                          text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot remount read-only: {done.stderr.strip()}")
    with pytest.raises(errors.AccessDenied, match=str(root)):
        ckpt.save(root, 2, {"x": 1})
    with pytest.raises(errors.AccessDenied, match="new"):
        ckpt.save(folder / "new", 2, {"x": 1})
    assert ckpt.load(root).step == 1
    assert ckpt.latest(root).step == 1


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("clock", [2**62, 2**64 - 2**62])
def test_a_writers_clock_beyond_the_calendar(root, clock):
    """It is information only, so it keeps nobody from loading."""
    save(root, 1, 2)
    path = part(root, 2, "COMMIT")
    data = path.read_bytes()
    field = bytearray([11 << 3])  # saved_unix_ms once more: the last one counts
    while clock > 127:
        field.append(clock & 127 | 128)
        clock >>= 7
    field.append(clock)
    payload = data[16:] + field
    path.write_bytes(data[:8] + struct.pack("<II", len(payload), crc32c(payload)) + payload)
    assert ckpt.latest(root).saved_at is None
    found = ckpt.load(root)
    assert found.step == 2 and found.saved_at is None
