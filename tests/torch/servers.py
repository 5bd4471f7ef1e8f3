"""Store servers under test, each in a process of its own: rdzvd, and torch's as the yardstick."""
import os
import pathlib
import re
import selectors
import signal
import socket
import subprocess
import sys
import time

from source_tree import TOP

HERE = pathlib.Path(__file__).resolve().parent
NO_RDZVD = "no rdzvd: set RDZVD to its path, or build it (build/*/librdzv/rdzvd)"


def rdzvd_path():
    """$RDZVD, else the newest one in a build tree; None if there is none."""
    if os.environ.get("RDZVD"):
        return os.environ["RDZVD"]
    built = list(TOP.glob("build/*/librdzv/rdzvd")) + list(TOP.glob("build/librdzv/rdzvd"))
    return str(max(built, key=lambda p: p.stat().st_mtime)) if built else None


def read_line(pipe, timeout=10):
    """One line of a child's output, under a deadline."""
    selector, line = selectors.DefaultSelector(), b""
    selector.register(pipe, selectors.EVENT_READ)
    deadline = time.monotonic() + timeout
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not selector.select(left):
            raise AssertionError(f"no line within {timeout} s, only {line!r}")
        byte = os.read(pipe.fileno(), 1)
        if not byte:
            raise AssertionError(f"the process ended after {line!r}")
        line += byte
    return line.decode()


class Rdzvd:
    kind = "rdzvd"

    def __init__(self, log, drain_timeout=0):
        self.log = pathlib.Path(log)
        with open(log, "ab") as err:
            self.popen = subprocess.Popen(
                [rdzvd_path(), "--listen", "127.0.0.1:0", "--drain-timeout", str(drain_timeout)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err)
        self.ready = read_line(self.popen.stdout)
        self.port = int(re.search(r"127\.0\.0\.1:(\d+)", self.ready)[1])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.popen.pid}/fd"))

    def stop(self):
        """SIGTERM by pid; returns the exit status."""
        self.popen.send_signal(signal.SIGTERM)
        try:
            return self.popen.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise AssertionError(f"rdzvd still ran 20 s after SIGTERM; see {self.log}") from None
        finally:
            self.popen.stdout.close()


class TorchServers:
    """A process that runs torch's own servers, started and ended on request."""

    def __init__(self):
        self.popen = subprocess.Popen([sys.executable, str(HERE / "torch_server.py")],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, request):
        self.popen.stdin.write(request.encode() + b"\n")
        self.popen.stdin.flush()
        return read_line(self.popen.stdout, timeout=60).strip()

    def close(self):
        self.popen.stdin.close()
        self.popen.stdout.close()
        self.popen.wait(timeout=20)


class TorchServer:
    kind = "torch"

    def __init__(self, servers, backend=""):
        self.servers = servers
        self.port = int(servers.ask(f"start {backend}"))

    def stop(self):
        self.servers.ask(f"stop {self.port}")
        return 0


HELLO = bytes.fromhex("00cef7853c") + bytes.fromhex("0d01000000")  # VALIDATE, then PING 1


def raw(port, first=HELLO):
    """A bare connection; with `first` = HELLO its PING is answered already."""
    s = socket.create_connection(("127.0.0.1", port), timeout=5)
    s.sendall(first)
    if first == HELLO:
        assert s.recv(4) == b"\x01\x00\x00\x00"
    return s


def vec(data):
    return len(data).to_bytes(8, "little") + data
