"""What is done with half messages that nobody ended (broker.md 5.4 to 5.6), on a live broker."""
from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from mqcore.wire.records import Record
from tests.support.mqcore_process import MqcoreProcess
from tests.transactions.conftest import CHECK_MAX, TIMEOUT_MS
from tests.transactions.producer import (
    COMMIT,
    HALF_TOPIC,
    OP_TOPIC,
    ROLLBACK,
    Producer,
    settled,
    unique,
)

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
YOUNG_S = 600                      # more than any test takes


@pytest.fixture
def producer(live: MqcoreProcess) -> Iterator[Producer]:
    with Producer(live.broker_addr, unique("PG")) as made:
        yield made


def test_an_undecided_message_is_asked_about_with_all_that_the_client_needs(
    producer: Producer,
) -> None:
    topic = producer.topic()
    half = producer.prepare(topic, b"undecided", 1, KEYS="k", UNIQ_KEY='quote"\\and\ttab')
    (asked,) = producer.wait_asked()

    assert asked.one_way
    assert asked.message_id == asked.transaction_id == 'quote"\\and\ttab'
    assert asked.half_offset > half.queue_offset
    assert asked.position > half.physical_offset
    copy = producer.view(asked.position)
    assert (copy.topic, copy.queue_id, copy.queue_offset) == (HALF_TOPIC, 0, asked.half_offset)
    assert copy.properties == half.properties | {"TRANSACTION_CHECK_TIMES": "1"}
    assert (copy.body, copy.born_timestamp_ms, copy.born_host, copy.store_host) == (
        half.body, half.born_timestamp_ms, half.born_host, half.store_host)
    assert asked.offset_message_id == copy.offset_message_id
    assert (asked.record.topic, asked.record.queue_id) == (topic, 1)
    assert (asked.record.queue_offset, asked.record.physical_offset) == (
        asked.half_offset, asked.position)
    assert asked.record.properties == copy.properties
    assert asked.record.body == b"undecided"
    producer.end(asked, ROLLBACK)


def test_nobody_is_asked_before_the_message_is_old_enough(producer: Producer) -> None:
    began = time.monotonic()
    producer.prepare(producer.topic(), b"young")
    (asked,) = producer.wait_asked()

    assert time.monotonic() - began >= TIMEOUT_MS / 1000
    producer.end(asked, ROLLBACK)


@pytest.mark.parametrize(("decision", "seen"), [(COMMIT, [b"by check"]), (ROLLBACK, [])])
def test_the_answer_to_a_check_ends_the_transaction(
    producer: Producer, decision: int, seen: list[bytes]
) -> None:
    topic = producer.topic()
    producer.prepare(topic, b"by check")
    (asked,) = producer.wait_asked()
    ops = producer.end_of(OP_TOPIC)
    assert producer.end(asked, decision).code == 0

    producer.until(lambda: producer.end_of(OP_TOPIC) > ops, "the op record")
    assert producer.stored(topic) == seen
    settled(producer)
    assert producer.asked == []


def test_an_unknown_answer_is_asked_again_and_the_number_of_checks_grows(
    producer: Producer,
) -> None:
    producer.prepare(producer.topic(), b"unknown")
    times = []
    for _ in range(2):
        (asked,) = producer.wait_asked()
        times.append(asked.record.properties["TRANSACTION_CHECK_TIMES"])
    producer.end(asked, ROLLBACK)

    assert times == ["1", "2"]


def test_a_message_asked_about_too_often_is_given_up(producer: Producer) -> None:
    before = producer.end_of(GIVEN_UP)
    half = producer.prepare(producer.topic(), b"never decided")
    producer.wait_asked(CHECK_MAX)
    producer.until(lambda: producer.end_of(GIVEN_UP) > before, "the message given up")
    settled(producer)

    assert producer.asked == []
    (given_up,) = bodies_of(producer, GIVEN_UP, before)
    assert given_up.body == half.body
    assert given_up.properties == half.properties | {"TRANSACTION_CHECK_TIMES": str(CHECK_MAX)}


def test_a_revived_message_is_asked_about_again(producer: Producer) -> None:
    before = producer.end_of(GIVEN_UP)
    topic = producer.topic()
    producer.prepare(topic, b"revived")
    producer.wait_asked(CHECK_MAX)
    producer.until(lambda: producer.end_of(GIVEN_UP) > before, "the message given up")
    (given_up,) = bodies_of(producer, GIVEN_UP, before)
    answer = producer.ask(323, {"msgId": given_up.offset_message_id})
    (asked,) = producer.wait_asked()
    producer.end(asked, COMMIT)

    assert answer.code == 0
    producer.until(lambda: producer.stored(topic) == [b"revived"], "the committed message")


