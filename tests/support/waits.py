"""Waiting for what another thread or process does soon."""
import time


def eventually(condition, timeout=15):
    """Also for a server's counters, which are published just after the answers went out."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s"
        time.sleep(0.01)
