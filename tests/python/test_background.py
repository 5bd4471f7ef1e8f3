"""Saves behind the training loop: when buffers are free, when errors surface, what stays flat."""

import gc
import os
import subprocess
import sys
import textwrap

import pytest

from rallypoint import ckpt, errors

np = pytest.importorskip("numpy", reason="numpy is not installed")


def test_changes_after_save_do_not_enter_the_checkpoint(root):
    data = np.arange(8 << 20, dtype=np.uint8)
    expected = data.copy()
    with ckpt.Checkpointer(root, staging_bytes=8 << 20) as saver:
        for step in range(3):
            saver.save(step, {"x": data, "y": data[::-3]})
            data[:] = 255  # at once
            saver.wait()
            state = saver.load().state
            assert np.array_equal(state["x"], expected)
            assert np.array_equal(state["y"], expected[::-3])
            data[:] = expected


def full_disk_saver(mount, **options):
    root = mount("size=8m") / "root"
    ckpt.save(root, 1, {"x": 1})
    return root, ckpt.Checkpointer(root, **options)


BIG = 16 << 20


def late_failure(saver, monkeypatch):
    """Makes the failure come late for certain: the save returns before it has looked."""
    monkeypatch.setattr(type(saver._handle), "wait_or_close", lambda *a, **k: None)
    assert saver.save(2, {"x": np.ones(BIG, np.uint8)}) is None
    monkeypatch.undo()


def test_a_failure_behind_surfaces_at_close(mount, monkeypatch):
    root, saver = full_disk_saver(mount)
    late_failure(saver, monkeypatch)
    with pytest.raises(errors.NoSpace):
        saver.close()
    saver.close()
    assert ckpt.load(root).step == 1


def test_a_failure_behind_surfaces_at_the_end_of_with(mount, monkeypatch):
    root, saver = full_disk_saver(mount)
    with pytest.raises(errors.NoSpace):
        with saver:
            late_failure(saver, monkeypatch)


def test_a_failure_behind_does_not_hide_another_error(mount, monkeypatch, caplog):
    root, saver = full_disk_saver(mount)
    with pytest.raises(KeyError):
        with saver:
            late_failure(saver, monkeypatch)
            raise KeyError("mine")
    assert "a save failed, while another error is on its way" in caplog.text


@pytest.mark.parametrize("call", [
    lambda saver: saver.save(3, {}), lambda saver: saver.wait(), lambda saver: saver.load()])
def test_a_failure_behind_surfaces_at_the_next_call_once(mount, monkeypatch, call):
    root, saver = full_disk_saver(mount)
    with saver:
        late_failure(saver, monkeypatch)
        with pytest.raises(errors.NoSpace):
            call(saver)
        assert saver.last_error is not None
        assert saver.load().step == 1
        saver.save(3, {"x": 3}, wait=True)
        assert saver.load().step == 3


def test_not_strict_only_reports(mount, monkeypatch, caplog):
    root, saver = full_disk_saver(mount, strict=False)
    with saver:
        late_failure(saver, monkeypatch)
        saver.save(3, {"x": 3})
        assert isinstance(saver.last_error, errors.NoSpace)
        saver.wait()
    assert ckpt.load(root).step == 3 and "No space" in caplog.text


def run_script(package_env, body, *arguments):
    script = textwrap.dedent(body)
    return subprocess.run([sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)],
                          env=package_env, capture_output=True, text=True, timeout=60)


FORGETFUL = """
    import atexit, sys, numpy as np
    atexit.register(lambda: print("others ran too"))
    from rallypoint import ckpt
    saver = ckpt.Checkpointer(sys.argv[1])
    type(saver._handle).wait_or_close = lambda *a, **k: None
    saver.save(2, {"x": np.ones(int(sys.argv[2]), np.uint8)})
    atexit.register(lambda: print("and later ones"))
    if len(sys.argv) > 3:
        del saver
    print("end of script")
"""


