"""Records become the columns that Spark expects; no session is needed for that."""
from __future__ import annotations

import json
from binascii import crc32
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mqcore.spark.columns import (
    COLUMNS,
    Cutter,
    Picked,
    all_columns,
    arrow_schema,
    picked_by_names,
)
from mqcore.spark.errors import OptionError
from mqcore.wire.records import Record, compress, encode_record

pytest.importorskip("pyarrow")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BASE = Record(
    topic="orders", queue_id=3, queue_offset=7, physical_offset=4_711, flag=-5, sys_flag=0,
    body_crc=-17, born_timestamp_ms=1_700_000_000_123, born_host=("127.0.0.1", 10_911),
    store_timestamp_ms=1_700_000_001_456, store_host=("10.2.3.4", 65_535), reconsume_times=2,
    prepared_transaction_offset=99, body=b"one", properties={
        "TAGS": "paid", "KEYS": "a b", "UNIQ_KEY": "0A", "quote": 'x"\\y\n', "town": "Köln"},
    size=0)
RECORDS = [
    BASE,
    replace(BASE, queue_offset=8, properties={}, body=b""),
    replace(BASE, queue_offset=9, topic="päid", born_host=("fe80::1", 1),
            store_host=("fe80::2", 0), body=compress(b"z" * 5_000)[0],
            sys_flag=compress(b"")[1]),
]


def cut(picked: Picked, records: list[Record] = RECORDS, **given: str | None) -> list[dict]:
    body = b"".join(map(encode_record, records))
    batch = Cutter(picked).cut([body], len(records), **{"broker": "b", **given})
    batch.validate(full=True)
    assert batch.schema == arrow_schema(picked)
    return batch.to_pylist()


def test_a_body_that_nobody_can_decompress_is_null_and_the_others_are_there():
    """Any producer can send one: it may stop no stream."""
    flag = compress(b"")[1]
    broken = [(8, b"this is no zlib", flag), (9, compress(b"x" * 99)[0][:-3], flag),
              (10, compress(b"x" * (80 << 20))[0], flag), (11, b"x", flag | 0x600)]
    records = [
        BASE, *(replace(BASE, queue_offset=offset, body=body, sys_flag=sys_flag, topic="päid")
                for offset, body, sys_flag in broken), replace(RECORDS[2], queue_offset=12)]
    rows = cut(all_columns(), records)
    asked = cut(picked_by_names("brokenBody,body,queueId"), records)
    alone = cut(picked_by_names("brokenBody"), RECORDS)

    assert [row["brokenBody"] for row in asked] == [None, *(body for _, body, _ in broken), None]
    assert [row["body"] for row in asked] == [row["body"] for row in rows]
    assert alone == [{"brokenBody": None}] * len(RECORDS)

    assert [row["body"] for row in rows] == [b"one", *[None] * 4, b"z" * 5_000]
    assert [row["topic"] for row in rows] == ["orders", *["päid"] * 5]
    assert [row["queueOffset"] for row in rows] == [7, 8, 9, 10, 11, 12]


def test_every_field_of_a_record_has_its_column():
    first, second, third = cut(all_columns())

    assert {**first, "properties": dict(first["properties"])} == {
        "topic": "orders", "flag": -5, "body": b"one", "properties": BASE.properties,
        "brokerName": "b", "queueId": 3, "queueOffset": 7,
        "bornTimestamp": EPOCH + timedelta(milliseconds=1_700_000_000_123),
        "storeTimestamp": EPOCH + timedelta(milliseconds=1_700_000_001_456),
        "msgId": "0A", "keys": ["a", "b"], "tags": "paid", "commitLogOffset": 4_711, "sysFlag": 0,
        "bodyCRC": crc32(b"one"), "bornHost": "127.0.0.1:10911", "storeHost": "10.2.3.4:65535",
        "reconsumeTimes": 2, "preparedTransactionOffset": 99}
    assert (second["body"], second["tags"], second["keys"]) == (b"", None, [])
    assert second["msgId"] == RECORDS[1].message_id
    assert third["body"] == b"z" * 5_000
    assert (third["topic"], third["bornHost"], third["storeHost"]) == (
        "päid", "[fe80::1]:1", "[fe80::2]:0")


@pytest.mark.parametrize("column", COLUMNS, ids=[column.name for column in COLUMNS])
def test_a_column_alone_is_the_same_as_among_all(column):
    alone = cut(picked_by_names(column.name))
    everything = cut(picked_by_names(",".join(each.name for each in COLUMNS)))

    assert [row[column.name] for row in alone] == [row[column.name] for row in everything]


def test_properties_may_be_json():
    rows = cut(Picked((("properties", "string"),)))

    assert [json.loads(row["properties"]) for row in rows] == [
        BASE.properties, {}, BASE.properties]


def test_a_topic_may_be_given_for_all_rows():
    assert {row["topic"] for row in cut(picked_by_names("topic"), topic="other")} == {"other"}


def test_a_gap_is_a_row_of_its_place_alone():
    picked = picked_by_names("topic,queueId,queueOffset,body,gapEnd,properties")
    assert Cutter(picked).gap("orders", "b", 3, 5, 9).to_pylist() == [{
        "topic": "orders", "queueId": 3, "queueOffset": 5, "body": None, "gapEnd": 9,
        "properties": None}]


@pytest.mark.parametrize(("names", "said"), [
    ("body,queueOfset", "did you mean queueOffset"), (" , ", "at least one"),
    ("body,BODY", "stands twice"), ("zzzz", "expected some of topic")])
def test_a_wrong_name_is_told_with_the_near_one(names, said):
    with pytest.raises(OptionError, match=said):
        picked_by_names(names)
