"""Many clients at once: connects, and one event that releases all."""

from __future__ import annotations

import servers
from rounds import (CPUS, LIMIT, LOAD_CPU, QUICK, SERVER_CPU, SOURCES, STORM_ROUNDS, figures, load,
                    median, number, progress, ratio, rounds, row)

# Fewer than any server's backlog (4096, the kernel's default): no client has to knock twice.
PACED = 2000
# Clients come from many machines: they are not held to the pace of one CPU.
THREADS = min(len(CPUS), 4)


def _storm(contenders, clients: int, wave: int, window: int, threads: int = 1,
           count: int = STORM_ROUNDS) -> dict[str, list[float]]:
    """Connects and handshakes: `window` are on the way at a time, a wave is held, then reset."""
    what = f"connect {clients}, " + ("all at once" if window >= clients else f"{window} at a time")
    what += f", {threads} threads" if threads > 1 else ""
    progress(what)
    failed = {s.name: 0 for s in contenders}
    resent: dict[str, list[int]] = {s.name: [] for s in contenders}

    def measure(server):
        result = load(server, "storm", "--clients", clients, "--wave", wave, "--window", window,
                      "--threads", threads, *SOURCES, cpu=LOAD_CPU if threads == 1 else None)
        failed[server.name] += result["failed"]
        resent[server.name].append(result["resent"])
        return result["seconds"]

    times = rounds(contenders, count, measure)
    note = f"{ratio(times['torch'], times['rdzvd']):.2f} times as fast as torch"
    for name in failed:
        if median(resent[name]) > clients / 1000:
            note += f"; {name}: {median(resent[name]):.0f} knocked again"
        if failed[name] > 0:
            note += f"; {name}: {failed[name]} FAILED"
    row(what, "s", figures(times), note)
    return times


def measure_storms(contenders, out: dict) -> None:
    wave = min(10000, LIMIT - 500)
    _storm(contenders, 1000, 1000, 1000)
    _storm(contenders, 10000, wave, PACED)
    one_cpu = _storm(contenders, 10000, wave, wave)
    at_once = _storm(contenders, 10000, wave, wave, THREADS) if THREADS > 1 else one_cpu
    fifty = _storm(contenders, 50000, wave, PACED, count=1 if QUICK else 5)
    out["connect_10k_s"] = median(at_once["rdzvd"])
    out["connect_50k_s"] = median(fifty["rdzvd"])
    out["connect_10k_vs_torch"] = ratio(at_once["torch"], at_once["rdzvd"])
    out["connect_10k_one_cpu_vs_torch"] = ratio(one_cpu["torch"], one_cpu["rdzvd"])


def measure_unfair() -> None:
    """torch's server with this machine's hosts file and name server."""
    clients = 10 if QUICK else 50
    progress(f"torch with this machine's name look-ups, {clients} connects")
    with servers.torch(own_hosts=False, cpu=SERVER_CPU) as server:
        seconds = load(server, "storm", "--clients", clients)["seconds"]
    row("  with the machine's hosts file", "ms/connect",
        {"torch": number(1000 * seconds / clients)}, f"{clients} connects")


def _fan_out(contenders, scenario: str, clients: int) -> dict[str, list[float]]:
    progress(f"{scenario}, {clients} clients")
    p99 = rounds(contenders, STORM_ROUNDS,
                 lambda s: load(s, scenario, "--clients", clients, *SOURCES)["p99_ms"])
    what = {"barrier": "barrier of", "wake": "SET that wakes"}[scenario]
    row(f"{what} {clients}, p99", "ms", figures(p99),
        f"{ratio(p99['torch'], p99['rdzvd']):.2f} times as fast as torch")
    return p99


def measure_fan_out(contenders, out: dict) -> None:
    for clients in (1000, 10000):
        _fan_out(contenders, "wake", clients)
        barrier = _fan_out(contenders, "barrier", clients)
    out["barrier_10k_p99_ms"] = median(barrier["rdzvd"])
    out["barrier_10k_vs_torch"] = ratio(barrier["torch"], barrier["rdzvd"])
