"""The cluster of the demo: one rdzvd, and nodes that are torchrun agents with their metrics."""
import json
import os
import re
import signal
import sys

from .procs import DemoError

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "ddp_digits.py")
ADDRESS = {"A": "127.0.0.2", "B": "127.0.0.3"}  # torchrun ranks nodes by address: A is rank 0

# The two settings of keep-alive say how long a dead node counts as a member; last_call_timeout is
# what a round waits for late comers. is_host=false: the store is rdzvd's, no agent starts one.
RDZV_CONF = "is_host=false,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=4"

ENVIRONMENT = {
    # A fresh port for the workers' own store each round: by default torch 2.6 and later keep the
    # first round's address, and a newcomer waits for one that is never published.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    # torch looks up the names of its peers for log lines; 5 s each where no name server answers.
    "RES_OPTIONS": "timeout:1 attempts:1",
}


def start_rdzvd(processes, path):
    """Starts the coordinator on any free port; returns (process, address)."""
    rdzvd = processes.start("rdzvd", [path, "--listen", "127.0.0.1:0"])

    def address():
        with open(rdzvd.log, errors="replace") as f:
            return re.search(r"127\.0\.0\.1:([1-9]\d*)", f.read())

    return rdzvd, processes.until("the ready line of rdzvd", address, timeout=10)[0]


def stop_rdzvd(processes, rdzvd):
    rdzvd.may_end = (0,)
    rdzvd.popen.send_signal(signal.SIGTERM)
    processes.until("rdzvd to end after SIGTERM", lambda: not rdzvd.alive(), timeout=15)


class Run:
    """One training run: its agents, its checkpoints and its metrics file."""

    def __init__(self, processes, rdzvd, out, name, nnodes, steps, every, pace):
        self.processes, self.rdzvd, self.name, self.nnodes = processes, rdzvd, name, nnodes
        self.root = os.path.join(out, name, "ckpt")
        self.metrics = os.path.join(out, name, "metrics.jsonl")
        self.logs = os.path.join(out, name, "torchrun")  # a killed agent leaves its folder there
        os.makedirs(os.path.dirname(self.metrics), exist_ok=True)
        open(self.metrics, "w").close()
        self.script = [SCRIPT, "--root", self.root, "--metrics", self.metrics,
                       "--steps", str(steps), "--every", str(every), "--pace", str(pace)]
        self.lives = {"A": 0, "B": 0}
        self.offset = 0
        self.lines = []

    def start_node(self, node):
        """Starts the torchrun agent of a node, as its operator would on that machine."""
        self.lives[node] += 1
        return self.processes.start(
            f"{self.name}-node{node}-{self.lives[node]}",
            [sys.executable, "-m", "torch.distributed.run", f"--nnodes={self.nnodes}",
             "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={self.rdzvd}",
             f"--rdzv-id={self.name}", f"--rdzv-conf={RDZV_CONF}", "--max-restarts=10",
             f"--local-addr={ADDRESS[node]}", f"--log-dir={self.logs}", *self.script],
            **ENVIRONMENT)

    def read(self):
        """Takes in what was written to the metrics file since the last call; returns all lines."""
        with open(self.metrics, "rb") as f:
            f.seek(self.offset)
            new = f.read()
        whole = new[:new.rfind(b"\n") + 1]
        self.offset += len(whole)
        self.lines += [json.loads(line) for line in whole.splitlines()]
        return self.lines

    def steps(self, since=0):
        return [line for line in self.read()[since:] if "loss" in line]

    def event(self, name, since=0, **match):
        """The first event of that name behind `since` lines whose fields are as given."""
        for line in self.read()[since:]:
            if line.get("event") == name and all(line[k] == v for k, v in match.items()):
                return line
        return None

    def until(self, what, condition, timeout=60):
        return self.processes.until(f"{what} ({self.metrics})", condition, timeout)

    def finish(self, agents):
        """Waits until the agents have ended by themselves with status 0."""
        for agent in agents:
            agent.may_end = (0,)
        self.processes.until(f"the agents of {self.name} to end",
                             lambda: not any(a.alive() for a in agents), timeout=120)
        done = self.event("done")
        if not done:
            raise DemoError(f"all agents of {self.name} ended, but no result is in {self.metrics}")
        return done
