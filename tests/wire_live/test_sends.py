"""Recorded sends (10, 310, 320), both encodings, one-way too, on a live broker."""
from __future__ import annotations

import socket
import zlib
from pathlib import Path

import pytest

from mqcore.wire.command import Command
from mqcore.wire.properties import decode_properties
from mqcore.wire.records import Record, decode_batch
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.recorded import Exchange
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer
from tests.wire_live.replay import Replay, mismatches, parameters
from tests.wire_live.state import State

QUEUES = 8
SENDS = (10, 310, 320)
LEVELS = 18


class Sent:
    """A recorded send: where it goes and what it carries."""

    def __init__(self, replay: Replay) -> None:
        fields, short = replay.fields, replay.request.code != 10
        self.topic = fields["b" if short else "topic"]
        self.queue_id = int(fields["e" if short else "queueId"])
        self.sys_flag = int(fields["f" if short else "sysFlag"])
        self.batch = fields.get("m" if short else "batch") == "true"
        self.born_ms = int(fields["g" if short else "bornTimestamp"])
        text = fields["i" if short else "properties"]
        self.properties = decode_properties(text)
        self.body = replay.request.body

    def detour(self) -> tuple[str, int] | None:
        """(topic, queue id) where it waits before it may be seen (broker.md 4.2, 5.1)."""
        if self.properties.get("TRAN_MSG") == "true":
            return "RMQ_SYS_TRANS_HALF_TOPIC", 0
        level = int(self.properties.get("DELAY", "0"))
        return ("SCHEDULE_TOPIC_XXXX", min(level, LEVELS) - 1) if level > 0 else None

    def stored_properties(self) -> dict[str, str]:
        kept = {name: text for name, text in self.properties.items() if name != "WAIT"}
        return kept | {"CLUSTER": "DefaultCluster"}

    def diverted_properties(self) -> dict[str, str]:
        """Encoded again from all of them: WAIT is stored here (store.md 18.5)."""
        return self.properties | {"CLUSTER": "DefaultCluster", "REAL_TOPIC": self.topic,
                                  "REAL_QID": str(self.queue_id)}


def prepare(state: State, sent: Sent, first: int) -> None:
    """The topic, with `first` messages before the one to come."""
    if sent.topic != "broker-a":             # a topic that the broker has by itself
        state.topic(sent.topic, QUEUES)
    state.fill(sent.topic, sent.queue_id, first)


def assert_stored(sent: Sent, records: list[Record]) -> None:
    if sent.batch:
        items = decode_batch(sent.body)
        assert [record.body for record in records] == [item.body for item in items]
        for record, item in zip(records, items, strict=True):
            assert record.properties == item.properties | sent.stored_properties()
    else:
        (record,) = records
        assert record.body == sent.body
        assert record.properties == sent.stored_properties()
        assert record.sys_flag == sent.sys_flag
    assert {record.born_timestamp_ms for record in records} == {sent.born_ms}
    assert all(record.crc_matches() for record in records)


def assert_waits(sent: Sent, detour: tuple[str, int], answer: Command, record: Record) -> None:
    """A half or delayed message: stored elsewhere, where it was sent to is in its properties."""
    assert (record.topic, record.queue_id) == detour
    assert record.queue_offset == int((answer.ext or {})["queueOffset"] or -1)
    assert record.body == sent.body
    assert record.properties == sent.diverted_properties()
    assert record.sys_flag == sent.sys_flag & ~0xC
    assert record.born_timestamp_ms == sent.born_ms
    assert record.crc_matches()


@pytest.mark.parametrize("level", [18, 19, 1000])
def test_a_delay_above_the_highest_level_is_lowered_to_it(state: State, level: int) -> None:
    state.topic("TooLate", 1)
    answer = state.message("TooLate", 0, b"late", {"DELAY": str(level), "REAL_QID": "77", "k": "v"})

    record = state.by_id((answer.ext or {})["msgId"] or "")
    assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", LEVELS - 1)
    assert record.properties == {"DELAY": str(LEVELS), "k": "v", "CLUSTER": "DefaultCluster",
                                 "REAL_TOPIC": "TooLate", "REAL_QID": "0"}


