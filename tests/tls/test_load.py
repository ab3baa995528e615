"""`mqcore bench --tls`: the load generator by TLS, its answers counted as those in the clear."""
from __future__ import annotations

import pytest

from mqcore.bench.control import BenchError, find_target
from mqcore.bench.load import ConsumeOptions, ProduceOptions, Span, consume, produce
from tests.support.mqcore_process import MqcoreProcess


def test_what_was_sent_by_tls_is_consumed_by_tls(broker: MqcoreProcess) -> None:
    target = find_target("Loaded", broker=broker.broker_addr, namesrv=None, queues=2, tls=True)
    sent = produce(target, ProduceOptions(span=Span(count=2_000), connections=3, size=5_000))
    assert (sent.items, sent.errors, sent.lost) == (2_000, 0, 0)
    read = consume(target, ConsumeOptions(count=2_000, connections=2))
    assert (read.items, read.errors, read.lost) == (2_000, 0, 0)


def test_a_port_without_tls_is_named(broker: MqcoreProcess) -> None:
    with pytest.raises(BenchError, match=r"cannot connect to 127\.0\.0\.1:1: "):
        find_target("Loaded", broker="127.0.0.1:1", namesrv=None, queues=2, tls=True)
