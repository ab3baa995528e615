"""Who sends the largest frames without end takes turns with others who send a large one."""
from __future__ import annotations

import mmap
import random
import threading
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import Command, encode
from tests.attacks.honest import Honest
from tests.attacks.large_frames import BODY_BYTES, sent_without_end
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess
from tests.wire_live.peer import Peer
from tests.wire_live.test_as_stock import heartbeat
from tests.workers.processes import by_role

BEATS = 3
SENDS = 100                     # at least, beside the attack
ANSWER_S = 30.0
AT_ONCE = 3
FLOOR_MS = 2_000.0              # both share two cores with megabytes that are copied


@pytest.mark.slow
def test_an_honest_large_heartbeat_is_answered_beside_them(
    target: MqcoreProcess, honest: Honest, watch: Watch
) -> None:
    body = heartbeat("Wide", 5_000)
    assert len(body) > 393_216
    calm = honest.measure()
    with (honest.span() as attacked,
          sent_without_end(target.broker_addr, random.Random(1)) as attackers,
          Peer(target.broker_addr) as peer):
        for number in range(BEATS):                    # a client sends one in 30 s
            peer.send(encode(Command(RequestCode.HEART_BEAT, opaque=number, body=body)))
            answer = peer.answer_to(number, ANSWER_S)
            assert answer.code == 0, answer.remark
            assert any(one.is_alive() for one in attackers)
        honest.until(lambda: len(attacked.sends_ms) >= SENDS, f"{SENDS} sends")
    honest.assert_served(attacked, calm, floor_ms=FLOOR_MS)


def test_the_pages_of_large_frames_are_used_again(target: MqcoreProcess) -> None:
    """Else the loop maps and unmaps tens of MiB for them, in calls in which nobody is served."""
    pids = [pid for role, pid in by_role(target).items() if "serving" in role]
    body = b'{"clientID":"c","consumerDataSet":[]' + b" " * BODY_BYTES

    def faults() -> int:
        return sum(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])
                   for pid in pids)

    def send_two() -> None:
        with Peer(target.broker_addr) as peer:
            for number in range(2):
                peer.send(encode(Command(RequestCode.HEART_BEAT, opaque=number, body=body)))
                peer.answer_to(number, ANSWER_S)

    def crowd() -> int:
        """Page faults of some that send at once."""
        before = faults()
        threads = [threading.Thread(target=send_two) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return faults() - before

    fewest = min(crowd() for _ in range(4))            # one of them may be behind a trim
    assert fewest < 2 * AT_ONCE * BODY_BYTES // mmap.PAGESIZE // 4
