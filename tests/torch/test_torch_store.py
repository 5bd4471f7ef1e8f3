"""Every method of TCPStore and PrefixStore, on rdzvd and on torch's own server."""
from datetime import timedelta

import pytest

dist = pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")

VALUES = {
    "empty": b"",
    "text": b"hello",
    "zeros": b"\0\0\0",
    "all bytes": bytes(range(256)),
    "64 KiB": bytes(range(256)) * 256,
}


@pytest.mark.parametrize("name", VALUES)
def test_set_get(store, name):
    store.set(name, VALUES[name])
    assert store.get(name) == VALUES[name]


def test_set_replaces(store):
    store.set("k", "long value")
    store.set("k", "v")
    assert store.get("k") == b"v"


@pytest.mark.parametrize("key", ["", "a/b//c", "schlüssel", "鍵", "🔑", "with space", "nul\0in"])
def test_any_key(store, key):
    store.set(key, "v")
    assert store.get(key) == b"v"
    assert store.check([key])
    assert store.list_keys() == [key]
    assert store.delete_key(key)


def test_two_clients_share_keys(store, connect):
    other = connect()
    store.set("k", "from one")
    assert other.get("k") == b"from one"
    other.set("k", "from two")
    assert store.get("k") == b"from two"


def test_add(store):
    assert store.add("n", 5) == 5
    assert store.add("n", -7) == -2
    assert store.add("n", 0) == -2
    assert store.get("n") == b"-2"


def test_add_zero_creates_the_key(store):
    assert store.add("n", 0) == 0
    assert store.check(["n"])
    assert store.get("n") == b"0"


@pytest.mark.parametrize("text, sum_", [(" 12abc", 13), ("012", 13), ("+5", 6), ("1e3", 2),
                                        ("0x10", 1), ("12\0 34", 13), ("-1", 0)])
def test_add_reads_text_like_strtoll(store, text, sum_):
    store.set("n", text)
    assert store.add("n", 1) == sum_
    assert store.get("n") == str(sum_).encode()


def test_add_wraps_around(store):
    store.set("n", str(2**63 - 1))
    assert store.add("n", 1) == -(2**63)


@pytest.mark.parametrize("text", ["", " ", "abc", "- 5", str(2**63)])
def test_add_to_no_number_closes_and_keeps_the_value(store, connect, text):
    store.set("n", text)
    with pytest.raises(dist.DistNetworkError):
        store.add("n", 1)
    assert connect().get("n") == text.encode()


@pytest.mark.parametrize("before, expected, desired, reply, after", [
    (None, "", "new", b"new", b"new"),
    (None, "", "", b"", b""),
    (None, "old", "new", b"old", None),
    ("old", "old", "new", b"new", b"new"),
    ("old", "", "new", b"old", b"old"),
    ("old", "other", "new", b"old", b"old"),
    ("", "", "new", b"new", b"new"),
    ("", "old", "new", b"", b""),
])
def test_compare_set(store, before, expected, desired, reply, after):
    if before is not None:
        store.set("k", before)
    assert store.compare_set("k", expected, desired) == reply
    assert store.check(["k"]) == (after is not None)
    if after is not None:
        assert store.get("k") == after


def test_append(store):
    store.append("k", "a")
    store.append("k", b"\0b")
    store.append("k", "")
    assert store.get("k") == b"a\0b"


def test_append_of_nothing_creates_the_key(store):
    store.append("k", "")
    assert store.check(["k"])
    assert store.get("k") == b""


def test_check(store):
    assert store.check([])
    assert not store.check(["a"])
    store.set("a", "1")
    assert store.check(["a"])
    assert store.check(["a", "a"])
    assert not store.check(["a", "b"])
    store.set("b", "")
    assert store.check(["a", "b"])


def test_multi_set_multi_get(store):
    keys = [f"k{i}" for i in range(50)]
    values = [str(i) * i for i in range(50)]
    store.multi_set(keys, values)
    assert store.multi_get(keys) == [v.encode() for v in values]
    assert store.multi_get(["k3", "k3"]) == [b"333", b"333"]


def test_multi_of_nothing(store):
    store.multi_set([], [])
    assert store.multi_get([]) == []
    assert store.num_keys() == 0


def test_multi_set_takes_the_last_of_equal_keys(store):
    store.multi_set(["k", "k"], ["first", "last"])
    assert store.get("k") == b"last"


def test_delete_key(store):
    store.set("k", "v")
    assert store.delete_key("k")
    assert not store.delete_key("k")
    assert not store.check(["k"])


