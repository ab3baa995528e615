"""The native reading of pulls' bodies against the decoder in Python."""
from __future__ import annotations

import re
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqcore.client.message import MessageQueue
from mqcore.client.native.columns import TooMuch, columns, scan
from mqcore.client.read.batches import RawBatch, arrow_batch, arrow_schema, halves
from mqcore.client.read.pull_link import PullFrame
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import decode, request
from mqcore.wire.records import Record, RecordError, compress, decode_records, encode_record
from tests.support.dice import times

END = 1 << 40
QUEUE = MessageQueue("T", "b", 3)
HOSTS = [("127.0.0.1", 10911), ("fe80::1", 1), ("255.254.253.252", 65535)]


def record(offset: int, body: bytes = b"x", properties: dict[str, str] | None = None,
           **changes: object) -> bytes:
    base = Record(
        topic="T", queue_id=3, queue_offset=offset, physical_offset=offset * 1000 + 7, flag=-5,
        sys_flag=0, body_crc=0, born_timestamp_ms=1_700_000_000_123 + offset,
        born_host=HOSTS[0], store_timestamp_ms=1_700_000_001_000 + offset, store_host=HOSTS[0],
        reconsume_times=2, prepared_transaction_offset=0, body=body, properties=properties or {},
        size=0)
    return encode_record(replace(base, **changes))


def raw_properties(offset: int, text: bytes) -> bytes:
    """A record whose properties are these bytes, whatever they mean."""
    whole = record(offset)
    return (len(whole) + len(text)).to_bytes(4, "big") + whole[4:-2] + len(text).to_bytes(
        2, "big") + text


def rows(*records: bytes) -> list[dict[str, object]]:
    batch = RawBatch(QUEUE, b"".join(records), len(records), 0, len(records), 0)
    made = arrow_batch([batch], arrow_schema())
    made.validate(full=True)
    return made.to_pylist()


def expected(*records: bytes) -> list[dict[str, object]]:
    return [{
        "topic": "T", "broker": "b", "queue": 3, "offset": one.queue_offset,
        "store_time": one.store_timestamp_ms, "born_time": one.born_timestamp_ms,
        "message_id": one.message_id, "tags": one.tags, "keys": keys_of(one),
        "properties": one.properties, "body": one.plain_body(), "flag": one.flag,
        "sys_flag": one.sys_flag, "reconsume_times": one.reconsume_times,
        "log_position": one.physical_offset,
    } for one in decode_records(b"".join(records))]


def keys_of(one: Record) -> list[str]:
    """Parted by blanks of ASCII: Java parts by spaces alone, Python by all that Unicode has."""
    text = one.properties.get("KEYS", "")
    return [key for key in re.split(r"[\x09-\x0d\x1c-\x20]", text) if key]


def plain(row: dict[str, object]) -> dict[str, object]:
    return row | {
        "properties": dict(row["properties"]),
        "store_time": round(row["store_time"].timestamp() * 1000),
        "born_time": round(row["born_time"].timestamp() * 1000),
    }


def same(*records: bytes) -> None:
    assert [plain(row) for row in rows(*records)] == expected(*records)


texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]),
                min_size=1, max_size=12)


@given(st.lists(st.tuples(
    st.binary(max_size=40), st.dictionaries(st.sampled_from(
        ["TAGS", "KEYS", "UNIQ_KEY", "c", "größe"]) | texts, texts, max_size=5),
    st.booleans(), st.sampled_from(HOSTS)), max_size=20))
@settings(max_examples=times(150), deadline=None)
def test_columns_are_what_the_decoder_says(messages):
    made = []
    for offset, (body, properties, pressed, host) in enumerate(messages):
        flag = 0
        if pressed:
            body, flag = compress(body)
        made.append(record(offset, body, properties, sys_flag=flag, store_host=host))
    same(*made)


@given(st.lists(st.binary(max_size=60), max_size=5))
@settings(max_examples=times(200), deadline=None)
def test_properties_that_are_nonsense_read_as_the_decoder_reads_them(parts):
    same(*(raw_properties(offset, text) for offset, text in enumerate(parts)))


@pytest.mark.parametrize("text", [
    b"a\x01b\x02a\x01c\x02", b"TAGS\x01x\x02TAGS\x01y", b"\x01\x01\x02\x02a\x01",
    b"KEYS\x01  a \t b ",
    "KEYS\x01a\xa0b".encode(),
    b"k\x01v\x01w\x02", b"\xff\x01\xfe\x02b\x01\xc3\xa4", b"UNIQ_KEY\x01\x02x\x01y",
    b"\x02".join(b"n%d\x01v" % n for n in range(200)) + b"\x02n7\x01last",
])
def test_odd_properties_read_as_the_decoder_reads_them(text):
    same(raw_properties(0, text), raw_properties(1, b""))


