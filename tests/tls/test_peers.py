"""Peers that are slow, deaf, greedy or gone: what TLS adds to what they cost, and who notices."""
from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable, Iterator

import pytest

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import decode, encode, request
from mqcore.wire.records import decode_records
from tests.attacks.honest import Honest, median
from tests.hostile.crowd import crowd
from tests.support.mqcore_process import MqcoreProcess
from tests.support.waiting import wait_until
from tests.tls.certificates import careless
from tests.tls.pieces import Pieces
from tests.tls.rekeying import change_keys
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields
from tests.workers.processes import by_role

Says = Callable[[MqcoreProcess, str], None]
HELLO = b"\x16\x03\x01\x02\x00\x01"              # of a record of 512 bytes
HALF_OPEN = 1_000
NEWEST = 40                                      # of them stay, in each process
BOTH = pytest.mark.parametrize("server", ["broker", "name server"])


def address_of(broker: MqcoreProcess, server: str) -> str:
    return broker.broker_addr if server == "broker" else broker.namesrv_addr


@pytest.fixture
def peer(broker: MqcoreProcess, client: ssl.SSLContext) -> Iterator[Peer]:
    with Peer(broker.broker_addr, tls=client) as connected:
        yield connected


@pytest.fixture
def topic(peer: Peer, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W", "_", request.node.name)[-60:]
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(name, 1)).code == 0
    return name


def serving(broker: MqcoreProcess) -> list[str]:
    return [role for role in by_role(broker) if role.startswith("pull-serving")]


def has_ended(one: socket.socket) -> bool:
    """Whether its peer, which says nothing, has closed it."""
    try:
        return one.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def route() -> bytes:
    return encode(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nowhere"}))


@BOTH
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])
def test_a_handshake_and_requests_that_come_byte_by_byte_are_served(
    broker: MqcoreProcess, server: str, version: ssl.TLSVersion,
) -> None:
    context = careless()
    context.maximum_version = version
    pieces = Pieces(address_of(broker, server), context)
    pieces.shake(1)
    for _ in range(3):
        pieces.send_pieces(pieces.record(route()), 1)
        answer = pieces.read()
        assert decode(answer[4:]).code in (3, 17)


def test_a_peer_that_ends_its_side_without_a_word_is_told_nothing(peer: Peer) -> None:
    """An alert is a record and a call of the kernel for each of a crowd that goes."""
    assert peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nowhere"}).code in (3, 17)
    raw = socket.socket(fileno=peer.socket.detach())
    raw.settimeout(30)
    raw.shutdown(socket.SHUT_WR)
    assert raw.recv(1 << 16) == b""
    raw.close()


@BOTH
def test_a_request_that_comes_with_the_handshakes_end_is_served(
    broker: MqcoreProcess, server: str,
) -> None:
    pieces = Pieces(address_of(broker, server), careless())
    pieces.shake(data=route())
    assert decode(pieces.read()[4:]).code in (3, 17)


def test_many_requests_in_one_go_are_answered_one_and_all(peer: Peer) -> None:
    """More than one read takes: what OpenSSL has of them is not told by the socket."""
    ask = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "x" * 200})
    count = 3_000
    frames = b"".join(encode(request(ask.code, dict(ask.ext or {}))) for _ in range(count))
    assert len(frames) > 3 * (256 << 10)
    peer.send(frames)
    assert {peer.receive(30).code for _ in range(count)} == {1}


def test_who_does_not_read_gets_everything_later(
    broker: MqcoreProcess, client: ssl.SSLContext, peer: Peer, topic: str,
) -> None:
    body = bytes(1 << 18)
    assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic), body).code == 0
    pull = encode(request(RequestCode.PULL_MESSAGE, dict(pull_fields(
        topic, sys_flag=6, suspend_ms=10_000))))
    with Peer(broker.broker_addr, receive_buffer_bytes=4096, tls=client) as deaf:
        deaf.send(pull * 60)                     # 15 MiB of answers
        assert peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}).code in (3, 17)
        for _ in range(60):
            (record,) = decode_records(deaf.receive(30).body)
            assert record.body == body


@pytest.mark.parametrize("linger", [struct.pack("ii", 0, 0), struct.pack("ii", 1, 0)],
                         ids=["in order", "by a reset"])
def test_what_was_sent_one_way_before_the_end_is_handled(
    broker: MqcoreProcess, client: ssl.SSLContext, peer: Peer, topic: str, linger: bytes,
) -> None:
    fields = send_fields(topic)
    frames = b"".join(encode(request(RequestCode.SEND_MESSAGE_V2, dict(fields), b"%d" % number,
                                     oneway=True)) for number in range(100))
    assert len(frames) > 16 << 10                # more than one record
    with Peer(broker.broker_addr, tls=client) as leaving:
        leaving.send(frames)
        leaving.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    found: list[int] = []
    while len(found) < 100:
        answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(
            topic, offset=len(found), sys_flag=6, suspend_ms=5_000, count=100))
        assert answer.code == 0, answer.remark
        found += [int(record.body) for record in decode_records(answer.body)]
    assert found == list(range(100))


