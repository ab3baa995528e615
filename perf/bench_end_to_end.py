"""A whole broker: sends that are acknowledged, and pulls that bring them back, by a native load."""
from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from mqcore.bench.control import Target, find_target
from mqcore.bench.load import (
    ConsumeOptions,
    ProduceOptions,
    Span,
    consume,
    produce,
)
from tests.support.mqcore_process import MqcoreProcess, mqcore_up

MESSAGES = 200_000
ROUNDS = 3
STORE = {"store.segment_size_bytes": 1 << 30}


@pytest.fixture(scope="module", params=["async", "sync"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
           ) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("perf"), {**STORE, "store.flush": request.param}) as up:
        yield up


def target_of(broker: MqcoreProcess, topic: str) -> Target:
    return find_target(topic, broker=broker.broker_addr, namesrv=None, queues=8)


@pytest.mark.parametrize("size", [128, 1024], ids=["128B", "1KiB"])
def bench_produce_200000_acknowledged(
    benchmark: BenchmarkFixture, broker: MqcoreProcess, size: int
) -> None:
    target = target_of(broker, f"produce-{size}")
    report = benchmark.pedantic(
        produce, (target, ProduceOptions(span=Span(count=MESSAGES), size=size)), rounds=ROUNDS)
    assert report.errors == 0


def bench_consume_200000_of_128B(benchmark: BenchmarkFixture, broker: MqcoreProcess) -> None:
    target = target_of(broker, "consume")
    produce(target, ProduceOptions(span=Span(count=MESSAGES), size=128))
    report = benchmark.pedantic(
        consume, (target, ConsumeOptions()), rounds=ROUNDS)
    assert report.items >= MESSAGES
