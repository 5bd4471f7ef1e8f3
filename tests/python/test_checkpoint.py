"""Saving, finding and loading checkpoints of one process, and what a user reads in the results."""

import datetime
import logging
import os
import threading

import pytest

from rallypoint import ckpt, errors

np = pytest.importorskip("numpy", reason="numpy is not installed")


def test_results(root):
    before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=2)
    saved = ckpt.save(root, 7, {"a": 1}, local={"b": 2}, generation=3, run_id="run-\u00e9")
    assert (saved.step, saved.sequence, saved.generation) == (7, 1, 3)
    assert os.path.dirname(saved.path) == str(root)
    assert saved.shard_bytes == os.path.getsize(
        os.path.join(saved.path, "shard-00000-of-00001.safetensors"))
    assert 0 <= saved.staged_s <= saved.written_s <= saved.synced_s <= saved.committed_s < 60
    info = ckpt.latest(root)
    assert (info.step, info.sequence, info.generation, info.world_size) == (7, 1, 3, 1)
    assert info.path == saved.path and info.run_id == "run-\u00e9"
    assert before < info.saved_at < before + datetime.timedelta(seconds=60)
    assert len(info.digest) == 32 and info.parent is None and info.skipped == ()
    found = ckpt.load(root)
    assert found.state == {"a": 1} and found.local == {"b": 2}
    assert found.digest == info.digest and "state" not in repr(found)


def test_nothing_there(root):
    assert ckpt.latest(root) is None
    with pytest.raises(errors.NotFound, match="no such path"):
        ckpt.load(root)
    assert not root.exists()
    root.mkdir()
    assert ckpt.latest(root) is None
    with pytest.raises(errors.NotFound):
        ckpt.load(root)
    with ckpt.Checkpointer(root) as saver:
        assert saver.latest() is None and saver.wait() is None


def test_newest_is_by_sequence_and_a_step_can_be_chosen(root):
    for step in (5, 9, 2):
        ckpt.save(root, step, {"step": step})
    assert ckpt.latest(root).step == 2
    assert ckpt.load(root).state == {"step": 2}
    assert ckpt.load(root, step=9).state == {"step": 9}
    with pytest.raises(errors.NotFound):
        ckpt.load(root, step=7)
    ckpt.save(root, 9, {"step": "again"})
    assert ckpt.load(root, step=9).state == {"step": "again"}


def test_generation_outranks_sequence_and_fences(root):
    ckpt.save(root, 1, {"by": 2}, generation=2)
    with pytest.raises(errors.Fenced):
        ckpt.save(root, 2, {"by": 1}, generation=1)
    assert ckpt.load(root).state == {"by": 2}


def test_parent_is_the_loaded_one(root):
    first = ckpt.save(root, 1, {"n": 1})
    with ckpt.Checkpointer(root) as saver:
        loaded = saver.load()
        assert loaded.step == first.step
        saver.save(2, {"n": 2}, wait=True)
        assert saver.latest().parent == loaded.digest
        second = saver.latest()
        saver.save(3, {"n": 3}, wait=True)
        assert saver.latest().parent == second.digest


def test_one_object_saves_and_loads_many_times(root):
    with ckpt.Checkpointer(root, engine="sync", staging_bytes=8 << 20) as saver:
        for step in range(5):
            saver.save(step, {"x": np.full(10, step)})
        last = saver.wait()
        assert last.step == 4 and saver.wait() == last
        assert saver.load().state["x"][0] == 4
        assert repr(saver) == f"<Checkpointer of {str(root)!r}, rank 0 of 1>"
    assert repr(saver) == "<Checkpointer, closed>"
    saver.close()
    with pytest.raises(errors.StateError, match="is closed"):
        saver.save(5, {})
    with pytest.raises(errors.StateError):
        saver.__enter__()


def test_shard_bigger_than_the_staging_memory(root):
    data = np.arange(5 << 20, dtype=np.float32).reshape(5, -1)
    with ckpt.Checkpointer(root, staging_bytes=8 << 20) as saver:
        saver.save(1, {"x": data, "y": data[:, ::2], "z": data.T}, wait=True)
        state = saver.load().state
    assert np.array_equal(state["x"], data) and np.array_equal(state["y"], data[:, ::2])
    assert np.array_equal(state["z"], data.T)


@pytest.mark.parametrize("options, text", [
    ({"engine": "aio"}, "engine 'aio' is not one of auto, uring, sync"),
    ({"staging_bytes": 100}, "staging_bytes is 100, expected two to 2^30 blocks of "),
    ({"staging_bytes": -1}, "staging_bytes is -1, expected 1 to 9223372036854775807"),
    ({"timeout": 0}, "timeout is 0, expected seconds from 0.001 to 2147483"),
    ({"timeout": float("nan")}, "timeout is nan, expected seconds"),
    ({"timeout": float("inf")}, "timeout is inf, expected seconds"),
    ({"generation": -1}, "generation is -1, expected 0 to 18446744073709551615"),
    ({"generation": 2**64}, "generation is 18446744073709551616, expected 0 to"),
    ({"run_id": "x" * 1000}, "run_id"),
    ({"run_id": "abc\0def"}, "run_id b'abc\\x00def' has a NUL character"),
    ({"group": "all"}, "group is 'all', expected \"auto\", None or a Group"),
    ({"group": ckpt.DirGroup("/nonexistent/x/y", 0, 2)}, "/nonexistent/x/y"),
])
def test_bad_options(root, options, text):
    with pytest.raises(errors.Error) as caught:
        ckpt.Checkpointer(root, **options)
    assert text in str(caught.value)


