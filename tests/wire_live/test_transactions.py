"""Recorded ends of transactions (37) and revivals (323) on a live broker."""
from __future__ import annotations

from dataclasses import replace

import pytest

from mqcore.wire.command import Command, encode, request
from mqcore.wire.ids import parse_offset_message_id
from mqcore.wire.records import Record, decode_record
from tests.support.mqcore_process import MqcoreProcess
from tests.support.recorded import Exchange
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer
from tests.wire_live.replay import Replay, mismatches, parameters
from tests.wire_live.state import State

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT, ROLLBACK = 8, 12
END_TRANSACTION = 37
GET_MAX_OFFSET = 30
NOT_FOUND = 1


def half(state: State, topic: str, group: str) -> Record:
    """A prepared message of `group` for queue 1 of `topic`."""
    state.topic(topic, 2)
    answer = state.message(topic, 1, b"debit and credit", {
        "TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": "0A0B" * 8, "KEYS": "k", "WAIT": "true",
    }, sys_flag=4, born_ms=1_700_000_000_123)
    return state.by_id((answer.ext or {})["msgId"] or "")


def meant(request: Command, record: Record, **other: str) -> bytes:
    """The request, about this half message."""
    return encode(replace(request, ext={
        **(request.ext or {}), "tranStateTableOffset": str(record.queue_offset),
        "commitLogOffset": str(record.physical_offset), **other}))


def stored_from(live: MqcoreProcess, position: int) -> list[Record]:
    """The records of the commit log from a position on: no client may pull the system topics."""
    found = []
    with (live.store / "commitlog" / f"{0:020d}").open("rb") as log:
        log.seek(position)
        data = log.read(1 << 20)
    at = 0
    while data[at + 4:at + 8] == b"\xda\xa3\x20\xa7":
        found.append(decode_record(data, at))
        at += found[-1].size
    return found


def op_of(live: MqcoreProcess, record: Record) -> list[Record]:
    """Op records that name a half message."""
    return [op for op in stored_from(live, record.physical_offset)
            if op.topic == OP_TOPIC and op.body == str(record.queue_offset).encode()]


