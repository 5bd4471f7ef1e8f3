"""Random requests against torch's servers and rdzvd: every answer and every closing is compared.

The driver, tests/differential, says with --help what it does and which differences are kept. Its
seed makes its cases; a failure prints the case's own seed, cut down to the requests that matter.
"""
import os
import pathlib
import subprocess

import pytest

import servers
from source_tree import TOP

SEED = int(os.environ.get("DIFFERENTIAL_SEED", "20260730"))
LONG = int(os.environ.get("DIFFERENTIAL_REQUESTS", "1000000"))
KEPT = {
    "uv": {"ask_while_waiting": 50_000, "failed_compare_set_wakes": 50_000, "split_hello": 50_000,
           "bad_start": 50_000, "half_multi_set": 50_000, "queue_among_awaited": 50_000},
    "old": {"ask_while_waiting": 20_000, "half_multi_set": 20_000, "no_queues": 10_000,
            "missing_key_closes": 10_000, "compare_set_wakes_nobody": 100_000,
            "answers_lost_at_closing": 40_000, "no_limits": 10_000},
}


RARE = {"released_twice": 14986562941997057585}  # the case that showed it, after 502,249 requests


def driver():
    """The one that was built with the rdzvd under test, else the newest."""
    rdzvd = servers.rdzvd_path()
    if not rdzvd:
        return None
    beside = pathlib.Path(rdzvd).resolve().parents[1] / "tests/differential/c10d_differential"
    built = [beside] if beside.exists() else list(
        TOP.glob("build/*/tests/differential/c10d_differential"))
    return str(max(built, key=lambda p: p.stat().st_mtime)) if built else None


@pytest.fixture(params=["uv", "old"])
def compare(request, rdzvd, torch_servers):
    """compare(requests, seed, *options) gives the driver's exit code and what it printed."""
    program = driver()
    if not program:
        pytest.skip("no c10d_differential: build the target of that name")
    yardstick = servers.TorchServer(torch_servers, "old" if request.param == "old" else "")

    def run(requests, seed, *options):
        done = subprocess.run(
            [program, str(rdzvd.port), str(yardstick.port), request.param, str(requests),
             str(seed), *options], capture_output=True, text=True, timeout=3000)
        return done.returncode, done.stdout + done.stderr

    run.backend = request.param
    yield run
    yardstick.stop()


def test_no_difference(compare):
    code, printed = compare(40_000 if compare.backend == "uv" else 10_000, SEED)
    print(printed)
    assert code == 0, printed
    assert "no difference" in printed


@pytest.mark.slow
def test_no_difference_in_a_long_run(compare):
    code, printed = compare(LONG if compare.backend == "uv" else LONG // 5, SEED + 1)
    print(printed)
    assert code == 0, printed


@pytest.mark.slow
def test_what_is_kept_is_still_different(compare):
    """The driver can fail, and no excuse outlives its reason."""
    for name, requests in KEPT[compare.backend].items():
        code, printed = compare(requests, SEED, "--whole", "--expose", name)
        assert code == 1, f"{name} makes no difference any more: {printed}"
    for name, case in RARE.items() if compare.backend == "uv" else ():
        code, printed = compare(1, case, "--case", "--whole", "--expose", name)
        assert code == 1, f"{name} makes no difference any more: {printed}"


def test_a_seed_makes_its_failure_again(compare):
    # Seen in the order of requests alone: a busy machine may cut bytes in other places.
    name = "ask_while_waiting" if compare.backend == "uv" else "no_queues"
    code, first = compare(50_000, SEED, "--expose", name)
    assert code == 1, first
    again = first.splitlines()[-1].split()
    assert again[-1] == "--case"
    code, second = compare(1, again[-2], "--case", "--expose", name)
    assert code == 1, second
    assert second.splitlines()[1:-1] == first.splitlines()[1:-1]  # cut down to the same requests
