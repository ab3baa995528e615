"""Messages sent back, replies, groups and offsets by request on a live broker."""
from __future__ import annotations

from typing import Any

import pytest

from mqcore.wire import fastjson
from mqcore.wire.command import Command, encode, request, response
from mqcore.wire.properties import decode_properties
from mqcore.wire.records import Record
from tests.support.mqcore_process import MqcoreProcess
from tests.support.recorded import Exchange
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields
from tests.wire_live.replay import Replay, mismatches, parameters
from tests.wire_live.state import State

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
POSITION_DIGITS = 16                        # of an offset message id, in hex
FIRST_TRY_LEVEL = 3


def position_of(answer: Command) -> int:
    message_id = (answer.ext or {})["msgId"]
    assert message_id is not None
    return int(message_id[-POSITION_DIGITS:], 16)


def ask(live: MqcoreProcess, replay: Replay) -> Command:
    with Peer(live.broker_addr) as peer:
        peer.send(replay.frame)
        return peer.answer_to(replay.request.opaque)


def send_back(state: State, position: int, group: str, **changes: str) -> Command:
    return state.ask(36, {"offset": str(position), "group": group, "delayLevel": "0"} | changes)


def last_of(state: State, topic: str, queue_id: int = 0) -> Record:
    """The newest message of a queue."""
    return state.stored(topic, queue_id, state.queue_end(topic, queue_id) - 1)[-1]


