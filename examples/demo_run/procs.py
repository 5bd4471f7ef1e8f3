"""Processes of the demo: started with a log each, killed as whole trees, all ended at the end.

torchrun puts its workers in sessions of their own, and they outlive a SIGKILL of it. So a kill
walks /proc, and the runner adopts orphans (PR_SET_CHILD_SUBREAPER): whatever descends from
it is found again and ended, however the demo ends.
"""
import ctypes
import os
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


class DemoError(Exception):
    """The demo cannot go on; the text says what happened and which log tells more."""


def parents():
    """Parent of every living process: {pid: parent pid}. Zombies are not living."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as f:
                state, parent = f.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue  # it ended meanwhile
        if state not in b"ZX":
            found[int(name)] = int(parent)
    return found


def descendants(pid):
    """Living descendants of a process, without itself."""
    parent, found, level = parents(), set(), {pid}
    while level:
        level = {p for p, of in parent.items() if of in level} - found
        found |= level
    return found


def send(pid, sig):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass  # it ended by itself


def kill_all(pids, timeout=10):
    """SIGKILL, then wait until none of them is left."""
    for pid in pids:
        send(pid, signal.SIGKILL)
    deadline = time.monotonic() + timeout
    while left := set(pids) & parents().keys():
        if time.monotonic() > deadline:
            raise DemoError(f"processes {sorted(left)} do not end after SIGKILL")
        time.sleep(0.01)
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)  # an adopted orphan
        except ChildProcessError:
            pass


def _die_with_runner():
    """In the child: if the runner itself is killed, its agents end their workers and stop."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Process:
    def __init__(self, name, argv, env, log):
        self.name, self.log = name, log
        with open(log, "ab") as out:
            self.popen = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                          stderr=subprocess.STDOUT, start_new_session=True,
                                          preexec_fn=_die_with_runner)
        self.pid = self.popen.pid
        self.may_end = ()  # exit statuses that are no error; None: it was killed on purpose

    def alive(self):
        return self.popen.poll() is None

    def kill_tree(self):
        """SIGKILL to it and all its descendants, as if its machine had lost power."""
        self.may_end = None
        send(self.pid, signal.SIGSTOP)  # it must not notice that its children go first
        tree = descendants(self.pid)
        self.popen.kill()
        kill_all(tree)
        self.popen.wait()

    def check(self):
        """Raises if it ended although it should not have."""
        code = self.popen.poll()
        if code is not None and self.may_end is not None and code not in self.may_end:
            raise DemoError(f"{self.name} ended with status {code}; its log, {self.log}, ends with:"
                            f"\n{self.tail()}")

    def tail(self, lines=12):
        with open(self.log, errors="replace") as f:
            return "".join("    " + line for line in f.readlines()[-lines:])


class Processes:
    """All processes of the demo; leaving the `with` block ends every one of them."""

    def __init__(self, log_dir):
        self.log_dir = log_dir
        self.started = []

    def __enter__(self):
        os.makedirs(self.log_dir, exist_ok=True)
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
        return self

    def start(self, name, argv, **env):
        log = os.path.join(self.log_dir, name + ".log")
        process = Process(name, argv, {**os.environ, **env}, log)
        self.started.append(process)
        return process

    def check(self):
        for process in self.started:
            process.check()

    def until(self, what, condition, timeout=60):
        """Polls until condition() gives something true, and returns that."""
        deadline = time.monotonic() + timeout
        while not (result := condition()):
            self.check()
            if time.monotonic() > deadline:
                logs = ", ".join(p.log for p in self.started if p.alive())
                raise DemoError(f"waited {timeout} s in vain for {what}; see {logs}")
            time.sleep(0.02)
        return result

    def __exit__(self, *exc):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not cut this short
        for process in self.started:
            if process.alive():
                process.kill_tree()
        while left := descendants(os.getpid()):  # adopted orphans
            kill_all(left)
