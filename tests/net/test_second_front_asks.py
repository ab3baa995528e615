"""
Another front asks the coordinator of a running broker as RocketMQ's does: the small binary front
(mqcore/net/probes/binary_front.pyx) in the serving process of an ordinary `mqcore up`.
"""
from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from mqcore.acl.folder import DEFAULT_NAME
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.codes import ResponseCode
from tests.net.front import QUESTION, SAID, WORD, Front, ask_frame, pull_frame, send_frame
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.stock import free_port
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields

WHOLE_BYTES = 384 << 10             # longer commands go to the coordinator in parts


class Broker(NamedTuple):
    running: MqcoreProcess
    front: str                      # address of the binary front


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    port = free_port()
    with mqcore_up(tmp_path_factory.mktemp("fronted"), {"processes.serving_count": 1},
                   program=(sys.executable, "-m", "tests.net.fronted", str(port))) as running:
        yield Broker(running, f"127.0.0.1:{port}")


@pytest.fixture
def front(broker: Broker) -> Iterator[Front]:
    with Front(broker.front) as made:
        yield made


@pytest.fixture
def rocket(broker: Broker) -> Iterator[Peer]:
    with Peer(broker.running.broker_addr) as made:
        yield made


def member(client: str, group: str, topics: list[str]) -> bytes:
    """The body of a consumer's heartbeat."""
    return fastjson.dumps({"clientID": client, "consumerDataSet": [{
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [{
            "topic": topic, "subString": "*", "subVersion": 1} for topic in topics]}]})


def members(front: Front, group: str) -> list[str]:
    answer = front.asks(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    assert answer.code == 0, answer.remark
    return sorted(json.loads(answer.told.body)["consumerIdList"])


def test_a_send_makes_its_topic_and_a_pull_its_group(front: Front):
    """What was sent meanwhile does not pass the first one (N7)."""
    front.send(b"".join(send_frame(number, b"%d" % number, topic="Made") for number in range(5)))
    assert [front.answer().stored[1] for _ in range(5)] == [0, 1, 2, 3, 4]
    config = front.asks(Code.GET_TOPIC_CONFIG, {"topic": "Made"})
    assert json.loads(config.told.body)["writeQueueNums"] == 4

    front.send(pull_frame(7, 0, topic="Made", group="MadeToo", wait_ms=60_000))
    pulled = front.answer()
    assert (pulled.opaque, pulled.code) == (7, 0)
    assert [record.body for record in pulled.records] == [b"0", b"1", b"2", b"3", b"4"]
    group = front.asks(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "MadeToo"})
    assert json.loads(group.told.body)["groupName"] == "MadeToo"


def test_the_coordinators_refusals_come_with_their_remarks(front: Front):
    front.send(send_frame(1, b"x", topic="no name/of a topic") + send_frame(2, b"x", topic="Few")
               + send_frame(3, b"x", topic="Few", queue=9))
    refused, stored, beyond = sorted((front.answer() for _ in range(3)), key=lambda one: one.opaque)
    assert (refused.kind, refused.opaque, refused.code) == (QUESTION, 1, ResponseCode.SYSTEM_ERROR)
    assert "no name/of a topic" in refused.remark
    assert stored.stored[:2] == (0, 0)
    assert (beyond.kind, beyond.code) == (QUESTION, ResponseCode.SYSTEM_ERROR)
    assert beyond.remark == "queue 9 of topic Few: expected less than 4"
    missing = front.asks(Code.QUERY_CONSUMER_OFFSET, {"consumerGroup": "G", "topic": "Few"})
    assert missing.code == ResponseCode.SYSTEM_ERROR
    assert "queueId" in missing.remark


@pytest.mark.parametrize("code", [1 << 15, -(1 << 15) - 1, (1 << 16) + Code.GET_BROKER_RUNTIME_INFO,
                                  (1 << 16) + Code.SEND_MESSAGE_V2])