def test_integers_do_not_wrap_round(root):
    with ckpt.Checkpointer(root) as saver:
        for call in (lambda: saver.save(2**64 + 5, {"x": 1}, wait=True),
                     lambda: saver.load(step=2**64 + 5)):
            with pytest.raises(errors.InvalidArgument, match="step is 18446744073709551621, expe"):
                call()
        assert saver.latest() is None
    for rank, world_size in ((2**32, 2), (0, 2**32 + 1), (2, 2), (-1, 2), (0, 0)):
        with pytest.raises(errors.InvalidArgument, match="(rank|world_size) is -?[0-9]+, expected"):
            ckpt.DirGroup(root, rank, world_size)


@pytest.mark.parametrize("step, error", [(-1, errors.InvalidArgument), ("1", TypeError),
                                         (1.0, TypeError)])
def test_bad_steps(root, step, error):
    with ckpt.Checkpointer(root) as saver:
        with pytest.raises(error):
            saver.save(step, {})
        saver.save(2**63 - 1, {"x": 1}, wait=True)
        assert saver.load(step=2**63 - 1).state == {"x": 1}


def test_root_that_is_a_file_or_has_no_parent(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    for call in (lambda: ckpt.save(path, 1, {}), lambda: ckpt.load(path),
                 lambda: ckpt.latest(path)):
        with pytest.raises(errors.InvalidArgument, match="file is not a directory"):
            call()
    assert path.read_text() == "mine"
    with pytest.raises(errors.Error, match="no/where"):
        ckpt.save(tmp_path / "no" / "where", 1, {})
    with pytest.raises(errors.InvalidArgument, match="NUL"):
        ckpt.save("a\0b", 1, {})


def test_a_lost_mount_is_not_nothing(tmp_path):
    """What would be read as "start from nothing" is what Checkpointer says, and nothing is made."""
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone" / "root")
    for name, error, text in [
            ("no/where", errors.InvalidArgument, "directory above it does not exist; is its file"),
            ("no/where/", errors.InvalidArgument, "directory above it does not exist; is its file"),
            ("file/root", errors.InvalidArgument, "Not a directory"),
            ("dangling", errors.IOFailed, "dangling: No such file"),
            ("x" * 300, errors.InvalidArgument, "make directory .*xxx"),
            ("a\0b", errors.InvalidArgument, "NUL")]:
        for call in (ckpt.load, ckpt.latest, ckpt.Checkpointer):
            with pytest.raises(error, match=text):
                call(f"{tmp_path}/{name}")
    assert sorted(os.listdir(tmp_path)) == ["dangling", "file"]


def test_log_lines_go_to_logging(root, caplog):
    with caplog.at_level(logging.DEBUG, "rallypoint.ckpt"):
        saved = ckpt.save(root, 1, {})
    assert any(saved.path in record.getMessage() for record in caplog.records
               if record.name == "rallypoint.ckpt")


def test_threads_take_turns(root):
    failures = []
    with ckpt.Checkpointer(root) as saver:
        def work(number):
            try:
                for step in range(5):
                    saver.save(step, {"number": number, "x": np.full(1000, number)})
                    saver.latest()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        state = saver.load().state
        assert (state["x"] == state["number"]).all()
    assert ckpt.latest(root).sequence == 20


def test_note_of_another_version_is_not_supported(root, monkeypatch):
    from rallypoint import _tree

    monkeypatch.setattr(_tree, "NOTE_VERSION", 2)
    ckpt.save(root, 1, {})
    monkeypatch.undo()
    with pytest.raises(errors.NotSupported, match="its note has version 2, this package reads 1"):
        ckpt.load(root)


def test_a_checkpoint_of_a_c_program_is_a_clear_error(root, monkeypatch):
    from rallypoint import _tree

    monkeypatch.setattr(_tree, "dump", lambda note: b"")
    ckpt.save(root, 1, {"x": np.ones(3)})
    monkeypatch.undo()
    with pytest.raises(errors.Unreadable, match="note is not the JSON that this package writes"):
        ckpt.load(root)
    (path,) = root.glob("step-*/shard-*.safetensors")
    assert np.array_equal(ckpt.load_file(path)["x"], np.ones(3))


def test_many_small_tensors(root):
    tree = {f"layer.{number}": {"w": np.full(3, number), "step": number} for number in range(5000)}
    with ckpt.Checkpointer(root) as saver:
        saver.save(1, tree, wait=True)
        state = saver.load().state
    assert len(state) == 5000
    assert all((state[f"layer.{n}"]["w"] == n).all() and state[f"layer.{n}"]["step"] == n
               for n in range(0, 5000, 97))
