"""Several ranks save and load together, over a shared directory."""

import logging
import os
import time

import pytest

from rallypoint import ckpt, errors
from ranks import as_processes, as_threads

np = pytest.importorskip("numpy", reason="numpy is not installed")

LIMIT = 20.0  # seconds that a rank waits for others; the tests are far below


def group(root, rank, world):
    return ckpt.DirGroup(f"{root}-group", rank, world)


def open_root(root, rank, world, **options):
    return ckpt.Checkpointer(root, group=group(root, rank, world), timeout=LIMIT, **options)


def save_and_load(rank, world, root):
    state = {"x": np.arange(100000), "rank": rank} if rank == 0 else None
    with open_root(root, rank, world) as saver:
        saved = [saver.save(step, state, {"mine": rank, "y": np.full(5, rank + step)}, wait=True)
                 for step in range(3)]
        found = saver.load()
    assert found.step == 2 and found.world_size == world
    assert found.state["rank"] == 0 and np.array_equal(found.state["x"], np.arange(100000))
    assert found.local["mine"] == rank and (found.local["y"] == rank + 2).all()
    return [(each.sequence, each.path, each.shard_bytes) for each in saved]


@pytest.mark.parametrize("run", [as_threads, as_processes])
@pytest.mark.parametrize("world", [2, 4])
def test_ranks_commit_together(root, run, world):
    results = run(world, save_and_load, str(root))
    for result in results:
        assert not isinstance(result, BaseException), result
    assert len({tuple(each[:2] for each in result) for result in results}) == 1
    assert results[0][0][2] > 800000 > 20000 > results[1][0][2]  # only rank 0 wrote the state


def save_one_shot(rank, world, root):
    saved = ckpt.save(root, 1, {"a": 1}, local=rank, group=group(root, rank, world), timeout=LIMIT)
    found = ckpt.load(root, group=group(root, rank, world), timeout=LIMIT)
    return saved.sequence, found.state, found.local


def test_one_shot_functions(root):
    assert as_threads(3, save_one_shot, str(root)) == [(1, {"a": 1}, rank) for rank in range(3)]


def save_unsavable(rank, world, root, one_shot):
    state = {"a": [1, object()]} if rank == 0 else None
    local = {"fn": print} if rank == 2 else rank
    if rank == 2:
        state = None
    if one_shot:
        return ckpt.save(root, 2, {"ok": 1}, local=local, group=group(root, rank, world),
                         timeout=LIMIT)
    with open_root(root, rank, world) as saver:
        saver.save(1, {"ok": 1}, wait=True)
        try:
            saver.save(2, {"ok": 2}, local, wait=True)
        except (TypeError, errors.Error) as error:
            saver.save(3, {"ok": 3}, wait=True)
            assert saver.load().state == {"ok": 3}
            return error
        del state


@pytest.mark.parametrize("one_shot", [False, True])
def test_what_one_rank_cannot_save_all_ranks_hear_at_once(root, one_shot):
    started = time.monotonic()
    results = as_threads(3, save_unsavable, str(root), one_shot)
    assert time.monotonic() - started < LIMIT / 2
    assert isinstance(results[2], TypeError) and "local['fn']" in str(results[2])
    for rank in (0, 1):
        assert isinstance(results[rank], errors.Error), results[rank]
        text = str(results[rank])
        assert "rank 2" in text and "local['fn']: builtin_function_or_method cannot" in text
    if one_shot:
        assert ckpt.latest(root) is None


def lose_a_rank(rank, world, root):
    with open_root(root, rank, world) as saver:
        saver.save(1, {"x": 1}, wait=True)
        if rank == 1:
            os._exit(9)
    with ckpt.Checkpointer(root, group=group(root, rank, world), timeout=3) as saver:
        started = time.monotonic()
        try:
            saver.save(2, {"x": 2}, wait=True)
        except errors.Error as error:
            return type(error), str(error), time.monotonic() - started


def test_a_lost_rank_is_named_within_the_deadline(root):
    results = as_processes(3, lose_a_rank, str(root))
    assert results[1] is None
    for rank in (0, 2):
        kind, text, seconds = results[rank]
        assert kind is errors.TimedOut and seconds < 10
    assert "1" in results[0][1]
    assert ckpt.load(root, group=None).state == {"x": 1}


def differing(rank, world, root, what):
    worlds = [2, 3] if what == "world" else [2, 2]
    with ckpt.Checkpointer(root, group=group(root, rank, worlds[rank]), timeout=3) as saver:
        return saver.save(rank if what == "step" else 1, {"x": 1}, wait=True)


def test_ranks_at_different_steps(root):
    for result in as_threads(2, differing, str(root), "step"):
        assert isinstance(result, errors.Mismatch), result
    assert ckpt.latest(root) is None


