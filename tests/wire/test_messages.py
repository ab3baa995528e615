"""Properties, records, batches, tags and identifiers."""
import os
import struct
import zlib
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.wire import ids, records
from mqcore.wire.properties import decode_properties, encode_properties
from mqcore.wire.records import BatchItem, RecordError
from mqcore.wire.tags import java_string_hash, parse_subscription, tag_code
from tests.support import recorded

EXAMPLE = bytes.fromhex(                            # remoting.md 6.2
    "0000006ddaa320a758932aac0000000300000000000000000000000500000000000004000000000000000"
    "18bcfe568000a00000900009c400000018bcfe568010a00000100002a9f00000000000000000000000000000002"
    "6869025431000e4b455953016b310254414753" "0141"
)
BATCH = bytes.fromhex(                              # remoting.md 6.4
    "0000001d000000000000000000000000000000016100065441475301410000001e"
    "0000000000000000000000000000000262630006544147530142"
)


def test_a_properties_string_drops_what_has_no_name_or_value():
    text = "A\x011\x02B\x01\x02\x01x\x02C\x02D\x01x\x01y\x02A\x012\x02"

    assert decode_properties(text) == {"A": "2", "D": "x\x01y"}


def test_properties_are_written_without_an_ending_separator():
    assert encode_properties({"KEYS": "k1", "X": None, "TAGS": "A"}) == "KEYS\x01k1\x02TAGS\x01A"


@pytest.mark.parametrize("bad", [{"a\x01": "b"}, {"a": "b\x02"}])
def test_a_property_that_would_read_back_differently_is_refused(bad):
    with pytest.raises(ValueError, match="property"):
        encode_properties(bad)


def test_a_stored_record_decodes_to_its_fields():
    record = records.decode_record(EXAMPLE)

    assert (record.topic, record.body, record.queue_id, record.queue_offset) == ("T1", b"hi", 3, 5)
    assert record.properties == {"KEYS": "k1", "TAGS": "A"}
    assert record.born_host == ("10.0.0.9", 40000)
    assert record.store_host == ("10.0.0.1", 10911)
    assert record.offset_message_id == "0A00000100002A9F0000000000000400"
    assert record.crc_matches()
    assert records.encode_record(record) == EXAMPLE


def test_an_ipv6_record_survives_encoding():
    record = replace(
        records.decode_record(EXAMPLE), born_host=("fd00::1", 1), store_host=("::1", 65535),
        sys_flag=0x30, size=len(EXAMPLE) + 24,
    )

    assert records.decode_record(records.encode_record(record)) == record
    assert len(record.offset_message_id) == 56


def test_every_recorded_pull_body_decodes_and_encodes_to_the_same_bytes():
    count = 0
    for exchange in recorded.exchanges("pull"):
        answer = exchange.response
        if exchange.code != 11 or answer is None or answer.header["code"] != 0:
            continue
        header_end = 8 + (int.from_bytes(answer.frame[4:8], "big") & 0xFFFFFF)
        body = answer.frame[header_end:]
        decoded = records.decode_records(body)
        count += len(decoded)
        for record in decoded:
            assert record.crc_matches()
            assert record.plain_body() or not record.body
        assert sum(record.size for record in decoded) == len(body)
    assert count > 20


@pytest.mark.parametrize("length", range(0, len(EXAMPLE), 7))
def test_a_record_that_is_cut_off_is_refused(length):
    with pytest.raises(RecordError):
        records.decode_record(EXAMPLE[:length])


@given(st.integers(0, len(EXAMPLE) - 1), st.integers(0, 255))
def test_a_damaged_record_is_a_record_or_a_record_error(position, byte):
    damaged = bytearray(EXAMPLE)
    damaged[position] = byte
    with suppress(RecordError):
        records.decode_record(bytes(damaged))


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
def test_a_zlib_body_is_decompressed(sys_flag):
    assert records.decompress(zlib.compress(b"x" * 5000), sys_flag) == b"x" * 5000


def test_a_body_without_the_compression_flag_stays_as_it_is():
    assert records.decompress(b"plain", 0x300) == b"plain"


@pytest.mark.parametrize(("body", "sys_flag", "names"), [
    (b"nonsense", 0x1, "zlib"),
    (zlib.compress(bytes(5000))[:-3], 0x1, "zlib"),
    (b"x", 0x401, "unknown compression"),
])
def test_a_body_that_cannot_be_decompressed_says_why(body, sys_flag, names):
    with pytest.raises(RecordError, match=names):
        records.decompress(body, sys_flag)


