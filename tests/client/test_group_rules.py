"""What a member decides: which queues, where they begin, when to pull, what comes again."""
from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.client.consume.stores import LocalOffsets
from mqcore.client.core import flow, redelivery
from mqcore.client.core.allocate import allocate_averagely
from mqcore.client.core.consume_stats import TopicCounts
from mqcore.client.core.offsets import Ask, ConsumeFrom, format_offsets, parse_offsets, start
from mqcore.client.core.process_queue import OrderlyQueue, ProcessQueue
from mqcore.client.core.rebalance import PULL_IDLE_S, Limits, changes
from mqcore.client.core.running_info import QueueTimes, document, queue_info
from mqcore.client.errors import ClientError
from mqcore.client.message import MessageQueue, PullStatus
from mqcore.wire import fastjson
from mqcore.wire.codes import ResponseCode
from mqcore.wire.tags import parse_subscription
from tests.client.test_process_queue import Stored, stored

QUEUES = [MessageQueue("T", "a", number) for number in range(8)]


# -- the table of held queues ---------------------------------------------------------------------


def test_queues_outside_of_the_share_go_before_new_ones_come():
    plan = changes(dict.fromkeys(QUEUES[:3], 0.0), QUEUES[1:5], 1.0)

    assert (plan.give_up, plan.take) == (QUEUES[:1], QUEUES[3:5])
    assert not changes(dict.fromkeys(QUEUES, 0.0), QUEUES, 1.0)


def test_a_queue_that_stood_still_is_taken_anew():
    last = {QUEUES[0]: 0.0, QUEUES[1]: 5.0}

    assert changes(last, QUEUES[:2], PULL_IDLE_S + 1).give_up == QUEUES[:1]
    assert changes(last, QUEUES[:2], PULL_IDLE_S + 1).take == QUEUES[:1]
    assert not changes(last, QUEUES[:2], PULL_IDLE_S + 1, idle_max=None)


@given(st.lists(st.sampled_from(["1", "2", "3", "4"]), max_size=30))
def test_members_that_come_and_go_own_every_queue_once_in_the_end(events):
    """Each event lets one member join, or leave when it is there; then all look at the table."""
    held: dict[str, dict[MessageQueue, float]] = {}
    for member in events:
        if held.pop(member, None) is None:
            held[member] = {}
        for one, table in held.items():
            plan = changes(table, allocate_averagely(one, QUEUES, list(held)), 1.0)
            for queue in plan.give_up:
                del table[queue]
            table.update(dict.fromkeys(plan.take, 1.0))

    owned = sorted(queue for table in held.values() for queue in table)
    assert owned == (QUEUES if held else [])


def test_limits_of_a_topic_are_shared_among_the_queues():
    limits = Limits(topic_count_max=100, topic_bytes_max=10)

    assert (limits.shared(8).count_max, limits.shared(8).bytes_max) == (12, 1)
    assert limits.shared(1_000).count_max == 1
    assert Limits().shared(8) == Limits()


# -- where it begins -------------------------------------------------------------------------------


@pytest.mark.parametrize(("consume_from", "normal", "retry"), [
    (ConsumeFrom.LAST_OFFSET, Ask.MAX_OFFSET, 0),
    (ConsumeFrom.FIRST_OFFSET, 0, 0),
    (ConsumeFrom.TIMESTAMP, Ask.OFFSET_AT_TIME, Ask.MAX_OFFSET),
])
def test_a_queue_begins_where_nothing_is_stored(consume_from, normal, retry):
    assert start(None, consume_from, is_retry_topic=False) == normal
    assert start(None, consume_from, is_retry_topic=True) == retry
    assert start(7, consume_from, is_retry_topic=False) == 7
    assert start(0, consume_from, is_retry_topic=True) == 0


JAVA_OFFSETS = """{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":1,
\t\t\t"topic":"TopicTest"
\t\t}:7,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":2,
\t\t\t"topic":"TopicTest"
\t\t}:12
\t}
}"""


def test_the_file_of_offsets_is_java_s():
    table = {MessageQueue("TopicTest", "broker-a", 2): 12,
             MessageQueue("TopicTest", "broker-a", 1): 7}

    assert parse_offsets(JAVA_OFFSETS) == table
    assert format_offsets(table) == JAVA_OFFSETS


@given(st.dictionaries(
    st.builds(MessageQueue, st.text(st.characters(exclude_categories=["Cs"])), st.just("b"),
              st.integers(0, 9)), st.integers(-1, 2**62)))
def test_offsets_read_back_as_they_were_written(table):
    assert parse_offsets(format_offsets(table)) == table


@pytest.mark.parametrize("text", [
    "", "[]", "{}", '{"offsetTable":{"x":1}}', '{"offsetTable":{{"topic":"T"}:1}}',
    '{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:"x"}}',
    '{"offsetTable":{{"brokerName":"b","queueId":"1","topic":"T"}:1}}',
])
def test_a_damaged_file_of_offsets_says_what_was_expected(text):
    with pytest.raises(ValueError):
        parse_offsets(text)


