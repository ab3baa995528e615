"""An etcd of several members, by TLS and with users: who hangs, who dies, who is not let in."""
from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqcore.failover.etcd import Etcd, EtcdError, EtcdRefusedError, Put
from tests.failover.test_etcd import saying, silent
from tests.support.ci import unavailable
from tests.support.etcd import EtcdMembers, EtcdServer, etcd_members
from tests.support.waiting import wait_until
from tests.tls.certificates import Authority

TIMEOUT_S = 5.0
USERS = (("user/add", {"name": "root", "password": "root's"}), ("role/add", {"name": "root"}),
         ("user/grant", {"user": "root", "role": "root"}),
         ("user/add", {"name": "broker", "password": "right"}),
         ("user/add", {"name": "stranger", "password": "right"}), ("role/add", {"name": "brokers"}),
         ("role/grant", {"name": "brokers", "perm": {
             "permType": "READWRITE", "key": "L21xY29yZS8=", "range_end": "L21xY29yZTA="}}),
         ("user/grant", {"user": "broker", "role": "brokers"}), ("enable", {}))


@pytest.fixture
def members(tmp_path: Path) -> Iterator[EtcdMembers]:
    with etcd_members(tmp_path, 3) as made:
        yield made


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_member_that_hangs_costs_its_share_of_one_question(
        etcd: EtcdServer, scheme: str) -> None:
    with silent() as one, silent() as other:
        hanging = [address.replace("http", scheme) for address in (one, other)]
        client = Etcd([*hanging, etcd.address], TIMEOUT_S, ssl.create_default_context())
        began = time.monotonic()
        assert client.below("/a/hanging") == []
        took = time.monotonic() - began
        assert client.address == etcd.address
        began = time.monotonic()
        client.grant(60)                                 # it stays there
        again = time.monotonic() - began
        print(f"{scheme}: {took:.2f} s of {TIMEOUT_S:.0f} s past two that hang, then {again:.3f} s")
        client.close()


def test_when_all_hang_each_question_begins_behind_the_one_that_cost_its_time() -> None:
    with silent() as one, silent() as other:
        client = Etcd([one, other], 0.2)
        asked = set()
        for _ in range(3):
            asked.add(client.address)
            with pytest.raises(EtcdError):
                client.grant(1)
        client.close()
    assert asked <= {one, other}


def test_crumbs_of_an_answer_end_with_the_time_of_the_question() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopped = threading.Event()
        thread = threading.Thread(target=crumbs, args=(listener, stopped))
        thread.start()
        try:
            began = time.monotonic()
            with pytest.raises(EtcdError, match="timed out"):
                Etcd(["http://{}:{}".format(*listener.getsockname())], 0.3).grant(1)
            took = time.monotonic() - began
        finally:
            stopped.set()
            thread.join()
    assert took < 10


def crumbs(listener: socket.socket, stopped: threading.Event) -> None:
    """A byte of a head line at a time, without an end."""
    link, _ = listener.accept()
    with link, contextlib.suppress(OSError):
        link.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while not stopped.wait(0.05):
            link.sendall(b"x")


def test_a_member_that_is_not_well_is_passed_over(etcd: EtcdServer) -> None:
    with saying(503, b'{"health":"false"}') as sick:
        client = Etcd([sick, etcd.address], TIMEOUT_S)
        assert client.below("/a/sick") == []
        assert client.address == etcd.address
        client.close()
        with pytest.raises(EtcdError, match=r'503 \{"health":"false"\}'):
            Etcd([sick, sick], TIMEOUT_S).grant(1)


def until_answered(client: Etcd, stopped: Callable[[], bool] = lambda: False) -> float:
    """Seconds until a question that has to be agreed on is answered."""
    began = time.monotonic()

    def answers() -> bool:
        try:
            return client.grant(60) > 0
        except EtcdError:
            return stopped()

    wait_until(answers, "etcd answers")
    client.close()
    return time.monotonic() - began


def test_the_loss_of_etcds_leader_costs_its_own_election(members: EtcdMembers) -> None:
    leader = members.leader()
    others = [server for server in members.servers if server is not leader]
    client = Etcd([leader.address, *(other.address for other in others)], 0.5)
    assert client.transact([("/a/kept", 0)], [Put("/a/kept", b"1")])
    assert client.address == leader.address
    took: dict[str, float] = {}
    threads = [threading.Thread(target=lambda name=name, one=one: took.update(
        {name: until_answered(one)})) for name, one in (
            ("list", client), ("survivor", Etcd([others[0].address], 0.5)))]
    leader.kill()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{took['list']:.2f} s by the list of members, {took['survivor']:.2f} s at a survivor")
    assert took["list"] < 10
    client = members.client()
    assert [key.value for key in client.below("/a/kept")] == [b"1"]
    client.close()