def test_ranks_that_count_different_worlds(root):
    results = as_threads(2, differing, str(root), "world")
    for result in results:
        assert isinstance(result, errors.TimedOut), result
    assert "one claims world size 3" in str(results[0])
    assert ckpt.latest(root) is None


def load_only(rank, world, root):
    with open_root(root, rank, world) as loader:
        return loader.load()


def test_another_world_size_leaves_local_out(root, caplog):
    as_threads(3, save_one_shot, str(root))
    with caplog.at_level(logging.WARNING, "rallypoint"):
        results = as_threads(2, load_only, str(root))
        alone = ckpt.load(root, group=None)
    for result in (*results, alone):
        assert result.state == {"a": 1} and result.local is None and result.world_size == 3
    assert sum("was saved by 3 ranks and is loaded by" in record.getMessage()
               for record in caplog.records) == 3
    caplog.clear()
    assert as_threads(3, load_only, str(root))[2].local == 2
    assert not caplog.records


def save_local(rank, world, root, step):
    with open_root(root, rank, world) as saver:
        return saver.save(step, {"step": step}, np.full(100000, step * 10 + rank), wait=True)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_damage_of_one_shard_takes_all_ranks_to_the_older(root, rank):
    for step in (1, 2):
        as_threads(3, save_local, str(root), step)
    (shard,) = root.glob(f"step-*2.*/shard-0000{rank}-*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    results = as_threads(3, load_only, str(root))
    for number, result in enumerate(results):
        assert not isinstance(result, BaseException), result
        assert result.step == 1 and result.state == {"step": 1}
        assert (result.local == 10 + number).all() and len(result.skipped) == 1
    for step in (1,):
        (shard,) = root.glob(f"step-*{step}.*/shard-0000{rank}-*.safetensors")
        shard.write_bytes(shard.read_bytes()[:-1])
    for result in as_threads(3, load_only, str(root)):
        assert isinstance(result, errors.Unreadable), result


def load_nothing(rank, world, root):
    with open_root(root, rank, world) as loader:
        return loader.load()


def test_nothing_there_on_all_ranks(root):
    for result in as_threads(2, load_nothing, str(root)):
        assert isinstance(result, errors.NotFound)


def fill_disk(rank, world, root):
    with open_root(root, rank, world) as saver:
        saver.save(1, {"x": 1}, np.ones(1 << 20, np.uint8), wait=True)
        try:
            saver.save(2, {"x": 2}, np.ones((1 << 20) if rank else (30 << 20), np.uint8), wait=True)
        except errors.Error as error:
            failed = error
        assert saver.load().state == {"x": 1}
        saver.save(3, {"x": 3}, np.ones(1 << 20, np.uint8), wait=True)
        return failed, saver.load().state


def test_a_full_disk_is_no_space_on_all_ranks(mount):
    root = mount("size=16m") / "root"
    results = as_threads(3, fill_disk, str(root))
    for result in results:
        assert not isinstance(result, BaseException), result
        failed, state = result
        assert isinstance(failed, errors.NoSpace), failed
        assert str(root) in str(failed) and state == {"x": 3}
    assert "rank 0" in str(results[1][0])


def background(rank, world, root):
    with open_root(root, rank, world) as saver:
        data = np.zeros(50000, np.int64)
        for step in range(10):
            data[:] = step
            saver.save(step, {"x": data}, {"y": data})
        return saver.wait()


def test_background_saves_of_many_ranks(root):
    results = as_threads(3, background, str(root))
    assert [result.sequence for result in results] == [10] * 3
    for result in as_threads(3, load_only, str(root)):
        assert (result.state["x"] == 9).all() and (result.local["y"] == 9).all()


def test_world_size_without_process_group_is_refused(root, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(errors.InvalidArgument, match="torch.distributed is not initialised"):
        ckpt.save(root, 1, {})
    ckpt.save(root, 1, {}, group=None)
    assert repr(ckpt.DirGroup("/x", 1, 2)) == "DirGroup('/x', rank=1, world_size=2)"


def save_beside_others(rank, world, root):
    results = []
    for step in range(10):
        try:
            results.append(ckpt.save(root, step, {"x": np.full(50000, rank)}, group=None).sequence)
        except errors.Busy as error:
            assert str(root) in str(error)
            results.append("busy")
    return results


@pytest.mark.parametrize("run", [as_threads, as_processes])
def test_writers_that_do_not_know_of_each_other(root, run):
    results = run(3, save_beside_others, str(root))
    for result in results:
        assert isinstance(result, list), result
    saved = [each for result in results for each in result if each != "busy"]
    assert len(saved) == len(set(saved)) and saved
    found = ckpt.load(root, group=None)
    assert found.sequence == max(saved) and len(set(found.state["x"].tolist())) == 1
