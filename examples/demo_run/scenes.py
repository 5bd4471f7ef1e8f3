"""The scenes: what is started, killed and started again, and what is measured meanwhile."""
import time
from dataclasses import dataclass, field

from .cluster import ADDRESS
from .procs import descendants


@dataclass
class Kill:
    """One loss, from the kill to the first step after it. Times are seconds since the kill."""

    what: str
    nodes: str
    at: float
    hosted_store: bool  # a victim's worker served the store of the training processes
    last_step: int = 0
    resumed_step: int = 0
    world_after: int = 0
    noticed: float = None  # None: nobody was left to notice
    resumed: float = 0.0
    first_step: float = 0.0

    @property
    def lost(self):
        return self.last_step - self.resumed_step


@dataclass
class Rejoin:
    node: str
    at: float  # the replacement's start
    last_step: int
    resumed_step: int
    resumed: float  # seconds from the replacement's start
    first_step: float

    @property
    def lost(self):
        return self.last_step - self.resumed_step


@dataclass
class Scene:
    """What a scene left: its run, the final line of the metrics, and the events on the way."""

    title: str
    run: object
    begun: float
    done: dict = None
    ended: float = 0.0
    kills: list = field(default_factory=list)
    rejoins: list = field(default_factory=list)


def last_step(lines):
    return max((line["step"] for line in lines if "loss" in line), default=0)


def train_until(run, since, step, world, mid_interval_of=0):
    """Waits until `world` ranks have done `step` (counted in the lines behind `since`).

    With mid_interval_of=K it then waits on for a step amid two checkpoints: a kill there costs
    something.
    """
    def reached():
        steps = run.steps(since)
        if not steps or steps[-1]["world"] != world or steps[-1]["step"] < step:
            return False
        k = mid_interval_of
        return not k or k // 2 <= steps[-1]["step"] % k < k - 1

    run.until(f"step {step} at world size {world}", reached, timeout=90)


def kill(run, agents, nodes, what, say):
    """Kills the nodes' trees at once; returns the record, not yet filled, and what to watch."""
    start = next(line for line in reversed(run.read()) if line.get("event") == "start")
    hosted = any(start["store_host"] == ADDRESS[n] for n in nodes)
    survivors = [a for n, a in agents.items() if n not in nodes]
    watched = set().union(*(descendants(a.pid) for a in survivors)) if survivors else set()
    record = Kill(what, " and ".join(nodes), time.time(), hosted)
    for node in nodes:
        agents.pop(node).kill_tree()
    plural = "nodes" if len(nodes) > 1 else "node"
    say(f"SIGKILL to every process of {plural} {record.nodes} at step {last_step(run.read())}"
        f"{' (it served the store of the workers)' if hosted else ''}")
    return record, watched


def fill(run, record, mark, world, say):
    """Waits for the start that follows a kill and completes the record."""
    start = run.until(f"training to resume at world size {world}",
                      lambda: run.event("start", mark, world=world))
    first = run.until("the first step after it", lambda: run.steps(run.lines.index(start)))[0]
    record.last_step = last_step(run.lines[:run.lines.index(start)])
    record.resumed_step, record.world_after = start["step"], world
    record.resumed = start["time"] - record.at
    record.first_step = first["time"] - record.at
    say(f"resumed from the commit of step {record.resumed_step} at world size {world}, "
        f"{record.resumed:.1f} s after the kill; {record.lost} steps lost")


def lose_node(scene, agents, node, say):
    """Kills one node; the other goes on alone."""
    run = scene.run
    mark = len(run.read())
    record, watched = kill(run, agents, [node], "one node of two", say)
    other = next(iter(agents))
    run.until(f"node {other} to notice", lambda: watched - descendants(agents[other].pid))
    record.noticed = time.time() - record.at
    say(f"node {other} noticed after {record.noticed:.2f} s")
    fill(run, record, mark, 1, say)
    scene.kills.append(record)
    return run.lines.index(run.event("start", mark, world=1))


def rejoin(scene, agents, node, say):
    """Starts a lost node again; both train together from the last commit."""
    run = scene.run
    mark, at = len(run.read()), time.time()
    agents[node] = run.start_node(node)
    say(f"node {node} is started again")
    start = run.until(f"node {node} to rejoin", lambda: run.event("start", mark, world=2), 90)
    before = last_step(run.lines[:run.lines.index(start)])
    first = run.until("the first step after it", lambda: run.steps(run.lines.index(start)))[0]
    scene.rejoins.append(Rejoin(node, at, before, start["step"], start["time"] - at,
                                first["time"] - at))
    say(f"node {node} is back: both train on from step {start['step']}")
    return run.lines.index(start)


def finish(scene, agents, say):
    say("training goes on to its end")
    scene.done = scene.run.finish(agents.values())
    scene.ended = time.time()
    say(f"done: held-out accuracy {scene.done['accuracy']:.4f}")
    return scene


def elastic(run, every, say):
    """Scene 1: lose the one node, get it back, lose the other, get it back."""
    scene = Scene("Scene 1: nodes come and go", run, time.time())
    agents = {node: run.start_node(node) for node in "AB"}
    say("nodes A and B start")
    train_until(run, 0, 4 * every, 2, mid_interval_of=every)
    for node in "BA":
        mark = lose_node(scene, agents, node, say)
        train_until(run, mark, scene.kills[-1].resumed_step + every + 2, 1)
        mark = rejoin(scene, agents, node, say)
        train_until(run, mark, scene.rejoins[-1].resumed_step + 3 * every, 2, mid_interval_of=every)
    return finish(scene, agents, say)


def reference(run, say):
    """The same schedule with nobody killed."""
    scene = Scene("Reference: no fault", run, time.time())
    agents = {node: run.start_node(node) for node in "AB"}
    say("nodes A and B start")
    return finish(scene, agents, say)


def restart(run, every, steps, say):
    """Scene 2: the world size is fixed; both nodes are killed in the middle and started again."""
    scene = Scene("Scene 2: both nodes lost", run, time.time())
    agents = {node: run.start_node(node) for node in "AB"}
    say("nodes A and B start")
    train_until(run, 0, steps // 2, 2, mid_interval_of=every)
    mark = len(run.read())
    record, _ = kill(run, agents, ["A", "B"], "both nodes", say)
    for node in "AB":
        agents[node] = run.start_node(node)
    say("both are started again")
    fill(run, record, mark, 2, say)
    scene.kills.append(record)
    return finish(scene, agents, say)
