"""Who sends the largest frames without end takes turns with others who send a large one."""
from __future__ import annotations

import random
import threading

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import Command, encode
from tests.attacks.honest import Honest
from tests.attacks.large_frames import run
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess
from tests.wire_live.peer import Peer
from tests.wire_live.test_as_stock import heartbeat

ATTACK_S = 10.0
ANSWER_S = 30.0
FLOOR_MS = 2_000.0              # both share two cores with megabytes that are copied


def test_an_honest_large_heartbeat_is_answered_beside_them(
    target: MqcoreProcess, honest: Honest, watch: Watch
) -> None:
    body = heartbeat("Wide", 5_000)
    assert len(body) > 393_216
    calm = honest.measure()
    attack = threading.Thread(target=run, args=(
        target.broker_addr, target.namesrv_addr, ATTACK_S, random.Random(1)), daemon=True)
    with honest.span() as attacked:
        attack.start()
        with Peer(target.broker_addr) as peer:
            for number in range(3):                # a client sends one in 30 s
                peer.send(encode(Command(RequestCode.HEART_BEAT, opaque=number, body=body)))
                answer = peer.answer_to(number, ANSWER_S)
                assert answer.code == 0, answer.remark
                assert attack.is_alive()
        attack.join(ATTACK_S + 60)
    honest.assert_served(attacked, calm, floor_ms=FLOOR_MS)
