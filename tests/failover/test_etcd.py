"""Questions to a real etcd, and to what is none."""
from __future__ import annotations

import contextlib
import http.server
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqcore.failover.etcd import Etcd, EtcdError, EtcdRefusedError, Put
from mqcore.failover.keys import (
    KeysError,
    Master,
    Member,
    Names,
    State,
    encode_master,
    encode_member,
    encode_state,
    view_of,
)
from tests.support.etcd import EtcdServer, etcd_server
from tests.support.waiting import wait_until

NOBODY = "http://127.0.0.1:1"
TIMEOUT_S = 0.2


@pytest.fixture
def names(request: pytest.FixtureRequest) -> Names:
    return Names.of("a cluster/1", request.node.name)


def test_a_transaction_is_made_if_all_revisions_are_as_they_were_seen(
        etcd: EtcdServer, names: Names) -> None:
    client = etcd.client()
    assert client.below(names.prefix) == []
    assert client.transact([(names.state, 0)], [Put(names.state, b"\x00one"),
                                                Put(names.master, b"")])
    assert not client.transact([(names.state, 0)], [Put(names.state, b"two")])
    master, state = client.below(names.prefix)
    assert (state.name, state.value, state.lease) == (names.state, b"\x00one", 0)
    assert (master.value, master.revision) == (b"", state.revision)
    assert not client.transact([(names.state, state.revision), (names.master, 1)],
                               [Put(names.state, None)])
    assert client.transact([(names.state, state.revision)], [Put(names.state, None)])
    assert [key.name for key in client.below(names.prefix)] == [names.master]
    client.close()


def test_a_key_goes_with_its_lease_unless_it_has_another_one_by_then(
        etcd: EtcdServer, names: Names) -> None:
    client = etcd.client()
    first = client.grant(1)
    assert client.transact([], [Put(names.master, b"m", first), Put(names.state, b"s", first)])
    second = client.grant(60)
    assert client.transact([], [Put(names.master, b"m", second)])
    wait_until(lambda: len(client.below(names.prefix)) == 1, "the first lease has run out")
    (left,) = client.below(names.prefix)
    assert (left.name, left.lease) == (names.master, second)
    with pytest.raises(EtcdError, match="lease not found"):
        client.transact([], [Put(names.state, b"s", first)])
    client.close()


def test_keys_of_other_brokers_are_not_seen(etcd: EtcdServer) -> None:
    client = etcd.client()
    one, other = Names.of("c", "b/1"), Names.of("c", "b")
    assert client.transact([], [Put(one.state, b"1"), Put(other.state, b"2")])
    assert [key.value for key in client.below(one.prefix)] == [b"1"]
    assert [key.value for key in client.below(other.prefix)] == [b"2"]
    client.close()


def test_who_refuses_or_says_nothing_is_passed_over(etcd: EtcdServer, names: Names) -> None:
    with silent() as address:
        client = Etcd([NOBODY, address, etcd.address], 20 * TIMEOUT_S)
        assert client.below(names.prefix) == []
        assert client.address == etcd.address
        began = time.monotonic()
        with pytest.raises(EtcdError, match="timed out"):
            Etcd([address, NOBODY, address], TIMEOUT_S).below(names.prefix)
        assert time.monotonic() - began < 50 * TIMEOUT_S
    with pytest.raises(EtcdError, match="refused"):
        Etcd([NOBODY], TIMEOUT_S).grant(1)


@contextmanager
def silent() -> Iterator[str]:
    """Somebody who listens, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield "http://{}:{}".format(*listener.getsockname())


@contextmanager
def saying(status: int, body: bytes) -> Iterator[str]:
    """Somebody who answers everything so."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the tests say what they got."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("status", "body"), [
    (200, b"no json"), (200, b"[]"), (200, b"{}"), (200, b'{"kvs": 7}'), (200, b'{"kvs": [7]}'),
    (200, b'{"kvs": [{"key": "a"}], "ID": "x", "succeeded": 1}'), (503, b"etcdserver: no leader"),
    (200, b'{"kvs": [{"key": "YQ==", "mod_revision": "0"}], "ID": "-5"}'),
    (200, b" " * (5 << 20)), (400, b"\xff" * 10), (200, b"[" * 100_000),
    (200, b'{"header": {}, "ID": "%s", "succeeded": 0, "kvs": 7}' % (b"9" * 5_000))])
def test_an_answer_that_is_none_is_a_lost_one(status: int, body: bytes) -> None:
    with saying(status, body) as address:
        client = Etcd([address], 10 * TIMEOUT_S)
        with pytest.raises(EtcdError):
            client.grant(1)
        with pytest.raises(EtcdError):
            client.transact([], [Put("/a", b"")])
        with pytest.raises(EtcdError):
            client.below("/a")


