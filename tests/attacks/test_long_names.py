"""What heartbeats and locks say is kept in the coordinator's memory, within bounds."""
from __future__ import annotations

import re

import msgspec
import pytest

from tests.attacks.honest import Honest
from tests.attacks.long_names import bodies
from tests.attacks.medians import hardly_slower
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess
from tests.wire_live.peer import Peer

FRAMES = 7
GROWTH_KIB = 64 << 10                  # of a process: a few such frames on their way


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(bodies(0)))
def test_long_names_are_refused_and_take_no_memory(
    target: MqcoreProcess, honest: Honest, watch: Watch, kind: str
) -> None:
    asked = [(code, msgspec.json.encode(body)) for code, body in (
        bodies(number)[kind] for number in range(FRAMES))]
    with hardly_slower(honest):
        for code, body in asked:
            with Peer(target.broker_addr) as peer:
                answer = peer.ask(code, None, body)
            assert answer.code == 1
            assert re.search("expected at most|of more than [0-9]+ bytes", answer.remark or "")
    growth = watch.growth_kib()
    assert max(growth.values()) <= GROWTH_KIB, growth
