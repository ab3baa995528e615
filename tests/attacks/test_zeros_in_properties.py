"""
A property of zeros looks like a sector that never reached the disk: it costs nobody a message.

Whether the log's tail is torn depends on what the broker wrote beside it, never on what a client
put into a message.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.after_a_kill import (
    assert_all_there,
    committed,
    make_topic,
    send,
    send_honest,
)
from tests.attacks.forged_bytes import ZEROS
from tests.attacks.medians import honest_beside
from tests.support.mqcore_process import mqcore_up
from tests.wire_live.peer import Peer

TOPIC = "honest"


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["async", "sync", "transient-pool"])
@pytest.mark.parametrize("properties", [
    pytest.param(ZEROS, id="a-value"),
    pytest.param("attack\x01x\x02" + "\0" * 3, id="the-end"),
])
def test_a_message_with_zeros_and_all_behind_it_outlive_a_kill(
    tmp_path: Path, flush: str, properties: str
) -> None:
    with mqcore_up(tmp_path, {"store.flush": flush}) as broker, Peer(broker.broker_addr) as peer:
        make_topic(peer, TOPIC)
        with honest_beside(broker.broker_addr):
            promised = {send(peer, TOPIC, b"attack", properties): b"attack"}
            promised |= send_honest(peer, TOPIC)
        committed(broker, TOPIC, len(promised))
        broker.kill()
    assert_all_there(tmp_path, flush, TOPIC, promised)