def compressed(kind, plain):
    """(compressed body, sysFlag); skips where the package is missing."""
    if kind == "zlib":
        return zlib.compress(plain), 0x301
    if kind == "lz4":
        return pytest.importorskip("lz4.frame").compress(plain), 0x101
    return pytest.importorskip("zstandard").ZstdCompressor().compress(plain), 0x201


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_a_body_never_grows_beyond_the_limit_and_is_never_shortened(kind):
    body, sys_flag = compressed(kind, bytes(100_000))
    with pytest.raises(RecordError, match="more than 99999 bytes"):
        records.decompress(body, sys_flag, size_max=99_999)
    assert records.decompress(body, sys_flag, size_max=100_000) == bytes(100_000)


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_a_body_that_is_cut_off_is_refused_wherever_it_is_cut(kind):
    plain = os.urandom(3000) + bytes(200_000)
    body, sys_flag = compressed(kind, plain)
    assert records.decompress(body, sys_flag) == plain
    for end in range(0, len(body) - 1, 97):
        with pytest.raises(RecordError):
            records.decompress(body[:end], sys_flag)


def test_a_batch_body_is_the_documented_bytes():
    items = [BatchItem(b"a", {"TAGS": "A"}), BatchItem(b"bc", {"TAGS": "B"})]

    assert records.encode_batch(items) == BATCH
    assert records.decode_batch(BATCH) == items


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_a_batch_or_a_record_error(data):
    with suppress(RecordError):
        records.decode_batch(data)


@pytest.mark.parametrize(("text", "value"), [
    ("TagA", 2598919), ("order-1001", 708180863), ("polygenelubricants", -(2**31)),
    ("你好", 652829), ("", 0),
])
def test_the_tag_hash_is_javas(text, value):
    assert java_string_hash(text) == value
    assert tag_code(text) == value


@pytest.mark.parametrize("length", [511, 512, 513, 1_500])
def test_the_hash_of_a_long_text_is_javas(length):
    text = ("Tag-\uffff" * length)[:length - 2] + "\U0001f600"

    value = 0
    for unit in struct.unpack(f">{length}H", text.encode("utf-16-be")):
        value = (31 * value + unit) % 2 ** 32

    assert java_string_hash(text) % 2 ** 32 == value


def test_a_tag_expression_becomes_tags_and_codes():
    wanted = parse_subscription("T", " TagA || TagB||", 7)

    assert wanted.tags == {"TagA", "TagB"}
    assert wanted.codes == {2598919, 2598920}
    assert wanted.matches("TagA")
    assert not wanted.matches("AaAa")
    assert not wanted.matches(None)


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_expression_or_a_star_wants_everything(expression):
    wanted = parse_subscription("T", expression)

    assert (wanted.expression, wanted.tags, wanted.codes) == ("*", frozenset(), frozenset())
    assert wanted.matches(None)
    assert wanted.matches_code(17)


def test_an_expression_of_separators_alone_is_refused():
    with pytest.raises(ValueError, match="at least one tag"):
        parse_subscription("T", "||")


@pytest.mark.parametrize("host", ["10.0.0.1", "fd00::17"])
def test_an_offset_message_id_reads_back(host):
    assert ids.parse_offset_message_id(ids.offset_message_id(host, 10911, 1 << 40)) == (
        host, 10911, 1 << 40
    )


@pytest.mark.parametrize("bad", ["", "zz" * 16, "00" * 15, "FF" * 16])
def test_what_is_no_offset_message_id_is_refused(bad):
    with pytest.raises(ValueError, match="message id"):
        ids.parse_offset_message_id(bad)


def test_unique_keys_differ_and_name_their_process_and_time():
    keys = ids.UniqueKeys("10.0.0.7")
    now_ms = int(datetime(2024, 5, 17, 8, 30, 15, 250_000).timestamp() * 1000)
    made = [keys.next(now_ms) for _ in range(1000)]

    assert len(set(made)) == 1000
    assert made[0][20:28] == "5438E6D2"                 # client.md 2.13: time since the month began
    parts = ids.parse_unique_key(made[5], now_ms + 10)
    assert (parts.host, parts.pid, parts.created_ms) == ("10.0.0.7", os.getpid() & 0xFFFF, now_ms)
