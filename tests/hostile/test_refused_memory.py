"""
A process that serves gets no more memory: each of its own requests for some, and of OpenSSL's, is
refused once while a peer is served, or that one and all behind it. That peer may be sent away; the
process, everybody else and what was acknowledged are as before.
"""
from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.records import BatchItem, encode_batch
from tests.hostile.watch import Watch
from tests.support.dice import seed_of_run
from tests.support.failing_disk import compiler
from tests.support.failing_memory import FailingMemory
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.tls.certificates import Authority
from tests.tls.test_asked_again import X25519, hello, record
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields
from tests.wire_live.state import State
from tests.workers.processes import by_role

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs cc")

SEED = seed_of_run()
TRIES, TRIES_STICKY = 80, 20        # of the requests for memory, so many are refused, or all
LARGE_BYTES = 1 << 20
SERVING = "pull-serving-0"
GROWTH_KIB_MAX = 16 << 10
TRANSACTION = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01K"
BEAT = fastjson.dumps({"clientID": "visitor", "producerDataSet": [{"groupName": "PG"}],
                       "consumerDataSet": []})


@dataclass
class Target:
    """A broker, the plan of its memory, and who comes to it."""

    broker: MqcoreProcess
    memory: FailingMemory
    authority: Authority
    sent: list[tuple[str, int]] = field(default_factory=list)     # offsets, acknowledged, by topic

    @property
    def address(self) -> str:
        return self.broker.broker_addr

    def context(self, version: ssl.TLSVersion, shown: str = "") -> ssl.SSLContext:
        made = self.authority.client(self.authority.sign(shown) if shown else None)
        made.minimum_version = made.maximum_version = version
        return made


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("memory")
    authority = Authority(folder / "authority")
    certificate, key = authority.sign("server")
    memory = FailingMemory.create(folder / "library")
    with mqcore_up(folder / "broker", {
            "tls.certificate": certificate, "tls.key": key, "tls.client_auth": "optional",
            "tls.trust": authority.certificate, "tls.handshake_ms_max": 15_000,
            "processes.serving_count": 1}, program=memory.program) as broker:
        with State(broker.broker_addr) as peer:
            for topic in ("Small", "Large", "Waiting"):
                peer.topic(topic, 1)
            peer.message("Waiting", 0, bytes(LARGE_BYTES))
            wait_until(lambda: peer.queue_end("Waiting", 0) == 1, "a message to be pulled")
        yield Target(broker, memory, authority)


@pytest.fixture
def target(refused: Target) -> MqcoreProcess:
    return refused.broker


# -- who comes -------------------------------------------------------------------------------------


def asks(address: str, context: ssl.SSLContext | None = None) -> None:
    with Peer(address, tls=context) as peer:
        assert peer.ask(Code.GET_BROKER_RUNTIME_INFO).code == 0


def handshake(version: ssl.TLSVersion, shown: str = "") -> Callable[[Target], Callable[[], None]]:
    def prepare(target: Target) -> Callable[[], None]:
        context = target.context(version, shown)
        return lambda: asks(target.address, context)
    return prepare


def is_asked_again(target: Target) -> Callable[[], None]:
    def visit() -> None:
        host, _, port = target.address.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as link:
            link.sendall(hello([], (X25519,)))
            record(link)
    return visit


def sends(topic: str, body: bytes, properties: str = "", *, batch: bool = False,
          ) -> Callable[[Target], Callable[[], None]]:
    def prepare(target: Target) -> Callable[[], None]:
        def visit() -> None:
            with Peer(target.address) as peer:
                answer = peer.ask(
                    Code.SEND_BATCH_MESSAGE if batch else Code.SEND_MESSAGE_V2,
                    send_fields(topic, properties=properties, batch=batch), body)
            if answer.code == 0 and not properties:
                target.sent.append((topic, int((answer.ext or {})["queueOffset"] or 0)))
        return visit
    return prepare


def pulls(offset: int, suspend_ms: int) -> Callable[[Target], Callable[[], None]]:
    """1 MiB, or nothing for a while."""
    def prepare(target: Target) -> Callable[[], None]:
        def visit() -> None:
            with Peer(target.address) as peer:
                answer = peer.ask(Code.PULL_MESSAGE, pull_fields(
                    "Waiting", offset=offset, sys_flag=6, suspend_ms=suspend_ms))
            assert not answer.body or len(answer.body) > LARGE_BYTES
        return visit
    return prepare


def beats(target: Target) -> Callable[[], None]:
    def visit() -> None:
        with Peer(target.address) as peer:
            peer.ask(Code.HEART_BEAT, None, BEAT)
            peer.ask(Code.GET_ALL_TOPIC_CONFIG)
    return visit


VISITS = {
    "TLS 1.3": handshake(ssl.TLSVersion.TLSv1_3),
    "TLS 1.2": handshake(ssl.TLSVersion.TLSv1_2),
    "a client's certificate": handshake(ssl.TLSVersion.TLSv1_3, "shown"),
    "asked again": is_asked_again,
    "a send": sends("Small", b"small"),
    "a large send": sends("Large", bytes(LARGE_BYTES)),
    "a batch": sends("Small", encode_batch([BatchItem(b"one", {}), BatchItem(b"two", {})]),
                     batch=True),
    "a half message": sends("Small", b"half", TRANSACTION),
    "a large pull": pulls(0, 0),
    "a pull that waits": pulls(1, 50),
    "a heartbeat": beats,
}


def sockets(pid: int) -> int:
    found = 0
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(entry.path).startswith("socket:")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("name", VISITS)
def test_no_memory_costs_its_peer_alone(
    refused: Target, watch: Watch, name: str, sticky: bool,
) -> None:
    print(f"seed {SEED}")
    pid, memory = by_role(refused.broker)[SERVING], refused.memory
    links = sockets(pid)
    visit = VISITS[name](refused)
    with State(refused.address) as other:
        visit()                                        # what is made once is there
        memory.arm(pid)
        visit()
        requests = memory.count
        fired = 0
        step = max(1, requests // (TRIES_STICKY if sticky else TRIES))
        for at in range(SEED % step, requests, step):
            memory.arm(pid, at=at, sticky=sticky)
            with contextlib.suppress(Closed, ssl.SSLError, ConnectionError):
                visit()
            fired += memory.fired
            memory.disarm()
            assert other.ask(Code.GET_BROKER_RUNTIME_INFO).code == 0, f"request {at}"
    assert fired > 0
    visit()
    wait_until(lambda: sockets(pid) <= links, "nobody is left")
    assert max(watch.growth_kib_within(GROWTH_KIB_MAX, 20).values()) <= GROWTH_KIB_MAX


def test_what_was_acknowledged_is_there(refused: Target) -> None:
    for topic in ("Small", "Large"):
        sends(topic, b"another")(refused)()
    with State(refused.address) as peer:
        for topic in ("Small", "Large"):
            last = max(offset for name, offset in refused.sent if name == topic)
            wait_until(lambda topic=topic, last=last: peer.queue_end(topic, 0) > last, topic)
            there: set[int] = set()
            offset = 0
            while offset <= last:
                found = peer.stored(topic, 0, offset)
                there |= {record.queue_offset for record in found}
                offset = found[-1].queue_offset + 1
            assert {offset for name, offset in refused.sent if name == topic} <= there
