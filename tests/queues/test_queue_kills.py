"""Kills of the writer, the dispatcher, or of all leave light queues and units whole."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqcore.store.queue.extension_files import is_address, read_unit
from mqcore.store.record import tags_code
from mqcore.store.verify.report import DAMAGE, MEND
from mqcore.store.verify.store import verify
from mqcore.wire.records import decode_records
from tests.store.harness import read_entries
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, Peer, pull_fields, send_fields, topic_fields
from tests.workers.processes import by_role, kill

SEND, PULL, CREATE_TOPIC, MAX_OFFSET = 310, 11, 17, 30
PARENT = "parent"
LIGHT = ("%LMQ%a", "%LMQ%b", "%LMQ%c")
FILE_BYTES = 4096
SETTINGS: dict[str, object] = {
    "store.multi_dispatch_enable": True, "store.light_queues_enable": True,
    "store.queue_extension_enable": True, "store.queue_extension_file_bytes": FILE_BYTES,
    "store.checkpoint_interval_ms": 50,
}
LOT = 150
PIPELINE = 25


class Sender:
    """Sends numbered messages to the light queues and keeps which of them were acknowledged."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged: list[int] = []

    def names(self, number: int) -> list[str]:
        return [name for at, name in enumerate(LIGHT) if number % (at + 2) == 0]

    def lot(self, broker: MqcoreProcess, victim: str | None) -> None:
        """LOT messages; in their middle `victim` is killed."""
        with Peer(broker.broker_addr) as peer:
            for begin in range(0, LOT, PIPELINE):
                if victim is not None and begin == LOT // PIPELINE // 2 * PIPELINE:
                    kill(broker, victim)
                for _ in range(PIPELINE):
                    self.one(peer)

    def one(self, peer: Peer) -> None:
        number = self.sent
        self.sent += 1
        listed = ",".join(self.names(number))
        properties = f"TAGS\x01t{number % 3}" + (
            f"\x02INNER_MULTI_DISPATCH\x01{listed}" if listed else "")
        answer = peer.ask(SEND, send_fields(PARENT, properties=properties), b"%d" % number)
        if answer.code == 0:
            self.acknowledged.append(number)


def read_queue(peer: Peer, topic: str) -> list[int]:
    found: list[int] = []
    offset = 0
    while True:
        answer = peer.ask(PULL, pull_fields(topic, offset=offset, group="%LMQ%reader"))
        if answer.code != 0:
            assert answer.code == 19, (answer.code, answer.remark)
            return found
        found += [int(record.body) for record in decode_records(answer.body)]
        offset = int((answer.ext or {})["nextBeginOffset"] or 0)


def all_dispatched(broker: MqcoreProcess, sender: Sender) -> bool:
    with Peer(broker.broker_addr) as peer:
        try:
            return bool(sender.acknowledged[-1] in read_queue(peer, PARENT))
        except Closed:
            return False


def check_queues(broker: MqcoreProcess, sender: Sender) -> None:
    wait_until(lambda: all_dispatched(broker, sender), "the last message is in its queue")
    with Peer(broker.broker_addr) as peer:
        own = read_queue(peer, PARENT)
        assert len(set(own)) == len(own), "a message is there twice"
        assert set(sender.acknowledged) <= set(own), "an acknowledged message is lost"
        for name in LIGHT:
            assert read_queue(peer, name) == [n for n in own if name in sender.names(n)], name


def check_store(store: Path, sender: Sender) -> None:
    findings = [finding for finding in verify(store).findings
                if finding.severity in (DAMAGE, MEND)]
    assert findings == []
    count = len(sender.acknowledged)
    entries = read_entries(store / "consumequeue" / PARENT / "0", 0, count, 20_000)
    for entry in entries:
        assert is_address(entry[2])
        unit = read_unit(store / "consumequeue_ext", FILE_BYTES, PARENT, 0, entry[2])
        assert unit is not None
        assert unit.tag_code in [tags_code(b"t%d" % number) for number in range(3)]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_light_queues_and_units_are_whole_after_any_kill(tmp_path: Path, flush: str) -> None:
    sender = Sender()
    settings = SETTINGS | {"store.flush": flush}
    with mqcore_up(tmp_path, settings) as broker:
        with Peer(broker.broker_addr) as peer:
            assert peer.ask(CREATE_TOPIC, topic_fields(PARENT, 1)).code == 0
        for victim in ("dispatcher", "writer", "dispatcher", "writer"):
            sender.lot(broker, victim)
            wait_until(lambda role=victim: role in by_role(broker), f"{victim} is back")
            check_queues(broker, sender)
        sender.lot(broker, None)
        broker.kill()
    for _ in range(2):
        with mqcore_up(tmp_path, settings) as broker:
            check_queues(broker, sender)
            sender.lot(broker, None)
            check_queues(broker, sender)
            broker.kill()
    with mqcore_up(tmp_path, settings) as broker:
        check_queues(broker, sender)
    assert len(sender.acknowledged) > sender.sent // 2
    check_store(broker.store, sender)
    assert not [name for name in os.listdir(broker.store / "consumequeue") if name not in (
        PARENT, *LIGHT)]
