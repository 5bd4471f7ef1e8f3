"""Measures rdzvd against PyTorch's own store server and against a raw echo of the same bytes.

    bench_store.py BUILD      a build folder with rdzvd, store_load and store_echo

The servers take turns within each round, in changing order; a figure is the median over rounds,
a ratio the median of the rounds' ratios. The table goes to standard output, the progress to
standard error; the last line is one JSON object. QUICK=1 is shorter and noisier.
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import time

import servers

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release").resolve()
QUICK = os.environ.get("QUICK", "0") not in ("", "0")
ROUNDS = 3 if QUICK else 9
STORM_ROUNDS = 3 if QUICK else 7
MILLISECONDS = 400 if QUICK else 1000
# Fewer than any server's backlog (4096, the kernel's default): no client has to knock twice.
PACED = 2000
LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
# With two CPUs, server and generator have one each: the scheduler's choice is not measured.
CPUS = sorted(os.sched_getaffinity(0))
SERVER_CPU, LOAD_CPU = (CPUS[0], CPUS[1]) if len(CPUS) > 1 and os.environ.get("PIN") != "0" \
    else (None, None)
SOURCES = ["--sources", str(servers.SOURCES)]

rows: list[tuple[str, ...]] = []


def progress(text: str) -> None:
    print(f"bench-store: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def load_command(server: servers.Server, *args) -> list[str]:
    scenario, *rest = map(str, args)
    echo = ["--echo"] if server.name == "echo" else []
    program = str(BUILD / "tests/bench/store/store_load")
    return [program, scenario, "--address", server.address, *echo, *rest]


def load(server: servers.Server, *args) -> dict:
    run = subprocess.run(load_command(server, *args), stdout=subprocess.PIPE, text=True,
                         preexec_fn=servers.pinned(LOAD_CPU))
    if run.returncode != 0:
        sys.exit(f"bench-store: {' '.join(map(str, args))} against {server.name} failed; its log:\n"
                 + server.said())
    return json.loads(run.stdout)


def median(values) -> float:
    return statistics.median(list(values))


def ratio(a: list[float], b: list[float]) -> float:
    """a's figure over b's, pair by pair."""
    return median(x / y for x, y in zip(a, b))


def rounds(contenders: list[servers.Server], count: int, measure) -> dict[str, list]:
    """Runs `measure` on each, `count` times, rotating who is first."""
    results: dict[str, list] = {s.name: [] for s in contenders}
    for i in range(count):
        for k in range(len(contenders)):
            server = contenders[(i + k) % len(contenders)]
            results[server.name].append(measure(server))
    return results


def row(what: str, unit: str, cells: dict[str, str], note: str = "") -> None:
    rows.append((what, *(cells.get(name, "") for name in ("rdzvd", "torch", "echo")), unit, note))


def number(value: float) -> str:
    if value >= 10000:
        return f"{value / 1000:.1f}k"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def figures(results: dict[str, list[float]]) -> dict[str, str]:
    return {name: number(median(values)) for name, values in results.items() if values}


def operations(contenders, clients: int, depth: int) -> tuple[dict, dict]:
    """Requests per second, and user CPU seconds per request, per server and round."""
    progress(f"ADD, {clients} client(s), {depth} deep")
    milliseconds = 2 * MILLISECONDS if clients > 1 and depth == 1 else MILLISECONDS
    cpu: dict[str, list] = {s.name: [] for s in contenders}

    def measure(server):
        before = server.user_seconds()
        result = load(server, "ops", "--clients", clients, "--depth", depth,
                      "--milliseconds", milliseconds)
        cpu[server.name].append((server.user_seconds() - before, result["ops"]))
        return result["ops"] / result["seconds"]

    rate = rounds(contenders, ROUNDS, measure)
    # The kernel counts user time in ticks, so only the sum over the rounds is exact enough.
    per_op = {name: sum(c for c, _ in pairs) / sum(n for _, n in pairs)
              for name, pairs in cpu.items()}
    row(f"ADD, {clients} client(s), {depth} deep", "requests/s", figures(rate),
        f"{ratio(rate['rdzvd'], rate['echo']):.2f} of echo, "
        f"{ratio(rate['rdzvd'], rate['torch']):.2f} of torch "
        f"(torch {ratio(rate['torch'], rate['echo']):.2f} of echo)")
    row("  user CPU", "us/request", {n: f"{1e6 * v:.3f}" for n, v in per_op.items()},
        f"{per_op['rdzvd'] / max(per_op['torch'], 1e-12):.2f} of torch's")
    return rate, per_op


def measure_operations(contenders, out: dict) -> None:
    one, _ = operations(contenders, 1, 1)
    many, cpu = operations(contenders, 64, 1)
    deep, _ = operations(contenders, 64, 32)
    out["ops_1_vs_echo"] = ratio(one["rdzvd"], one["echo"])
    out["ops_64_vs_echo"] = ratio(many["rdzvd"], many["echo"])
    out["ops_64_vs_torch"] = ratio(many["rdzvd"], many["torch"])
    out["user_cpu_per_op_vs_torch"] = cpu["rdzvd"] / max(cpu["torch"], 1e-12)
    out["ops_pipelined_vs_torch"] = ratio(deep["rdzvd"], deep["torch"])


def storm(contenders, clients: int, wave: int, window: int,
          count: int = STORM_ROUNDS) -> dict[str, list[float]]:
    """Connects and handshakes: `window` are on the way at a time, a wave is held, then reset."""
    what = f"connect {clients}, " + ("all at once" if window == clients else f"{window} at a time")
    progress(what)
    failed: dict[str, int] = {s.name: 0 for s in contenders}

    def measure(server):
        result = load(server, "storm", "--clients", clients, "--wave", wave, "--window", window,
                      *SOURCES)
        failed[server.name] += result["failed"]
        return result["seconds"]

    times = rounds(contenders, count, measure)
    note = f"{ratio(times['torch'], times['rdzvd']):.2f} times as fast as torch"
    for name, n in failed.items():
        if n > 0:
            note += f"; {name}: {n} FAILED"
    row(what, "s", figures(times), note)
    return times


def measure_storms(contenders, out: dict) -> None:
    wave = min(10000, LIMIT - 500)
    storm(contenders, 1000, 1000, 1000)
    storm(contenders, 10000, wave, PACED)
    at_once = storm(contenders, 10000, wave, wave)
    fifty = storm(contenders, 50000, wave, PACED, 1 if QUICK else 5)
    out["connect_10k_s"] = median(at_once["rdzvd"])
    out["connect_50k_s"] = median(fifty["rdzvd"])
    out["connect_10k_vs_torch"] = ratio(at_once["torch"], at_once["rdzvd"])


def measure_unfair() -> None:
    """torch's server with this machine's hosts file and name server."""
    clients = 10 if QUICK else 50
    progress(f"torch with this machine's name look-ups, {clients} connects")
    with servers.torch(own_hosts=False, cpu=SERVER_CPU) as server:
        seconds = load(server, "storm", "--clients", clients)["seconds"]
    row("  with the machine's hosts file", "ms/connect",
        {"torch": number(1000 * seconds / clients)}, f"{clients} connects")


def fan_out(contenders, scenario: str, clients: int) -> dict[str, list[float]]:
    progress(f"{scenario}, {clients} clients")
    p99 = rounds(contenders, STORM_ROUNDS,
                 lambda s: load(s, scenario, "--clients", clients, *SOURCES)["p99_ms"])
    what = {"barrier": "barrier of", "wake": "SET that wakes"}[scenario]
    row(f"{what} {clients}, p99", "ms", figures(p99),
        f"{ratio(p99['torch'], p99['rdzvd']):.2f} times as fast as torch")
    return p99


def measure_fan_out(contenders, out: dict) -> None:
    for clients in (1000, 10000):
        fan_out(contenders, "wake", clients)
        barrier = fan_out(contenders, "barrier", clients)
    out["barrier_10k_p99_ms"] = median(barrier["rdzvd"])
    out["barrier_10k_vs_torch"] = ratio(barrier["torch"], barrier["rdzvd"])


class Holder:
    """A load generator that keeps its connections until it is closed."""

    def __init__(self, server: servers.Server, clients: int):
        self.process = subprocess.Popen(
            load_command(server, "hold", "--clients", clients, *SOURCES),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=servers.pinned(LOAD_CPU))
        self.connected = self.reply()

    def reply(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit("bench-store: the generator has ended while it held connections")
        return json.loads(line)

    def ask(self, what: str) -> dict:
        print(what, file=self.process.stdin, flush=True)
        return self.reply()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def settled_bytes(server: servers.Server) -> int:
    """Its memory once it has not changed for a quarter of a second."""
    last = -1
    while last != (last := server.anonymous_bytes()):
        time.sleep(0.25)
    return last


def held(start) -> tuple[float, float, dict]:
    """Bytes per idle and per waiting connection of a fresh server, and who was alive."""
    clients = LIMIT - 500
    with start() as server:
        load(server, "storm", "--clients", 64)  # what is allocated once
        empty = settled_bytes(server)
        holder = Holder(server, clients)
        idle = settled_bytes(server)
        alive = holder.ask("ping")["alive"]
        holder.ask("wait")
        waiting = settled_bytes(server)
        holder.close()
    return ((idle - empty) / clients, (waiting - empty) / clients,
            {"seconds": holder.connected["seconds"], "alive": alive})


def measure_memory(out: dict) -> None:
    starts = {"rdzvd": lambda: servers.rdzvd(BUILD, SERVER_CPU),
              "torch": lambda: servers.torch(cpu=SERVER_CPU)}
    progress(f"{LIMIT - 500} connections held, memory")
    idle, waiting, alive, seconds = {}, {}, {}, {}
    for name, start in starts.items():
        runs = [held(start) for _ in range(1 if QUICK else 3)]
        idle[name] = median(r[0] for r in runs)
        waiting[name] = median(r[1] for r in runs)
        alive[name] = str(min(r[2]["alive"] for r in runs))
        seconds[name] = [r[2]["seconds"] for r in runs]
    row(f"held of {LIMIT - 500} (limit {LIMIT})", "connections", alive)
    row("  connected within", "s", figures(seconds))
    row("user memory, idle connection", "bytes", {n: number(v) for n, v in idle.items()})
    row("user memory, waiting for a key", "bytes", {n: number(v) for n, v in waiting.items()},
        "its own key each; the idle bytes included")
    out["idle_bytes"] = round(idle["rdzvd"])
    out["waiting_bytes"] = round(waiting["rdzvd"])


def measure_limit() -> None:
    """What rdzvd says when it is out of descriptors."""
    progress("out of descriptors")
    few = 500
    with servers.rdzvd(BUILD) as server:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (few, few))
        holder = subprocess.Popen(load_command(server, "hold", "--clients", few),
                                  stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        time.sleep(1)
        holder.kill()
        holder.wait()
        said = [line for line in server.said().splitlines() if "cannot accept" in line]
    rows.append(("rdzvd at its limit says:", said[0] if said else "NOTHING"))


def measure_get(contenders, out: dict) -> None:
    progress("blocking get")
    for server in contenders:
        if server.name == "echo":
            continue
        one, two = [], []
        for i in range(ROUNDS):
            for flags, into in sorted([((), two), (("--one-trip",), one)],
                                      key=lambda pair: len(pair[0]), reverse=i % 2 == 0):
                result = load(server, "get", "--milliseconds", MILLISECONDS, *flags)
                into.append(result["ops"] / result["seconds"])
        row(f"get, WAIT and GET in one write, on {server.name}", "gets/s",
            {server.name: number(median(one))}, f"{ratio(one, two):.2f} times as fast as in two")
        if server.name == "rdzvd":
            out["get_vs_torch_client"] = ratio(one, two)


def print_table(title: str) -> None:
    print(title)
    head = ("", "rdzvd", "torch", "echo", "unit", "")
    table = [r for r in rows if len(r) == len(head)]
    widths = [max(len(r[i]) for r in [head, *table]) for i in range(len(head))]
    for r in [head, *rows]:
        if len(r) == len(head):
            print("  ".join(cell.rjust(w) if 0 < i < 4 else cell.ljust(w)
                            for i, (cell, w) in enumerate(zip(r, widths))).rstrip())
        else:
            print("  ".join(r))


def main() -> None:
    out: dict[str, float] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench-store: terminated"))  # ends the servers
    begin = time.time()
    load_before = os.getloadavg()[0]
    with servers.echo(BUILD, SERVER_CPU) as echo, servers.rdzvd(BUILD, SERVER_CPU) as ours, \
            servers.torch(cpu=SERVER_CPU) as torch:
        title = torch.title
        measure_operations([echo, ours, torch], out)
        measure_storms([echo, ours, torch], out)
        measure_unfair()
        measure_fan_out([ours, torch], out)
        measure_get([ours, torch], out)
    measure_memory(out)
    measure_limit()
    print_table(f"rdzvd, {title}, libuv echo; {ROUNDS} rounds of {MILLISECONDS} ms; "
                f"{len(CPUS)} CPUs{', server and load pinned' if SERVER_CPU is not None else ''}; "
                f"load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after; "
                f"{time.time() - begin:.0f} s")
    print(json.dumps({key: float(f"{value:.4g}") for key, value in out.items()}))


main()
