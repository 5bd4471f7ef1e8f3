"""What examples/demo.py does to the directory that it is given, before it trains."""

import os
import subprocess
import sys

import pytest

from source_tree import TOP

for package in ("torch", "sklearn", "matplotlib"):
    pytest.importorskip(package, reason=f"{package} is not installed")

FOLDERS = ("elastic", "reference", "restart", "logs")


@pytest.fixture
def demo(package_env):
    """demo(out) runs it with a program that is no rdzvd, so that it ends where rdzvd would start;
    returns its exit status and what it said."""

    def run(out, rdzvd="/bin/true"):
        done = subprocess.run([sys.executable, TOP / "examples" / "demo.py", "--rdzvd", rdzvd,
                               "--out", out], env=package_env, capture_output=True, text=True)
        return done.returncode, done.stderr

    return run


def fill(out, names=FOLDERS):
    for name in names:
        (out / name).mkdir(parents=True)
        (out / name / "kept").write_text("mine")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_directory_of_somebody_else_is_left_alone(demo, tmp_path, name):
    fill(tmp_path, [name])
    status, said = demo(tmp_path)
    assert status == 1 and f"{tmp_path} has {name}, which no demo is known to have made" in said
    assert (tmp_path / name / "kept").read_text() == "mine"
    assert os.listdir(tmp_path) == [name]


def test_a_result_of_somebody_else_is_left_alone(demo, tmp_path):
    (tmp_path / "result.json").write_text("mine")
    status, said = demo(tmp_path)
    assert status == 1 and "has result.json, which no demo" in said
    assert os.listdir(tmp_path) == ["result.json"]


def test_the_next_demo_removes_what_the_last_one_left(demo, tmp_path):
    out = tmp_path / "out"
    assert demo(out)[0] == 1  # made and marked; then its rdzvd does not start
    fill(out, [name for name in FOLDERS if not (out / name).exists()] + ["notes"])
    (out / "logs" / "old.log").write_text("old")
    status, said = demo(out)
    assert status == 1 and "rdzvd" in said
    assert not (out / "logs" / "old.log").exists() and not (out / "elastic").exists()
    assert (out / "notes" / "kept").read_text() == "mine"


def test_nothing_is_removed_where_the_demo_cannot_run(demo, tmp_path):
    out = tmp_path / "out"
    demo(out)
    (out / "logs" / "old.log").write_text("old")
    status, said = demo(out, rdzvd=tmp_path / "absent")
    assert status == 1 and "there is no program" in said
    assert (out / "logs" / "old.log").exists()


def test_a_missing_parent_is_an_error(demo, tmp_path):
    status, said = demo(tmp_path / "absent" / "out")
    assert status == 1 and "No such file or directory" in said
    assert os.listdir(tmp_path) == []
