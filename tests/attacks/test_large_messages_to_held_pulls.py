"""Large messages reach all held pulls of one connection as fast as it reads them."""
from __future__ import annotations

import time

import pytest

from tests.attacks.honest import Honest
from tests.attacks.medians import assert_hardly_slower
from tests.hostile.watch import Watch
from tests.pull.puller import Puller, records
from tests.support.mqcore_process import MqcoreProcess

PULLS = 64
BODY = b"L" * 100_000
ROUNDS = 5


def seconds_to_all(target: MqcoreProcess, held: int) -> float:
    """From the acknowledgement of a large message until `held` waiting pulls have it."""
    with Puller(target.broker_addr) as waiting, Puller(target.broker_addr) as sender:
        waiting.topic("Large", 1)
        end = waiting.queue_end("Large", 0)
        waiting.pull("Large", queueOffset=end)
        asked = {waiting.ask_to_pull("Large", queueOffset=end, sysFlag=6,
                                     suspendTimeoutMillis=60_000) for _ in range(held)}
        assert waiting.silent_for(0.2)
        assert sender.answer_to(sender.put_later("Large", {}, BODY)).code == 0
        began = time.monotonic()
        for _ in range(held):
            answer = waiting.receive(20)
            asked.remove(answer.opaque)
            assert [record.body for record in records(answer)] == [BODY]
        return time.monotonic() - began


@pytest.mark.slow
def test_the_last_of_64_held_pulls_gets_100_kb_as_soon_as_the_first_ones_are_read(
    target: MqcoreProcess, watch: Watch, honest: Honest
) -> None:
    calm = honest.measure()
    with honest.span() as attacked:
        one = min(seconds_to_all(target, 1) for _ in range(ROUNDS))
        all_of_them = min(seconds_to_all(target, PULLS) for _ in range(ROUNDS))
    print(f"one {one * 1000:.1f} ms, {PULLS} {all_of_them * 1000:.1f} ms")
    assert all_of_them < 0.8           # who waits for the next look at all pulls waits seconds
    assert_hardly_slower(attacked, calm)


def test_a_reader_that_pauses_gets_the_rest_when_it_goes_on(
    target: MqcoreProcess, watch: Watch
) -> None:
    with (Puller(target.broker_addr, receive_buffer_bytes=4_096) as waiting,
          Puller(target.broker_addr) as sender):
        waiting.topic("LargeSlow", 1)
        waiting.pull("LargeSlow")
        asked = {waiting.ask_to_pull("LargeSlow", sysFlag=6, suspendTimeoutMillis=60_000)
                 for _ in range(PULLS)}
        sender.batch("LargeSlow", [{}], BODY)
        assert sender.silent_for(1.0)
        for _ in range(PULLS):
            answer = waiting.receive(20)
            asked.remove(answer.opaque)
            assert [record.body for record in records(answer)] == [BODY]
    assert not asked
