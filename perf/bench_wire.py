"""The Python wire codec: what one frame costs a client, the name server or the coordinator."""
from __future__ import annotations

import zlib

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from mqcore.bench.templates import pull_template, send_template
from mqcore.wire.codes import ResponseCode
from mqcore.wire.command import Codec, Command, decode, encode, response
from mqcore.wire.properties import decode_properties, encode_properties
from mqcore.wire.records import Record, decode_record, decode_records, encode_record

CODECS = pytest.mark.parametrize("codec", [Codec.JSON, Codec.ROCKETMQ], ids=["json", "binary"])
PROPERTIES = {"KEYS": "order-1", "UNIQ_KEY": "C0A80001" * 4, "WAIT": "true", "TAGS": "TagA"}
BATCH = 32


def send_response(codec: Codec) -> Command:
    """What a broker answers to a send."""
    sent = send_template("TopicTest", 3, b"x" * 128, codec=codec).frame
    return response(decode(sent[4:]), ResponseCode.SUCCESS, ext={
        "msgId": "7F00000100002A9F0000000000012345", "queueId": "3", "queueOffset": "1234567",
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"})


@CODECS
def bench_decode_send_128B(benchmark: BenchmarkFixture, codec: Codec) -> None:
    frame = send_template("TopicTest", 3, b"x" * 128, codec=codec).frame
    assert benchmark(decode, frame[4:]).body == b"x" * 128


@CODECS
def bench_decode_pull(benchmark: BenchmarkFixture, codec: Codec) -> None:
    frame = pull_template("TopicTest", 3, group="G", batch=BATCH, codec=codec).frame
    assert (benchmark(decode, frame[4:]).ext or {})["maxMsgNums"] == str(BATCH)


@CODECS
def bench_encode_send_response(benchmark: BenchmarkFixture, codec: Codec) -> None:
    answer = send_response(codec)
    assert decode(benchmark(encode, answer)[4:]).ext == answer.ext


def bench_decode_properties_4(benchmark: BenchmarkFixture) -> None:
    assert benchmark(decode_properties, encode_properties(PROPERTIES)) == PROPERTIES


def bench_decode_records_32_of_128B(benchmark: BenchmarkFixture) -> None:
    frame = _record_bytes() * BATCH
    assert len(benchmark(decode_records, frame)) == BATCH


def bench_encode_record_128B(benchmark: BenchmarkFixture) -> None:
    record: Record = decode_record(_record_bytes())
    assert benchmark(encode_record, record) == _record_bytes()


def _record_bytes() -> bytes:
    host = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
    body, topic, properties = b"x" * 128, b"TopicTest", encode_properties(PROPERTIES).encode()
    parts = [
        (-626843481).to_bytes(4, "big", signed=True), _crc(body).to_bytes(4, "big"),
        (3).to_bytes(4, "big"), bytes(4), (7).to_bytes(8, "big"), (4096).to_bytes(8, "big"),
        bytes(4), (1_700_000_000_000).to_bytes(8, "big"), host,
        (1_700_000_000_001).to_bytes(8, "big"), host, bytes(4), bytes(8),
        len(body).to_bytes(4, "big"), body, bytes([len(topic)]), topic,
        len(properties).to_bytes(2, "big"), properties,
    ]
    rest = b"".join(parts)
    return (len(rest) + 4).to_bytes(4, "big") + rest


def _crc(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFF_FFFF
