"""Who looks for a moment before it sleeps: HM13, HS11 and linger.pxd of mqcore/replication."""
from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.replication.ends import TURN_MS, MasterEnd, Peer, SlaveEnd
from tests.replication.test_slave import accepted, by_hand, log_of
from tests.support.waiting import wait_until

__all__ = ["by_hand"]             # a fixture


def test_behind_one_small_request_its_result_is_looked_for(
    tmp_path: Path, by_hand: socket.socket,
) -> None:
    """HS11, LN2"""
    master = MasterEnd(tmp_path / "large", segment_size=1 << 20)
    master.send(1, 20_000)
    large = master.end
    master.send(16)
    data = log_of(master)
    size = (master.end - large) // 16
    slave = SlaveEnd(tmp_path / "slave", segment_size=1 << 20)

    def take(peer: Peer, start: int, end: int) -> None:
        """A frame is there, and handed over; the writer answers when the loop sleeps again."""
        peer.send(start, data[start:end])
        wait_until(lambda: slave.loop.run(TURN_MS) or slave.writer.has_work(), "the request")
        slave.writer.run(TURN_MS)
        slave.loop.run(TURN_MS)
        assert slave.end == end

    peer = accepted(by_hand, slave)
    wait_until(lambda: slave.loop.run(TURN_MS) or slave.loop.notes(), "the link")
    take(peer, 0, large)
    assert slave.loop.lingered == 0
    for start in range(large, large + 16 * size, size):
        take(peer, start, start + size)
    assert 1 <= slave.loop.lingered <= 5            # all of them in vain
    peer.close()


@pytest.mark.parametrize("gated", [False, True])
def test_who_was_rung_for_nothing_yet_looks_before_it_sleeps(tmp_path: Path, gated: bool) -> None:
    """HM13, LN2: for a moment, where the writer waits for slaves; in vain it does so ever less."""
    master = MasterEnd(tmp_path / "master", gated=gated)
    looks = []
    for _ in range(16):
        master.run.segment.arm(master.slot)
        master.run.segment.ring_bell(master.slot)
        master.loop.run(TURN_MS)
        looks.append(master.loop.lingered)
    assert looks[0] == gated
    assert looks[-1] <= 5
    master.close()
