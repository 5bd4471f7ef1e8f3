"""Two real torchrun agents on one rdzvd, scaling 1 -> 2 -> 1; for whatever torch a Python has."""
import json
import os
import pathlib
import signal
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent


def tree(root):
    """A process and its living descendants, by /proc."""
    parent = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as f:
                    parent[int(name)] = int(f.read().rpartition(b")")[2].split()[1])
            except OSError:
                pass  # it ended meanwhile
    found, level = {root}, {root}
    while level:
        level = {pid for pid, of in parent.items() if of in level}
        found |= level
    return found


class Agent:
    def __init__(self, python, version, name, port, folder):
        self.log = folder / f"agent-{name}.log"
        conf = "is_host=false,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=4"
        argv = [python, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc_per_node=1",
                "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{port}", "--rdzv_id=scaling",
                f"--rdzv_conf={conf}", "--max_restarts=5", "--monitor_interval=0.2",
                f"--log_dir={folder / f'workers-{name}'}"]  # else in /tmp, and it stays there
        if version < (2, 0):  # its default log options fail on Python 3.11
            argv += ["-r", "1", "-t", "1"]
        else:
            argv += [f"--local_addr=127.0.0.{2 if name == 'A' else 3}"]
        argv += [str(HERE / "elastic_worker.py"), str(folder / "steps"), str(folder / "stop")]
        env = {**os.environ, "NODE": name, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
               "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        with open(self.log, "ab") as log:
            self.popen = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log,
                                          stderr=log, start_new_session=True)

    def kill_tree(self):
        """SIGKILL to the agent and its workers, which would outlive it."""
        if self.popen.poll() is None:
            os.kill(self.popen.pid, signal.SIGSTOP)
            for pid in tree(self.popen.pid):
                os.kill(pid, signal.SIGKILL)
        return self.popen.wait()


def lines(folder):
    path = folder / "steps"
    return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []


def until(folder, agents, what, condition, timeout):
    deadline = time.monotonic() + timeout
    while not condition(lines(folder)):
        for agent in agents:
            assert agent.popen.poll() is None, f"an agent ended early:\n{agent.log.read_text()}"
        assert time.monotonic() < deadline, (
            f"{what}: not within {timeout} s; {lines(folder)[-2:]}\n"
            + "\n".join(agent.log.read_text() for agent in agents))
        time.sleep(0.05)


def scale_1_2_1(python, version, port, folder, timeout=45):
    """Node B joins node A, both train, B's tree is killed, A goes on alone and ends well."""
    first = Agent(python, version, "A", port, folder)
    second = None
    try:
        until(folder, [first], "A trains alone", lambda seen: len(seen) >= 5, timeout)
        assert {x["world"] for x in lines(folder)} == {1}

        second = Agent(python, version, "B", port, folder)
        for node in "AB":
            until(folder, [first, second], f"{node} trains with the other", lambda seen: sum(
                x["node"] == node and x["world"] == 2 for x in seen) >= 5, timeout)

        assert second.kill_tree() == -signal.SIGKILL
        mark = len(lines(folder))
        until(folder, [first], "A trains alone again", lambda seen: sum(
            x["world"] == 1 for x in seen[mark:]) >= 5, timeout)
        (folder / "stop").touch()
        assert first.popen.wait(timeout=30) == 0, first.log.read_text()
    finally:
        for agent in (first, second):
            if agent:
                agent.kill_tree()
    check(lines(folder))


def check(seen):
    """Every step saw the sum of its world; node A went through worlds 1, 2 and 1."""
    assert all(x["sum"] == x["world"] for x in seen)
    worlds = [x["world"] for x in seen if x["node"] == "A"]
    changes = [w for w, before in zip(worlds, [None, *worlds]) if w != before]
    assert changes == [1, 2, 1]
    assert {x["world"] for x in seen if x["node"] == "B"} == {2}
    assert {x["rank"] for x in seen if x["world"] == 2} == {0, 1}
