"""examples/ddp_digits.py, as the README calls it on one machine and as it should not be called."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys

import pytest

from source_tree import TOP

for package in ("torch", "sklearn"):
    pytest.importorskip(package, reason=f"{package} is not installed")


def test_without_torchrun_it_says_so_in_one_line(package_env, root):
    package_env.pop("RANK", None)
    done = subprocess.run([sys.executable, TOP / "examples" / "ddp_digits.py", "--root", root],
                          env=package_env, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "ddp_digits.py: start it with torchrun, see README.md\n"
    assert not os.path.exists(root)


def test_every_option_has_a_help_text(package_env):
    done = subprocess.run([sys.executable, TOP / "examples" / "ddp_digits.py", "--help"],
                          env={**package_env, "COLUMNS": "200"}, capture_output=True, text=True)
    options = [line.split() for line in done.stdout.splitlines() if line.startswith("  --")]
    assert {"--steps", "--lr", "--seed", "--pace"} <= {words[0] for words in options}
    assert all(len(words) > 3 for words in options), done.stdout


@pytest.mark.slow
def test_two_nodes_on_one_machine(package_env, tmp_path):
    torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
    rdzvd = package_env.get("RDZVD") or shutil.which("rdzvd")
    if not rdzvd or not os.path.exists(torchrun):
        pytest.skip("RDZVD names no rdzvd, or torchrun is not installed")
    text = (TOP / "README.md").read_text()
    (code,) = (block for block in re.findall(r"```sh\n(.*?)```", text, flags=re.S)
               if "node & node &" in block)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for there, here in ((". .venv/bin/activate\n", ""), ("torchrun", torchrun),
                        ("build/daemon/librdzv/rdzvd", f"{rdzvd} --listen 127.0.0.1:29400"),
                        ("29400", port), ("/tmp", str(tmp_path)), (" --pace 0.1", ""),
                        ("node & node &", "node & first=$!; node & second=$!"),
                        ("tail -F", "wait $first && wait $second || exit; cat")):
        assert there in code, there
        code = code.replace(there, here)
    code = "trap 'kill $(jobs -p)' EXIT\n" + code
    done = subprocess.run(["timeout", "240", "bash", "-c", code], cwd=TOP, env=package_env,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines[-1]["event"] == "done" and lines[-1]["world"] == 2
