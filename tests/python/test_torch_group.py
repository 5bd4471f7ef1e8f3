"""Ranks that agree over the store of torch.distributed, with this torch and an old one."""

import functools
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rallypoint import ckpt, errors

torch = pytest.importorskip("torch", reason="torch is not installed")

RANK = Path(__file__).parent / "torch_ranks.py"


@functools.lru_cache(maxsize=None)
def old_python():
    """An interpreter whose torch speaks the old store dialect, as Debian 12's; or None."""
    python = os.environ.get("RALLYPOINT_OLD_TORCH_PYTHON", "/usr/bin/python3")
    try:
        done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"],
                              capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return python if done.returncode == 0 and done.stdout.startswith("1.") else None


@pytest.fixture(params=["new", "old"])
def python(request, package_env, tmp_path):
    """(interpreter, environment)"""
    if request.param == "new":
        return sys.executable, package_env
    interpreter = old_python()
    if interpreter is None:
        pytest.skip("no interpreter with torch 1.x: install python3-torch of Debian 12, or set "
                    "RALLYPOINT_OLD_TORCH_PYTHON")
    package = tmp_path / "package"  # alone: beside it may be a torch of our own interpreter
    package.mkdir()
    (package / "rallypoint").symlink_to(Path(ckpt.__file__).resolve().parent)
    return interpreter, {**package_env, "PYTHONPATH": str(package)}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(python, world, root, case, init=None):
    interpreter, env = python
    init = init or f"tcp://127.0.0.1:{free_port()}"
    env = {**env, "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen([interpreter, str(RANK), str(rank), str(world), init, str(root),
                                   case], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) for rank in range(world)]
    answers = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=100)
            assert process.returncode == 0, err
            answers.append(json.loads(out.strip().split("\n")[-1]))
            assert (interpreter == sys.executable) != answers[-1]["torch"].startswith("1.")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return answers


def test_auto_uses_the_process_group(python, root):
    answers = run(python, 3, root, "auto")
    assert [answer["found"] for answer in answers] == [[5, 9, 3]] * 3


def test_file_init(python, root, tmp_path):
    answers = run(python, 2, root, "auto", f"file://{tmp_path}/store")
    assert [answer["found"] for answer in answers] == [[5, 9, 2]] * 2


def test_subgroup(python, root):
    answers = run(python, 3, root, "subgroup")
    assert answers[0]["found"] == [0, 2, 0] and answers[2]["found"] == [1, 2, 2]
    assert "found" not in answers[1]


def test_what_one_rank_cannot_save_all_ranks_hear_at_once(python, root):
    answers = run(python, 2, root, "unsavable")
    kind, text = answers[0]["error"]
    assert kind == "PeerFailed" and "rank 1" in text and "local['fn']" in text
    assert answers[1]["error"][0] == "TypeError"
    assert all(answer["seconds"] < 15 for answer in answers)
    assert ckpt.latest(root).step == 2


def test_a_save_does_not_wait_for_the_training_threads_store(python, root):
    answers = run(python, 2, root, "busy")
    assert answers[1]["seconds"] < 15


def test_torch_group_needs_a_process_group():
    with pytest.raises(errors.InvalidArgument, match="init_process_group"):
        ckpt.TorchGroup()


def descriptors(server):
    """Once the server, which is in this process too, has closed its end of what has ended."""
    end = time.monotonic() + 10
    while server.stats().connections > 1 and time.monotonic() < end:
        time.sleep(0.02)
    return len(os.listdir("/proc/self/fd"))


def test_connections_end_with_the_checkpointer(root):
    import gc

    import torch.distributed as dist

    from rallypoint import rdzv

    with rdzv.Server() as server:
        store = dist.TCPStore("127.0.0.1", server.port, is_master=False)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        gc.disable()
        try:
            group = ckpt.TorchGroup()
            ckpt.save(root, 1, {"x": 1}, group=group)
            before = descriptors(server)
            for step in range(5):
                ckpt.save(root, step, {"x": 1}, group=group)
            assert descriptors(server) == before
        finally:
            gc.enable()
            dist.destroy_process_group()


def test_a_lost_store_is_an_error_with_its_cause(root, tmp_path, caplog):
    import torch.distributed as dist

    from rallypoint import rdzv

    server = rdzv.Server()
    store = dist.TCPStore("127.0.0.1", server.port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        group = ckpt.TorchGroup()
        assert repr(group) == "TorchGroup(rank=0, world_size=1)"
        with ckpt.Checkpointer(root, group=group, timeout=5) as saver:
            saver.save(1, {"x": 1}, wait=True)
            server.close()
            with pytest.raises(errors.Error) as caught:
                saver.save(2, {"x": 2}, wait=True)
        assert caught.value.__cause__ is not None
        assert "in the store of torch.distributed" in caplog.text
    finally:
        dist.destroy_process_group()
        server.close()
    assert ckpt.load(root, group=None).step == 1


