"""scripts/: whose build/ it is, and what the set-up installs."""

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


@pytest.fixture
def bare(checkout):
    """A machine that has no package yet: run(GROUP...) = what apt-get is asked to install."""
    tools = checkout / "tools"
    tools.mkdir()
    asked = checkout / "asked"
    for name, does in (("dpkg-query", "exit 1"), ("sudo", 'exec "$@"'),
                       ("apt-get", f'[ "$1" = update ] || echo "$@" >{asked}; exit 1')):
        (tools / name).write_text(f"#!/bin/sh\n{does}\n")
        (tools / name).chmod(0o755)

    def install(*groups):
        asked.unlink(missing_ok=True)
        status, said = run(checkout / "scripts" / "setup.sh", *groups,
                           PATH=f"{tools}:{os.environ['PATH']}")
        assert status == 1  # the apt-get here installs nothing, and nothing goes on without
        if not asked.exists():
            return said
        words = asked.read_text().split()
        return set(words[words.index("DPkg::Lock::Timeout=300") + 1:])

    return install


def listed(*groups):
    """What packages.txt has in these groups, or in all."""
    found, group = set(), None
    for line in (TOP / "scripts" / "packages.txt").read_text().splitlines():
        if line.startswith("# ") and line.count(" ") == 1:
            group = line[2:]
        elif line and line[0] != "#" and (not groups or group in groups):
            found.add(line)
    return found


def test_the_demo_installs_what_it_uses(bare):
    recipe = (TOP / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]
    groups = recipe.partition("scripts/setup.sh ")[2].split("\n")[0].split()
    wanted = bare(*groups)
    assert wanted == listed("build", "libraries", "python")
    assert not wanted & {"clang-tidy", "g++", "python3-torch", "check"}


def test_without_a_group_everything_is_installed(bare):
    assert bare() == listed() > listed("tests", "lint")


def test_an_unknown_group_is_named(bare):
    assert "scripts/packages.txt has no group nonsense" in bare("build", "nonsense")


def test_a_python_that_is_not_there_is_said_so(checkout):
    (checkout / "scripts" / "packages.txt").write_text("# build\ndpkg\n")
    status, said = run(checkout / "scripts" / "setup.sh", PYTHON="/no/such")
    assert status == 1 and "PYTHON=/no/such does not run as a Python of 3.9 or newer" in said
    assert not (checkout / ".venv").exists()
