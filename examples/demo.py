"""The demo: a real training run loses nodes and goes on from its last commit. See docs/demo.md.

    python examples/demo.py --rdzvd build/daemon/librdzv/rdzvd --out build/demo

Starts rdzvd and two torchrun agents as two nodes, kills and restarts them, prints a table with
checks, and writes result.json, timeline.png and the logs. Exit status 1: a check failed, or the
demo could not go on.

A file MARKER in --out says that what stands there is a demo's, which the next one may remove.
"""
import argparse
import importlib.util
import os
import shutil
import signal
import sys
import time

from demo_run import cluster, report, scenes, timeline
from demo_run.procs import DemoError, Processes

STEPS = 330
EVERY = 10
FOLDERS = ("elastic", "reference", "restart", "logs")
FILES = ("result.json", "timeline.png")
MARKER = ".rallypoint-demo"
PACE = 0.06  # seconds of sleep per step in scene 1, so that a kill hits the middle of the training


class Narrator:
    """Progress lines with the seconds since the start; colour where it is welcome."""

    def __init__(self):
        self.begun = time.monotonic()
        self.colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def scene(self, title):
        print(f"\n\033[1m{title}\033[0m" if self.colour else f"\n{title}", flush=True)

    def __call__(self, text):
        seconds = f"[{time.monotonic() - self.begun:6.1f} s]"
        print(f"\033[2m{seconds}\033[0m {text}" if self.colour else f"{seconds} {text}", flush=True)


def check_setup(rdzvd):
    """What is missing is said before minutes of restarts say it."""
    if not os.access(rdzvd, os.X_OK):
        raise DemoError(f"--rdzvd: there is no program {rdzvd}; build it with cmake --build")
    for package in ("torch", "sklearn"):
        if not importlib.util.find_spec(package):
            raise DemoError(f"{sys.executable} has no {package}; make demo installs what is needed")
    try:
        importlib.import_module("rallypoint.ckpt")
    except ImportError as e:
        raise DemoError(f"{sys.executable} cannot import rallypoint.ckpt ({e}); install it with "
                        "pip install ./bindings/python") from None


def prepare(out):
    """Makes the directory, or takes the last demo's folders out of it; nothing else is touched."""
    try:
        if not os.path.isdir(out):
            os.mkdir(out)
        there = [name for name in FOLDERS + FILES if os.path.lexists(os.path.join(out, name))]
        marker = os.path.join(out, MARKER)
        if there and not os.path.exists(marker):
            raise DemoError(f"--out: {out} has {', '.join(there)}, which no demo is known to have "
                            "made; remove what you do not need, or name another directory")
        with open(marker, "a"):
            pass
        for name in FOLDERS:
            if name in there:
                shutil.rmtree(os.path.join(out, name))
    except OSError as e:
        raise DemoError(f"--out: {out} cannot be used: {e}") from None


def play(args, say):
    """All scenes on one coordinator; returns them in the order of the report."""
    with Processes(os.path.join(args.out, "logs")) as processes:
        rdzvd, address = cluster.start_rdzvd(processes, args.rdzvd)
        say(f"rdzvd listens on {address}")

        def run(name, nnodes, pace):
            return cluster.Run(processes, address, args.out, name, nnodes, STEPS, EVERY, pace)

        say.scene("Scene 1: one node of two is lost, then the other")
        elastic = scenes.elastic(run("elastic", "1:2", PACE), EVERY, say)
        say.scene("Reference: the same schedule without a fault")
        reference = scenes.reference(run("reference", "2", 0), say)
        say.scene("Scene 2: fixed world size, both nodes lost")
        restart = scenes.restart(run("restart", "2", 0), EVERY, STEPS, say)
        cluster.stop_rdzvd(processes, rdzvd)
    return elastic, reference, restart


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--rdzvd", required=True, help="path of the coordinator's program")
    p.add_argument("--out", required=True, help="directory for checkpoints, results and "
                   "logs; made where its parent exists; what an earlier demo left in it is "
                   "replaced, and nothing else")
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    say = Narrator()
    try:
        check_setup(args.rdzvd)
        prepare(args.out)
        played = play(args, say)
    except DemoError as e:
        print(f"\ndemo: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; all its processes are ended", file=sys.stderr)
        return 130
    result = report.build(*played, every=EVERY, steps=STEPS)
    picture = os.path.join(args.out, "timeline.png")
    timeline.draw(played, picture)
    report.show(result, say.colour)
    report.write(result, os.path.join(args.out, "result.json"))
    print(f"\n{time.monotonic() - say.begun:.0f} s in all. The run as a picture: {picture}")
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
