"""The error table against the headers, and what a caller can catch."""

import errno
import pickle
import re

import pytest

from rallypoint import Error, _ffi, ckpt, errors, rdzv
from test_ffi import header


@pytest.mark.parametrize("product, table", [("ckpt", errors.CKPT_ERRORS),
                                            ("rdzv", errors.RDZV_ERRORS)])
def test_table_is_the_headers(product, table):
    rows = re.findall(r"X\((\w+), (-?\d+), \"([^\"]*)\"\)", header(product))
    assert {name: (int(value), text) for name, value, text in rows} == \
        {name: (value, text) for name, (value, text, _) in table.items()}
    strerror = getattr(getattr(_ffi, product)(), f"{product}_strerror")
    for value, text, _ in table.values():
        assert strerror(value).decode() == text


def test_every_code_has_its_own_class():
    classes = [cls for name, (_, _, cls) in errors.CKPT_ERRORS.items() if name != "OK"]
    assert len(set(classes)) == len(classes)
    assert all(issubclass(cls, Error) and cls is not Error for cls in classes)


@pytest.mark.parametrize("name, builtin", [
    ("ETIMEDOUT", TimeoutError), ("ENOSPC", OSError), ("EIO", OSError), ("EACCES", PermissionError),
    ("EINVAL", ValueError), ("ENOMEM", MemoryError), ("ENONE", LookupError),
])
def test_builtin_classes_catch(name, builtin):
    with pytest.raises(builtin):
        raise errors.from_ckpt(errors.CKPT_CODE[name], "text")


def test_attributes_and_text():
    error = errors.from_ckpt(-10, "write /x/shard: no space left", errno.ENOSPC)
    assert isinstance(error, errors.NoSpace)
    assert (error.code, error.name, error.sys_errno) == (-10, "CKPT_ENOSPC", errno.ENOSPC)
    assert str(error) == "write /x/shard: no space left"
    assert error.errno == errno.ENOSPC
    assert errors.from_ckpt(-5).errno == errno.ETIMEDOUT
    assert str(errors.from_ckpt(-5)) == "deadline passed"


def test_unknown_code_is_an_error():
    error = errors.from_ckpt(-99)
    assert type(error) is Error and error.code == -99 and "-99" in str(error)


@pytest.mark.parametrize("code", [value for value, _, cls in errors.CKPT_ERRORS.values() if cls])
def test_pickles(code):
    error = errors.from_ckpt(code, "rank 2: /x", 5)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.code, again.sys_errno, again.name) == \
        (str(error), error.code, error.sys_errno, error.name)


def test_missing_step_is_also_not_found():
    assert issubclass(errors.NoSuchItem, errors.NotFound)


@pytest.mark.parametrize("call, text", [
    (lambda root, server: ckpt.save(root, "2", {}), "step is '2', expected an integer"),
    (lambda root, server: ckpt.load(root, step="2"), "step is '2', expected an integer"),
    (lambda root, server: ckpt.load(root, bogus=1),
     "load() got an unexpected keyword argument 'bogus'"),
    (lambda root, server: ckpt.save(root, 1, {}, bogus=1),
     "save() got an unexpected keyword argument 'bogus'"),
    (lambda root, server: ckpt.Checkpointer(None), "root is None, expected str or os.PathLike"),
    (lambda root, server: ckpt.load(None), "root is None, expected str or os.PathLike"),
    (lambda root, server: ckpt.latest(3), "root is 3, expected str or os.PathLike"),
    (lambda root, server: ckpt.load_file(None), "path is None, expected str or os.PathLike"),
    (lambda root, server: ckpt.DirGroup(None, 0, 1), "dir is None, expected str or os.PathLike"),
    (lambda root, server: ckpt.DirGroup(root, "0", 1), "rank is '0', expected an integer"),
    (lambda root, server: ckpt.Checkpointer(root, run_id=7), "run_id is 7, expected str"),
    (lambda root, server: ckpt.Checkpointer(root, timeout="3"),
     "timeout is '3', expected seconds from 0.001 to 2147483"),
    (lambda root, server: server.open_job("x", "127.0.0.1:1"),
     "port of job 'x' is '127.0.0.1:1', expected an integer"),
    (lambda root, server: server.open_job(7), "run_id is 7, expected str"),
    (lambda root, server: server.open_job("x", forget_after="1"),
     "forget_after is '1', expected seconds from 0 to 2147483"),
    (lambda root, server: rdzv.Server(None), "listen is None, expected str"),
    (lambda root, server: rdzv.Store(None), "address is None, expected str"),
    (lambda root, server: rdzv.Store(server.address, timeout="3"),
     "timeout is '3', expected seconds from 0 to 2147483"),
    (lambda root, server: rdzv.Store(server.address).add("n", "1"),
     "amount is '1', expected an integer"),
])
def test_what_has_the_wrong_type_is_named(root, call, text):
    root.mkdir()
    with rdzv.Server() as server, pytest.raises(TypeError) as caught:
        call(root, server)
    assert str(caught.value) == text


def test_a_wrong_name_is_not_taken_for_nothing_there(root):
    with pytest.raises(TypeError, match="'bogus'"):
        ckpt.load(root, bogus=1)
