"""The limits of torch's server are ours too: the largest accepted, and one more."""
import pytest

import servers

dist = pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")

MAX_VALUE = 8 << 20
MAX_KEY = 8192  # with the slash that the client puts in front
MAX_KEYS = 131072


def assert_closed(store, connect):
    """The server has closed this connection, and goes on serving others."""
    with pytest.raises(dist.DistNetworkError):
        store.add("n", 1)
    other = connect()
    assert other.add("n", 1) == 1


def test_largest_value(store):
    value = b"\xa5" * MAX_VALUE
    store.set("k", value)
    assert store.get("k") == value
    store.queue_push("q", value)
    assert store.queue_pop("q") == value


def test_append_may_grow_beyond_the_limit_of_one_request(store):
    store.set("k", b"a" * MAX_VALUE)
    store.append("k", b"b" * MAX_VALUE)
    assert store.get("k") == b"a" * MAX_VALUE + b"b" * MAX_VALUE


@pytest.mark.parametrize("write", [
    lambda s, v: s.set("k", v), lambda s, v: s.append("k", v), lambda s, v: s.queue_push("k", v),
], ids=["set", "append", "queue_push"])
def test_one_byte_more_closes(store, connect, write):
    try:
        write(store, b"v" * (MAX_VALUE + 1))
    except dist.DistNetworkError:
        pass  # it may be seen while sending or only with the next request
    assert_closed(store, connect)
    assert not connect().check(["k"])


def test_longest_key(store, connect):
    store.set("k" * (MAX_KEY - 1), "v")
    assert store.get("k" * (MAX_KEY - 1)) == b"v"
    store.set("k" * MAX_KEY, "v")
    assert_closed(store, connect)


def test_most_keys_of_a_request(store, connect):
    store.set("k", "v")
    assert store.check(["k"] * MAX_KEYS)
    with pytest.raises(dist.DistNetworkError):
        store.check(["k"] * (MAX_KEYS + 1))
    assert_closed(store, connect)


@pytest.mark.parametrize("request_", [
    b"\x01" + b"\xff" * 8,                                      # SET, key of 2^64 - 1 bytes
    b"\x01" + (2**63).to_bytes(8, "little"),                    # SET, key of 2^63 bytes
    b"\x01" + servers.vec(b"/k") + b"\xff" * 8,                 # SET, value of 2^64 - 1 bytes
    b"\x06" + b"\xff" * 8,                                      # WAIT for 2^64 - 1 keys
    b"\x13",                                                    # no such request
    b"\xff",
    b"\x00\xce\xf7\x85\x3c",                                    # a second VALIDATE
], ids=["key 2^64-1", "key 2^63", "value 2^64-1", "keys 2^64-1", "opcode 19", "opcode 255",
        "second hello"])
def test_nonsense_closes(server, store, request_):
    with servers.raw(server.port) as s:
        s.sendall(request_)
        try:
            assert s.recv(1) == b""
        except ConnectionResetError:
            pass
    assert store.add("n", 1) == 1


def test_half_closed_client_gets_its_answers(server):
    with servers.raw(server.port) as s:
        add = b"\x04" + servers.vec(b"/n") + (3).to_bytes(8, "little")
        s.sendall(add * 3)
        s.shutdown(1)
        answers = b""
        while data := s.recv(100):
            answers += data
    assert answers == b"".join(n.to_bytes(8, "little") for n in (3, 6, 9))
