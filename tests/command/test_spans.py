"""`mqcore message spans`: what clients traced, at a collector of OpenTelemetry."""
from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mqcore.admin.nouns import message_spans
from mqcore.admin.spans import SpanPush, TraceSpan, spans_of
from mqcore.client import Message, Producer, PushConsumer, ReceivedMessage
from mqcore.client.core import trace
from tests.command.conftest import Cluster
from tests.http.collector import Collector, attributes, collecting
from tests.support.command import mqcore
from tests.support.stock import free_port
from tests.support.waiting import wait_until

PRODUCER, CONSUMER, OK, FAILED = 4, 5, 1, 2          # of OpenTelemetry's enums


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


def url(collector: Collector) -> str:
    return f"http://{collector.address}/v1/traces"


def test_a_send_is_the_parent_of_what_its_consumer_did(
        cluster: Cluster, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_spans, "AGAIN_S", (0.05,))
    for topic in ("S-traced", "S-traces"):
        cluster.run("topic", "create", topic, "--queues", 1)
    got: list[ReceivedMessage] = []
    with PushConsumer("S-group", "S-traced", got.append, namesrv=cluster.namesrv,
                      start="earliest", trace=True, trace_topic="S-traces"), \
            Producer("S-producers", namesrv=cluster.namesrv, trace=True,
                     trace_topic="S-traces") as producer:
        sent = producer.send(Message("S-traced", b"body", tags="blue", keys="k"))
        wait_until(lambda: got, "the message")
    wait_until(lambda: len(records(cluster)) >= 3, "the traces: of a send, before and after")

    collector.status = 503                                  # the first push is not taken
    command = threading.Thread(target=lambda: ended.append(cluster.run(
        "message", "spans", "--to", url(collector), "--trace-topic", "S-traces", "--ndjson",
        "--count", len(traces(cluster)))))
    ended: list[Any] = []
    command.start()
    wait_until(lambda: collector.asked > 0, "a push")
    collector.status = 200
    command.join()
    (done,) = ended
    assert done.returncode == 0, done.stderr
    assert sum(json.loads(line)["spans"] for line in done.stdout.splitlines()) == 2

    send, process = sorted(collector.spans(), key=lambda span: span.kind)
    assert (send.name, send.kind, send.status.code) == ("send S-traced", PRODUCER, OK)
    assert (process.name, process.kind, process.status.code) == ("process", CONSUMER, OK)
    assert process.trace_id == send.trace_id
    assert (send.parent_span_id, process.parent_span_id) == (b"", send.span_id)
    found = attributes(send)
    assert (found["messaging.message.id"], found["messaging.destination.name"],
            found["messaging.rocketmq.message.tag"], found["messaging.message.body.size"]) == (
        sent.message_id, "S-traced", "blue", 4)
    assert attributes(process)["messaging.consumer.group.name"] == "S-group"
    assert send.start_time_unix_nano <= send.end_time_unix_nano
    # the group remembers what was pushed: nothing comes twice
    assert cluster.json("offset", "show", "mqcore-spans", "--topic", "S-traces")["lag"] == 0


def traces(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.json("message", "find", "-t", "S-traces")["messages"]
    return found


def records(cluster: Cluster) -> list[str]:
    return [record for one in traces(cluster) for record in one["body"].split("\x02") if record]


class Traced:
    """A message of a trace topic, of which a stranger wrote the body."""

    born_host = ("10.0.0.1", 4711)
    store_timestamp_ms = 1_800_000_000_000

    def __init__(self, body: str | bytes) -> None:
        self.body = body.encode(errors="surrogatepass") if isinstance(body, str) else body


def spans(body: str | bytes) -> list[TraceSpan]:
    return list(spans_of(Traced(body)))                     # type: ignore[arg-type]


def test_tries_that_failed_are_children_of_the_one_that_did_not() -> None:
    common = {"region": "r", "group": "g", "topic": "T", "message_id": "M", "tags": None,
              "keys": None, "store_host": "h:1", "body_length": 1, "message_type": 0,
              "offset_message_id": "O"}
    body = "".join(trace.publish_record(**common, time_ms=at, cost_ms=5, success=good)  # type: ignore[arg-type]
                   for at, good in ((1000, False), (2000, True)))
    failed, good = spans(body)
    assert (failed.parent, good.parent) == (good.span, None)
    assert (failed.success, good.success) == (False, True)
    assert (good.start_ms, good.end_ms) == (2000, 2005)
    assert spans(body) == [failed, good]                    # the same again: the same ids


def test_a_client_that_tells_no_time_has_the_time_of_its_record() -> None:
    (one,) = spans("SubAfter\x01request\x01M\x01250\x01false\x01k\x012\x02")
    assert (one.start_ms, one.end_ms, one.success) == (
        1_799_999_999_750, 1_800_000_000_000, False)


HOSTILE = [
    b"", b"\xff\xfe\x00", "\x02" * 100_000, "Pub", "Pub\x01" * 1000, "SubAfter\x01\x01\x02",
    "Pub\x01" + "\x01".join(["-1", "r", "g", "T", "M", "", "", "", "x", "9" * 400]) + "\x02",
    "Pub\x01" + "\x01".join(["9" * 30, "r", "g\x00\x1b[2J", "T\ud800", "M\ud800", "a" * 1_000_000,
                             "", "", "-5", "9" * 30]) + "\x02",
    "SubAfter\x01r\x01M\x01" + "9" * 30 + "\x01true\x01\x010\x01-1\x02",
    "EndTransaction\x01" + "\x01".join(["1e9", "r", "g", "T", "M"]) + "\x02",
]


def test_hostile_records_become_spans_that_the_collector_takes(collector: Collector) -> None:
    push = SpanPush(url(collector))
    found = [span for body in HOSTILE for span in spans(body)]
    assert len(found) == 5
    assert push.send(found)
    push.stop()
    sent = collector.spans()
    assert len(sent) == 5
    for one in sent:
        assert 0 <= one.start_time_unix_nano <= one.end_time_unix_nano < 1 << 63
        assert all(len(str(value)) <= 1024 for value in attributes(one).values())


@pytest.mark.parametrize("wrong", ["collector:4318", "http://", "ftp://h/", "http://h:x/", "",
                                   "http://h:0/", "http://[::1/", "http://h:99999/v1/traces"])
def test_an_address_that_is_none_is_wrong_usage(wrong: str) -> None:
    done = mqcore("message", "spans", "--to", wrong, "-n", f"127.0.0.1:{free_port()}")
    assert (done.returncode, "expected http://HOST:4318/v1/traces" in done.stderr) == (2, True)