def test_num_keys_and_list_keys(store):
    assert store.num_keys() == 0
    assert store.list_keys() == []
    store.multi_set(["a", "b"], ["1", "2"])
    store.add("c", 1)
    store.queue_push("q", "not counted")
    assert store.num_keys() == 3
    assert sorted(store.list_keys()) == ["a", "b", "c"]
    store.delete_key("b")
    assert store.num_keys() == 2


def test_init_is_counted_but_not_listed(store, server):
    client = dist.TCPStore("127.0.0.1", server.port, world_size=2, is_master=False)
    assert store.num_keys() == 1  # "init/", without the slash in front that others have
    assert store.list_keys() == []
    client.set("k", "v")
    assert client.num_keys() == store.num_keys() == 2  # asked first where the set has no reply


def test_queues_are_first_in_first_out(store, connect):
    other = connect()
    for value in ("one", "", b"\0three"):
        store.queue_push("q", value)
    assert store.queue_len("q") == 3  # a push has no reply: this says that all three are there
    assert other.queue_len("q") == 3
    assert [other.queue_pop("q") for _ in range(3)] == [b"one", b"", b"\0three"]
    assert store.queue_len("q") == 0
    assert store.queue_len("never used") == 0


def test_empty_queue(store):
    with pytest.raises(dist.QueueEmptyError, match="queue is empty"):
        store.queue_pop("q", False)
    store.queue_push("q", "v")
    assert store.queue_pop("q", False) == b"v"
    with pytest.raises(dist.QueueEmptyError):
        store.queue_pop("q", False)


def test_key_and_queue_of_one_name(store):
    store.queue_push("k", "queued")
    assert store.check(["k"])
    store.set("k", "stored")
    assert store.delete_key("k")
    assert not store.delete_key("k")
    assert store.queue_pop("k") == b"queued"
    assert not store.check(["k"])


def test_clone(store):
    clone = store.clone()
    assert (clone.host, clone.port, clone.timeout) == (store.host, store.port, store.timeout)
    clone.set("k", "v")
    del clone
    assert store.get("k") == b"v"


def test_properties(store, server):
    assert store.port == server.port
    assert store.host == "127.0.0.1"
    assert store.has_extended_api()
    assert store.libuvBackend


def test_set_timeout(store):
    store.set_timeout(timedelta(milliseconds=1234))
    assert store.timeout == timedelta(milliseconds=1234)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::ffff:127.0.0.1"])
def test_names_of_loopback(server, host):
    client = dist.TCPStore(host, server.port, is_master=False, wait_for_workers=False)
    client.set("k", "v")
    assert client.get("k") == b"v"


def test_prefix_store(store):
    prefix = dist.PrefixStore("p", store)
    prefix.set("k", "v")
    assert store.get("p/k") == b"v"
    assert prefix.get("k") == b"v"
    assert prefix.add("n", 2) == 2
    prefix.append("k", "w")
    assert prefix.compare_set("k", "vw", "x") == b"x"
    prefix.multi_set(["a", "b"], ["1", "2"])
    assert prefix.multi_get(["a", "b"]) == [b"1", b"2"]
    assert prefix.check(["a", "k", "n"])
    prefix.wait(["a", "k"], timedelta(seconds=1))
    prefix.queue_push("q", "v")
    assert store.queue_len("p/q") == prefix.queue_len("q") == 1
    assert prefix.queue_pop("q") == b"v"
    store.set("outside", "v")
    assert prefix.num_keys() == 5  # of the whole store
    assert sorted(prefix.list_keys()) == ["a", "b", "k", "n"]  # of the prefix alone
    assert prefix.delete_key("a") and not store.check(["p/a"])
    prefix.set_timeout(timedelta(seconds=7))
    assert prefix.timeout == store.timeout == timedelta(seconds=7)
    assert prefix.has_extended_api()


def test_prefix_stores_nest_and_clone(store):
    inner = dist.PrefixStore("pfx", store)
    outer = dist.PrefixStore("outer", inner)
    outer.set("deep", "v")
    assert store.list_keys() == ["pfx/outer/deep"]
    assert outer.underlying_store.get("outer/deep") == b"v"
    assert outer.clone().get("deep") == b"v"
    dist.PrefixStore("", store).set("k", "v")
    dist.PrefixStore("p/", store).set("k", "v")
    assert sorted(store.list_keys()) == ["/k", "p//k", "pfx/outer/deep"]


def test_many_clients_count_together(store, connect, background):
    def count(client):
        for _ in range(200):
            client.add("n", 1)

    calls = [background(count, connect()) for _ in range(8)]
    for call in calls:
        call.result(timeout=30)
    assert store.add("n", 0) == 1600