# -- pulls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", '{"offsetTable":{', "[]"])
def test_a_member_without_readable_places_does_not_begin_at_the_end(text, tmp_path):
    """What it had not read there would be skipped."""
    member = SimpleNamespace(client_id="1.2.3.4@one")
    store = LocalOffsets(member, "G", tmp_path)
    queue = MessageQueue("T", "broker-a", 0)
    asyncio.run(store.load())                              # nothing was ever written
    assert asyncio.run(store.read(queue)) is None

    asyncio.run(store.write({queue: 7}))
    path = tmp_path / "1.2.3.4@one" / "G" / "offsets.json"
    path.write_text(text)
    with pytest.raises(ClientError, match=r"offsets\.json: "):
        asyncio.run(LocalOffsets(member, "G", tmp_path).load())

    asyncio.run(store.write({queue: 8}))
    asyncio.run(store.write({queue: 9}))
    path.write_text(text)
    again = LocalOffsets(member, "G", tmp_path)
    asyncio.run(again.load())
    assert asyncio.run(again.read(queue)) == 8             # of the copy before it


def test_a_queue_is_pulled_until_it_has_more_than_its_limits():
    queue = ProcessQueue[Stored](0)
    queue.put(stored(0, 1, 2), 3)

    assert flow.full(queue, Limits(count_max=3), orderly=False) is None
    assert flow.full(queue, Limits(count_max=2), orderly=False) is flow.Full.COUNT
    assert flow.full(queue, Limits(bytes_max=29), orderly=False) is flow.Full.BYTES
    queue.done(stored(1, 2))
    queue.put(stored(2_001), 2_002)
    assert flow.full(queue, Limits(), orderly=False) is flow.Full.SPAN
    assert flow.full(queue, Limits(), orderly=True) is None


def test_an_answer_decides_what_follows():
    assert {status for status in PullStatus if flow.step(status) is flow.NextStep.RESTART} == {
        PullStatus.OFFSET_ILLEGAL}
    assert flow.pause(ResponseCode.FLOW_CONTROL) == 0.02
    assert flow.pause(None) == flow.pause(ResponseCode.SYSTEM_ERROR) == 1.0


# -- what comes again ------------------------------------------------------------------------------


def test_a_copy_for_the_retry_topic_says_where_it_was_and_how_often():
    origin = {"UNIQ_KEY": "K", "TRAN_MSG": "true", "a": "b"}

    copy = redelivery.fallback_properties(origin, topic="T", message_id="K", reconsume_times=2,
                                          retries_max=16)
    assert copy == {
        "UNIQ_KEY": "K", "a": "b", "ORIGIN_MESSAGE_ID": "K", "RETRY_TOPIC": "T",
        "RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16", "DELAY": "5"}
    assert origin == {"UNIQ_KEY": "K", "TRAN_MSG": "true", "a": "b"}
    dead = redelivery.dead_letter_properties(copy, topic="T", message_id="X", reconsume_times=3,
                                             retries_max=3)
    assert (dead["RECONSUME_TIME"], dead["ORIGIN_MESSAGE_ID"]) == ("3", "K")


def test_an_orderly_message_comes_again_up_to_the_limit():
    assert [redelivery.comes_again(times, 2) for times in range(4)] == [True, True, False, False]
    assert redelivery.comes_again(10**6, redelivery.UNLIMITED)
    assert [redelivery.suspension(s) for s in (0.0, 1.0, 99.0)] == [0.01, 1.0, 30.0]


def test_a_listener_is_warned_of_before_it_is_overdue():
    assert not redelivery.is_late(0.0, 80.0, 100.0)
    assert redelivery.is_late(0.0, 81.0, 100.0)
    assert not redelivery.is_overdue(0.0, 100.0, 100.0)
    assert redelivery.is_overdue(0.0, 101.0, 100.0)


# -- what it says of itself ------------------------------------------------------------------------


def test_the_statistics_are_those_of_the_last_minute():
    stats = TopicCounts()
    for second in range(0, 130, 10):
        stats.sample(float(second))
        stats.now.ok += 100
        stats.now.calls += 100
        stats.now.call_s += 0.2
        stats.now.failed += 1
    told = stats.as_json(130.0)

    assert told["consumeOKTPS"] == pytest.approx(10.0)
    assert told["consumeRT"] == pytest.approx(2.0)
    assert told["consumeFailedMsgs"] == 13
    assert TopicCounts().as_json(0.0)["consumeOKTPS"] == 0.0


def test_the_document_has_java_s_form():
    queue = OrderlyQueue[Stored](0)
    queue.put(stored(4, 5, 6), 7)
    queue.take(1)
    info = queue_info(queue, QueueTimes(True, 1, 2, 3), dropped=False)
    body = document(
        properties={"consumeThreadMin": "20"}, subscriptions=[parse_subscription("T", "A || B")],
        queues={QUEUES[0]: info}, stats={"T": TopicCounts()}, now=1.0, stacks="here")
    read = fastjson.loads(body)

    assert body.startswith(
        b'{"jstack":"here","mqTable":{{"brokerName":"a","queueId":0,"topic":"T"}')
    (told,) = read["mqTable"].values()
    assert (told["cachedMsgCount"], told["transactionMsgCount"], told["commitOffset"]) == (3, 1, 4)
    assert (told["locked"], told["droped"], told["lastPullTimestamp"]) == (True, False, 2)
    assert read["subscriptionSet"][0]["tagsSet"] == ["A", "B"]
    assert read["statusTable"]["T"]["consumeFailedMsgs"] == 0
