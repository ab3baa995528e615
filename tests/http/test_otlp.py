"""Metrics and spans as OTLP, as a collector of OpenTelemetry gets them."""
from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import SettingsError
from mqcore.client import Consumer, Message, Producer
from mqcore.contrib import opentelemetry as spans
from mqcore.http import otlp
from mqcore.http.look import Look
from mqcore.http.text import Distribution
from mqcore.wire.codes import RequestCode
from tests.http.asking import checks, families, values
from tests.http.collector import Collector, attributes, collecting
from tests.http.test_metrics import filled, write_offsets
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.stock import free_port
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields, topic_fields

SENDS = 5
WITHOUT = """
import sys
sys.modules["opentelemetry.exporter.otlp.proto.http.metric_exporter"] = None
from mqcore.admin.cli import main
main()
"""
CUMULATIVE = 2                       # AggregationTemporality


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def settings(port: int, collector: Collector) -> dict[str, object]:
    return {"http.enable": True, "http.listen": f"127.0.0.1:{port}",
            "http.otlp_endpoint": f"http://{collector.address}", "http.otlp_interval_ms": 1000}


def send(broker: MqcoreProcess) -> None:
    with Peer(broker.broker_addr) as peer:
        assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("orders", 1)).code == 0
        for _ in range(SENDS):
            assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"x").code == 0


def points(collector: Collector, name: str, kind: str) -> list[Any]:
    found = collector.metrics().get(name)
    return [] if found is None else list(getattr(found, kind).data_points)


def test_a_collector_gets_what_a_scrape_shows(collector: Collector, tmp_path: Path) -> None:
    """And while it hangs, or refuses, the broker's own answers come as ever."""
    port = free_port()
    with mqcore_up(tmp_path, settings(port, collector)) as broker:
        send(broker)
        wait_until(lambda: [one.as_int for one in points(
            collector, "rocketmq_messages_in", "sum") if attributes(one)["topic"] == "orders"]
            == [SENDS], "the messages at the collector")
        found = collector.metrics()
        scraped = {one.name: one for one in families(port, newer=True)}
        assert scraped.keys() - found.keys() == set()
        total = found["rocketmq_messages_in"].sum
        assert (total.is_monotonic, total.aggregation_temporality) == (True, CUMULATIVE)
        (point,) = [one for one in total.data_points if attributes(one)["topic"] == "orders"]
        assert attributes(point) == {
            "cluster": "DefaultCluster", "node_type": "broker", "node_id": "mqcore-a",
            "topic": "orders", "is_system": "false"}
        assert 0 < point.start_time_unix_nano < point.time_unix_nano
        resource = attributes(collector.requests[-1].resource_metrics[0].resource)
        assert (resource["service.name"], resource["service.instance.id"]) == (
            "mqcore", "mqcore-a")
        (sends,) = found["mqcore_send_seconds"].histogram.data_points
        assert sends.count == sum(sends.bucket_counts) == SENDS
        assert len(sends.bucket_counts) == len(sends.explicit_bounds) + 1
        assert values(families(port), "mqcore_send_seconds_count") == [SENDS]
        assert found["mqcore_send_seconds"].unit == "s"
        assert [one.as_int for one in found["mqcore_ready"].gauge.data_points] == [1]

        collector.open.clear()
        asked = collector.asked
        wait_until(lambda: collector.asked > asked, "a push that gets no answer")
        assert checks(port, "/healthz") == (200, {})
        assert values(families(port), "mqcore_ready") == [1]
        collector.status = 400
        collector.open.set()
        wait_until(lambda: "metrics cannot be pushed to http://" in broker.tail(), "the line")
        collector.status = 200
        wait_until(lambda: "metrics are pushed to http://" in broker.tail(), "the other line")
        assert broker.tail().count("cannot be pushed") == 1


def test_a_broker_without_the_extra_says_so_and_serves(
    collector: Collector, tmp_path: Path
) -> None:
    port = free_port()
    with mqcore_up(tmp_path, settings(port, collector),
                   program=[sys.executable, "-c", WITHOUT]) as broker:
        wait_until(lambda: "pip install mqcore[otlp]" in broker.tail(), "the line")
        assert checks(port, "/healthz") == (200, {})
        assert collector.asked == 0


def test_the_sdk_is_not_loaded_where_nothing_is_pushed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, mqcore.workers.serving.http; "
         "print([one for one in sys.modules if one.startswith(('opentelemetry', 'requests'))])"],
        capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_each_bucket_has_what_is_in_it() -> None:
    one = Distribution((1.0, 2.0, 4.0), [3, 3, 10], 12, 40.0)
    assert list(otlp._in_each(one)) == [3, 0, 7, 2]


def test_names_that_are_no_text_do_not_stop_a_push(tmp_path: Path) -> None:
    """The files of offsets are JSON, which can hold half of a surrogate pair."""
    watcher = filled(['quote " \n'], store=tmp_path)
    write_offsets(watcher, {})
    (watcher.settings.config_dir / "consumerOffset.json").write_text(
        r'{"offsetTable":{"quote \" \n@half \udc80":{0:0,"1":0}}}', encoding="utf-8")
    (resource,) = otlp.metrics_data(Look(watcher), 1).resource_metrics
    encoded = encode_metrics(otlp.metrics_data(Look(watcher), 1)).SerializeToString()
    assert len(encoded) > 1000
    (scope,) = resource.scope_metrics
    found = {metric.name: metric for metric in scope.metrics}
    (lag,) = found["rocketmq_consumer_lag_messages"].data.data_points
    assert (lag.attributes["topic"], lag.attributes["consumer_group"], lag.value) == (
        'quote " \n', "half ?", 1)


@pytest.mark.parametrize(("given", "url"), [
    ("http://c:4318", "http://c:4318/v1/metrics"), ("http://c:4318/", "http://c:4318/v1/metrics"),
    ("https://c:4318/otlp/v1/metrics", "https://c:4318/otlp/v1/metrics")])
def test_an_endpoint_without_a_path_has_the_usual_one(given: str, url: str) -> None:
    assert load(None, {}, [f"http.otlp_endpoint={given}"]).http.otlp_url == url


@pytest.mark.parametrize("given", ["c:4318", "ftp://c:1", "http://c", "http://:1", "http://c:x/p"])
def test_what_is_no_endpoint_is_refused(given: str) -> None:
    with pytest.raises(SettingsError, match=r"http\.otlp_endpoint.*expected http://host:port"):
        load(None, {}, [f"http.otlp_endpoint={given}"])


def test_spans_of_a_message_reach_a_collector(collector: Collector, tmp_path: Path) -> None:
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(
        OTLPSpanExporter(endpoint=f"http://{collector.address}/v1/traces")))
    spans.instrument(tracer_provider=provider)
    try:
        with mqcore_up(tmp_path) as broker:
            with Producer("shop", namesrv=broker.namesrv_addr) as producer:
                producer.send(Message("orders", b"one", tags="new"))
            with Consumer("billing", "orders", namesrv=broker.namesrv_addr,
                          start="earliest") as consumer:
                for _message in consumer:
                    break
            wait_until(lambda: len(collector.spans()) >= 2, "the spans")
    finally:
        spans.uninstrument()
        provider.shutdown()
    found = {span.name: span for span in collector.spans()}
    sent, = [span for name, span in found.items() if name.startswith("send")]
    assert attributes(sent)["messaging.system"] == "rocketmq"
    assert attributes(sent)["messaging.destination.name"] == "orders"
    others = [span for span in found.values() if span is not sent]
    linked = {link.trace_id for span in others for link in span.links} | {
        span.trace_id for span in others}
    assert sent.trace_id in linked
