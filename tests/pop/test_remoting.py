"""POP over remoting: requests as 5.x's clients send them, at two serving processes."""
from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import random
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqcore.client import Admin, MessageQueue, Producer
from tests.pop.remote import BATCH_ACK, NOTIFICATION, PEEK, POLLING_INFO, PopPeer, messages
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until

names = itertools.count()
Consumer = Callable[..., PopPeer]


@pytest.fixture
def owner(broker: MqcoreProcess) -> Callable[[], int]:
    """The process with the state, the last one that serves; 0: it does not run."""
    def find() -> int:
        for pid in broker.family():
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/cmdline").read_text()
                if name.startswith("mqcore: pull-serving-2"):
                    return pid
        return 0

    return find


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("pops"), {
            "broker.pop_enable": True, "processes.serving_count": 2}) as process:
        yield process


@pytest.fixture(scope="module")
def admin(broker: MqcoreProcess) -> Iterator[Admin]:
    with Admin(broker.namesrv_addr) as one:
        yield one


@pytest.fixture
def consumer(broker: MqcoreProcess, admin: Admin) -> Iterator[Consumer]:
    """consumer(bodies...): of a new group, at a new topic of one queue with these messages."""
    made: list[PopPeer] = []

    def make(*bodies: bytes, queues: int = 1) -> PopPeer:
        topic = f"T{next(names)}"
        admin.create_topic(topic, queues=queues)
        with Producer("P", namesrv=broker.namesrv_addr) as producer:
            for body in bodies:
                producer.send(topic, body)
        wait_until(lambda: sum(
            admin.max_offset(MessageQueue(topic, "mqcore-a", queue)) for queue in range(queues)
        ) == len(bodies), "messages can be read")
        made.append(PopPeer(broker.broker_addr, f"G-{topic}", topic))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_messages_come_with_what_clients_make_handles_of(consumer: Consumer) -> None:
    answer = (one := consumer(b"a", b"b", b"c")).pop(invisibleTime=5000)
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert answer.ext is not None
    assert answer.ext["invisibleTime"] == "5000"
    assert (answer.ext["restNum"], answer.ext["startOffsetInfo"], answer.ext["msgOffsetInfo"]) == (
        "0", "0 0 0", "0 0 0,1,2")
    assert one.taken() == []                              # they are invisible


def test_what_is_acknowledged_does_not_come_again(consumer: Consumer) -> None:
    one = consumer(b"a", b"b")
    first, second = one.taken(invisibleTime=300)
    assert one.ack(first).code == 0
    (again,) = one.taken(pollTime=20_000)                 # held until its time is over
    assert (again.body, again.offset, again.reconsume_times) == (b"b", second.offset, 1)
    assert one.ack(second).code == 0                      # of an older delivery: without effect
    assert one.ack(again).code == 0
    assert one.taken() == []


def test_a_change_shows_a_message_at_its_time_and_makes_the_old_handle_useless(
        consumer: Consumer) -> None:
    one = consumer(b"a")
    (first,) = one.taken()
    answer = one.change(first, 100)
    assert answer.code == 0
    assert answer.ext is not None
    assert set(answer.ext) == {"popTime", "invisibleTime", "reviveQid"}
    assert one.change(first, 100).code == 13
    (again,) = one.taken(pollTime=20_000)
    assert again.reconsume_times == 1


def test_a_held_pop_is_answered_when_a_message_comes(
        broker: MqcoreProcess, consumer: Consumer) -> None:
    one = consumer()
    one.send_pop(pollTime=30_000)
    with Producer("P", namesrv=broker.namesrv_addr) as producer:
        producer.send(one.topic, b"late")
    assert b"late" in one.receive_frame(20)


def test_a_pop_of_a_connection_that_went_takes_nothing(
        broker: MqcoreProcess, consumer: Consumer) -> None:
    one = consumer()
    with PopPeer(broker.broker_addr, one.group, one.topic) as gone:
        gone.send_pop(pollTime=30_000)
        gone.ask(POLLING_INFO, {"consumerGroup": one.group, "topic": one.topic})
    while True:                                           # its end has come, too
        answer = one.ask(POLLING_INFO, {"consumerGroup": one.group, "topic": one.topic})
        if answer.ext == {"pollingNum": "0"}:
            break
    with Producer("P", namesrv=broker.namesrv_addr) as producer:
        producer.send(one.topic, b"kept")
    assert [each.body for each in one.taken(pollTime=20_000)] == [b"kept"]


