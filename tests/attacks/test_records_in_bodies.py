"""
A body that holds whole log records, each with the position at which it will really lie: nothing
that looks for records in the log takes one of them for a message.
"""
from __future__ import annotations

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
from tests.attacks.forged_bytes import forged
from tests.attacks.medians import honest_beside
from tests.support.mqcore_process import mqcore_up
from tests.wire_live.peer import Peer

TOPIC = "honest"


@pytest.mark.slow
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
        with honest_beside(broker.broker_addr):
            for _ in range(20):              # others write meanwhile: where it lies is guessed
                last = list(decode_records(raw_messages(
                    broker.broker_addr, TOPIC, len(promised))))[-1]
                body = forged(record, last.physical_offset + last.size)
                promised[send(peer, TOPIC, body)] = body
        committed(broker, TOPIC, len(promised))
        broker.kill()
    assert_all_there(tmp_path, flush, TOPIC, promised)
