"""The batteries of torch's own client with rallypoint.torch.Store in its place, on both servers."""
import pytest

dist = pytest.importorskip("torch.distributed", reason="torch is not installed for this Python")
import rallypoint.torch  # noqa: E402  (it needs torch)
from test_torch_store import *  # noqa: E402, F401, F403
from test_torch_waits import *  # noqa: E402, F401, F403

# These make clients of torch's on their own account.
del test_init_is_counted_but_not_listed, test_wait_on_a_dying_server  # noqa: F821


@pytest.fixture
def connect(server):
    """The one of conftest.py, for the other client."""
    made = []

    def client(timeout=10.0):
        made.append(rallypoint.torch.Store("127.0.0.1", server.port, timeout))
        return made[-1]

    yield client
    for client in made:
        client.close()


def test_properties(store, server):
    assert (store.host, store.port) == ("127.0.0.1", server.port)
    assert store.has_extended_api()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::ffff:127.0.0.1"])
def test_names_of_loopback(server, host):
    with rallypoint.torch.Store(host, server.port, 10) as client:
        client.set("k", "v")
        assert client.get("k") == b"v"


def test_prefix_store(store):
    """Without queues and list_keys, which torch does not pass on to a store written in Python."""
    prefix = dist.PrefixStore("p", store)
    prefix.set("k", "v")
    assert store.get("p/k") == prefix.get("k") == b"v"
    assert prefix.add("n", 2) == 2
    prefix.append("k", "w")
    assert prefix.compare_set("k", "vw", "x") == b"x"
    prefix.multi_set(["a", "b"], ["1", b"\xff"])
    assert prefix.multi_get(["a", "b"]) == [b"1", b"\xff"]
    assert prefix.check(["a", "k", "n"])
    assert prefix.num_keys() == 4
    assert prefix.delete_key("a") and not store.check(["p/a"])
    assert prefix.has_extended_api()
    for refused in (lambda: prefix.queue_push("q", "v"), lambda: prefix.queue_pop("q"),
                    lambda: prefix.queue_len("q"), prefix.list_keys):
        with pytest.raises(NotImplementedError):
            refused()
