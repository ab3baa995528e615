"""Pulls that wait (broker.md 6.5)."""
from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.pull.puller import COMMITS, HAS_SUBSCRIPTION, SUSPENDS, Puller, next_offset, offsets
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.state import SUBSCRIPTION_TIME_MS

V = SUBSCRIPTION_TIME_MS
WAITS = HAS_SUBSCRIPTION | SUSPENDS
STILL_HELD_S = 0.1
TELL_S = 5.0                        # then a pull is told of messages that it did not want


def wait(puller: Puller, topic: str, **fields: object) -> int:
    return puller.ask_to_pull(topic, **{"sysFlag": WAITS, "suspendTimeoutMillis": 15_000, **fields})


@pytest.mark.parametrize(("kind", "expression"), [
    ("TAG", "*"), ("TAG", "red"), ("SQL92", "TAGS = 'red'"),
    ("TAG", " || ".join(["red"] + [f"x{number}" for number in range(400)])),
])
def test_a_pull_waits_for_a_message_that_it_wants(
    puller: Puller, topic: str, kind: str, expression: str
) -> None:
    puller.pull(topic, subscription=expression, expressionType=kind)
    with Puller(f"127.0.0.1:{puller.socket.getpeername()[1]}") as waiting:
        opaque = wait(waiting, topic, subscription=expression, expressionType=kind)
        assert waiting.silent_for(STILL_HELD_S)
        if expression != "*":
            puller.batch(topic, [{"TAGS": "blue"}] * 3)
            assert waiting.silent_for(STILL_HELD_S)
        puller.batch(topic, [{"TAGS": "red"}])
        found = waiting.answer_to(opaque, 1.0)

    at = 0 if expression == "*" else 3
    assert (found.code, found.remark, offsets(found)) == (0, "FOUND", [at])
    assert next_offset(found) == at + 1


def test_a_pull_that_waits_by_its_groups_subscription_is_filtered_too(
    puller: Puller, topic: str
) -> None:
    puller.beat("waits", {topic: ("SQL92", "n > 5", V)})
    with Puller(f"127.0.0.1:{puller.socket.getpeername()[1]}") as waiting:
        command = waiting.ask_to_pull(topic, **{
            "consumerGroup": "waits", "sysFlag": SUSPENDS, "subscription": None,
            "expressionType": None, "subVersion": V, "suspendTimeoutMillis": 15_000})
        puller.batch(topic, [{"n": "1"}, {"n": "x"}, {}])
        assert waiting.silent_for(STILL_HELD_S)
        puller.batch(topic, [{"n": "6"}])
        assert offsets(waiting.answer_to(command, 1.0)) == [3]


def test_a_pull_that_waits_follows_its_groups_subscription(puller: Puller, topic: str) -> None:
    puller.beat("changes-held", {topic: ("SQL92", "n = 1", V)})
    with Puller(f"127.0.0.1:{puller.socket.getpeername()[1]}") as waiting:
        command = waiting.ask_to_pull(topic, **{
            "consumerGroup": "changes-held", "sysFlag": SUSPENDS, "subscription": None,
            "expressionType": None, "subVersion": V, "suspendTimeoutMillis": 15_000})
        assert waiting.silent_for(STILL_HELD_S)
        for number in range(2, 50):
            puller.beat("changes-held", {topic: ("SQL92", f"n = {number}", V + number)})
        puller.batch(topic, [{"n": "1"}, {"n": "49"}, {"n": "1"}])
        assert offsets(waiting.answer_to(command, 1.0)) == [1]


@pytest.mark.parametrize(("kind", "expression"), [
    ("SQL92", "n = 2"), ("TAG", "two"), ("TAG", " || ".join(f"x{n}" for n in range(300)) + "||two"),
])
def test_messages_that_came_before_a_change_are_looked_at_again(
    puller: Puller, topic: str, kind: str, expression: str
) -> None:
    puller.beat("looks-again", {topic: ("SQL92", "n = 1", V)})
    with Puller(f"127.0.0.1:{puller.socket.getpeername()[1]}") as waiting:
        command = waiting.ask_to_pull(topic, **{
            "consumerGroup": "looks-again", "sysFlag": SUSPENDS, "subscription": None,
            "expressionType": None, "subVersion": V, "suspendTimeoutMillis": 15_000})
        puller.batch(topic, [{"n": "2", "TAGS": "two"}])
        assert waiting.silent_for(STILL_HELD_S)
        puller.beat("looks-again", {topic: (kind, expression, V + 1)})
        assert offsets(waiting.answer_to(command, 3.0)) == [0]