@given(st.data())
@settings(max_examples=times(400), deadline=None)
def test_damaged_records_are_refused_or_read_as_the_decoder_reads_them(data):
    whole = bytearray(b"".join(record(n, b"body", {"TAGS": "a", "k": "v"}) for n in range(3)))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    body = bytes(whole[:data.draw(st.integers(0, len(whole)))])
    try:
        there = decode_records(body)
    except RecordError:
        with pytest.raises(RecordError):
            columns([body], 3)
        return
    try:
        made = columns([body], len(there))
    except RecordError as error:
        if not re.search("zlib|compression|package", str(error)):
            raise
        return
    assert made.row_count == len(there)


def test_a_body_that_cannot_be_decompressed_is_an_error():
    with pytest.raises(RecordError, match="zlib"):
        columns([record(0, b"no zlib", sys_flag=1)], 1)


def test_more_records_than_were_counted_are_an_error():
    with pytest.raises(RecordError):
        columns([record(0) + record(1)], 1)


def test_a_scan_takes_the_range_and_no_more():
    body = b"".join(map(record, range(5, 10)))
    assert scan(body, 5, END, True, None) == (body, 5, 10, 1_700_000_001_005, -1)
    head = b"".join(map(record, range(5, 8)))
    assert scan(body, 5, 8, True, None) == (head, 3, 8, 1_700_000_001_005, -1)
    assert scan(b"", 5, END, True, None) == (b"", 0, 5, 0, -1)


def test_a_scan_names_the_offset_that_was_there_instead():
    body = record(5) + record(6) + record(9)
    assert scan(body, 5, END, True, None)[1:] == (2, 7, 1_700_000_001_005, 9)
    assert scan(body, 4, END, True, None)[1:] == (0, 4, 0, 5)
    assert scan(body, 4, END, False, None)[1:] == (3, 10, 1_700_000_001_005, -1)


@pytest.mark.parametrize("body", [
    record(6) + record(5), record(5) + record(5), record(4), b"x", record(5)[:-1]])
def test_a_scan_refuses_what_is_out_of_order_or_no_record(body):
    with pytest.raises(RecordError):
        scan(body, 5, END, False, None)


def test_a_scan_leaves_out_tags_that_only_have_an_equal_hash():
    made = [record(n, properties={"TAGS": tag} if tag else {})
            for n, tag in enumerate(["BB", "Aa", "", "Aa", "BB"])]
    records, count, after, first_ms, _ = scan(b"".join(made), 0, END, False, [b"Aa"])
    assert (records, count, after) == (made[1] + made[3], 2, 5)
    assert first_ms == 1_700_000_001_001


def test_a_pull_made_beforehand_is_the_one_made_each_time():
    def make(offset):
        return request(RequestCode.PULL_MESSAGE, {"queueOffset": offset, "topic": 'T"'}, b"")

    def prepare(command):
        command.ext = {**command.ext, "ReqT": "0"}

    frames = [PullFrame(make, prepare, signed=signed).frame(12345, 77)
              for signed in (False, True)]
    assert frames[0] == frames[1]
    command = decode(frames[0][4:])
    assert (command.opaque, command.ext) == (
        77, {"queueOffset": "12345", "topic": 'T"', "ReqT": "0"})




def test_records_are_cut_in_the_middle_where_one_ends():
    records = [record(offset, b"b" * offset) for offset in range(7)]
    batch = RawBatch(QUEUE, b"".join(records), 7, 0, 9, 0)
    first, second = batch.halves()

    assert (first.records, second.records) == (b"".join(records[:3]), b"".join(records[3:]))
    assert [(half.count, half.begin, half.next) for half in (first, second)] == [
        (3, 0, 3), (4, 3, 9)]
    assert halves([b"".join(records[:2]), b"".join(records[2:])], 7) == (
        [b"".join(records[:2]), records[2]], 3, [b"".join(records[3:])], 4)
    with pytest.raises(RecordError):
        halves(records[:1], 1)


def test_bodies_that_are_too_much_together_are_refused_before_they_are_all_inflated():
    small = [record(offset, zlib.compress(bytes(1000)), sys_flag=1) for offset in range(4)]

    with pytest.raises(TooMuch, match="3 of 4 messages have 3000 bytes"):
        columns([b"".join(small)], 4, inflated_max=2500)
    assert len(columns([small[0]], 1, inflated_max=500).body) == 1000
