#!/usr/bin/env python3
"""summary.py RESULTS: adds up the JUnit files of ctest and pytest, and what NAME.failed and
NAME.skipped say of steps without one; lists what failed, and what was skipped and why.

Ends with one line, "N passed, N failed, N skipped". Exit code 1 when a test failed or none ran, and
under CI=true also when a test was skipped for a reason that does not hold on this machine: a suite
that could run here has to.
"""
import ctypes
import os
import re
import socket
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def no_io_uring(_suite):
    """io_uring_setup(2) with 2 entries is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    params = ctypes.create_string_buffer(120)
    fd = libc.syscall(425, 2, params)
    if fd >= 0:
        os.close(fd)
    return fd < 0


def no_mount(_suite):
    """A private mount name space with a ramfs in it cannot be had."""
    command = ["unshare", "-m", "sh", "-c", "mount -t ramfs none /mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode != 0


def no_root(_suite):
    return os.geteuid() != 0


def no_new_torch(_suite):
    return Path(".venv/no-torch").exists()


def system_torch(check):
    """The exit code of a statement about the torch of Debian's own Python."""
    command = ["/usr/bin/python3", "-c", f"import torch, torch.distributed as d; assert {check}"]
    return subprocess.run(command, capture_output=True, check=False).returncode


def no_torch_1(_suite):
    return system_torch("torch.__version__.startswith('1.')") != 0


def no_system_torch(_suite):
    return system_torch("d.is_gloo_available()") != 0


def no_libuv_in_torch(_suite):
    return system_torch("d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)") != 0


def no_own_name(_suite):
    try:
        socket.getaddrinfo(socket.getfqdn(), None)
    except OSError:
        return True
    return False


def no_direct_io(_suite):
    """A file under build/ cannot be opened with O_DIRECT."""
    path = Path("build/.direct-io-probe")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT))
    except OSError:
        return True
    finally:
        path.unlink(missing_ok=True)
    return False


def no_ipv6(_suite):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return True
    return False


def no_gpu(_suite):
    return not Path("/dev/nvidiactl").exists()


def sanitized(suite):
    return suite in ("asan", "tsan")


# What a skip speaks of, and whether this machine excuses it. The first pattern that is found in
# "test: reason" decides; a skip that speaks of nothing here is not excused.
EXCUSES = [
    (r"cuda|gpu", no_gpu),
    (r"io_?uring", no_io_uring),
    (r"mount|ramfs|tmpfs", no_mount),
    (r"O_DIRECT", no_direct_io),
    (r"\broot\b|privilege", no_root),
    (r"its own name", no_own_name),
    (r"torch 1\b", no_torch_1),
    (r"built without libuv", no_libuv_in_torch),
    (r"python3-torch|/usr/bin/python3", no_system_torch),
    (r"torch", no_new_torch),
    (r"ipv6|::1", no_ipv6),
    (r"sanitizer|asan|tsan", sanitized),
]


def excused(suite, test, reason):
    for pattern, absent in EXCUSES:
        if re.search(pattern, f"{test}: {reason}", re.IGNORECASE):
            return absent(suite)
    return False


def reason_of(case, skipped):
    """pytest gives the reason; ctest only the test's output, whose line about it is wanted."""
    message = skipped.get("message", "")
    lines = [line.strip() for line in (case.findtext("system-out") or "").splitlines()]
    lines = [line for line in lines if line]
    if not message.startswith("SKIP_RETURN_CODE") or not lines:
        return message or "no reason given"
    about = [line for line in lines if "skip" in line.lower()]
    return (about or lines)[-1]


def cause_of(case):
    """What failed: Check's lines about it, pytest's message, or the last lines of the output."""
    failure = case.find("failure")
    if failure is None:
        failure = case.find("error")
    output = (case.findtext("system-out") or "").splitlines()
    telling = re.compile(r":[FE]:|ERROR: \w+Sanitizer|WARNING: Thread|runtime error:")
    lines = [line for line in output if telling.search(line)]
    if not lines:
        lines = failure.get("message", "").splitlines() if failure.text else output[-3:]
    return "".join(f"\n    {line.strip()[:400]}" for line in lines[:3])


def read(path):
    """Yields (test, outcome, reason) of each test in one JUnit file. A Check executable is one test
    to ctest: a part of it that cannot run here prints "skip: REASON", which counts as one more.
    """
    for case in ElementTree.parse(path).iter("testcase"):
        name = case.get("name", "?")
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, "failed", cause_of(case)
        elif case.find("skipped") is not None:
            yield name, "skipped", reason_of(case, case.find("skipped"))
        else:
            yield name, "passed", ""
            for reason in re.findall(r"^skip: (.*)$", case.findtext("system-out") or "", re.M):
                yield name, "skipped", reason


def main(folder):
    count = {"passed": 0, "failed": 0, "skipped": 0}
    skips = []
    for path in sorted(folder.glob("*.xml")):
        try:
            tests = list(read(path))
        except ElementTree.ParseError as error:
            tests = [(path.name, "failed", f": cannot be read, the suite broke off: {error}")]
        for test, outcome, reason in tests:
            count[outcome] += 1
            if outcome == "skipped":
                skips.append((path.stem, test, reason))
            elif outcome == "failed":
                print(f"failed: {path.stem}: {test}{reason}")
    for path in sorted(folder.glob("*.failed")):
        count["failed"] += 1
        print(f"failed: {path.stem}: {path.read_text().strip()}")
    for path in sorted(folder.glob("*.skipped")):
        count["skipped"] += 1
        skips.append((path.stem, f"the whole suite ({path.stem})", path.read_text().strip()))

    unexcused = 0
    for suite, test, reason in skips:
        fault = "" if excused(suite, test, reason) else " (this machine could run it)"
        unexcused += bool(fault)
        print(f"skipped: {suite}: {test}: {reason}{fault}")
    if unexcused and os.environ.get("CI") == "true":
        print(f"{unexcused} skipped that could run here: a failure, as CI=true")
        count["failed"] += unexcused
        count["skipped"] -= unexcused
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**count))
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
