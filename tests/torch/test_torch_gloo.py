"""Process groups whose store is the server under test."""
import pytest

pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")
import ranks  # noqa: E402  (it needs torch)

WORLD = 4


@pytest.mark.parametrize("how", ["env", "tcp", "store"])
def test_gloo_with_four_ranks(server, store, processes, how):
    seen = ranks.run(processes, ranks.gloo, WORLD, server.port, how)
    for rank in range(WORLD):
        assert seen[rank] == {
            "all_reduce": [10.0] * 4,
            "broadcast": [2.0] * 2,
            "all_gather": [0.0, 1.0, 2.0, 3.0],
            "new_group": 2.0 if rank in (0, 2) else 4.0,
        }
    assert any("cpu//" in key for key in store.list_keys())  # this is where they met