def test_a_half_message_has_no_delay(state: State) -> None:
    state.topic("Half", 1)
    answer = state.message("Half", 0, b"half", {"DELAY": "3", "TRAN_MSG": "TRUE", "WAIT": "false"},
                           sys_flag=4)

    record = state.by_id((answer.ext or {})["msgId"] or "")
    assert (record.topic, record.queue_id, record.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
    assert record.properties == {"TRAN_MSG": "TRUE", "WAIT": "false", "CLUSTER": "DefaultCluster",
                                 "REAL_TOPIC": "Half", "REAL_QID": "0"}


@pytest.mark.parametrize("exchange", [
    case for case in parameters("send", *SENDS) if not case.values[0].oneway
])
def test_a_recorded_send_is_stored_and_answered_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    sent = Sent(replay)
    detour = sent.detour()
    first = 0 if detour else int(replay.expected_fields["queueOffset"])
    prepare(state, sent, first)
    with Peer(live.broker_addr) as peer:
        peer.send(replay.frame)
        found = peer.answer_to(replay.request.opaque)

    assert replay.expected is not None
    if detour is not None:
        assert mismatches(replay.expected, found, free=("queueOffset",)) == {}
        assert_waits(sent, detour, found, state.by_id((found.ext or {})["msgId"] or ""))
        return
    assert mismatches(replay.expected, found) == {}
    wait_until(lambda: bool(state.stored(sent.topic, sent.queue_id, first)),
               "the message in its queue")
    records = state.stored(sent.topic, sent.queue_id, first)
    assert_stored(sent, records)
    assert (found.ext or {})["msgId"] == ",".join(record.offset_message_id for record in records)


@pytest.mark.parametrize("exchange", [
    case for case in parameters("send", *SENDS) if case.values[0].oneway
])
def test_a_recorded_one_way_send_is_stored_and_not_answered(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    sent = Sent(replay)
    prepare(state, sent, 0)
    with Peer(live.broker_addr) as peer:
        peer.send(replay.frame)
        wait_until(lambda: bool(state.stored(sent.topic, sent.queue_id)),
                   "the message in its queue")
        assert_stored(sent, state.stored(sent.topic, sent.queue_id))
        assert peer.silent_for(0.05)


def test_a_send_answers_in_the_encoding_of_its_request(state: State) -> None:
    """Both encodings are in the recordings; this says that the set is not one-sided."""
    codecs = {case.values[0].codec for case in parameters("send", *SENDS)}

    assert codecs == {"JSON", "ROCKETMQ"}


def test_a_message_that_waits_elsewhere_keeps_body_checksum_and_hosts_of_ipv6(
        tmp_path: Path) -> None:
    """Its record is begun for its own topic, and sent to a system topic of another length."""
    body = bytes(range(256))
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no address ::1: {error}")
    with (mqcore_up(tmp_path, {"broker.listen_host": "::1", "broker.advertised_ip": None}) as six,
          State(f"[::1]:{six.broker_addr.rpartition(':')[2]}") as state):
        for topic in ("T", "T" * 100):
            state.topic(topic, 4)
            for properties, elsewhere, queue_id in (
                    ({"DELAY": "18"}, "SCHEDULE_TOPIC_XXXX", 17),
                    ({"TIMER_DELAY_SEC": "3600"}, "rmq_sys_wheel_timer", 0),
                    ({"TRAN_MSG": "true"}, "RMQ_SYS_TRANS_HALF_TOPIC", 0)):
                answer = state.message(topic, 3, body, properties, flag=5)
                record = state.by_id((answer.ext or {})["msgId"] or "")
                assert (record.topic, record.queue_id) == (elsewhere, queue_id)
                assert record.body == body
                assert record.body_crc == zlib.crc32(body) & 0x7FFFFFFF
                assert (record.flag, record.sys_flag) == (5, 0x30)      # both hosts are IPv6
                assert {record.born_host[0], record.store_host[0]} == {"::1"}
                assert record.properties["REAL_TOPIC"] == topic
                assert record.properties["REAL_QID"] == "3"