def test_a_code_that_no_frame_can_say_asks_for_nothing(front: Front, code: int):
    """A frame has 16 bits for it: the rest of a longer one is another request's."""
    front.send(ask_frame(7, code, send_fields("NotMade"), b"x"))
    answer = front.answer()
    assert (answer.kind, answer.opaque, answer.code) == (
        SAID, 7, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    assert answer.remark == "no request has that code"
    assert front.asks(Code.GET_TOPIC_CONFIG, {"topic": "NotMade"}).code == (
        ResponseCode.TOPIC_NOT_EXIST)


def test_offsets_are_those_of_rocketmqs_clients(front: Front, rocket: Peer):
    place = {"consumerGroup": "Readers", "topic": "Read", "queueId": "0"}
    front.send(send_frame(1, b"x", topic="Read") + send_frame(2, b"y", topic="Read"))
    assert [front.answer().code for _ in range(2)] == [0, 0]
    assert front.asks(Code.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": "1"}).code == 0
    answer = rocket.ask(Code.QUERY_CONSUMER_OFFSET, place)
    assert answer.ext is not None
    assert front.asks(Code.QUERY_CONSUMER_OFFSET, place).told.fields == answer.ext == {
        "offset": "1"}
    wait_until(lambda: front.asks(Code.GET_MAX_OFFSET, place).told.fields == {"offset": "2"},
               "both are in the queue")


def test_a_heartbeat_makes_a_member_that_hears_of_others(front: Front, rocket: Peer,
                                                         broker: Broker):
    assert front.asks(Code.HEART_BEAT, {}, member("in-binary", "Both", ["T"])).code == 0
    assert members(front, "Both") == ["in-binary"]
    assert rocket.ask(Code.HEART_BEAT, {}, member("in-rocket", "Both", ["T"])).code == 0
    wait_until(lambda: members(front, "Both") == ["in-binary", "in-rocket"] and front.words,
               "a word about the other member")
    word = front.words[-1]
    assert (word.kind, word.code) == (WORD, Code.NOTIFY_CONSUMER_IDS_CHANGED)
    assert word.told.fields == {"consumerGroup": "Both"}

    front.close()
    with Front(broker.front) as another:
        wait_until(lambda: members(another, "Both") == ["in-rocket"], "the end of its connection")


def test_a_command_that_is_too_long_for_the_ring_goes_in_parts(front: Front):
    topics = [f"a-topic-with-a-long-name-{number:05}" for number in range(6_000)]
    body = member("of-many", "Many", topics)
    assert WHOLE_BYTES < len(body) < 1 << 20
    assert front.asks(Code.HEART_BEAT, {}, body).code == 0
    found = front.asks(Code.QUERY_TOPICS_BY_CONSUMER, {"group": "Many"})
    assert found.code == 0, found.remark
    connections = front.asks(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "Many"})
    subscribed = json.loads(connections.told.body)["subscriptionTable"]
    assert set(topics) <= set(subscribed)


def test_with_access_control_nothing_is_done_without_a_signature(
        tmp_path_factory: pytest.TempPathFactory):  # AR3
    folder = tmp_path_factory.mktemp("checked")
    (folder / DEFAULT_NAME).write_text(
        "accounts:\n- {accessKey: the-admin, secretKey: the-secret}\n")
    port = free_port()
    with mqcore_up(folder, {"processes.serving_count": 1, "acl.enable": True, "acl.folder": folder},
                   program=(sys.executable, "-m", "tests.net.fronted", str(port))), Front(
            f"127.0.0.1:{port}") as front:
        front.send(send_frame(1, b"x", topic="TBW102") + pull_frame(2, 0, topic="TBW102"))
        answers = [front.answer(), front.answer(), front.asks(Code.GET_BROKER_RUNTIME_INFO, {})]
        assert {(one.kind, one.code) for one in answers} == {(QUESTION, ResponseCode.SYSTEM_ERROR)}
        assert {one.remark.rpartition(": ")[2] for one in answers} == {"No accessKey is configured"}


def test_an_answer_of_the_serving_process_has_the_fronts_words(broker: Broker, front: Front):
    """A header that no ring takes is refused before the coordinator is asked."""
    answer = front.asks(Code.HEART_BEAT, {"long": "x" * (WHOLE_BYTES + 1)})
    assert (answer.kind, answer.code) == (SAID, ResponseCode.SYSTEM_ERROR)
    assert answer.remark == "the request's header is too large: more than 393216 bytes"