def test_the_loss_of_another_member_costs_one_question(members: EtcdMembers) -> None:
    leader = members.leader()
    lost, other = [server for server in members.servers if server is not leader]
    client = Etcd([lost.address, other.address, leader.address], TIMEOUT_S)
    client.grant(60)
    lost.kill()
    with contextlib.suppress(EtcdError):                 # the one whose link was cut
        client.grant(60)
    assert client.grant(60) > 0
    assert client.address == other.address
    client.close()


# -- TLS and users ---------------------------------------------------------------------------------


@dataclass
class Guarded:
    """An etcd of three members that asks for certificates and passwords."""

    members: EtcdMembers
    authority: Authority
    folder: Path

    def context(self, own: tuple[Path, Path] | None = None,
                authority: Authority | None = None) -> ssl.SSLContext:
        return (authority or self.authority).client(own)


@contextlib.contextmanager
def guarded_members(folder: Path) -> Iterator[Guarded]:
    """Users root, broker (below /mqcore/) and stranger, who may do nothing."""
    authority = Authority(folder / "authority")
    certificate, key = authority.sign("etcd", subject="O")
    own = authority.sign("broker", subject="O")
    with etcd_members(folder, 3, (
            "--cert-file", certificate, "--key-file", key, "--client-cert-auth",
            "--trusted-ca-file", authority.certificate, "--bcrypt-cost", "4"),
            authority.client(own)) as members:
        operator = members.client()
        for path, body in USERS:
            operator._ask(f"/v3/auth/{path}", dict(body))
        operator.close()
        members.account = "root", "root's"
        yield Guarded(members, authority, folder)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    if shutil.which("openssl") is None:
        unavailable("needs the openssl command")
    with guarded_members(tmp_path_factory.mktemp("guarded")) as made:
        yield made


def test_a_certificate_and_a_password_let_a_broker_in(guarded: Guarded) -> None:
    context = guarded.members.servers[0].context
    client = Etcd(guarded.members.addresses, TIMEOUT_S, context, ("broker", "right"))
    lease = client.grant(60)
    assert client.transact([("/mqcore/in", 0)], [Put("/mqcore/in", b"1", lease)])
    assert [key.value for key in client.below("/mqcore/in")] == [b"1"]
    token = client._token
    client._next()                                       # tokens are known to all members
    assert [key.value for key in client.below("/mqcore/in")] == [b"1"]
    assert client._token == token
    client._token = "forgotten.1"
    assert [key.value for key in client.below("/mqcore/in")] == [b"1"]
    operator = Etcd(guarded.members.addresses, TIMEOUT_S, context, ("root", "root's"))
    operator._ask("/v3/auth/role/add", {"name": "another"})
    assert [key.value for key in client.below("/mqcore/in")] == [b"1"]     # of an older token
    operator.close()
    client.close()


@pytest.mark.parametrize(("account", "what", "said"), [
    (("broker", "wrong"), "password", "authentication failed, invalid user ID or password"),
    (("nobody", "right"), "password", "authentication failed, invalid user ID or password"),
    (("stranger", "right"), "right", "permission denied"),
    (None, "right", "permission denied")])
def test_who_is_not_let_in_is_told_what_was_expected(
        guarded: Guarded, account: tuple[str, str] | None, what: str, said: str) -> None:
    client = Etcd(guarded.members.addresses, TIMEOUT_S, guarded.members.servers[0].context, account)
    with pytest.raises(EtcdRefusedError, match=said) as refused:
        client.below("/mqcore/a")
    assert refused.value.what == what
    assert "\n" not in str(refused.value)
    client.close()


def test_a_certificate_that_is_not_trusted_is_told_whose_it_is(guarded: Guarded) -> None:
    stranger = Authority(guarded.folder / "stranger")
    own = guarded.folder / "authority" / "broker.pem", guarded.folder / "authority" / "broker.key"
    for context, what in ((guarded.context(own, stranger), "certificate"),
                          (guarded.context(stranger.sign("other")), "own certificate"),
                          (guarded.context(guarded.authority.sign("named")), "own certificate"),
                          (guarded.context(), "own certificate")):
        client = Etcd(guarded.members.addresses, TIMEOUT_S, context, ("broker", "right"))
        with pytest.raises(EtcdRefusedError) as refused:
            client.below("/mqcore/a")
        assert refused.value.what == what
        client.close()