def test_one_queue_is_popped_by_its_number(consumer: Consumer) -> None:
    one = consumer(*(b"%d" % number for number in range(8)), queues=2)
    assert {each.queue_id for each in one.taken(queueId=1)} == {1}
    assert {each.queue_id for each in one.taken()} == {0}


def test_order_gives_a_queue_one_batch_at_a_time(consumer: Consumer) -> None:
    one = consumer(b"a", b"b", b"c")
    batch = one.taken(order="true", maxMsgNums=2)
    assert [each.body for each in batch] == [b"a", b"b"]
    assert [each.handle.split(" ")[3] for each in batch] == ["999", "999"]
    assert one.taken(order="true") == []
    for each in batch:
        assert one.ack(each).code == 0
    assert [each.body for each in one.taken(order="true")] == [b"c"]


def test_acks_of_a_proxy_come_in_one_request(consumer: Consumer) -> None:
    one = consumer(b"a", b"b", b"c")
    batch = one.taken(invisibleTime=400)
    start, pop_ms, invisible_ms = batch[0].handle.split(" ")[:3]
    body = json.dumps({"brokerName": "mqcore-a", "acks": [{
        "c": one.group, "t": one.topic, "rt": "0", "so": int(start), "q": 0, "rq": 0,
        "pt": int(pop_ms), "it": int(invisible_ms), "b": base64.b64encode(b"\x05").decode()}]})
    assert one.ask(BATCH_ACK, {}, body.encode()).code == 0
    assert [each.body for each in one.taken(pollTime=20_000)] == [b"b"]


@pytest.mark.parametrize("body", [b"", b"5", b'{"acks":[{}]}', b'{"acks":[{"b":"?"}]}'])
def test_a_body_that_says_no_acks_is_refused(consumer: Consumer, body: bytes) -> None:
    assert consumer().ask(BATCH_ACK, {}, body).code == 29


@pytest.mark.parametrize(("fields", "code"), [
    ({"maxMsgNums": 33}, 29), ({"maxMsgNums": "x"}, 29), ({"invisibleTime": 0}, 29),
    ({"invisibleTime": 43_200_001}, 29), ({"queueId": 1}, 29), ({"initMode": 2}, 29),
    ({"pollTime": "x"}, 29), ({"topic": "nowhere"}, 17), ({"topic": ""}, 29),
    ({"consumerGroup": ""}, 29), ({"expType": "SQL92", "exp": "a > 1"}, 23)])
def test_pops_that_are_refused(consumer: Consumer, fields: dict[str, object], code: int) -> None:
    one = consumer(b"a")
    one.taken()
    answer = one.pop(**fields)
    assert answer.code == code
    assert answer.remark


@pytest.mark.parametrize(("fields", "code"), [
    ({"extraInfo": ""}, 29), ({"extraInfo": "0 1 2 3 0 b 0"}, 29), ({"offset": "7"}, 29),
    ({"queueId": "1"}, 29), ({"topic": "nowhere"}, 17), ({"consumerGroup": "other"}, 208)])
def test_acks_that_are_refused_change_nothing(
        consumer: Consumer, fields: dict[str, str], code: int) -> None:
    one = consumer(b"a")
    (first,) = one.taken()
    assert one.ack(first, **fields).code == code
    assert one.change(first, 0, **fields).code == code
    assert one.change(first, 43_200_001).code == 29
    assert one.ack(first).code == 0


def test_a_notification_says_that_there_is_a_message_and_takes_none(consumer: Consumer) -> None:
    one = consumer(b"a")
    fields = {"consumerGroup": one.group, "topic": one.topic, "queueId": "-1", "pollTime": "10000"}
    assert one.ask(NOTIFICATION, fields).ext == {"hasMsg": "true", "pollingFull": "false"}
    assert len(one.taken()) == 1
    assert one.ask(NOTIFICATION, {**fields, "pollTime": "0"}).ext == {
        "hasMsg": "false", "pollingFull": "false"}


def test_a_large_answer_comes_in_parts(broker: MqcoreProcess, consumer: Consumer) -> None:
    bodies = [random.Random(number).randbytes(700 << 10) for number in range(5)]
    one = consumer(*bodies)
    found = one.taken()
    while len(found) < 5:
        found += one.taken()
    assert [each.body for each in found] == bodies