@pytest.mark.parametrize("exchange", parameters("consumer", 36))
def test_a_message_sent_back_is_answered_alike_and_waits_for_its_next_try(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    state.topic("SentBack", 1)
    answer = state.message("SentBack", body=b"again", properties={"KEYS": "k"})
    before = state.queue_end(SCHEDULE, FIRST_TRY_LEVEL - 1)
    replay.request.ext = {**replay.fields, "offset": str(position_of(answer))}
    replay.frame = encode(replay.request)
    assert replay.expected is not None
    assert mismatches(replay.expected, ask(live, replay)) == {}

    wait_until(lambda: state.queue_end(SCHEDULE, FIRST_TRY_LEVEL - 1) > before, "the copy is there")
    copy = last_of(state, SCHEDULE, FIRST_TRY_LEVEL - 1)
    assert (copy.body, copy.reconsume_times) == (b"again", 1)
    assert copy.properties == {
        "KEYS": "k", "CLUSTER": "DefaultCluster", "RETRY_TOPIC": "SentBack", "WAIT": "false",
        "ORIGIN_MESSAGE_ID": (answer.ext or {})["msgId"], "DELAY": str(FIRST_TRY_LEVEL),
        "REAL_TOPIC": "%RETRY%" + replay.fields["group"], "REAL_QID": "0"}
    original = state.by_id(copy.properties["ORIGIN_MESSAGE_ID"])
    assert (copy.born_host, copy.store_host, copy.born_timestamp_ms, copy.sys_flag) == (
        original.born_host, original.store_host, original.born_timestamp_ms, original.sys_flag)


def test_a_message_is_tried_again_and_then_a_dead_letter(state: State) -> None:
    state.topic("Twice", 1)
    group, retry, dead = "twice", "%RETRY%twice", "%DLQ%twice"
    position = position_of(state.message("Twice", body=b"bad"))
    assert send_back(state, position, group, delayLevel="1").code == 0
    wait_until(lambda: state.queue_end(retry, 0) == 1, "the next try is there")
    (again,) = state.stored(retry)
    assert (again.reconsume_times, again.properties["RETRY_TOPIC"]) == (1, "Twice")

    assert send_back(state, again.physical_offset, group, maxReconsumeTimes="1").code == 0
    wait_until(lambda: state.queue_end(dead, 0) == 1, "the dead letter is there")
    (letter,) = state.stored(dead)
    assert (letter.body, letter.reconsume_times, letter.properties["RETRY_TOPIC"]) == (
        b"bad", 2, "Twice")
    assert letter.properties["ORIGIN_MESSAGE_ID"] == again.properties["ORIGIN_MESSAGE_ID"]


def test_a_consumers_own_send_to_the_retry_topic_ends_as_a_dead_letter_as_well(
    state: State
) -> None:
    state.consumer("selfmade", "TBW102")
    retry, dead = "%RETRY%selfmade", "%DLQ%selfmade"
    state.message(retry, body=b"first", reconsume_times=1)
    wait_until(lambda: state.queue_end(retry, 0) == 1, "the retry is there")
    state.message(retry, body=b"last", reconsume_times=16)
    wait_until(lambda: state.queue_end(dead, 0) == 1, "the dead letter is there")

    assert [record.body for record in state.stored(retry)] == [b"first"]
    assert [record.body for record in state.stored(dead)] == [b"last"]


@pytest.mark.parametrize("exchange", parameters("send", 324, 325))
def test_a_reply_reaches_its_requester_and_its_sender_hears_of_it(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    properties = decode_properties(replay.fields.get("properties") or replay.fields["i"])
    with Peer(live.broker_addr) as requester, Peer(live.broker_addr) as replier:
        found_by_stock = replay.expected is None or replay.expected.code == 0
        if found_by_stock:
            body: dict[str, Any] = {"clientID": properties["REPLY_TO_CLIENT"],
                                    "producerDataSet": [{"groupName": "asking"}]}
            requester.ask(34, None, fastjson.dumps(body))
        replier.send(replay.frame)
        if found_by_stock:
            push = requester.receive()
            assert (push.code, push.body) == (326, replay.request.body)
            assert properties.items() <= decode_properties(
                (push.ext or {})["properties"] or "").items()
            requester.send(encode(response(push, 0)))
        answer = replier.answer_to(replay.request.opaque)

    if replay.expected is not None:
        assert mismatches(replay.expected, answer, ("msgId", "queueOffset")) == {}
    stored = state.by_id((answer.ext or {})["msgId"] or "")
    assert (stored.topic, stored.body) == (REPLY_TOPIC, replay.request.body)


def test_a_group_that_is_switched_off_cannot_pull_and_is_gone_when_deleted(state: State) -> None:
    state.topic("Switched", 1)
    config = {"groupName": "switched", "consumeEnable": False}
    assert state.ask(200, None, fastjson.dumps(config)).code == 0
    assert state.ask(11, pull_fields("Switched", group="switched")).code == 16
    assert state.ask(200, None, fastjson.dumps(config | {"consumeEnable": True})).code == 0
    assert state.ask(11, pull_fields("Switched", group="switched")).code == 19

    assert state.ask(207, {"groupName": "switched", "removeOffset": "true"}).code == 0
    groups = fastjson.loads(state.ask(201).body)["subscriptionGroupTable"]
    assert "switched" not in groups


def test_consumers_are_told_where_to_go_on_and_asked_where_they_are(
    live: MqcoreProcess, state: State
) -> None:
    state.topic("Moved", 1)
    state.fill("Moved", 0, 5)
    group = {"group": "moved", "topic": "Moved"}
    state.ask(15, {"consumerGroup": "moved", "topic": "Moved", "queueId": "0", "commitOffset": "4"})
    reset: dict[str, str | None] = {**group, "timestamp": "0", "isForce": "true"}
    assert state.ask(222, reset).code == 206
    with State(live.broker_addr) as member:
        member.consumer("moved", "Moved", client_id="member")
        answer = state.ask(222, reset)
        push = until_code(member, 220)
        assert fastjson.loads(push.body) == fastjson.loads(answer.body)
        ((_, offset),) = fastjson.loads(push.body)["offsetTable"].items()
        assert offset == 0

        question = request(223, {**group, "clientAddr": "member"})
        state.send(encode(question))
        table: dict[Any, int] = {
            fastjson.ObjectKey.of(brokerName="broker-a", queueId=0, topic="Moved"): 3}
        asked = until_code(member, 221)
        member.send(encode(response(
            asked, 0, body=fastjson.dumps({"consumerTable": {}, "messageQueueTable": table}))))
        status = state.answer_to(question.opaque)
    assert fastjson.loads(status.body)["consumerTable"] == {"member": table}


def until_code(peer: Peer, code: int) -> Command:
    """The next request of a code that the broker sends."""
    while True:
        command = peer.receive()
        if command.code == code and not command.is_response:
            return command
