"""What a broker has after all its processes were killed at once, as clients and `verify` see it."""
from __future__ import annotations

import time
from pathlib import Path

from mqcore.store.verify.store import verify
from mqcore.wire.codes import RequestCode
from mqcore.wire.records import decode_records
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

HONEST = 200
FOUND = 0
WAIT_S = 60.0
Promised = dict[int, bytes]                # queue offset -> body


def make_topic(peer: Peer, topic: str) -> None:
    answer = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 1))
    assert answer.code == 0, answer.remark


def send(peer: Peer, topic: str, body: bytes, properties: str = "") -> int:
    """Send one message, which has to be taken; its queue offset."""
    answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic, properties=properties), body)
    assert answer.code == 0, (answer.code, answer.remark)
    return int((answer.ext or {})["queueOffset"] or -1)


def send_honest(peer: Peer, topic: str, count: int = HONEST) -> Promised:
    bodies = [f"honest {number}".encode() for number in range(count)]
    return {send(peer, topic, body): body for body in bodies}


def raw_messages(address: str, topic: str, count: int) -> bytes:
    """The stored bytes of the first `count` messages of queue 0, or as many as there are."""
    found, offset, deadline = b"", 0, time.monotonic() + WAIT_S
    with Peer(address) as peer:
        while offset < count and time.monotonic() < deadline:
            answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, offset=offset))
            if answer.code == FOUND:
                found += answer.body
                offset += len(list(decode_records(answer.body)))
    return found


def messages(address: str, topic: str, count: int) -> Promised:
    return {record.queue_offset: record.body
            for record in decode_records(raw_messages(address, topic, count))}


def committed(broker: MqcoreProcess, topic: str, count: int) -> None:
    """Wait until all `count` messages can be read: in a pool they are not, a file has them."""
    assert len(messages(broker.broker_addr, topic, count)) == count


def assert_all_there(folder: Path, flush: str, topic: str, promised: Promised) -> None:
    """A start on the killed broker's store serves what was promised and nothing else."""
    with mqcore_up(folder, {"store.flush": flush}) as broker:
        found = messages(broker.broker_addr, topic, len(promised))
        assert found == promised, f"{len(promised)} were promised, {len(found)} are there"
        assert "it is cut there" not in broker.tail()
    assert verify(folder / "store").status == 0
