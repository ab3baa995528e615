"""The load generator's own cost: it shares the machine with the broker that it measures."""
from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from mqcore.bench.frames import parse_many, render_pull
from mqcore.bench.histogram import LatencyHistogram
from mqcore.bench.templates import OPAQUE, pull_template
from mqcore.wire.command import Codec, Command, encode

CODECS = pytest.mark.parametrize("codec", [Codec.JSON, Codec.ROCKETMQ], ids=["json", "binary"])
RESPONSES = 1000


@CODECS
def bench_parse_1000_send_responses(benchmark: BenchmarkFixture, codec: Codec) -> None:
    frame = encode(Command(code=0, flag=1, opaque=OPAQUE, codec=codec, ext={
        "queueId": "3", "TRACE_ON": "true", "MSG_REGION": "DefaultRegion",
        "msgId": "7F00000100002A9F0000000000012345", "queueOffset": "1234567"}))
    assert benchmark(parse_many, frame, RESPONSES) == OPAQUE * RESPONSES


@CODECS
def bench_render_one_pull_from_python(benchmark: BenchmarkFixture, codec: Codec) -> None:
    made = pull_template("TopicTest", 3, group="G", batch=32, codec=codec)
    assert len(benchmark(render_pull, made, 123_456, 7)) == len(made.frame) - 4


def bench_record_one_latency_from_python(benchmark: BenchmarkFixture) -> None:
    histogram = LatencyHistogram()
    benchmark(histogram.record, 123_456)
    assert histogram.percentile_ns(50) >= 123_456
