"""The package without torch and numpy, and what a checkpoint of theirs is then."""

import subprocess
import sys
import textwrap

import pytest

from rallypoint import ckpt

BLOCK = """
    import sys
    class Block:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {blocked!r}:
                raise ImportError(name + " is blocked")
    sys.meta_path.insert(0, Block())
"""


def run(package_env, blocked, body, *arguments):
    script = textwrap.dedent(BLOCK.format(blocked=blocked)) + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], env=package_env,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_needs_neither_and_imports_neither(package_env, root):
    body = """
        import rallypoint
        assert not [name for name in sys.modules if name.startswith("rallypoint.ck")]
        from rallypoint import ckpt, rdzv
        tree = {"a": [1, 2.5, None, True, "x", b"bytes", (1,)], 3: {}}
        ckpt.save(sys.argv[1], 1, tree, local=b"own")
        found = ckpt.load(sys.argv[1])
        assert found.state == tree and found.local == b"own"
        assert not {"torch", "numpy"} & set(sys.modules)
        print(rallypoint.__version__)
    """
    assert run(package_env, ["torch", "numpy"], body, root) == "0.1.0"


def test_the_store_for_torch_says_what_it_lacks(package_env):
    body = """
        import rallypoint
        try:
            rallypoint.torch
        except ImportError as error:
            print(error)
    """
    assert run(package_env, ["torch"], body) == "torch is blocked"


def test_importing_does_not_import_torch_where_it_is(package_env):
    body = "import rallypoint.ckpt, rallypoint.rdzv; print({'torch', 'numpy'} & set(sys.modules))"
    assert run(package_env, [], body) == "set()"


def test_torch_tensors_without_torch(package_env, root):
    torch = pytest.importorskip("torch")
    pytest.importorskip("numpy")
    ckpt.save(root, 1, {"f": torch.arange(3.0), "c": torch.ones(2, dtype=torch.complex128)})
    ckpt.save(root, 2, {"model": {"w": torch.ones(2, dtype=torch.bfloat16)}})
    body = """
        from rallypoint import ckpt, errors
        found = ckpt.load(sys.argv[1], step=1).state
        print(type(found["f"]).__module__, found["f"].tolist(), found["c"].dtype)
        try:
            ckpt.load(sys.argv[1], step=2)
        except errors.NotSupported as error:
            print(error)
        path = ckpt.latest(sys.argv[1]).path + "/shard-00000-of-00001.safetensors"
        try:
            ckpt.load_file(path)
        except errors.NotSupported as error:
            print(error)
    """
    lines = run(package_env, ["torch"], body, root).split("\n")
    assert lines == ["numpy [0.0, 1.0, 2.0] complex128",
                     "state['model']['w']: has dtype BF16, which numpy lacks: install torch",
                     "'model.w': has dtype BF16, which numpy lacks: install torch"]
    body = """
        from rallypoint import ckpt, errors
        try:
            ckpt.load(sys.argv[1], step=1)
        except errors.NotSupported as error:
            print(error)
    """
    assert run(package_env, ["torch", "numpy"], body, root) == \
        "state['f']: needs torch or numpy to be loaded, which cannot be imported"


def test_numpy_arrays_without_numpy(package_env, root):
    np = pytest.importorskip("numpy")
    ckpt.save(root, 1, {"a": np.ones(2)})
    body = """
        from rallypoint import ckpt, errors
        try:
            ckpt.load(sys.argv[1])
        except errors.NotSupported as error:
            print(error)
    """
    assert run(package_env, ["torch", "numpy"], body, root) == \
        "state['a']: needs numpy to be loaded, which cannot be imported"
