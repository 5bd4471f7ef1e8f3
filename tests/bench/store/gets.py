"""Blocking gets on one server: our clients beside PyTorch's and beside its wire pattern.

PyTorch's client sends WAIT, reads the answer, then sends GET. Written by hand on a bare socket,
that pattern costs no more than its system calls, so it is the hardest to beat. All clients have
the generator's CPU; the one with a thread of its own has both threads there.
"""

from __future__ import annotations

import os
import sys

import servers
from rounds import (BUILD, MILLISECONDS, PROGRAMS, ROUNDS, load, median, number, progress,
                    ratio, rounds, row, run)

_PACKAGE = str(servers.HERE.parents[2] / "bindings/python/src")
_TORCH, _CALLER, _THREAD, _ONE_TRIP, _PYTHON, _TORCH_PYTHON = (
    "get, PyTorch's wire pattern by hand", "get, librdzv, caller's thread",
    "get, librdzv, own thread", "get, WAIT and GET in one write by hand",
    "get, Python, rallypoint.rdzv.Store", "get, Python, PyTorch's TCPStore")


def _client(server: servers.Server, which: str, milliseconds: int) -> dict:
    host, _, port = server.address.rpartition(":")
    own = [PROGRAMS / "store_get", host, port, milliseconds]
    python = [sys.executable, servers.HERE / "python_client.py"]
    if which == _TORCH:
        return load(server, "get", "--milliseconds", milliseconds)
    if which == _ONE_TRIP:
        return load(server, "get", "--one-trip", "--milliseconds", milliseconds)
    if which == _CALLER:
        return run(server, own)
    if which == _THREAD:
        return run(server, [*own, "--thread"])
    if which == _TORCH_PYTHON:
        return run(server, [*python, "torch", host, port, milliseconds])
    environment = {**os.environ, "PYTHONPATH": _PACKAGE, "RALLYPOINT_LIB_DIR": str(BUILD)}
    return run(server, [*python, "rallypoint", host, port, milliseconds], env=environment)


def _rates(server: servers.Server, clients: tuple[str, ...], split: int) -> dict[str, list[float]]:
    """`split` times as many rounds, as much shorter."""
    def measure(which: str) -> float:
        result = _client(server, which, MILLISECONDS // split)
        return result["ops"] / result["seconds"]

    return rounds(list(clients), split * ROUNDS, measure, name=str)


def measure_gets(ours: servers.Server, torch: servers.Server, out: dict) -> None:
    for server in (ours, torch):
        progress(f"blocking get on {server.name}, 6 kinds of client")
        # Python takes a second to start, for each round.
        rate = {**_rates(server, (_TORCH, _CALLER, _THREAD, _ONE_TRIP), 3),
                **_rates(server, (_PYTHON, _TORCH_PYTHON), 1)}
        for which, beside in ((_TORCH, None), (_CALLER, _TORCH), (_THREAD, _TORCH),
                              (_ONE_TRIP, _TORCH), (_TORCH_PYTHON, None),
                              (_PYTHON, _TORCH_PYTHON)):
            note = f"on {server.name}"
            if beside is not None:
                note += f"; {ratio(rate[which], rate[beside]):.2f} times as fast as "
                note += "PyTorch's wire pattern" if beside == _TORCH else "PyTorch's in Python"
            row(which, "gets/s", {server.name: number(median(rate[which]))}, note)
        if server is ours:
            out["get_vs_torch_client"] = ratio(rate[_CALLER], rate[_TORCH])
            out["get_thread_vs_torch_client"] = ratio(rate[_THREAD], rate[_TORCH])
            out["get_python_vs_torch_python"] = ratio(rate[_PYTHON], rate[_TORCH_PYTHON])
            for key, which in (("get_per_s", _CALLER), ("get_torch_client_per_s", _TORCH),
                               ("get_thread_per_s", _THREAD), ("get_python_per_s", _PYTHON),
                               ("get_torch_python_per_s", _TORCH_PYTHON)):
                out[key] = median(rate[which])
