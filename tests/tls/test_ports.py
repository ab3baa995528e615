"""One port, with TLS and without: the first byte decides, the mode says who is let in."""
from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from mqcore.wire.records import decode_records
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.tls.certificates import Authority, careless
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields, topic_fields

Says = Callable[[MqcoreProcess, str], None]
BROKER, FAST, NAMES = "broker", "fast port", "name server"


def address_of(broker: MqcoreProcess, port: str) -> str:
    if port == NAMES:
        return broker.namesrv_addr
    host, _, number = broker.broker_addr.rpartition(":")
    return f"{host}:{int(number) - 2}" if port == FAST else broker.broker_addr


def ask(peer: Peer) -> int:
    """Something that a broker and a name server both answer; the code."""
    return peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).code


@pytest.mark.parametrize("port", [BROKER, FAST, NAMES])
@pytest.mark.parametrize(("version", "said"), [
    (ssl.TLSVersion.TLSv1_3, "TLSv1.3"), (ssl.TLSVersion.TLSv1_2, "TLSv1.2")])
def test_tls_1_2_and_1_3_are_spoken_with_aes_first(
    broker: MqcoreProcess, client: ssl.SSLContext, authority: Authority, port: str,
    version: ssl.TLSVersion, said: str,
) -> None:
    context = authority.client()
    context.maximum_version = version
    with Peer(address_of(broker, port), tls=context) as peer:
        assert isinstance(peer.socket, ssl.SSLSocket)
        assert peer.socket.version() == said
        cipher, _, bits = peer.socket.cipher() or ("", "", 0)
        assert "AES" in cipher
        assert port == NAMES or bits == 128
        assert ask(peer) in (0, 17, 3)


@pytest.mark.parametrize("port", [BROKER, NAMES])
def test_older_versions_are_not_spoken(broker: MqcoreProcess, port: str, says: Says) -> None:
    old = careless()
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        Peer(address_of(broker, port), tls=old)
    says(broker, "TLS failed: unsupported protocol")


@pytest.mark.parametrize("port", [BROKER, FAST, NAMES])
def test_a_permissive_port_serves_both(
    broker: MqcoreProcess, client: ssl.SSLContext, port: str,
) -> None:
    with Peer(address_of(broker, port)) as plain, Peer(
            address_of(broker, port), tls=client) as secured:
        assert ask(plain) == ask(secured)


@pytest.fixture(scope="module")
def enforcing(
    served: dict[str, object], tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("enforcing"),
                   {**served, "tls.mode": "enforcing"}) as running:
        yield running


@pytest.mark.parametrize("port", [BROKER, FAST, NAMES])
def test_an_enforcing_port_closes_who_begins_in_the_clear(
    enforcing: MqcoreProcess, client: ssl.SSLContext, port: str, says: Says,
) -> None:
    with Peer(address_of(enforcing, port)) as plain, pytest.raises(Closed):
        ask(plain)
    says(enforcing, "closed: it began in the clear, and tls.mode is enforcing")
    with Peer(address_of(enforcing, port), tls=client) as peer:
        assert ask(peer) in (0, 17, 3)


def test_a_broker_registers_at_the_enforcing_name_server_beside_it(
    enforcing: MqcoreProcess, client: ssl.SSLContext,
) -> None:
    with Peer(enforcing.namesrv_addr, tls=client) as peer:
        answer = peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    assert answer.code == 0
    assert enforcing.broker_addr.encode() in answer.body


@pytest.mark.parametrize("settings", [{}, {"tls.mode": "disabled"}], ids=["no file", "disabled"])
def test_where_there_is_no_tls_who_begins_with_it_is_closed(
    folder: Path, says: Says, settings: dict[str, object],
) -> None:
    with mqcore_up(folder, settings) as running:
        for port in (BROKER, NAMES):
            with pytest.raises(OSError):
                Peer(address_of(running, port), tls=careless())
            with Peer(address_of(running, port)) as plain:
                assert ask(plain) in (0, 17, 3)
        says(running, "closed: it began with TLS, and tls.mode is")


def test_test_mode_serves_a_certificate_that_proves_nothing_and_says_so(
    folder: Path, client: ssl.SSLContext, says: Says,
) -> None:
    with mqcore_up(folder, {"tls.test_mode": True}) as running:
        says(running, "TLS TEST MODE")
        for port in (BROKER, NAMES):
            with Peer(address_of(running, port), tls=careless()) as peer:
                assert ask(peer) in (0, 17, 3)
            with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
                Peer(address_of(running, port), tls=client)
        says(running, "TLS failed: tlsv1 alert unknown ca")


def test_the_right_certificate_at_a_wrong_host_is_refused_by_clients(
    broker: MqcoreProcess, client: ssl.SSLContext,
) -> None:
    host, _, port = broker.broker_addr.rpartition(":")
    with socket.create_connection((host, int(port))) as plain, pytest.raises(
            ssl.SSLCertVerificationError, match=r"other\.example"):
        client.wrap_socket(plain, server_hostname="other.example")


# -- what travels ----------------------------------------------------------------------------------


@pytest.fixture
def peer(broker: MqcoreProcess, client: ssl.SSLContext) -> Iterator[Peer]:
    with Peer(broker.broker_addr, tls=client) as connected:
        yield connected


def make_topic(peer: Peer, name: str) -> str:
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(name, 1)).code == 0
    return name


def test_large_bodies_come_and_go_whole(peer: Peer) -> None:
    topic = make_topic(peer, "Large")
    body = bytes(range(256)) * (4 << 12)            # 4 MiB, the largest
    stored = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic), body)
    assert stored.code == 0, stored.remark
    found = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(
        topic, sys_flag=6, suspend_ms=10_000))
    assert [record.body for record in decode_records(found.body)] == [body]


def test_a_held_pull_is_answered_by_a_message_that_comes_in_the_clear(
    broker: MqcoreProcess, peer: Peer,
) -> None:
    topic = make_topic(peer, "Held")
    waiting = request(RequestCode.PULL_MESSAGE,
                      dict(pull_fields(topic, sys_flag=6, suspend_ms=10_000)))
    peer.send(encode(waiting))
    with Peer(broker.broker_addr) as plain:
        assert plain.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic), b"now").code == 0
    found = peer.answer_to(waiting.opaque)
    assert [record.body for record in decode_records(found.body)] == [b"now"]
