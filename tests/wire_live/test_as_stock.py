"""What a differential run against stock found, each with the answer that stock gives."""
from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command
from mqcore.wire.records import BatchItem, decode_record, encode_batch
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields
from tests.wire_live.state import State

NOTICE, CHECK = 40, 39
FRAME_BYTES = 16_777_216                # with the length word; the largest that there is
SYSTEM_ERROR = 1


# -- large requests --------------------------------------------------------------------------------


def heartbeat(group: str, topics: int, client_id: str = "member") -> bytes:
    """A consumer that subscribes so many topics; its body of the size that a Java client makes."""
    return fastjson.dumps({"clientID": client_id, "producerDataSet": [], "consumerDataSet": [{
        "groupName": group, "messageModel": "CLUSTERING", "consumeType": "CONSUME_PASSIVELY",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [{
            "classFilterMode": False, "topic": f"{group}-{number}", "subString": "*",
            "tagsSet": [], "codeSet": [], "subVersion": 1_700_000_000_000, "expressionType": "TAG",
        } for number in range(topics)],
    }]})


def test_a_heartbeat_may_name_five_thousand_topics(live: MqcoreProcess) -> None:
    body = heartbeat("Wide", 5_000)
    assert len(body) > 393_216
    with Peer(live.broker_addr) as peer:
        answer = peer.ask(Code.HEART_BEAT, None, body)
        assert answer.code == 0, answer.remark
        connections = peer.ask(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "Wide"})
    assert len(fastjson.loads(connections.body)["subscriptionTable"]) == 5_000


def test_a_lock_may_name_eight_thousand_queues(live: MqcoreProcess) -> None:
    queues = [{"brokerName": "broker-a", "queueId": number, "topic": "WideLock"}
              for number in range(8_000)]
    body = fastjson.dumps({"clientId": "member", "consumerGroup": "Locks", "mqSet": queues})
    assert len(body) > 393_216
    with Peer(live.broker_addr) as peer:
        answer = peer.ask(Code.LOCK_BATCH_MQ, None, body)

    assert answer.code == 0, answer.remark
    assert len(fastjson.loads(answer.body)["lockOKMQSet"]) == 8_000


@pytest.mark.parametrize("code", [Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.GET_MAX_OFFSET, 9999])
def test_the_largest_frame_of_any_code_is_answered(live: MqcoreProcess, code: int) -> None:
    with Peer(live.broker_addr) as peer:
        answer = peer.ask(code, {"topic": "T"}, b" " * (FRAME_BYTES - 1_000))
        assert answer.code == (3 if code == 9999 else SYSTEM_ERROR)
        assert peer.ask(Code.GET_BROKER_CONFIG).code == 0


def test_a_large_body_has_to_be_strict_json(live: MqcoreProcess) -> None:
    relaxed = b'{"clientID":"x","consumerDataSet":[' + b" " * 400_000 + b"{groupName:'G'}]}"
    with Peer(live.broker_addr) as peer:
        answer = peer.ask(Code.HEART_BEAT, None, relaxed)

    assert answer.code == SYSTEM_ERROR
    assert "bytes that are not strict JSON" in (answer.remark or "")


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1_0", " 3 ", "\u0663", "", "0x1", "1" * 20])
@pytest.mark.parametrize(("code", "field"), [
    (Code.SEND_MESSAGE_V2, "e"), (Code.PULL_MESSAGE, "queueId"), (Code.GET_MAX_OFFSET, "queueId"),
])
def test_what_is_no_number_is_named(
    live: MqcoreProcess, state: State, code: int, field: str, text: str
) -> None:
    state.topic("Numbers", 8)
    fields = {
        Code.SEND_MESSAGE_V2: send_fields, Code.PULL_MESSAGE: pull_fields,
    }.get(Code(code), lambda topic: {"topic": topic})("Numbers")
    answer = state.ask(code, {**fields, field: text}, b"body")

    assert answer.code == SYSTEM_ERROR
    assert f"header field {field} is " in (answer.remark or "")


# -- transactions and batches ----------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["5", "4", "-1", "99"])
def test_an_end_with_an_unknown_decision_is_refused(state: State, decision: str) -> None:
    answer = state.ask(Code.END_TRANSACTION, {
        "producerGroup": "PG", "tranStateTableOffset": "0", "commitLogOffset": "0",
        "commitOrRollback": decision})

    assert (answer.code, answer.remark) == (
        SYSTEM_ERROR, f"header field commitOrRollback is {decision}: expected 0, 8 or 12")


def test_a_batch_with_the_mark_of_a_half_message_is_stored_as_it_is(state: State) -> None:
    state.topic("Batches", 1)
    body = encode_batch([BatchItem(b"a", {}), BatchItem(b"b", {})])
    answer = state.ask(Code.SEND_BATCH_MESSAGE, send_fields(
        "Batches", properties="TRAN_MSG\x01true", batch=True), body)

    assert (answer.code, answer.remark) == (0, None)
    wait_until(lambda: state.queue_end("Batches", 0) == 2, "both messages in their queue")


