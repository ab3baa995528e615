"""
A body that holds whole log records, each with the position at which it will really lie: nothing
that looks for records in the log takes one of them for a message.
"""
from __future__ import annotations

import struct
from pathlib import Path

import pytest

from mqcore.wire.records import decode_records
from tests.attacks.after_a_kill import (
    assert_all_there,
    committed,
    make_topic,
    raw_messages,
    send,
    send_honest,
)
from tests.support.mqcore_process import mqcore_up
from tests.wire_live.peer import Peer

TOPIC = "honest"
FORGED_COUNT = 20
POSITION_AT, BODY_AT = 28, 88            # of a record with IPv4 hosts (docs/formats.md)


def forged(record: bytes, position: int) -> bytes:
    """Copies of a record as they would lie in the body of one at `position`."""
    copies = b""
    for _ in range(FORGED_COUNT):
        one = bytearray(record)
        struct.pack_into(">q", one, POSITION_AT, position + BODY_AT + len(copies))
        copies += one
    return copies


@pytest.mark.parametrize("flush", ["async", "sync", "transient-pool"])
def test_forged_records_in_a_body_are_never_messages(tmp_path: Path, flush: str) -> None:
    with mqcore_up(tmp_path, {"store.flush": flush}) as broker, Peer(broker.broker_addr) as peer:
        make_topic(peer, TOPIC)
        promised = {send(peer, TOPIC, b"a message to copy"): b"a message to copy"}
        record = raw_messages(broker.broker_addr, TOPIC, 1)
        for _ in range(4):
            last = list(decode_records(raw_messages(broker.broker_addr, TOPIC, len(promised))))[-1]
            body = forged(record, last.physical_offset + last.size)
            promised[send(peer, TOPIC, body)] = body
        promised |= send_honest(peer, TOPIC, 20)
        committed(broker, TOPIC, len(promised))
        broker.kill()
    assert_all_there(tmp_path, flush, TOPIC, promised)
