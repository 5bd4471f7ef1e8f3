"""What a connection costs in memory and CPU time, and what rdzvd says at the descriptor limit."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import servers
from rounds import (BUILD, LIMIT, LOAD_CPU, QUICK, SERVER_CPU, SOURCES, figures, load, load_command,
                    median, progress, ratio, remark, row)


class _Holder:
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


def _settled_bytes(server: servers.Server) -> int:
    """Its memory once it has not changed for a quarter of a second."""
    last = -1
    while last != (last := server.anonymous_bytes()):
        time.sleep(0.25)
    return last


def _held(start) -> dict[str, float]:
    """A fresh server with as many connections as there can be: what one costs, who was alive."""
    clients = LIMIT - 500
    with start() as server:
        load(server, "storm", "--clients", 64)  # what is allocated once
        empty = _settled_bytes(server)
        cpu = server.cpu_seconds()
        holder = _Holder(server, clients)
        cpu = server.cpu_seconds() - cpu
        idle = _settled_bytes(server)
        alive = holder.ask("ping")["alive"]
        holder.ask("wait")
        waiting = _settled_bytes(server)
        holder.close()
    return {"alive": alive, "seconds": holder.connected["seconds"], "cpu": 1e6 * cpu / clients,
            "idle": (idle - empty) / clients, "waiting": (waiting - empty) / clients}


def measure_memory(out: dict) -> None:
    starts = {"rdzvd": lambda: servers.rdzvd(BUILD, SERVER_CPU),
              "torch": lambda: servers.torch(cpu=SERVER_CPU)}
    progress(f"{LIMIT - 500} connections held, memory")
    runs = {name: [_held(start) for _ in range(1 if QUICK else 3)]
            for name, start in starts.items()}

    def all_of(what: str) -> dict[str, list[float]]:
        return {name: [r[what] for r in of] for name, of in runs.items()}

    cpu, idle, waiting = all_of("cpu"), all_of("idle"), all_of("waiting")
    row(f"held of {LIMIT - 500} (limit {LIMIT})", "connections",
        {name: str(min(n)) for name, n in all_of("alive").items()})
    row("  connected within", "s", figures(all_of("seconds")))
    row("  server's CPU", "us/connection", figures(cpu),
        f"{ratio(cpu['torch'], cpu['rdzvd']):.2f} times less than torch; with the handshake")
    row("user memory, idle connection", "bytes", figures(idle))
    row("user memory, waiting for a key", "bytes", figures(waiting),
        "its own key each; the idle bytes included")
    out["connect_cpu_vs_torch"] = ratio(cpu["torch"], cpu["rdzvd"])
    out["idle_bytes"] = round(median(idle["rdzvd"]))
    out["waiting_bytes"] = round(median(waiting["rdzvd"]))


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
    remark("rdzvd at its limit says:", said[0] if said else "NOTHING")