@pytest.mark.parametrize("exchange", parameters("transaction", END_TRANSACTION))
def test_a_recorded_end_of_a_transaction_does_what_it_says(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    topic = f"Tx{replay.fields['producerGroup'][3:]}"[:120]
    prepared = half(state, topic, replay.fields["producerGroup"])
    decision = int(replay.fields["commitOrRollback"])
    with Peer(live.broker_addr) as peer:
        peer.send(meant(replay.request, prepared))
        if replay.expected is not None:
            found = peer.answer_to(replay.request.opaque)
            assert mismatches(replay.expected, found) == {}
        else:                              # one way: the next answer is not its own
            probe = request(GET_MAX_OFFSET, {"topic": topic, "queueId": "1"})
            peer.send(encode(probe))
            assert peer.receive().opaque == probe.opaque
        if decision in (COMMIT, ROLLBACK):
            wait_until(lambda: len(op_of(live, prepared)) == 1, "the op record")

    (op,) = op_of(live, prepared) or (None,)
    if op is not None:                     # stored behind the final message, dispatched behind it
        wait_until(lambda: state.queue_end(OP_TOPIC, 0) > op.queue_offset,
                   "the op record's queue entry")
    final = state.stored(topic, 1)
    assert (op is not None) == (decision in (COMMIT, ROLLBACK))
    assert len(final) == (1 if decision == COMMIT else 0)
    if op is not None:
        assert (op.topic, op.queue_id, op.sys_flag) == (OP_TOPIC, 0, 0)
        assert op.properties == {"TAGS": "d", "WAIT": "true"}
    if final:
        assert final[0] == replace(
            prepared, topic=topic, queue_id=1, queue_offset=0, sys_flag=COMMIT,
            physical_offset=final[0].physical_offset, size=final[0].size,
            store_timestamp_ms=final[0].store_timestamp_ms,
            prepared_transaction_offset=prepared.physical_offset)
        assert op is not None
        assert final[0].physical_offset < op.physical_offset


@pytest.mark.parametrize(("fields", "remark"), [
    ({"producerGroup": "Other"}, "producerGroup is not the group of the half message"),
    ({"tranStateTableOffset": "999999"}, "tranStateTableOffset is not the queue offset"),
    ({"commitLogOffset": "999999999999"}, "there is no message at commitLogOffset"),
    ({"commitLogOffset": "-1"}, "there is no message at commitLogOffset"),
    ({"commitLogOffset": "x"}, "commitLogOffset is 'x': expected a whole number"),
    ({"commitOrRollback": "commit"}, "commitOrRollback is 'commit'"),
])
def test_an_end_that_means_another_message_is_refused(
    live: MqcoreProcess, state: State, fields: dict[str, str], remark: str
) -> None:
    prepared = half(state, "Refused", "PG")
    answer = end(state, prepared, COMMIT, **fields)

    assert answer.code == NOT_FOUND
    assert remark in (answer.remark or "")
    assert op_of(live, prepared) == []


def test_the_end_of_an_ordinary_message_is_refused(live: MqcoreProcess, state: State) -> None:
    state.topic("Ordinary", 1)
    sent = state.message("Ordinary", 0, b"no transaction", {"PGROUP": "PG"})
    record = state.by_id((sent.ext or {})["msgId"] or "")

    answer = end(state, record, ROLLBACK)
    inside = end(state, replace(record, physical_offset=record.physical_offset + 8), ROLLBACK)

    assert answer.remark == "the message at commitLogOffset is no half message"
    assert inside.remark == "there is no message at commitLogOffset"
    assert op_of(live, record) == []


@pytest.mark.parametrize("name", [
    "producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback",
])
def test_a_missing_field_of_an_end_is_named(state: State, name: str) -> None:
    fields = {"producerGroup": "PG", "tranStateTableOffset": "0", "commitLogOffset": "0",
              "commitOrRollback": "8"}
    del fields[name]

    answer = state.ask(END_TRANSACTION, dict(fields))

    assert answer.code == 1
    assert f"header field {name} is missing" in (answer.remark or "")


@pytest.mark.parametrize("exchange", parameters("transaction", 323))
def test_a_recorded_revival_makes_a_half_message_again(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    prepared = half(state, "Revived", "PG")
    before = state.queue_end(HALF_TOPIC, 0)
    request = replace(replay.request, ext={"msgId": prepared.offset_message_id})
    with Peer(live.broker_addr) as peer:
        peer.send(encode(request))
        found = peer.answer_to(request.opaque)

    assert replay.expected is not None
    assert mismatches(replay.expected, found) == {}
    wait_until(lambda: state.queue_end(HALF_TOPIC, 0) > before, "the half message in its queue")
    revived = stored_from(live, prepared.physical_offset)[1]
    assert (revived.topic, revived.queue_id) == (HALF_TOPIC, 0)
    assert revived.properties == prepared.properties | {"TRANSACTION_CHECK_TIMES": "0"}
    assert (revived.body, revived.sys_flag, revived.born_timestamp_ms) == (
        prepared.body, 0, prepared.born_timestamp_ms)
    assert (revived.born_host, revived.store_host) == (prepared.born_host, prepared.store_host)


@pytest.mark.parametrize("message_id", ["", "xyz", "0" * 32])
def test_a_revival_of_nothing_is_refused(state: State, message_id: str) -> None:
    if message_id == "0" * 32:
        message_id = "7F00000100002A9F00000000FFFFFFFF"
        assert parse_offset_message_id(message_id)[2] == 0xFFFFFFFF
    answer = state.ask(323, {"msgId": message_id})

    assert answer.code == 1
    assert "msgId" in (answer.remark or "") or "no message" in (answer.remark or "")


def end(state: State, record: Record, decision: int, **fields: str) -> Command:
    return state.ask(END_TRANSACTION, {
        "producerGroup": "PG", "tranStateTableOffset": str(record.queue_offset),
        "commitLogOffset": str(record.physical_offset), "commitOrRollback": str(decision),
        "msgId": "m", **fields})
