"""What every measurement of bench_store.py shares: whose turn it is, ratios, and the table."""

from __future__ import annotations

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from typing import Any, Callable

import servers

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release").resolve()
PROGRAMS = BUILD / "tests/bench/store"
QUICK = os.environ.get("QUICK", "0") not in ("", "0")
ROUNDS = 3 if QUICK else 9
STORM_ROUNDS = 3 if QUICK else 7
MILLISECONDS = 400 if QUICK else 1000
LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
# With two CPUs, server and generator have one each: the scheduler's choice is not measured.
CPUS = sorted(os.sched_getaffinity(0))
SERVER_CPU, LOAD_CPU = (CPUS[0], CPUS[1]) if len(CPUS) > 1 and os.environ.get("PIN") != "0" \
    else (None, None)
SOURCES = ["--sources", str(servers.SOURCES)]

_HEAD = ("", "rdzvd", "torch", "echo", "unit", "")
_rows: list[tuple[str, ...]] = []


def progress(text: str) -> None:
    print(f"bench-store: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def run(server: servers.Server, command: list[Any], cpu: int | None = LOAD_CPU, **options) -> dict:
    """The JSON object that a generator prints."""
    command = [str(word) for word in command]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True,
                         preexec_fn=servers.pinned(cpu), **options)
    if ran.returncode != 0:
        sys.exit(f"bench-store: {' '.join(command)} against {server.name} failed; the server's "
                 f"log:\n{server.said()}")
    return json.loads(ran.stdout)


def load_command(server: servers.Server, scenario: str, *args) -> list[str]:
    echo = ["--echo"] if server.name == "echo" else []
    return [str(PROGRAMS / "store_load"), scenario, "--address", server.address, *echo,
            *map(str, args)]


def load(server: servers.Server, *args, cpu: int | None = LOAD_CPU) -> dict:
    return run(server, load_command(server, *args), cpu)


def rounds(contenders: list, count: int, measure: Callable[[Any], Any],
           name: Callable[[Any], str] = lambda c: c.name) -> dict[str, list]:
    """Runs `measure` on each, `count` times, rotating who is first."""
    results: dict[str, list] = {name(c): [] for c in contenders}
    for i in range(count):
        for k in range(len(contenders)):
            contender = contenders[(i + k) % len(contenders)]
            results[name(contender)].append(measure(contender))
    return results


def median(values) -> float:
    return statistics.median(list(values))


def ratio(a: list[float], b: list[float]) -> float:
    """a's figure over b's, pair by pair."""
    return median(x / y for x, y in zip(a, b))


def number(value: float) -> str:
    if value >= 10000:
        return f"{value / 1000:.1f}k"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def figures(results: dict[str, list[float]]) -> dict[str, str]:
    return {name: number(median(values)) for name, values in results.items() if values}


def row(what: str, unit: str, cells: dict[str, str], note: str = "") -> None:
    _rows.append((what, *(cells.get(name, "") for name in _HEAD[1:4]), unit, note))


def remark(what: str, text: str) -> None:
    _rows.append((what, text))


def print_table(title: str) -> None:
    print(title)
    table = [_HEAD, *(r for r in _rows if len(r) == len(_HEAD))]
    widths = [max(len(r[i]) for r in table) for i in range(len(_HEAD))]
    for r in [_HEAD, *_rows]:
        if len(r) == len(_HEAD):
            print("  ".join(cell.rjust(w) if 0 < i < 4 else cell.ljust(w)
                            for i, (cell, w) in enumerate(zip(r, widths))).rstrip())
        else:
            print("  ".join(r))
