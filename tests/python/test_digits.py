"""examples/ddp_digits.py, called as it is not meant to be called."""

import os
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
