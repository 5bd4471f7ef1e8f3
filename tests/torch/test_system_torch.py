"""The distribution's own torch (the old dialect on Debian 12) on rdzvd, and both generations."""
import json
import pathlib
import socket
import subprocess
import sys

import pytest

import agents

PYTHON = "/usr/bin/python3"
SCRIPT = pathlib.Path(__file__).with_name("system_torch.py")


def run(*args, timeout=60):
    result = subprocess.run([PYTHON, str(SCRIPT), *map(str, args)], capture_output=True, text=True,
                            timeout=timeout)
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def version():
    """The release of the system's torch, as two numbers."""
    if not pathlib.Path(PYTHON).exists():
        pytest.skip(f"no {PYTHON} on this machine")
    found = subprocess.run([PYTHON, "-c", "import torch.distributed as d, torch;"
                            "assert d.is_gloo_available(); print(torch.__version__)"],
                           capture_output=True, text=True, timeout=60)
    if found.returncode:
        pytest.skip(f"{PYTHON} has no torch with gloo (the package python3-torch): "
                    + found.stderr.strip().splitlines()[-1])
    print(f"torch of {PYTHON}: {found.stdout.strip()}")
    return tuple(int(x) for x in found.stdout.split(".")[:2])


def test_every_method(rdzvd, version):
    outcome = run("store", rdzvd.port)
    print(outcome)
    assert {"set", "get", "add", "compare_set", "num_keys", "delete_key", "set_timeout", "wait",
            "PrefixStore"} <= set(outcome["done"])
    if version < (2, 0):  # nothing was left out but properties
        assert set(outcome["left"]) <= {"host", "port", "timeout"}


def test_gloo_with_four_ranks(rdzvd, version):
    assert run("gloo", rdzvd.port)["done"] == ["init_process_group"]


def test_two_generations_share_one_store(rdzvd, version):
    dist = pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")
    store = dist.TCPStore("127.0.0.1", rdzvd.port, is_master=False, wait_for_workers=False)
    store.add("both", 1)
    store.set("from new", b"\0new")
    store.set("cas", "new")
    old = subprocess.Popen([PYTHON, str(SCRIPT), "mixed", str(rdzvd.port)], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert store.get("from old") == b"\0old"
        store.set("released by new", "")
        output, _ = old.communicate(timeout=30)
        assert old.returncode == 0, output
    finally:
        old.kill()
        old.wait()
    assert store.get("both") == b"11"
    assert store.get("cas") == b"old"
    assert sorted(store.list_keys()) == ["both", "cas", "from new", "from old", "released by new"]


def test_two_agents_scale_1_2_1(rdzvd, version, tmp_path):
    try:
        socket.getaddrinfo(socket.getfqdn(), None)
    except OSError as e:
        pytest.skip(f"this machine cannot look up its own name, and torchrun needs it: {e}")
    agents.scale_1_2_1(PYTHON, version, rdzvd.port, tmp_path, timeout=60)
