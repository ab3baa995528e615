"""Recorded pulls (11), both encodings, on a live broker with its queues filled alike."""
from __future__ import annotations

import time

import pytest

from mqcore.wire import fastjson
from mqcore.wire.command import Command
from mqcore.wire.records import Record, decode_records
from tests.support.mqcore_process import MqcoreProcess
from tests.support.recorded import Exchange
from tests.support.waiting import wait_until
from tests.wire_live import differences
from tests.wire_live.peer import Peer
from tests.wire_live.replay import Replay, mismatches, parameters
from tests.wire_live.state import State, resendable

COMMITS, SUSPENDS, HAS_SUBSCRIPTION = 1, 2, 4
STILL_HELD_S = 0.05
WAKE_S = 2.0


class Pull:
    """A recorded pull, and the state that its answer implies."""

    def __init__(self, replay: Replay) -> None:
        fields = replay.fields
        self.replay = replay
        self.group, self.topic = fields["consumerGroup"], fields["topic"]
        self.queue_id, self.offset = int(fields["queueId"]), int(fields["queueOffset"])
        self.sys_flag, self.version = int(fields["sysFlag"]), int(fields["subVersion"])
        self.commit_offset = int(fields["commitOffset"])
        self.sql = fields.get("expressionType") == "SQL92"
        self.expected = replay.expected
        self.records: list[Record] = []
        if self.expected is not None and self.expected.code == 0:
            self.records = decode_records(self.expected.body)

    @property
    def end(self) -> int:
        """How many messages the queue had."""
        if self.expected is None or self.expected.code == 25:
            return self.offset
        return int(self.replay.expected_fields["maxOffset"])

    @property
    def expression(self) -> str:
        """What the group subscribed to: all, or the tags of what it got."""
        if self.expected is None or self.expected.code not in (0, 20):
            return "*"
        seen = int(self.replay.expected_fields["nextBeginOffset"]) - self.offset
        if self.records and len(self.records) == seen:
            return "*"
        return " || ".join(sorted({record.tags or "" for record in self.records})) or "wanted"

    @property
    def subscribed(self) -> str:
        """The same in the language of the pull."""
        if not self.sql:
            return self.expression
        if self.expression == "*":
            return "TAGS IS NULL OR TAGS IS NOT NULL"
        return " OR ".join(
            f"TAGS = '{tag}'" if tag else "TAGS IS NULL" for tag in self.expression.split(" || ")
        )

    def prepare(self, state: State) -> None:
        state.topic(self.topic, self.queue_id + 1)
        state.fill(self.topic, self.queue_id, self.end, self.records)
        if not self.sys_flag & HAS_SUBSCRIPTION:
            older = 1 if self.expected is not None and self.expected.code == 25 else 0
            state.consumer(
                self.group, self.topic, self.subscribed, version=self.version - older,
                kind="SQL92" if self.sql else "TAG",
            )


def assert_same_records(wanted: list[Record], found: list[Record], pull: Pull) -> None:
    def content(record: Record, properties: dict[str, str]) -> tuple[object, ...]:
        return (record.queue_offset, record.flag, record.sys_flag, record.body, record.body_crc,
                record.reconsume_times, record.born_timestamp_ms, properties)

    assert [content(record, resendable(record)) for record in found] == [
        content(record, resendable(record) or {"none": "1"}) for record in wanted
    ]
    assert {record.properties["CLUSTER"] for record in found} <= {"DefaultCluster"}
    assert {(record.topic, record.queue_id) for record in found} <= {(pull.topic, pull.queue_id)}


def answered(case: object) -> bool:
    return case.values[0].response is not None        # type: ignore[attr-defined]


PULLS = parameters("pull", 11)


