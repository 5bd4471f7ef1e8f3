"""Requests per second, and what one costs the server in user CPU time."""

from __future__ import annotations

from rounds import (LOAD_CPU, MILLISECONDS, ROUNDS, SERVER_CPU, figures, load, progress, ratio,
                    rounds, row)


def _operations(contenders, clients: int, depth: int, where: str = "") -> tuple[dict, dict]:
    """Requests per second, and user CPU seconds per request, per server and round."""
    what = f"ADD, {clients} client(s), {depth} deep{where}"
    progress(what)
    # What waits for wake-ups is noisy: more rounds, closer together.
    count, milliseconds = (3 * ROUNDS, MILLISECONDS // 3) if clients == 1 else \
        (ROUNDS, 2 * MILLISECONDS // min(depth, 2))
    cpu: dict[str, list] = {s.name: [] for s in contenders}

    def measure(server):
        before = server.user_seconds()
        result = load(server, "ops", "--clients", clients, "--depth", depth,
                      "--milliseconds", milliseconds)
        cpu[server.name].append((server.user_seconds() - before, result["ops"]))
        return result["ops"] / result["seconds"]

    rate = rounds(contenders, count, measure)
    # The kernel counts user time in ticks, so only the sum over the rounds is exact enough.
    per_op = {name: sum(c for c, _ in pairs) / sum(n for _, n in pairs)
              for name, pairs in cpu.items()}
    row(what, "requests/s", figures(rate),
        f"{ratio(rate['rdzvd'], rate['echo']):.2f} of echo, "
        f"{ratio(rate['rdzvd'], rate['torch']):.2f} of torch "
        f"(torch {ratio(rate['torch'], rate['echo']):.2f} of echo)")
    row("  user CPU", "us/request", {n: f"{1e6 * v:.3f}" for n, v in per_op.items()},
        f"{per_op['rdzvd'] / max(per_op['torch'], 1e-12):.2f} of torch's")
    return rate, per_op


def _on_one_cpu(contenders, clients: int) -> dict[str, list[float]]:
    """Server and generator on the generator's CPU: no wake-up crosses CPUs, only work counts."""
    for server in contenders:
        server.move(LOAD_CPU)
    rate, _ = _operations(contenders, clients, 1, ", one CPU for both")
    for server in contenders:
        server.move(SERVER_CPU)
    return rate


def measure_operations(contenders, out: dict) -> None:
    one, _ = _operations(contenders, 1, 1)
    alone = _on_one_cpu(contenders, 1)
    many, cpu = _operations(contenders, 64, 1)
    deep, _ = _operations(contenders, 64, 32)
    out["ops_1_vs_echo"] = ratio(one["rdzvd"], one["echo"])
    out["ops_1_vs_torch"] = ratio(one["rdzvd"], one["torch"])
    out["ops_1_one_cpu_vs_echo"] = ratio(alone["rdzvd"], alone["echo"])
    out["ops_64_vs_echo"] = ratio(many["rdzvd"], many["echo"])
    out["ops_64_vs_torch"] = ratio(many["rdzvd"], many["torch"])
    out["user_cpu_per_op_vs_torch"] = cpu["rdzvd"] / max(cpu["torch"], 1e-12)
    out["ops_pipelined_vs_echo"] = ratio(deep["rdzvd"], deep["echo"])
    out["ops_pipelined_vs_torch"] = ratio(deep["rdzvd"], deep["torch"])