def test_a_look_ahead_takes_nothing(consumer: Consumer) -> None:
    one = consumer(b"a", b"b")
    first, = one.taken(maxMsgNums=1)
    assert first.body == b"a"
    fields = {"consumerGroup": one.group, "topic": one.topic, "queueId": "-1", "maxMsgNums": "8"}
    for _ in range(2):
        answer = one.ask(PEEK, fields)
        assert (answer.code, [each.body for each in messages(answer)]) == (0, [b"b"])
    assert len(one.taken()) == 1
    assert one.ask(PEEK, fields).code == 19


def test_two_held_pops_of_single_queues_both_hear(
        broker: MqcoreProcess, consumer: Consumer) -> None:
    one = consumer(queues=2)
    with PopPeer(broker.broker_addr, one.group, one.topic) as other:
        one.send_pop(queueId=0, pollTime=30_000)
        wait_until(lambda: one.ask(POLLING_INFO, {
            "consumerGroup": one.group, "topic": one.topic}).ext == {"pollingNum": "1"}, "it waits")
        other.send_pop(queueId=1, pollTime=30_000)
        with Producer("P", namesrv=broker.namesrv_addr) as producer:
            for body in (b"first", b"second"):
                producer.send(one.topic, body)
        frames = one.receive_frame(20) + other.receive_frame(20)
        assert b"first" in frames
        assert b"second" in frames


def test_what_was_acknowledged_counts_though_its_offset_was_not_committed_yet(
        broker: MqcoreProcess, consumer: Consumer, owner: Callable[[], int]) -> None:
    one = consumer(*(b"%d" % number for number in range(10)))
    for each in one.taken(invisibleTime=500)[:7]:
        assert one.ack(each).code == 0
    before = owner()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: owner() not in (0, before), "it runs again")
    found: set[bytes] = set()
    while len(found) < 3:
        found |= {each.body for each in one.taken(pollTime=2000)}
    assert found == {b"7", b"8", b"9"}


def test_acks_that_cannot_be_written_are_answered_with_an_error(
        broker: MqcoreProcess, consumer: Consumer, owner: Callable[[], int]) -> None:
    one = consumer(b"a", b"b")
    first, second = one.taken()
    limits = resource.prlimit(owner(), resource.RLIMIT_FSIZE)
    resource.prlimit(owner(), resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        assert one.ack(first).code == 1
        assert one.change(second, 1000).code == 1
    finally:
        resource.prlimit(owner(), resource.RLIMIT_FSIZE, limits)
    assert one.ack(first).code == 0
    wait_until(lambda: "config/popState can be written again" in broker.output.read_text(),
               "the log says so")


def test_the_state_of_a_deleted_group_or_topic_is_forgotten(
        consumer: Consumer, admin: Admin) -> None:
    one, other = consumer(b"a"), consumer(b"a")
    assert len(one.taken()) == len(other.taken()) == 1
    assert len(admin.in_flight(one.group)) == len(admin.in_flight(other.group)) == 1
    admin.delete_group(one.group)
    admin.delete_topic(other.topic)
    wait_until(lambda: not admin.in_flight(one.group), "the group is forgotten")
    wait_until(lambda: not admin.in_flight(other.group), "the topic is forgotten")


def test_what_is_in_flight_is_listed(consumer: Consumer, admin: Admin) -> None:
    one = consumer(b"a", b"b", b"c")
    first, *_ = one.taken(maxMsgNums=2)
    assert one.ack(first).code == 0
    (row,) = admin.in_flight(one.group)
    assert (row.topic, row.queue_id, row.committed, row.next_offset) == (one.topic, 0, 1, 2)
    assert (row.unacknowledged, row.invisible, row.attempts_max, row.fifo) == (1, 1, 1, False)
    assert row.oldest is not None
    assert row.visible_first == row.visible_last
    assert row.visible_first is not None
    assert 55 < (row.visible_first - row.oldest).total_seconds() <= 61
    assert one.group in {each.group for each in admin.in_flight()}
    assert admin.in_flight(topic="nowhere").items == ()


def test_who_does_not_read_holds_nobody_up(broker: MqcoreProcess, consumer: Consumer) -> None:
    one = consumer(bytes(1 << 20), b"a")
    with PopPeer(broker.broker_addr, f"{one.group}-deaf", one.topic) as deaf:
        for _ in range(200):
            deaf.send_pop(invisibleTime=1)
        assert len(one.taken()) == 2