def test_a_pull_that_nothing_matches_is_told_how_far_the_queue_has_come(
    puller: Puller, topic: str
) -> None:
    began = time.monotonic()
    opaque = wait(puller, topic, subscription="red")
    assert puller.silent_for(STILL_HELD_S)
    with Puller(f"127.0.0.1:{puller.socket.getpeername()[1]}") as sender:
        sender.batch(topic, [{"TAGS": "blue"}] * 3)
    found = puller.answer_to(opaque, TELL_S + 3)

    assert (found.code, found.remark, next_offset(found)) == (20, "NO_MATCHED_MESSAGE", 3)
    assert TELL_S - 0.1 < time.monotonic() - began < TELL_S + 1.5


@pytest.mark.parametrize("flags", [HAS_SUBSCRIPTION, HAS_SUBSCRIPTION | COMMITS])
def test_a_pull_that_may_not_wait_is_answered_at_once(
    puller: Puller, topic: str, flags: int
) -> None:
    found = puller.pull(topic, sysFlag=flags, suspendTimeoutMillis=15_000)

    assert (found.code, found.remark) == (19, "NO_MESSAGE_IN_QUEUE")


def test_a_pull_that_waits_commits_once_and_at_once(puller: Puller, topic: str) -> None:
    opaque = wait(puller, topic, sysFlag=WAITS | COMMITS, commitOffset=4, consumerGroup="held")
    with Puller(f"127.0.0.1:{puller.socket.getpeername()[1]}") as other:
        wait_until(lambda: other.committed("held", topic, 0) == 4, "offset 4 committed")
        other.ask(15, {"consumerGroup": "held", "topic": topic, "queueId": "0",
                       "commitOffset": "9"})
        other.batch(topic, [{}])
        assert puller.answer_to(opaque, 1.0).code == 0
        assert other.committed("held", topic, 0) == 9


def test_messages_skipped_by_a_far_offset_do_not_wait(puller: Puller, topic: str) -> None:
    puller.batch(topic, [{}])

    assert puller.pull(topic, sysFlag=WAITS, suspendTimeoutMillis=15_000, queueOffset=2).code == 21


def test_where_long_polling_is_off_a_pull_waits_the_short_time(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "broker.long_polling_enable": False, "broker.short_polling_ms": 300}
    with mqcore_up(tmp_path, settings) as broker, Puller(broker.broker_addr) as one:
        one.topic("T", 1)
        began = time.monotonic()
        opaque = wait(one, "T")
        found = one.answer_to(opaque, 3.0)

        assert (found.code, found.remark) == (19, "NO_MESSAGE_IN_QUEUE")
        assert 0.28 < time.monotonic() - began < 1.5


def test_a_pull_beyond_the_room_for_waiting_ones_is_answered_at_once(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "processes.held_pull_count_max": 3, "processes.serving_count": 1}
    with mqcore_up(tmp_path, settings) as broker, Puller(broker.broker_addr) as one:
        one.topic("T", 1)
        one.pull("T")                                  # its group is known from now on
        held = [wait(one, "T") for _ in range(3)]
        assert one.pull("T", sysFlag=WAITS, suspendTimeoutMillis=15_000).code == 19
        with Puller(broker.broker_addr) as sender:
            sender.batch("T", [{}])
        assert sorted(one.receive(2.0).opaque for _ in held) == sorted(held)


def test_a_pull_that_waits_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    """Else a Java consumer hears of it by its own time-out, half a minute later."""
    with mqcore_up(tmp_path) as broker, Puller(broker.broker_addr) as waiting:
        waiting.topic("Stopping", 1)
        opaque = wait(waiting, "Stopping")
        assert waiting.silent_for(STILL_HELD_S)
        broker.stop()
        found = waiting.answer_to(opaque, 1.0)
        assert (found.code, found.remark) == (1, "the broker stops")
        assert waiting.is_closed()


def test_a_pull_that_waits_while_its_group_is_forbidden_is_the_last_that_is_served(
    puller: Puller, topic: str
) -> None:
    """Stock looks at the group again when a message comes, and refuses this one already."""
    puller.pull(topic, consumerGroup="forbidden")      # the group is known: the next one is held
    waiting = wait(puller, topic, consumerGroup="forbidden")
    puller.group("forbidden", consumeEnable=False)
    puller.put_later(topic, {}, b"last")

    assert offsets(puller.answer_to(waiting)) == [0]
    assert puller.pull(topic, consumerGroup="forbidden").code == 16
