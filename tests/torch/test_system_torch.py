"""The distribution's own torch (the old dialect on Debian 12) on rdzvd, and both generations."""
import datetime
import json
import os
import pathlib
import socket
import subprocess

import pytest

import agents
from source_tree import PACKAGE
from test_store_client import torch_store

PYTHON = "/usr/bin/python3"
SCRIPT = pathlib.Path(__file__).with_name("system_torch.py")


def run(*args, timeout=60, env=None):
    result = subprocess.run([PYTHON, str(SCRIPT), *map(str, args)], capture_output=True, text=True,
                            timeout=timeout, env=env)
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


@pytest.fixture
def package():
    """Environment in which the system's Python imports our package, and none of this one's."""
    import rallypoint
    bundled = str(pathlib.Path(rallypoint.__file__).with_name("_lib"))
    return dict(os.environ, PYTHONPATH=str(PACKAGE),
                RALLYPOINT_LIB_DIR=os.environ.get("RALLYPOINT_LIB_DIR", bundled))


def test_our_store_under_the_systems_torch(rdzvd, version, package):
    outcome = run("ours", rdzvd.port, env=package)
    print(outcome)
    assert {"set", "get", "compare_set", "wait", "PrefixStore", "ours"} <= set(outcome["done"])


def test_our_store_under_a_group_of_the_systems_torch(rdzvd, version, package):
    assert run("ours-gloo", rdzvd.port, env=package)["done"] == ["init_process_group"]


def test_our_store_at_a_server_of_torch_1(version):
    """legacy=True: under this Python's torch, at the server of the other."""
    if version >= (2, 0):
        pytest.skip(f"{PYTHON} has no torch 1.")
    dist = pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")
    import rallypoint.torch
    with torch_store(PYTHON, "none") as port, \
            rallypoint.torch.Store("127.0.0.1", port, 10, legacy=True) as store:
        prefix = dist.PrefixStore("p", store)
        prefix.set("k", b"\0v")
        assert prefix.get("k") == store.get("p/k") == b"\0v"
        assert prefix.add("n", 5) == 5 and prefix.compare_set("c", "", "x") == b"x"
        assert store.check(["p/k", "p/n"]) and store.multi_get(["p/k", "p/n"]) == [b"\0v", b"5"]
        with pytest.raises(dist.DistStoreError, match="wait timeout after 300ms"):
            prefix.wait(["never"], datetime.timedelta(seconds=0.3))
        assert not store.has_extended_api()
        for lacking in (lambda: store.append("k", "v"), store.list_keys,
                        lambda: store.queue_len("q"), lambda: store.barrier("b", 1)):
            with pytest.raises(NotImplementedError, match="PyTorch 2.0 or older"):
                lacking()


def test_two_agents_scale_1_2_1(rdzvd, version, tmp_path):
    try:
        socket.getaddrinfo(socket.getfqdn(), None)
    except OSError as e:
        pytest.skip(f"this machine cannot look up its own name, and torchrun needs it: {e}")
    tried = subprocess.run([PYTHON, "-c", "from torch.distributed import TCPStore;"
                            "TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)"],
                           capture_output=True, text=True, timeout=60)
    if tried.returncode and "without libuv" in tried.stderr:
        pytest.skip(f"{PYTHON}'s torch was built without libuv, which torchrun asks for")
    agents.scale_1_2_1(PYTHON, version, rdzvd.port, tmp_path, timeout=60)
