"""Where rdzvd differs from torch's server on purpose. Both sides are asserted.

If a later torch changes its side, a test here fails, and the difference can go.
"""
import time

import pytest

import servers

dist = pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")

WAIT_K = b"\x06" + (1).to_bytes(8, "little") + servers.vec(b"/k")
ADD_N = b"\x04" + servers.vec(b"/n") + (1).to_bytes(8, "little")
CANCEL = b"\x0c"


def received(s, seconds=0.4):
    """All that comes within the time; None if the connection was closed."""
    data, deadline = b"", time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        s.settimeout(left)
        try:
            part = s.recv(4096)
        except TimeoutError:
            break
        except ConnectionResetError:
            return None
        if not part:
            return None
        data += part
    return data


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x01\x02\x03\x04",
                                   b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
                         ids=["http", "wrong magic", "tls"])
def test_bad_start(server, store, first):
    """torch keeps the connection and parses on from the next read; rdzvd closes at once."""
    with servers.raw(server.port, first) as s:
        if server.kind == "torch":
            assert received(s) == b""
        elif first[0] == 0:
            # the old dialect's SET starts like this: its key's length is what is impossible
            s.sendall(b"\xff" * 8)
            assert received(s) is None
        else:
            assert received(s) is None
    assert store.num_keys() == 0


def test_hello_in_pieces(server):
    """torch wants VALIDATE in one read; rdzvd takes any segmentation."""
    with servers.raw(server.port, servers.HELLO[:3]) as s:
        time.sleep(0.1)
        s.sendall(servers.HELLO[3:])
        assert received(s) == (None if server.kind == "torch" else b"\x01\0\0\0")


def test_another_request_while_waiting(server, store):
    """torch answers it and keeps the wait, whose 0 comes later; rdzvd takes it as a cancellation.

    Clients since 2.1 cancel before they go on; older ones do not, and would take that stray 0
    for the first byte of a reply.
    """
    with servers.raw(server.port) as s:
        s.sendall(WAIT_K)
        time.sleep(0.1)
        s.sendall(ADD_N)
        assert received(s) == (1).to_bytes(8, "little")
        store.set("k", "v")
        assert received(s) == (b"\0" if server.kind == "torch" else b"")
        s.sendall(CANCEL)
        assert received(s) == b"\1"


def test_failed_compare_set_of_an_absent_key(server, store, connect, background):
    """torch wakes who waits for the key although it is not there; rdzvd does not."""
    client = connect()
    waiter = background(client.wait, ["k"])
    time.sleep(0.25)
    assert store.compare_set("k", "expected", "desired") == b"expected"
    assert not store.check(["k"])
    if server.kind == "torch":
        waiter.result(timeout=3)
    else:
        time.sleep(0.25)
        assert waiter.running()
        store.set("k", "v")
        waiter.result(timeout=3)


def test_incomplete_multi_set(server, store):
    """torch applies the part that has arrived; rdzvd applies a request once, when complete."""
    head = b"\x0b" + (2).to_bytes(8, "little")
    with servers.raw(server.port) as s:
        s.sendall(head + servers.vec(b"/a") + servers.vec(b"1") + servers.vec(b"/b"))
        time.sleep(0.2)
        assert store.check(["a"]) == (server.kind == "torch")
        s.sendall(servers.vec(b"2") + ADD_N)
        assert received(s) == (1).to_bytes(8, "little")
    assert store.multi_get(["a", "b"]) == [b"1", b"2"]


def test_old_dialect(server, store):
    """rdzvd also serves clients up to torch 2.0, on the same port and the same keys."""
    set_, wait, get = b"\0", b"\5", b"\2"
    with servers.raw(server.port, set_ + servers.vec(b"/k") + servers.vec(b"v")) as s:
        s.sendall(wait + (1).to_bytes(8, "little") + servers.vec(b"/k"))
        s.sendall(get + servers.vec(b"/k"))
        expected = b"\0" + servers.vec(b"v")
        assert (received(s) == expected) == (server.kind == "rdzvd")
    assert store.check(["k"]) == (server.kind == "rdzvd")
