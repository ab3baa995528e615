"""The load generator against the stock Java broker; runs when MQCORE_TEST_STOCK=1."""
from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mqcore.bench.control import Target, find_target, wait_for_stored
from mqcore.bench.load import (
    ConsumeOptions,
    EndToEndOptions,
    ProduceOptions,
    Span,
    consume,
    end_to_end,
    produce,
)
from mqcore.wire.command import Codec
from tests.support.stock import SMALL_STOCK, StockCluster, require_stock, stock_cluster

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(os.environ.get("MQCORE_TEST_STOCK") != "1", reason="MQCORE_TEST_STOCK=1"),
]
CODECS = pytest.mark.parametrize("codec", [Codec.JSON, Codec.ROCKETMQ], ids=["json", "binary"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockCluster]:
    require_stock()
    with stock_cluster(
            tmp_path_factory.mktemp("stock"), SMALL_STOCK, is_kept=False) as running:
        yield running


def topic_on(cluster: StockCluster, name: str) -> Target:
    return find_target(name, broker=None, namesrv=cluster.namesrv_addr, queues=4)


@CODECS
def test_what_was_produced_is_consumed_once(cluster: StockCluster, codec: Codec) -> None:
    target = topic_on(cluster, f"produce-{codec.name}")
    sent = produce(target, ProduceOptions(
        span=Span(count=5_000), connections=2, depth=8, codec=codec, keys=True,
        broker_pids=(cluster.broker_pid,)))
    assert wait_for_stored(target, 5_000) == 5_000
    received = consume(target, ConsumeOptions(connections=2, depth=2, codec=codec))

    assert (sent.errors, sent.lost) == (0, 0)
    assert received.items == 5_000
    assert sent.broker_cpu_us is not None
    assert sent.broker_cpu_us > 1


@CODECS
def test_end_to_end_receives_every_message(cluster: StockCluster, codec: Codec) -> None:
    report = end_to_end(topic_on(cluster, f"e2e-{codec.name}"), EndToEndOptions(
        span=Span(count=1_000, warmup=100), rate=1_000, codec=codec))

    assert report.items >= 1_000
    assert report.errors == 0
