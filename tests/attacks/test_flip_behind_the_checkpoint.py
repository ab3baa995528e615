"""A flipped bit in what was acknowledged after the last checkpoint is damage, no torn tail."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mqcore_process import MqcoreError, mqcore_up
from tests.wire_live.peer import Peer, send_fields, topic_fields

MESSAGES, BODY_BYTES = 24, 1_500_000           # more behind the flip than one group of a sync holds


def test_a_flip_in_sync_mode_cuts_nothing_off_that_was_acknowledged(tmp_path: Path) -> None:
    settings: dict[str, object] = {"store.flush": "sync"}
    with mqcore_up(tmp_path, settings) as broker:
        with Peer(broker.broker_addr) as peer:
            assert peer.ask(17, topic_fields("Flipped", 1)).code == 0
            for number in range(MESSAGES):
                body = bytes([number]) * BODY_BYTES
                assert peer.ask(310, send_fields("Flipped"), body).code == 0
        broker.kill()
    log = min((broker.store / "commitlog").iterdir())
    before = log.read_bytes()
    at = BODY_BYTES + 5_000                    # in the second body
    log.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1:])

    with pytest.raises(MqcoreError, match="this is damage, not a torn tail"), \
            mqcore_up(tmp_path, settings):
        pass
    assert log.read_bytes()[at + 1:] == before[at + 1:]
