"""A held pull is answered by the arrival, not by a timer."""
from __future__ import annotations

import statistics
import time

import pytest

from mqcore.wire.command import Codec, encode, request
from mqcore.wire.records import decode_records
from tests.support.mqcore_process import MqcoreProcess
from tests.wire_live.peer import Peer, pull_fields
from tests.wire_live.state import State

ROUNDS = 20
SUSPENDS = 6                     # sysFlag: hold, and the subscription is in the header
HOLD_MS = 15_000
USUAL_WAKE_S = 0.05


def hold(peer: Peer, topic: str, offset: int, codec: Codec, subscription: str = "*") -> int:
    """
    Send a pull that will be held; returns its opaque once it is: a later question of the same
    connection is answered after the pull was looked at.
    """
    pull = request(11, pull_fields(
        topic, sys_flag=SUSPENDS, suspend_ms=HOLD_MS, offset=offset, subscription=subscription,
    ), codec=codec)
    peer.send(encode(pull))
    assert peer.ask(30, {"topic": topic, "queueId": "0"}).code == 0
    return pull.opaque


@pytest.mark.parametrize("codec", list(Codec))
def test_a_held_pull_is_answered_within_50_ms_of_the_send(
    live: MqcoreProcess, state: State, codec: Codec
) -> None:
    topic = f"Wake{codec.name}"
    state.topic(topic, 1)
    took_s = []
    with Peer(live.broker_addr) as consumer:
        for number in range(ROUNDS):
            opaque = hold(consumer, topic, number, codec)
            assert consumer.silent_for(0.01)
            began = time.monotonic()
            state.message(topic, body=b"%d" % number)
            found = consumer.answer_to(opaque)
            took_s.append(time.monotonic() - began)
            (record,) = decode_records(found.body)
            assert (record.body, found.codec) == (b"%d" % number, codec)

    assert statistics.median(took_s) < USUAL_WAKE_S, took_s


def test_a_message_with_another_tag_does_not_end_a_hold(
    live: MqcoreProcess, state: State
) -> None:
    state.topic("WakeTag", 1)
    with Peer(live.broker_addr) as consumer:
        opaque = hold(consumer, "WakeTag", 0, Codec.JSON, "A || B")
        state.message("WakeTag", properties={"TAGS": "C"})
        assert consumer.silent_for(0.1)
        state.message("WakeTag", properties={"TAGS": "B"})
        found = consumer.answer_to(opaque)

    assert (found.code, (found.ext or {})["nextBeginOffset"]) == (0, "2")
    assert [record.tags for record in decode_records(found.body)] == ["B"]


def test_every_pull_that_waits_at_a_queue_is_answered_by_one_message(
    live: MqcoreProcess, state: State
) -> None:
    state.topic("WakeMany", 1)
    with Peer(live.broker_addr) as first, Peer(live.broker_addr) as second:
        waiting = {peer: {hold(peer, "WakeMany", 0, codec) for codec in Codec}
                   for peer in (first, second)}
        assert first.silent_for(0.02)
        state.message("WakeMany", body=b"for all")

        for peer, opaques in waiting.items():
            answers = [peer.receive() for _ in opaques]
            assert {answer.opaque for answer in answers} == opaques
            assert [decode_records(answer.body)[0].body for answer in answers] == [b"for all"] * 2
