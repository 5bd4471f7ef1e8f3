"""The code of docs/python.md and of the README runs as it stands there."""

import dataclasses
import inspect
import re

import pytest

from rallypoint import ckpt
from source_tree import TOP

torch = pytest.importorskip("torch", reason="torch is not installed")

PAGE = (TOP / "docs" / "python.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)


def test_the_loop_saves_and_resumes(root):
    code = BLOCKS[0].replace("/shared/run7", str(root)).replace("% 100", "% 2")

    def run(steps):
        model = torch.nn.Linear(3, 2)
        optim = torch.optim.Adam(model.parameters())
        names = {"torch": torch, "model": model, "optim": optim, "steps": steps}
        exec(code, names)
        return names

    first = run(5)
    assert first["first"] == 0 and ckpt.latest(root).step == 4
    second = run(8)
    assert second["first"] == 5 and ckpt.latest(root).step == 6
    assert torch.equal(second["model"].weight, first["model"].weight)
    assert ckpt.latest(root).parent is not None


def test_the_store_for_tests(capsys):
    first, jobs, client = (block for block in BLOCKS if "rdzv.Server" in block)
    names = {}
    for code in (first, jobs):  # the second goes on after the first
        exec(code, names)
        assert re.match(r"127\.0\.0\.1:\d+ Stats\(connections=", capsys.readouterr().out)
    exec(client, {})
    assert capsys.readouterr().out == "b'0.1' 1 False\n"


def test_every_start_has_keys_of_its_own():
    from rallypoint import rdzv

    (code,) = (block for block in BLOCKS if "rallypoint.torch.Store" in block)
    with rdzv.Server() as server:
        code = code.replace('"192.0.2.10", 29400', f'"127.0.0.1", {server.port}')
        for restart_count in range(2):
            names = {"run_id": "run", "restart_count": restart_count, "rank": 0, "world_size": 1}
            exec(code, names)
            assert names["store"].num_keys() > 0
            names["dist"].destroy_process_group()
        with rdzv.Store(server.address) as store:
            starts = {key.split(b"/")[1] for key in store.list_keys()}
    assert starts == {b"0", b"1"}


def test_every_error_class_is_on_the_page():
    from rallypoint import errors

    for table in (errors.CKPT_ERRORS, errors.RDZV_ERRORS):
        for _, _, cls in table.values():
            assert cls is None or f"`{cls.__name__}`" in PAGE, cls


def test_the_readme_resumes(root):
    text = (TOP / "README.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", text, flags=re.S))
    code = code.replace("/shared/ckpt", str(root)).replace("% 100", "% 2")

    def run(steps):
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters())
        names = {"model": model, "optimizer": optimizer, "steps": steps, "train_one": int}
        exec(code, names)
        return names["first"]

    assert run(4) == 0
    assert ckpt.latest(root).step == 2
    assert run(6) == 3


def test_every_public_name_has_its_help():
    import rallypoint.torch
    from rallypoint import rdzv

    for module in (ckpt, rdzv, rallypoint.torch):
        for thing in (getattr(module, name) for name in module.__all__):
            assert thing.__doc__, thing
            if not inspect.isclass(thing):
                continue
            for name, member in vars(thing).items():
                if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                    assert member.__doc__, f"{thing.__qualname__}.{name}"
            if dataclasses.is_dataclass(thing):  # help() shows no comment
                attributes = thing.__doc__.split("Attributes:\n")[1]
                names = re.findall(r"^        (\w+): ", attributes, flags=re.M)
                assert names == list(thing.__annotations__)
