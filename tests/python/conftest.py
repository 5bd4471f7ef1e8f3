"""Shared fixtures."""

import ctypes
import os
import signal
import subprocess
import sys

import pytest

import source_tree

# A shell that starts us in the background has SIGINT ignored, and so would every process of ours.
signal.signal(signal.SIGINT, signal.default_int_handler)

source_tree.use_package()

try:
    import rallypoint.ckpt  # noqa: F401
except ImportError as error:
    pytest.exit(f"rallypoint cannot be imported: {error}", returncode=1)


def pytest_report_header(config):
    found = []
    for package in ("torch", "numpy", "safetensors"):
        try:
            found.append(f"{package} {__import__(package).__version__}")
        except ImportError:
            found.append(f"no {package}: its tests are skipped")
    return f"rallypoint from {os.path.dirname(rallypoint.ckpt.__file__)}; " + ", ".join(found)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def package_env():
    """Environment in which a child process imports the same package."""
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return env


@pytest.fixture
def mount(tmp_path):
    """mount(options) -> a fresh tmpfs, unmounted at the end; skips where that is not allowed."""
    mounted = []

    def make(options):
        folder = tmp_path / f"mount{len(mounted)}"
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
                              capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def strict_memory():
    """Fails a test that leaves operations, and with them tensors, in the package's table."""
    from rallypoint import _handle

    yield
    assert not _handle._operations
    assert ctypes.sizeof(ctypes.c_void_p) == 8
