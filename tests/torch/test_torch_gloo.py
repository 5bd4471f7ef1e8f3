"""Process groups whose store is the server under test."""
import queue

import pytest

pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")
import ranks  # noqa: E402  (it needs torch)

WORLD = 4


@pytest.mark.parametrize("how", ["env", "tcp", "store"])
def test_gloo_with_four_ranks(server, store, processes, how):
    results = processes.Queue()
    children = [processes.Process(target=ranks.gloo, args=(r, WORLD, server.port, how, results))
                for r in range(WORLD)]
    for child in children:
        child.start()
    seen = {}
    try:
        while len(seen) < WORLD:
            rank, outcome = results.get(timeout=60)
            assert isinstance(outcome, dict), f"rank {rank}: {outcome}"
            seen[rank] = outcome
        for child in children:
            child.join(20)
    except queue.Empty:
        pytest.fail(f"only ranks {sorted(seen)} came to an end")
    finally:
        for child in children:
            if child.is_alive():
                child.kill()
            child.join()
    for rank in range(WORLD):
        assert seen[rank] == {
            "all_reduce": [10.0] * 4,
            "broadcast": [2.0] * 2,
            "all_gather": [0.0, 1.0, 2.0, 3.0],
            "new_group": 2.0 if rank in (0, 2) else 4.0,
        }
    assert [child.exitcode for child in children] == [0] * WORLD
    assert any("cpu//" in key for key in store.list_keys())  # this is where they met
