"""Real torchrun agents meet through rdzvd."""
import sys

import pytest

import agents

torch = pytest.importorskip("torch", reason="torch is not installed for this Python")
pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")


def test_two_agents_scale_1_2_1(rdzvd, tmp_path):
    version = tuple(int(x) for x in torch.__version__.split(".")[:2])
    agents.scale_1_2_1(sys.executable, version, rdzvd.port, tmp_path)
