"""scripts/: whose build/ it is."""

import os
import shutil
import subprocess

import pytest

from source_tree import TOP

# Root may write anywhere, so it tries these as nobody.
OTHER = 65534 if os.getuid() == 0 else None


def run(*argv, user=None, **env):
    done = subprocess.run(argv, env={**os.environ, **env}, user=user, capture_output=True,
                          text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def checkout(tmp_path):
    """A checkout with the scripts alone, in which another user may look around."""
    shutil.copytree(TOP / "scripts", tmp_path / "scripts")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("theirs", ["build", "build/log"])
def test_a_build_of_another_user_is_said_so_once(checkout, theirs):
    (checkout / theirs).mkdir(parents=True)
    (checkout / theirs).chmod(0o555)
    status, said = run(checkout / "scripts" / "setup.sh", user=OTHER)
    assert status == 1
    (line,) = said.splitlines()
    assert line.startswith(f"{checkout}/build/log cannot be written. If build/ belongs to another "
                           "user: chown it, or use a checkout of your own.")


def test_a_log_of_another_user_is_replaced(checkout):
    log = checkout / "build" / "log" / "a-step.log"
    log.parent.mkdir(parents=True)
    log.parent.chmod(0o777)
    log.write_text("old")
    log.chmod(0o444)
    status, said = run("bash", "-c", f"cd {checkout} && . scripts/lib.sh && step 'a step' echo new",
                       user=OTHER)
    assert (status, log.read_text()) == (0, "new\n"), said
