"""The C client (examples/store_client.c) at torch's own stores: both servers of this torch, and one
of torch 1.13 where Debian's Python has it."""
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

import servers
from source_tree import TOP

SERVE = """
import sys, torch.distributed as dist
from datetime import timedelta
options = {"use_libuv": sys.argv[2] == "uv"} if sys.argv[2] != "none" else {}
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), is_master=True, wait_for_workers=False,
                      timeout=timedelta(seconds=30), **options)
print("ready", flush=True)
sys.stdin.read()
"""
SYSTEM_PYTHON = "/usr/bin/python3"


def program():
    if os.environ.get("STORE_CLIENT"):
        return os.environ["STORE_CLIENT"]
    built = list(TOP.glob("build/*/examples/store_client"))
    built += list(TOP.glob("build/examples/store_client"))
    if not built:
        pytest.skip("no store_client: set STORE_CLIENT to its path, or build it")
    return str(max(built, key=lambda path: path.stat().st_mtime))


@contextlib.contextmanager
def torch_store(python, kind):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    popen = subprocess.Popen([python, "-c", SERVE, str(port), kind], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert servers.read_line(popen.stdout, timeout=90) == "ready\n"
        yield port
    finally:
        popen.stdin.close()
        popen.stdout.close()
        popen.wait(timeout=30)


def system_torch():
    if not pathlib.Path(SYSTEM_PYTHON).exists():
        return False
    done = subprocess.run([SYSTEM_PYTHON, "-c", "import torch; print(torch.__version__)"],
                          capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.startswith("1.")


@pytest.fixture(scope="module", params=["uv", "old", "1.13"])
def call(request):
    """call(words...) -> (status, output lines, messages)"""
    legacy = request.param == "1.13"
    if legacy and not system_torch():
        pytest.skip(f"{SYSTEM_PYTHON} has no torch 1")
    if not legacy:
        pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")
    python = SYSTEM_PYTHON if legacy else sys.executable
    binary = program()
    with torch_store(python, "none" if legacy else request.param) as port:
        def run(*words, seconds=10):
            done = subprocess.run(
                [binary, *(["-a"] if legacy else []), "-t", str(seconds), "127.0.0.1", str(port),
                 *words], capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout.splitlines(), done.stderr
        run.kind = request.param
        run.argv = [binary, *(["-a"] if legacy else []), "127.0.0.1", str(port)]
        yield run


def test_calls_of_every_version(call):
    assert call("set", "a", "hello")[0] == 0
    assert call("get", "a")[:2] == (0, ["hello"])
    assert call("add", "n", "5")[:2] == (0, ["5"])
    assert call("add", "n", "-7")[:2] == (0, ["-2"])
    assert call("cas", "c", "", "one")[:2] == (0, ["one"])
    assert call("cas", "c", "zz", "two")[:2] == (0, ["one"])
    assert call("check", "a", "n")[:2] == (0, ["1"])
    assert call("check", "a", "none")[:2] == (0, ["0"])
    assert call("wait", "a", "n")[0] == 0
    assert call("mset", "x", "1", "y", "22")[0] == 0
    assert call("mget", "x", "y")[:2] == (0, ["1", "22"])
    assert call("set", "empty", "")[0] == 0
    assert call("get", "empty")[:2] == (0, [""])
    assert call("delete", "x")[:2] == (0, ["1"])
    assert call("delete", "x")[:2] == (0, ["0"])
    assert int(call("count")[1][0]) >= 5


def test_a_key_that_is_not_there(call):
    """Also where the server closes the connection at a bare GET of it."""
    begin = time.monotonic()
    status, _, messages = call("get", "none", seconds=0.5)
    assert status == 1 and "none" in messages and time.monotonic() - begin < 8
    assert call("get", "none", seconds=0)[0] == 1
    status, _, messages = call("wait", "a", "none", seconds=0.5)
    assert status == 1 and "lost" not in messages


def test_a_key_that_comes_later(call):
    waiter = subprocess.Popen([*call.argv, "get", "late"], stdout=subprocess.PIPE, text=True)
    time.sleep(0.7)
    assert waiter.poll() is None
    assert call("set", "late", "now")[0] == 0
    assert waiter.communicate(timeout=10)[0] == "now\n" and waiter.returncode == 0


def test_what_dialect_c_has(call):
    if call.kind == "1.13":
        status, _, messages = call("list")
        assert status == 1 and "dialect A" in messages
        return
    assert call("append", "l", "x")[0] == 0 and call("append", "l", "y")[0] == 0
    assert call("get", "l")[1] == ["xy"]
    assert "l" in call("list")[1]
    assert call("barrier", "b", "1")[0] == 0
    assert call("barrier", "b9", "2", seconds=0.5)[0] == 1
    if call.kind == "old":
        status, _, messages = call("len", "q")  # which this server has not
        assert status == 1 and "lost" in messages
        return
    assert call("push", "q", "e")[0] == 0
    assert call("len", "q")[1] == ["1"]
    assert call("pop", "q")[1] == ["e"]
    assert call("pop", "q", seconds=0.3)[0] == 1