def test_ended_messages_are_passed_and_the_op_queue_with_them(producer: Producer) -> None:
    """They are young enough not to be asked about, however long 50 ends take."""
    topic = producer.topic()
    halves = [producer.prepare(topic, f"m{number}".encode(),
                               CHECK_IMMUNITY_TIME_IN_SECONDS=str(YOUNG_S))
              for number in range(50)]
    for number, half in enumerate(halves):
        producer.end(half, ROLLBACK if number % 5 == 0 else COMMIT)
    settled(producer)

    assert producer.asked == []
    assert producer.stored(topic) == [f"m{n}".encode() for n in range(50) if n % 5]


def test_a_late_end_of_a_message_that_was_put_back_settles_its_copy(producer: Producer) -> None:
    """Stock asks about the copy again, and an honest answer doubles the message (broker.md 5.8)."""
    topic = producer.topic()
    half = producer.prepare(topic, b"late")
    producer.wait_asked()
    assert producer.end(half, COMMIT).code == 0
    settled(producer)

    assert producer.asked == []
    assert producer.stored(topic) == [b"late"]


def test_a_message_may_say_itself_when_it_is_to_be_asked_about(producer: Producer) -> None:
    topic = producer.topic()
    half = producer.prepare(topic, b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS="2")
    producer.prepare(topic, b"ordinary")
    (ordinary,) = producer.wait_asked(body=b"ordinary")
    assert producer.asked == []
    producer.end(ordinary, ROLLBACK)
    (asked,) = producer.wait_asked(body=b"patient")

    assert time.time() * 1000 - half.born_timestamp_ms >= 2000
    copy = producer.view(asked.position)
    assert int(copy.properties["TRAN_PREPARED_QUEUE_OFFSET"]) == half.queue_offset
    assert copy.properties["WAIT"] == "false"
    producer.end(asked, ROLLBACK)


def test_what_only_the_broker_says_of_a_half_message_is_not_taken_from_a_client(
    producer: Producer,
) -> None:
    half = producer.prepare(producer.topic(), b"forged", TRAN_PREPARED_QUEUE_OFFSET="-1",
                            TRANSACTION_CHECK_TIMES="1000", KEYS="k")
    assert not {"TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"} & set(half.properties)
    (asked,) = producer.wait_asked(body=b"forged")
    assert asked.record.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert half.properties["KEYS"] == "k"
    producer.end(asked, ROLLBACK)


def test_any_producer_of_the_group_is_asked_and_another_when_one_has_gone(
    live: MqcoreProcess,
) -> None:
    group = unique("PG")
    with Producer(live.broker_addr, group) as second:
        with Producer(live.broker_addr, group) as first:
            first.prepare(first.topic(), b"orphan")
        (asked,) = second.wait_asked()
        second.end(asked, ROLLBACK)

    assert asked.record.body == b"orphan"


def test_producers_of_a_group_take_turns(live: MqcoreProcess) -> None:
    group = unique("PG")
    with Producer(live.broker_addr, group) as one, Producer(live.broker_addr, group) as other:
        topic = one.topic()
        for number in range(20):
            one.prepare(topic, f"m{number}".encode())
        mine, others = one.wait_asked(10), other.wait_asked(10)
        for asked in mine + others:
            one.end(asked, ROLLBACK)

    assert len({asked.record.body for asked in mine + others}) == 20


def test_the_queues_of_transactions_are_topics_without_consumers(producer: Producer) -> None:
    """The half topic has a configuration, as in stock; the op topic has none (broker.md 9.2)."""
    producer.prepare(producer.topic(), b"x")
    (asked,) = producer.wait_asked()
    producer.end(asked, ROLLBACK)
    topics = producer.ask(21).body

    assert HALF_TOPIC.encode() in topics
    assert OP_TOPIC.encode() not in topics


def bodies_of(producer: Producer, topic: str, first: int) -> list[Record]:
    """The records of a system queue from an offset on, found by its queue entries (321)."""
    answer = producer.ask(321, {"topic": topic, "queueId": "0", "index": str(first), "count": "32"})
    assert answer.code == 0, answer.remark
    rows = json.loads(answer.body)["queueData"]
    return [producer.view(int(row["physicOffset"])) for row in rows]
