"""The servers under test, each a process of its own, and what the kernel says of them.

PyTorch's server looks up the name of every peer when it accepts it. A private hosts file, mounted
over /etc/hosts for that process alone, answers at once, so that the race is about the stores.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = 8  # loopback addresses that storms come from
USER_TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """`command` prints a line that ends in "ready on HOST:PORT" when it serves."""

    def __init__(self, name: str, command: list[str], cpu: int | None = None):
        self.name = name
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
            preexec_fn=pinned(cpu))
        line = self.process.stdout.readline()
        if " ready on " not in line:
            self.stop()
            sys.exit(f"bench-store: {name} does not start: {line}{self.said()}")
        self.title, _, self.address = line.strip().rpartition(" ready on ")

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def user_seconds(self) -> float:
        """User CPU time of all its threads since it started."""
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[11]) / USER_TICKS

    def move(self, cpu: int | None) -> None:
        """All its threads to that CPU; None leaves them where they are."""
        if cpu is not None:
            for task in os.listdir(f"/proc/{self.process.pid}/task"):
                os.sched_setaffinity(int(task), {cpu})

    def cpu_seconds(self) -> float:
        """CPU time of its threads so far, user and kernel, to the nanosecond."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks) / 1e9

    def anonymous_bytes(self) -> int:
        """Its resident memory that no file stands behind: heap, stacks, written data."""
        for line in open(f"/proc/{self.process.pid}/smaps_rollup"):
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("smaps_rollup has no Anonymous line")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_) -> None:
        self.stop()


def pinned(cpu: int | None):
    return None if cpu is None else lambda: os.sched_setaffinity(0, {cpu})


def echo(build: pathlib.Path, cpu=None) -> Server:
    return Server("echo", [str(build / "tests/bench/store/store_echo")], cpu)


def rdzvd(build: pathlib.Path, cpu=None) -> Server:
    command = [str(build / "librdzv/rdzvd"), "--listen", "127.0.0.1:0", "--log-level", "warn"]
    return Server("rdzvd", command, cpu)


def torch(own_hosts: bool = True, cpu=None) -> Server:
    command = [sys.executable, str(HERE / "torch_server.py")]
    if own_hosts:
        command = in_namespace(command)
    return Server("torch", command, cpu)


def in_namespace(command: list[str]) -> list[str]:
    """`command` with a hosts file that names every loopback address we connect from."""
    hosts = tempfile.NamedTemporaryFile("w", prefix="bench-store-hosts-", delete=False)
    with hosts:
        hosts.write("127.0.0.1 localhost\n")
        for i in range(1, SOURCES + 1):
            hosts.write(f"::ffff:127.0.0.{i} loopback{i}\n")
    os.chmod(hosts.name, 0o644)
    mount = 'mount --bind "$1" /etc/hosts && rm -f "$1" && shift && exec "$@"'
    for flags in ("-m", "-rm"):
        wrapped = ["unshare", flags, "sh", "-c", mount, "sh", hosts.name]
        probe = ["unshare", flags, "sh", "-c", 'mount --bind "$1" /etc/hosts', "sh", hosts.name]
        if subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 0:
            return wrapped + command
    os.unlink(hosts.name)
    print("bench-store: no mount namespace here, so torch looks up names: its connect figures are "
          "unfair", file=sys.stderr)
    return command