@BOTH
def test_a_peer_that_ends_within_a_record_costs_nothing(
    broker: MqcoreProcess, peer: Peer, server: str,
) -> None:
    for cut in (1, 4, 5, 6, 100):
        pieces = Pieces(address_of(broker, server), careless())
        pieces.shake()
        pieces.socket.sendall(pieces.record(bytes(200))[:cut])
        pieces.socket.close()
    assert peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}).code in (3, 17)


@BOTH
def test_a_handshake_has_its_time(broker: MqcoreProcess, says: Says, server: str) -> None:
    with socket.socket() as slow:
        host, _, port = address_of(broker, server).rpartition(":")
        slow.connect((host, int(port)))
        slow.sendall(HELLO)
        slow.settimeout(15)
        with contextlib.suppress(ConnectionError):
            assert slow.recv(1) == b""
    says(broker, "its TLS handshake is not done after 2")


@BOTH
def test_what_is_no_handshake_ends_the_connection_with_a_line(
    broker: MqcoreProcess, says: Says, server: str,
) -> None:
    host, _, port = address_of(broker, server).rpartition(":")
    for nonsense in (b"\x16" + bytes(100), b"\x16\x03\x01\x00\x04\xff\xff\xff\xff"):
        with socket.create_connection((host, int(port)), 10) as wild:
            wild.sendall(nonsense)
            with contextlib.suppress(ConnectionError):
                while wild.recv(100):
                    pass
    says(broker, "TLS failed: ")


@BOTH
def test_keys_that_change_without_end_end_the_connection(
    broker: MqcoreProcess, peer: Peer, server: str,
) -> None:
    host, _, port = address_of(broker, server).rpartition(":")
    with socket.create_connection((host, int(port)), 10) as greedy:
        done = change_keys(greedy, 200_000)
    assert 1_000 < done < 200_000
    said = re.compile(rf"connection {'from ' if server == 'broker' else ''}127\.\S+ closed: "
                      r"\d+ bytes of TLS records hold no data")
    wait_until(lambda: said.search(broker.output.read_text()) is not None, "a line", 20)
    assert peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}).code in (3, 17)


@BOTH
def test_a_second_handshake_on_one_connection_is_refused(
    broker: MqcoreProcess, server: str,
) -> None:
    """By openssl s_client, whose command R asks for it; TLS 1.2, later there is none."""
    with subprocess.Popen(
            ["openssl", "s_client", "-connect", address_of(broker, server), "-tls1_2"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = b""
        while b"Verify return code" not in said:
            said += process.stdout.readline()
        process.stdin.write(b"R\n")
        process.stdin.flush()
        said, _ = process.communicate(timeout=20)
    assert b"no renegotiation" in said


@BOTH
def test_a_thousand_half_open_handshakes_do_not_keep_others_waiting(
    broker: MqcoreProcess, client: ssl.SSLContext, server: str, says: Says,
) -> None:
    """The 40 newest stay; each of the others ended for one that came after it."""
    address = address_of(broker, server)
    with Honest(broker.broker_addr, topic=f"honest-{server.split()[0]}") as honest:
        calm = honest.measure()
        with honest.span() as attacked, crowd(address, HALF_OPEN) as sockets:
            for one in sockets:
                one.sendall(HELLO)
            says(broker, "its TLS handshake was the oldest of 40")
            # -- before that who is new is one of those that others end
            held = NEWEST * (1 if server == "name server" else len(serving(broker)))
            wait_until(lambda: sum(map(has_ended, sockets)) >= HALF_OPEN - held, "the newest left")
            with Peer(address, tls=client) as newcomer:
                assert newcomer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC,
                                    {"topic": "x"}).code in (3, 17)
            honest.until(lambda: len(attacked.sends_ms) > 50, "sends beside the attack")
        assert median(attacked.sends_ms) <= max(2 * median(calm.sends_ms), 25)
        honest.check()


@pytest.mark.slow
def test_connections_leave_no_memory_behind(broker: MqcoreProcess) -> None:
    """Handshakes, whole and half, over and over: a serving process ends where it began."""

    def resident_kib() -> int:
        most = 0
        for pid in broker.family():
            with open(f"/proc/{pid}/cmdline", "rb") as name, open(f"/proc/{pid}/status") as lines:
                if b"pull-serving" in name.read():
                    most = max(most, *(int(line.split()[1]) for line in lines
                                       if line.startswith("RssAnon")))
        return most

    def storm(count: int) -> None:
        host, _, port = broker.broker_addr.rpartition(":")
        for number in range(count):
            if number % 2:
                Pieces(broker.broker_addr, careless()).shake()
            else:
                with socket.create_connection((host, int(port)), 10) as half:
                    half.sendall(HELLO)

    storm(200)
    before = resident_kib()
    assert before > 0
    storm(400)
    wait_until(lambda: resident_kib() - before < 3_000, "memory as before", 20)
