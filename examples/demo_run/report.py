"""The report: what was lost and when it was noticed, what the checkpoints cost, and the checks."""
import json
import statistics

ACCURACY = 0.95
# Training is in float64, so that the order in which two ranks' halves are summed changes a loss
# by about 1e-14 of itself. A wrong batch, dropout mask or optimizer state changes it by 1e-2.
LOSS_TOLERANCE = 1e-9


def losses(scene):
    """(step, loss) of every line, also of steps done again after a loss."""
    return [(line["step"], line["loss"]) for line in scene.run.lines if "loss" in line]


def worst_difference(scene, reference):
    """Greatest relative difference of a loss from the reference's at the same step."""
    expected = dict(losses(reference))
    return max(abs(loss - expected[step]) / abs(expected[step]) for step, loss in losses(scene))


def run_record(scene):
    """Result and checkpoint figures of one run."""
    lines = scene.run.lines
    saved = [line for line in lines if line.get("event") == "saved"]
    bytes_each = saved[-1]["bytes"]
    seconds = statistics.median(line["seconds"] for line in saved)
    return {
        "title": scene.title,
        "seconds": round(scene.ended - scene.begun, 1),
        "world_sizes": [line["world"] for line in lines if line.get("event") == "start"],
        "final_loss": losses(scene)[-1][1],
        "accuracy": scene.done["accuracy"],
        "digest": scene.done["digest"],
        "checkpoints": len(saved),
        "checkpoint_bytes": bytes_each,
        "checkpoint_copied_seconds": statistics.median(line["staged"] for line in saved),
        "checkpoint_seconds": seconds,
        "checkpoint_bytes_per_second": bytes_each / seconds,
    }


def loss_records(scene):
    records = []
    for k in scene.kills:
        plural = "nodes" if " and " in k.nodes else "node"
        store = " (host of the workers' store)" if k.hosted_store and plural == "node" else ""
        records.append({"scene": scene.title, "at": k.at - scene.begun,
                        "what": f"{plural} {k.nodes} killed{store}", "noticed": k.noticed,
                        "first_step": k.first_step, "world_after": k.world_after,
                        "last_step": k.last_step, "resumed_step": k.resumed_step, "lost": k.lost})
    for r in scene.rejoins:
        records.append({"scene": scene.title, "at": r.at - scene.begun,
                        "what": f"node {r.node} joins again", "noticed": None,
                        "first_step": r.first_step, "world_after": 2, "last_step": r.last_step,
                        "resumed_step": r.resumed_step, "lost": r.lost})
    return sorted(records, key=lambda r: r["at"])


def checks(elastic, reference, restart, events, every):
    """[(what, measured, passed)]"""
    lost = max(e["lost"] for e in events)
    accuracy = min(s.done["accuracy"] for s in (elastic, reference, restart))
    difference = worst_difference(elastic, reference)
    same = dict(losses(reference))
    identical = (restart.done["digest"] == reference.done["digest"]
                 and all(same[step] == loss for step, loss in losses(restart)))
    hosted = [k.hosted_store for k in elastic.kills]
    worlds = {line["world"] for s in (reference, restart) for line in s.run.steps()}
    return [
        (f"steps lost each time <= {every}, the checkpoint interval", f"at most {lost}",
         0 <= lost <= every),
        (f"held-out accuracy of every run >= {ACCURACY}", f"at least {accuracy:.4f}",
         accuracy >= ACCURACY),
        (f"losses of scene 1 = reference's within {LOSS_TOLERANCE:g} relative, at equal steps",
         f"at most {difference:.1e}", difference <= LOSS_TOLERANCE),
        ("scene 2 = reference, bit for bit: weights and every loss",
         restart.done["digest"][:16], identical),
        ("scene 1 lost a guest and then the host of the workers' store",
         ", ".join("host" if h else "guest" for h in hosted), hosted == [False, True]),
        ("reference and scene 2 never ran at another world size than 2",
         ", ".join(map(str, sorted(worlds))), worlds == {2}),
    ]


def build(elastic, reference, restart, every, steps):
    events = [e for scene in (elastic, restart) for e in loss_records(scene)]
    checked = checks(elastic, reference, restart, events, every)
    return {
        "steps": steps,
        "checkpoint_interval": every,
        "events": events,
        "runs": [run_record(s) for s in (elastic, reference, restart)],
        "loss_difference": worst_difference(elastic, reference),
        "loss_tolerance": LOSS_TOLERANCE,
        "checks": [{"what": w, "measured": m, "passed": p} for w, m, p in checked],
        "passed": all(p for _, _, p in checked),
    }


def table(head, rows):
    """Columns as wide as their widest cell; the first is flush left, the others right."""
    rows = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w)
                       for i, (cell, w) in enumerate(zip(row, widths))) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def show(result, colour):
    print("\nWhat happened (seconds from the kill or the start of the node)\n")
    print(table(
        ["event", "noticed", "training", "nodes", "last step", "resumed", "lost"],
        [[e["what"], "-" if e["noticed"] is None else f"{e['noticed']:.2f} s",
          f"{e['first_step']:.1f} s", e["world_after"], e["last_step"], e["resumed_step"],
          e["lost"]] for e in result["events"]]))
    print("\nHow it ended\n")
    print(table(
        ["run", "loss", "accuracy", "weights", "checkpoints", "copied", "committed", "rate"],
        [[r["title"], f"{r['final_loss']:.6f}", f"{r['accuracy']:.4f}",
          r["digest"][:8], f"{r['checkpoints']} x {r['checkpoint_bytes'] / 1e6:.2f} MB",
          f"{r['checkpoint_copied_seconds'] * 1e3:.1f} ms",
          f"{r['checkpoint_seconds'] * 1e3:.1f} ms",
          f"{r['checkpoint_bytes_per_second'] / 1e6:.0f} MB/s"] for r in result["runs"]]))
    print("\nChecks\n")
    for c in result["checks"]:
        word = "PASS" if c["passed"] else "FAIL"
        if colour:
            word = f"\033[{32 if c['passed'] else 31}m{word}\033[0m"
        print(f"{word}  {c['what']}: {c['measured']}")


def write(result, path):
    with open(path, "w") as f:
        json.dump(result, f, indent=2)
        f.write("\n")