@pytest.mark.parametrize("exchange", [case for case in PULLS if answered(case)])
def test_a_recorded_pull_is_answered_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    pull = Pull(replay)
    pull.prepare(state)
    if pull.sys_flag & SUSPENDS and pull.expected is not None and pull.expected.code == 19:
        replay.shorten_hold()
    with Peer(live.broker_addr) as peer:
        peer.send(replay.frame)
        found = peer.answer_to(replay.request.opaque)

    assert pull.expected is not None
    different = mismatches(pull.expected, found)
    if pull.expected.codec != replay.request.codec:
        differences.assert_known("encoding of answers", pull.expected, found)
        del different["codec"]
    assert different == {}
    assert_same_records(pull.records, decode_records(found.body), pull)
    assert_committed(state, pull)


def assert_committed(state: State, pull: Pull) -> None:
    """commitOffset counts if bit 0 of sysFlag says so and the pull passed its checks."""
    if pull.sys_flag & COMMITS and pull.expected is not None and pull.expected.code != 25:
        wait_until(
            lambda: state.committed(pull.group, pull.topic, pull.queue_id) == pull.commit_offset,
            f"offset {pull.commit_offset} committed")


@pytest.mark.parametrize("exchange", [case for case in PULLS if not answered(case)])
def test_a_recorded_pull_that_was_held_is_held_until_a_message_arrives(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    pull = Pull(replay)
    pull.prepare(state)
    with Peer(live.broker_addr) as peer:
        peer.send(replay.frame)
        assert peer.silent_for(STILL_HELD_S)
        state.message(pull.topic, pull.queue_id, b"wakes")
        found = peer.answer_to(replay.request.opaque, WAKE_S)

    (record,) = decode_records(found.body)
    assert (found.code, found.remark, found.codec) == (0, "FOUND", replay.request.codec)
    assert (record.body, record.queue_offset) == (b"wakes", pull.offset)
    assert (found.ext or {})["nextBeginOffset"] == str(pull.offset + 1)


@pytest.mark.parametrize("exchange", [
    case for case in PULLS if answered(case) and case.values[0].response.header["code"] == 21
])
def test_a_moved_offset_leaves_a_message_that_says_so(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    pull = Pull(Replay(exchange))
    pull.prepare(state)
    first = state.queue_end("OFFSET_MOVED_EVENT", 0)
    state.send(pull.replay.frame)
    state.answer_to(pull.replay.request.opaque)
    wait_until(lambda: bool(state.stored("OFFSET_MOVED_EVENT", 0, first)), "an event message")

    (event,) = state.stored("OFFSET_MOVED_EVENT", 0, first)
    assert (event.properties["TAGS"], event.properties["KEYS"]) == (pull.group, pull.group)
    assert fastjson.loads(event.body) == {
        "consumerGroup": pull.group, "offsetRequest": pull.offset, "offsetNew": pull.end,
        "messageQueue": {
            "brokerName": "broker-a", "queueId": pull.queue_id, "topic": pull.topic,
        },
    }


@pytest.mark.parametrize("exchange", PULLS[:3] + [
    case for case in PULLS if case.values[0].codec == "ROCKETMQ"
][:3])
def test_the_fast_port_serves_no_pulls(live: MqcoreProcess, exchange: Exchange) -> None:
    replay = Replay(exchange)
    host, _, port = live.broker_addr.rpartition(":")
    with Peer(f"{host}:{int(port) - 2}") as peer:
        peer.send(replay.frame)
        found = peer.answer_to(replay.request.opaque)
    expected = Command(
        3, opaque=replay.request.opaque, flag=1, remark=" request type 11 not supported",
        codec=replay.request.codec,
    )

    assert mismatches(expected, found) == {}


def test_a_hold_that_nothing_ends_is_answered_when_its_time_is_over(state: State) -> None:
    replay = next(Replay(case.values[0]) for case in PULLS if not answered(case)
                  and int(Replay(case.values[0]).fields["sysFlag"]) & HAS_SUBSCRIPTION)
    replay.shorten_hold()
    pull = Pull(replay)
    pull.prepare(state)
    began = time.monotonic()
    state.send(replay.frame)
    found = state.answer_to(replay.request.opaque)
    took_s = time.monotonic() - began

    assert (found.code, found.remark) == (19, "OFFSET_OVERFLOW_ONE")
    assert 0.28 < took_s < 1.3