def test_the_first_check_has_flag_and_reconsume_times_of_the_half_message(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "broker.transaction_timeout_ms": 100, "broker.transaction_check_interval_ms": 100}
    with mqcore_up(tmp_path, settings) as broker, State(broker.broker_addr) as peer:
        peer.topic("Orders", 1)
        beat = fastjson.dumps({"clientID": "p", "producerDataSet": [{"groupName": "PG"}],
                               "consumerDataSet": []})
        assert peer.ask(Code.HEART_BEAT, None, beat).code == 0
        fields = send_fields(
            "Orders", properties="TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01K", flag=7,
            sys_flag=4, reconsume_times=3, born_ms=time.time_ns() // 1_000_000)
        assert peer.ask(Code.SEND_MESSAGE_V2, fields, b"half").code == 0
        first, second = (decode_record(received(peer, CHECK).body) for _ in range(2))

    assert (first.flag, first.reconsume_times) == (7, 3)
    assert (second.flag, second.reconsume_times) == (0, 0)          # about the copy, as in stock
    assert (first.topic, first.body) == ("Orders", b"half")


def received(peer: Peer, code: int) -> Command:
    """The next request of the broker with that code."""
    while True:
        command = peer.receive()
        if command.code == code and not command.is_response:
            return command


# -- groups ----------------------------------------------------------------------------------------


def test_the_end_of_a_member_is_told_whatever_the_group_says(
    live: MqcoreProcess, state: State
) -> None:
    assert state.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, fastjson.dumps({
        "groupName": "Quiet", "notifyConsumerIdsChangedEnable": False})).code == 0
    with Peer(live.broker_addr) as stays:
        assert stays.ask(Code.HEART_BEAT, None, heartbeat("Quiet", 1, "stays")).code == 0
        with Peer(live.broker_addr) as goes:
            assert goes.ask(Code.HEART_BEAT, None, heartbeat("Quiet", 1, "goes")).code == 0
            assert stays.silent_for(0.2)                    # that one came is not told
        notice = received(stays, NOTICE)

    assert (notice.ext or {})["consumerGroup"] == "Quiet"


# -- access control, codes of 5.x ------------------------------------------------------------------


@pytest.mark.parametrize(("code", "answered"), [(50, 209), (51, 210), (52, 1), (53, 211)])
def test_requests_about_access_control_are_refused_by_their_own_codes(
    state: State, code: int, answered: int
) -> None:
    answer = state.ask(code, {"accessKey": "abcdefgh", "globalWhiteAddrs": "1.2.3.4"})

    assert answer.code == answered
    assert answer.remark == "this broker has no access control: aclEnable is false"


def test_a_topic_and_a_group_are_shown_as_5_asks_for_them(
    live: MqcoreProcess, state: State
) -> None:
    state.topic("Shown", 3)
    state.consumer("Shows", "Shown", "TagA")
    state.ask(Code.UPDATE_CONSUMER_OFFSET, {
        "consumerGroup": "Shows", "topic": "Shown", "queueId": "0", "commitOffset": "0"})
    topic = fastjson.loads(state.ask(Code.GET_TOPIC_CONFIG, {"topic": "Shown"}).body)
    group = fastjson.loads(state.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "Shows"}).body)
    topics = fastjson.loads(state.ask(Code.QUERY_TOPICS_BY_CONSUMER, {"group": "Shows"}).body)
    wanted = fastjson.loads(state.ask(
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "Shows", "topic": "Shown"}).body)

    assert (topic["topicName"], topic["writeQueueNums"], topic["perm"]) == ("Shown", 3, 6)
    assert (group["groupName"], group["retryMaxTimes"]) == ("Shows", 16)
    assert topics["topicList"] == ["Shown"]
    assert wanted["subscriptionData"]["subString"] == "TagA"
    nobody = state.ask(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "No", "topic": "Shown"})
    assert fastjson.loads(nobody.body) == {"group": "No", "topic": "Shown"}
    missing = state.ask(Code.GET_TOPIC_CONFIG, {"topic": "Nowhere"})
    assert (missing.code, missing.remark) == (17, "No topic in this broker. topic: Nowhere")


def test_a_lite_pull_is_served_natively_like_a_pull(live: MqcoreProcess, state: State) -> None:
    state.topic("Lite", 1)
    state.message("Lite")
    wait_until(lambda: state.queue_end("Lite", 0) == 1, "the message in its queue")
    found = state.ask(Code.LITE_PULL_MESSAGE, pull_fields("Lite"))
    plain = state.ask(Code.PULL_MESSAGE, pull_fields("Lite"))

    assert (found.code, found.ext, found.body) == (plain.code, plain.ext, plain.body)
    assert decode_record(found.body).topic == "Lite"