@pytest.mark.parametrize("extra", [(), ("drop",)])
def test_a_process_that_forgets_a_failed_save_does_not_exit_0(mount, package_env, extra):
    root = mount("size=8m") / "root"
    done = run_script(package_env, FORGETFUL, root, BIG, *extra)
    assert done.returncode == 1, done.stderr
    assert done.stdout.split("\n") == ["end of script", "and later ones", "others ran too", ""]
    assert "exit status 1: a checkpoint was not saved in" in done.stderr
    assert "No space" in done.stderr


@pytest.mark.parametrize("extra", [(), ("drop",)])
def test_a_process_that_forgets_to_close_still_saves(root, package_env, extra):
    done = run_script(package_env, FORGETFUL, root, 1000, *extra)
    assert done.returncode == 0, done.stderr
    assert ckpt.load(root).step == 2


def test_an_unclosed_object_warns(root):
    saver = ckpt.Checkpointer(root)
    saver.save(1, {"x": np.ones(1000)})
    with pytest.warns(ResourceWarning, match="was not closed"):
        del saver
        gc.collect()
    assert ckpt.load(root).step == 1


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_and_descriptors_stay_flat(root):
    data = {"x": np.ones(4 << 20, np.uint8), "y": np.ones((1000, 1000), np.float32)[:, ::2]}
    after = []
    with ckpt.Checkpointer(root, staging_bytes=8 << 20) as saver:
        for step in range(30):
            saver.save(step, data)
            for old in sorted(root.glob("step-*"))[:-2]:
                for path in old.iterdir():
                    path.unlink()
                old.rmdir()
            after.append((resident(), len(os.listdir("/proc/self/fd"))))
    assert max(rss for rss, _ in after[5:]) - after[4][0] < 4 << 20
    assert len({fds for _, fds in after[5:]}) <= 2
    from rallypoint import _handle

    assert not _handle._operations


def test_opening_and_closing_leaks_nothing(root):
    for _ in range(3):
        ckpt.save(root, 1, {"x": np.ones(10)})
        ckpt.load(root)
    before = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    for _ in range(10):
        ckpt.save(root, 1, {"x": np.ones(10)})
        ckpt.load(root)
        ckpt.latest(root)
        with pytest.raises(TypeError):
            ckpt.save(root, 1, {"x": object()})
        with pytest.raises(errors.NotFound):
            ckpt.load(root, step=99)
    assert (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))) == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_after_fork_gets_a_clear_error(root):
    saver = ckpt.Checkpointer(root)
    saver.save(1, {"x": np.ones(1 << 20)})
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        texts = []
        for call in (lambda: saver.save(2, {}), saver.wait, saver.load, saver.latest):
            try:
                call()
                texts.append("no error")
            except errors.StateError as error:
                texts.append(str(error))
        saver.close()
        saver.__del__()
        os.write(write, "\n".join(texts).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        lines = file.read().split("\n")
    assert os.waitpid(child, 0)[1] == 0
    assert len(lines) == 4 and all("cannot be used in its child" in line for line in lines)
    saver.save(2, {"x": 2}, wait=True)  # the parent's is unharmed
    saver.close()
    assert ckpt.latest(root).sequence == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_may_open_its_own(root):
    with ckpt.Checkpointer(root) as saver:
        saver.save(1, {"x": 1}, wait=True)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if ckpt.load(root).state == {"x": 1} else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


def test_an_interrupt_gives_the_buffers_back(root, package_env):
    body = """
        import os, signal, sys, threading, time, numpy as np
        from rallypoint import ckpt, errors
        group = ckpt.DirGroup(sys.argv[1] + "-group", 0, 2)  # nobody else will come
        saver = ckpt.Checkpointer(sys.argv[1], group=group, timeout=50)
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        try:
            saver.save(1, {"x": np.ones(1000)})
        except KeyboardInterrupt:
            from rallypoint import _handle
            assert not _handle._operations
            assert time.monotonic() - started < 20
            try:
                saver.save(2, {})
            except errors.StateError as error:
                print("interrupted,", error)
    """
    done = run_script(package_env, body, root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("interrupted,") and "is closed" in done.stdout
