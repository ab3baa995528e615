"""Messages that are cut natively say what the decoder in Python says, and refuse the same."""
from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.client.message import MessageQueue
from mqcore.client.native.records import cut
from mqcore.client.received import ReceivedMessage
from mqcore.wire.records import (
    Record,
    RecordError,
    compress,
    decode_record,
    decode_records,
    encode_record,
)

QUEUE = MessageQueue("T", "broker-a", 3)
TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1,
               max_size=20)
HOSTS = st.tuples(st.ip_addresses().map(str), st.integers(0, 65_535))
RECORDS = st.builds(
    Record, topic=st.text("abcT%", min_size=1, max_size=127), queue_id=st.integers(0, 2**31 - 1),
    queue_offset=st.integers(0, 2**62), physical_offset=st.integers(0, 2**62),
    flag=st.integers(-2**31, 2**31 - 1), sys_flag=st.sampled_from([0, 4, 8, 12]),
    body_crc=st.just(0), born_timestamp_ms=st.integers(0, 2**62), born_host=HOSTS,
    store_timestamp_ms=st.integers(0, 2**62), store_host=HOSTS,
    reconsume_times=st.integers(0, 99), prepared_transaction_offset=st.integers(0, 2**62),
    body=st.binary(max_size=50),
    properties=st.dictionaries(TEXT | st.just("TAGS"), TEXT, max_size=4), size=st.just(0))


def same(message: ReceivedMessage, record: Record) -> None:
    assert (message.queue_offset, message.commit_log_offset, message.flag, message.sys_flag) == (
        record.queue_offset, record.physical_offset, record.flag, record.sys_flag)
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (
        record.born_timestamp_ms, record.store_timestamp_ms)
    assert (message.born_host, message.store_host) == (record.born_host, record.store_host)
    assert (message.reconsume_times, message.prepared_transaction_offset, message.store_size) == (
        record.reconsume_times, record.prepared_transaction_offset, record.size)
    assert (message.body, message.body_size) == (record.body, len(record.body))
    assert (message.stored_topic, message.stored_queue_id) == (record.topic, record.queue_id)
    assert (message.properties, message.tags) == (record.properties, record.tags)
    assert (message.offset_message_id, message.message_id) == (
        record.offset_message_id, record.message_id)


@given(st.lists(RECORDS, max_size=5))
def test_a_cut_message_is_the_decoded_record(records):
    body = b"".join(map(encode_record, records))
    messages = cut(body, ReceivedMessage, QUEUE)

    assert len(messages) == len(records)
    for message, record in zip(messages, decode_records(body), strict=True):
        same(message, record)
        assert (message.queue, message.topic) == (QUEUE, "T")


@given(RECORDS, st.data())
def test_damaged_bytes_are_refused_and_never_read_beyond_their_end(record, data):
    body = bytearray(encode_record(record))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    cut_off = bytes(body[:data.draw(st.integers(0, len(body)))])
    for damaged in (bytes(body), cut_off):
        try:
            messages = cut(damaged, ReceivedMessage, QUEUE)
        except RecordError:
            continue
        for message, expected in zip(messages, decode_records(damaged), strict=True):
            same_or_refused(message, expected)


def same_or_refused(message: ReceivedMessage, record: Record) -> None:
    """A flipped bit may say that the body is compressed, which it is not."""
    try:
        assert message.body is message.body
    except RecordError:
        with pytest.raises(RecordError):
            record.plain_body()
        return
    assert message.body == record.plain_body()
    assert message.properties == record.properties
    assert message.born_host == record.born_host


def record_with(**fields):
    base = {
        "topic": "T", "queue_id": 0, "queue_offset": 1, "physical_offset": 2, "flag": 0,
        "sys_flag": 0, "body_crc": 0, "born_timestamp_ms": 3, "born_host": ("10.0.0.1", 4),
        "store_timestamp_ms": 5, "store_host": ("10.0.0.2", 6), "reconsume_times": 0,
        "prepared_transaction_offset": 0, "body": b"x", "properties": {}, "size": 0}
    return Record(**{**base, **fields})


def test_only_messages_with_a_wanted_tag_are_made():
    tags = [None, "A", "B", "AA", "TAGS", "A"]
    body = b"".join(encode_record(record_with(
        queue_offset=number, properties={"KEYS": "TAGS"} | ({"TAGS": tag} if tag else {})))
        for number, tag in enumerate(tags))

    found = cut(body, ReceivedMessage, QUEUE, frozenset({"A", "TAGS"}))
    assert [message.queue_offset for message in found] == [1, 4, 5]


def test_a_compressed_body_is_plain_when_it_is_looked_at():
    body, flag = compress(b"x" * 9_000)
    message = ReceivedMessage.from_record(record_with(body=body, sys_flag=flag), QUEUE)

    assert (message.body, message.body_size) == (b"x" * 9_000, len(body))
    broken = ReceivedMessage.from_record(record_with(body=b"no", sys_flag=flag), QUEUE)
    with pytest.raises(RecordError, match="zlib"):
        broken.text()


def test_the_queue_s_ends_are_properties_of_a_pulled_message():
    body = encode_record(record_with(properties={"a": "b"}))
    (message,) = cut(body, ReceivedMessage, QUEUE, frozenset(), 5, 9)

    assert message.properties == {"a": "b", "MIN_OFFSET": "5", "MAX_OFFSET": "9"}
    message.properties["mine"] = "x"
    assert message.properties["mine"] == "x"
    assert "mine" not in message.read_properties()
    assert message.record == encode_record(decode_record(body))


def test_bodies_are_read_as_text_and_json():
    message = ReceivedMessage.from_record(record_with(body='{"a": "ü"}'.encode()), QUEUE)

    assert message.text() == '{"a": "ü"}'
    assert message.json() == {"a": "ü"}
    assert repr(message) == "<ReceivedMessage T broker-a/3 offset 1, 11 bytes>"


class Kept(ReceivedMessage):
    """A message that knows what cannot be pickled."""

    __slots__ = ("consumer",)


@pytest.mark.parametrize("kind", [ReceivedMessage, Kept])
def test_a_received_message_pickles_with_all_that_it_says(kind):
    """The copy has no consumer, so it cannot say that the message is done."""
    body, flag = compress(b"x" * 9_000)
    (message,) = cut(encode_record(record_with(
        body=body, sys_flag=flag, properties={"KEYS": "a b", "TAGS": "t"})), kind, QUEUE,
        frozenset(), 5, 9)
    message.topic, message.reconsume_times = "sent to", 3
    if kind is Kept:
        message.consumer = lambda: None

    other = pickle.loads(pickle.dumps(message))
    assert type(other) is ReceivedMessage
    assert (other.topic, other.queue, other.reconsume_times) == ("sent to", QUEUE, 3)
    assert (other.body, other.record) == (b"x" * 9_000, message.record)
    assert other.properties == message.properties
    assert other.properties["MAX_OFFSET"] == "9"
    assert (other.message_id, other.keys, other.tags) == (message.message_id, ["a", "b"], "t")
