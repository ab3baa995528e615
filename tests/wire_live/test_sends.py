"""Recorded sends (10, 310, 320), both encodings, one-way too, on a live broker."""
from __future__ import annotations

import pytest

from mqcore.wire.properties import decode_properties
from mqcore.wire.records import Record, decode_batch
from tests.support.mqcore_process import MqcoreProcess
from tests.support.recorded import Exchange
from tests.wire_live import differences
from tests.wire_live.peer import Peer
from tests.wire_live.replay import Replay, mismatches, parameters
from tests.wire_live.state import State, until

QUEUES = 8
SENDS = (10, 310, 320)


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

    def difference(self) -> str | None:
        if self.properties.get("TRAN_MSG") == "true":
            return "half message"
        return "delayed message" if "DELAY" in self.properties else None

    def stored_properties(self) -> dict[str, str]:
        kept = {name: text for name, text in self.properties.items() if name != "WAIT"}
        return kept | {"CLUSTER": "DefaultCluster"}


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


@pytest.mark.parametrize("exchange", [
    case for case in parameters("send", *SENDS) if not case.values[0].oneway
])
def test_a_recorded_send_is_stored_and_answered_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    sent = Sent(replay)
    difference = sent.difference()
    first = 0 if difference else int(replay.expected_fields["queueOffset"])
    prepare(state, sent, first)
    with Peer(live.broker_addr) as peer:
        peer.send(replay.frame)
        found = peer.answer_to(replay.request.opaque)

    assert replay.expected is not None
    if difference is not None:
        differences.assert_known(difference, replay.expected, found)
        return
    assert mismatches(replay.expected, found) == {}
    until(lambda: bool(state.stored(sent.topic, sent.queue_id, first)), "the message in its queue")
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
        until(lambda: bool(state.stored(sent.topic, sent.queue_id)), "the message in its queue")
        assert_stored(sent, state.stored(sent.topic, sent.queue_id))
        assert peer.silent_for(0.05)


def test_a_send_answers_in_the_encoding_of_its_request(state: State) -> None:
    """Both encodings are in the recordings; this says that the set is not one-sided."""
    codecs = {case.values[0].codec for case in parameters("send", *SENDS)}

    assert codecs == {"JSON", "ROCKETMQ"}