@contextmanager
def speaking(said: Callable[[socket.socket, int], None]) -> Iterator[str]:
    """Somebody who says what he likes to each question, which are counted from 1 on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        counts = itertools.count(1)

        def one(link: socket.socket) -> None:
            with link, contextlib.suppress(OSError):
                while text := link.recv(1 << 16):
                    if text.endswith(b"}"):              # of the question's body
                        said(link, next(counts))

        def live() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=live)
        thread.start()
        yield "http://{}:{}".format(*listener.getsockname())
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_an_answer_may_be_the_last_of_its_link() -> None:
    """Its body comes when the client has read that, and waits."""
    def last(link: socket.socket, number: int) -> None:
        head, _, body = answer(number).partition(b"\r\n\r\n")
        link.sendall(head + b"\r\nConnection: close\r\n\r\n")
        assert not headed.wait(0.1)
        link.sendall(body)
        link.shutdown(socket.SHUT_WR)

    headed = threading.Event()
    with speaking(last) as address:
        client = Etcd([address], 50 * TIMEOUT_S)
        assert [client.grant(1) for _ in range(3)] == [1, 2, 3]


def test_a_lease_that_runs_out_sooner_is_none() -> None:
    """Its deadline would lie behind its end."""
    with saying(200, b'{"header": {}, "ID": "7", "TTL": "2"}') as address:
        client = Etcd([address], 50 * TIMEOUT_S)
        assert client.grant(2) == 7
        with pytest.raises(EtcdError, match="no lease of 3 s"):
            client.grant(3)


def test_an_answer_without_the_keys_that_it_counts_is_a_lost_one() -> None:
    with saying(200, b'{"header": {}, "count": "3"}') as address, pytest.raises(EtcdError):
        Etcd([address], 10 * TIMEOUT_S).below("/a")


def answer(number: int) -> bytes:
    body = b'{"header": {}, "ID": "%d", "TTL": "1"}' % number
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_an_answer_that_comes_twice_is_not_the_one_to_the_next_question() -> None:
    read, sent = threading.Semaphore(0), threading.Semaphore(0)

    def twice(link: socket.socket, number: int) -> None:
        link.sendall(answer(number))
        read.acquire(timeout=10)
        link.sendall(answer(number))
        sent.release()

    with speaking(twice) as address:
        client = Etcd([address], 50 * TIMEOUT_S)
        for number in range(1, 6):
            assert client.grant(1) == number
            read.release()
            assert sent.acquire(timeout=10)
        client.close()


@pytest.mark.parametrize("begun", [
    b"HTTP/1.1 200 OK\r\nX: ", b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_an_answer_in_crumbs_costs_no_more_than_the_timeout(begun: bytes) -> None:
    over = threading.Event()

    def crumbs(link: socket.socket, _number: int) -> None:
        link.sendall(begun)
        while not over.wait(TIMEOUT_S / 10):
            link.sendall(begun[-1:] if begun.endswith(b" ") else begun or b"H")

    with speaking(crumbs) as address:
        client = Etcd([address], TIMEOUT_S)
        timer = threading.Timer(30, over.set)            # so that the test ends
        timer.start()
        with pytest.raises(EtcdError):
            client.grant(1)
        assert not over.is_set()
        over.set()
        timer.cancel()


def test_a_name_that_nobody_resolves_costs_no_more_than_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One look-up at a time, however often it is asked; its answer is for who waits then."""
    answered, asked, real = threading.Event(), itertools.count(), socket.getaddrinfo

    def resolved(host: str, *arguments: Any, flags: int = 0, **more: Any) -> Any:
        if flags or host != "etcd.example":
            return real(host, *arguments, flags=flags, **more)
        next(asked)
        answered.wait(30)
        return real("127.0.0.1", *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with speaking(lambda link, number: link.sendall(answer(number))) as address:
        client = Etcd([address.replace("127.0.0.1", "etcd.example")], TIMEOUT_S)
        for _ in range(3):
            with pytest.raises(EtcdError, match="its address is not known in time"):
                client.grant(1)
        assert not answered.is_set()
        answered.set()
        wait_until(lambda: granted(client), "an answer, with its address")
        client.close()
    assert next(asked) == 1


def test_an_address_of_a_family_that_this_machine_lacks_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking, real = 45, socket.getaddrinfo        # as AF_INET6 is where the kernel has no IPv6
    with pytest.raises(OSError, match="not supported"):
        socket.socket(lacking, socket.SOCK_STREAM)

    def resolved(host: str, *arguments: Any, flags: int = 0, **more: Any) -> Any:
        if flags or host != "etcd.example":
            return real(host, *arguments, flags=flags, **more)
        found = real("127.0.0.1", *arguments, **more)
        return [(lacking, *found[0][1:]), *found]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with speaking(lambda link, number: link.sendall(answer(number))) as address:
        client = Etcd([address.replace("127.0.0.1", "etcd.example")], TIMEOUT_S)
        assert client.grant(1) > 0
        client.close()


def granted(client: Etcd) -> bool:
    try:
        return client.grant(1) > 0
    except EtcdError:
        return False


def test_an_etcd_that_stops_costs_no_more_than_the_timeout(tmp_path: Path) -> None:
    with etcd_server(tmp_path) as server:
        client = server.client(TIMEOUT_S)
        assert client.below("/a") == []
        server.stop_answering()
        began = time.monotonic()
        with pytest.raises(EtcdError, match="timed out"):
            client.below("/a")
        assert time.monotonic() - began < 10 * TIMEOUT_S
        server.answer_again()
        assert server.client().below("/a") == []


def test_a_user_has_to_know_the_password(tmp_path: Path) -> None:
    with etcd_server(tmp_path) as server:
        operator = server.client()
        for path, body in (("user/add", {"name": "root", "password": "secret"}),
                           ("role/add", {"name": "root"}),
                           ("user/grant", {"user": "root", "role": "root"}), ("enable", {})):
            operator._ask(f"/v3/auth/{path}", body)
        with pytest.raises(EtcdRefusedError, match="user name is empty") as refused:
            server.client().below("/a")
        assert refused.value.what == "user"
        with pytest.raises(EtcdError, match="authentication failed"):
            Etcd([server.address], 2.0, account=("root", "wrong")).below("/a")
        client = Etcd([server.address], 2.0, account=("root", "secret"))
        assert client.transact([("/a", 0)], [Put("/a", b"1")])
        assert [key.value for key in client.below("/a")] == [b"1"]


# -- keys ------------------------------------------------------------------------------------------


def test_what_is_written_is_read_so(etcd: EtcdServer, names: Names) -> None:
    master, state = Master(3, "h:1", "h:2", 7), State(7, 3, {3: "s3", 1: "s1"})
    member = Member("h:1", "h:2", 7, 4711, "s3")
    client = etcd.client()
    lease = client.grant(60)
    assert client.transact([], [
        Put(names.master, encode_master(master), lease), Put(names.state, encode_state(state)),
        Put(names.member(3), encode_member(member), lease)])
    view = view_of(names, client.below(names.prefix))
    assert (view.master, view.state, view.members) == (master, state, {3: member})
    assert (view.master_at.lease, view.state_at.lease, view.leases) == (lease, 0, {3: lease})
    assert view.master_at.revision == view.state_at.revision
    assert json.loads(encode_state(state))["inSync"] == [1, 3]
    client.close()


@pytest.mark.parametrize(("name", "value"), [
    ("master", b"{}"), ("master", b"no json"), ("master", b"[" * 100_000), ("master", b"7"),
    ("master", b'{"member": true, "address": "a", "ha": "b", "epoch": 1}'),
    ("master", b'{"member": 1, "address": "a\\n", "ha": "b", "epoch": 1}'),
    ("master", b'{"member": 1, "address": "a", "ha": "b", "epoch": 0}'),
    ("state", b'{"epoch": 1, "master": 1, "inSync": [], "stores": {}}'),
    ("state", b'{"epoch": 1, "master": 1, "inSync": [1], "stores": {"1": "a", "2": "b"}}'),
    ("state", b'{"epoch": 1, "master": 1, "inSync": [1, 2], "stores": {"1": "a"}}'),
    ("state", json.dumps({"epoch": 1, "master": 1, "inSync": list(range(1, 19)),
                          "stores": {str(one): "s" for one in range(1, 19)}}).encode()),
    ("state", b'{"epoch": 1, "master": 1, "inSync": [2147483648], "stores": {"2147483648": "a"}}'),
    ("master", json.dumps({"member": 1, "address": "h" * 221, "ha": "b", "epoch": 1}).encode())])
def test_a_key_that_no_broker_has_written_is_named(
        etcd: EtcdServer, names: Names, name: str, value: bytes) -> None:
    client = etcd.client()
    assert client.transact([], [Put(names.prefix + name, value)])
    with pytest.raises(KeysError, match=name):
        view_of(names, client.below(names.prefix))
    client.close()


@pytest.mark.parametrize(("name", "value"), [
    ("x", b"{}"), ("0", b"{}"), ("\u0664", b"{}"), ("01", b"{}"), ("2147483648", b"{}"),
    ("1", b'{"address": ""}'), ("9/9", b"of somebody")])
def test_a_members_key_that_nobody_can_read_keeps_no_other_away(
        etcd: EtcdServer, names: Names, name: str, value: bytes) -> None:
    client, member = etcd.client(), Member("h:1", "h:2", 7, 4711, "s3")
    assert client.transact([], [Put(f"{names.prefix}members/{name}", value),
                                Put(names.member(3), encode_member(member))])
    view = view_of(names, client.below(names.prefix))
    assert view.members == {3: member}
    assert "members/" in view.strange
    client.close()
