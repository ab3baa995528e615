"""Spans of producers and consumers: whose children they are, what they link to, what they say."""
from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator
from itertools import count

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mqcore.client import (
    AsyncProducer,
    AsyncPushConsumer,
    ConfigError,
    Consumer,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    NoRouteError,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
)
from mqcore.contrib import opentelemetry
from mqcore.testing import MemoryBroker
from tests.support.waiting import wait_until, wait_until_async

numbers = count()
TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with MemoryBroker() as broker:
        yield broker.namesrv


class Spans:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        wait_until(lambda: self.named(name), f"a span {name}")
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    opentelemetry.instrument(tracer_provider=found.provider)
    yield found
    opentelemetry.uninstrument()


@pytest.fixture
def topic() -> str:
    return f"spans{next(numbers)}"


def id_of(span: ReadableSpan) -> int:
    return span.get_span_context().span_id


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def test_a_message_and_its_listener_are_one_trace(namesrv, spans, topic):
    inside: list[ReadableSpan] = []

    def handle(message):
        with spans.tracer.start_as_current_span("work") as span:
            inside.append(span)

    with Producer("p", namesrv=namesrv) as producer, \
            spans.tracer.start_as_current_span("request") as request:
        result = producer.send(topic, {"id": 7}, key="7", tags="new")
    with PushConsumer(f"g-{topic}", topic, handle, namesrv=namesrv, start="earliest"):
        processed = spans.one(f"process {topic}")
    sent = spans.one(f"send {topic}")

    assert sent.parent.span_id == id_of(request)
    assert processed.parent.span_id == id_of(sent)
    assert inside[0].parent.span_id == id_of(processed)
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert {span.get_span_context().trace_id for span in (request, sent, processed, inside[0])} \
        == {request.get_span_context().trace_id}
    said = {"messaging.system": "rocketmq", "messaging.destination.name": topic,
            "messaging.message.id": result.message_id, "messaging.message.body.size": 8,
            "messaging.destination.partition.id":
                f"{result.queue.broker_name}/{result.queue.queue_id}",
            "rocketmq.message.tag": "new", "rocketmq.message.keys": ("7",),
            "rocketmq.message.type": "normal"}
    assert dict(sent.attributes) == said | {
        "messaging.operation.name": "send", "messaging.operation.type": "send"}
    assert dict(processed.attributes) == said | {
        "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.consumer.group.name": f"g-{topic}"}


def test_the_context_is_a_property_that_anybody_reads(namesrv, spans, topic):
    token = context.attach(baggage.set_baggage("user", "42"))
    try:
        with Producer("p", namesrv=namesrv) as producer:
            producer.send(Message(topic, "x"))
    finally:
        context.detach(token)
    with Consumer(f"g-{topic}", topic, namesrv=namesrv, start="earliest") as consumer:
        properties = next(consumer).properties
    assert TRACEPARENT.fullmatch(properties["traceparent"])
    assert properties["baggage"] == "user=42"


def test_no_send_fails_for_a_context_that_has_no_room(namesrv, spans, topic):
    message = Message(topic, "x", properties={"own": "o" * 28_000})
    with Producer("p", namesrv=namesrv) as producer:
        for length in (1, 4_000):
            more = baggage.set_baggage("a", "b" * length)
            token = context.attach(baggage.set_baggage("c", "d" * length, more))
            try:
                producer.send_many([message])
            finally:
                context.detach(token)
    with Consumer(f"g-{topic}", topic, namesrv=namesrv, start="earliest") as consumer:
        small, large = (message.properties for message in sorted(
            (next(consumer), next(consumer)), key=lambda one: one.commit_log_offset))
    assert "baggage" in small
    assert "baggage" not in large                       # nor that of the first send
    assert TRACEPARENT.fullmatch(large["traceparent"])
    assert small["traceparent"] != large["traceparent"]


@pytest.mark.parametrize(("own", "kept"), [
    (20_000, {"traceparent", "tracestate", "baggage"}), (30_000, {"traceparent", "tracestate"}),
    (31_500, {"traceparent"}), (32_700, set())])
def test_what_of_a_context_has_room(own, kept):
    message = Message("t", "x", properties={"own": "\u00e9" * (own // 2)})
    opentelemetry._carry(message, {
        "baggage": "b" * 8_000, "tracestate": "s" * 500, "traceparent": "p" * 55})
    assert set(message.user_properties) == kept | {"own"}


def test_asyncio_has_the_caller_s_context_too(namesrv, spans, topic):
    async def scenario():
        seen = []

        async def handle(message):
            seen.append((trace.get_current_span().get_span_context().span_id,
                         baggage.get_baggage("user")))

        async with AsyncProducer("p", namesrv=namesrv, linger=0.01) as producer:
            async def send(user):
                context.attach(baggage.set_baggage("user", user))
                with spans.tracer.start_as_current_span(user):
                    await producer.send(topic, user)

            await asyncio.gather(send("ann"), send("bob"))
        async with AsyncPushConsumer(
                f"g-{topic}", topic, handle, namesrv=namesrv, start="earliest"):
            await wait_until_async(lambda: len(spans.named(f"process {topic}")) == 2, "both")
        return seen

    seen = asyncio.run(scenario())
    sent = {id_of(span): span for span in spans.named(f"send {topic}")}
    parents = {spans.one(user).get_span_context().span_id for user in ("ann", "bob")}
    assert {span.parent.span_id for span in sent.values()} == parents
    processed = spans.named(f"process {topic}")
    assert {span.parent.span_id for span in processed} == set(sent)
    assert {one[0] for one in seen} == {id_of(span) for span in processed}
    assert {one[1] for one in seen} == {"ann", "bob"}


def test_batches_have_links(namesrv, spans, topic):
    called = threading.Event()

    def handle(messages, context):
        called.set()

    with Producer("p", namesrv=namesrv) as producer:
        queue = producer.send(Message(topic, "first")).queue
        producer.send_many([Message(topic, str(number)) for number in range(3)], queue=queue)
        producer.send_batch([Message(topic, str(number)) for number in range(2)], queue=queue)
    many, batch = spans.named(f"send {topic}")[1:]
    created = [id_of(span) for span in spans.named(f"create {topic}")]
    assert linked(many) == set(created[:3])
    assert linked(batch) == set(created[3:])
    assert (many.kind, many.attributes["messaging.batch.message_count"]) == (SpanKind.CLIENT, 3)

    with PushConsumer(f"g-{topic}", topic, handle, namesrv=namesrv, start="earliest", batch=32):
        processed = spans.one(f"process {topic}")
    assert called.is_set()
    assert processed.parent is None
    assert linked(processed) == {*created, id_of(spans.named(f"send {topic}")[0])}
    assert processed.attributes["messaging.batch.message_count"] == 6


def test_polls_and_pulls_are_received_with_links(namesrv, spans, topic):
    with Producer("p", namesrv=namesrv) as producer:
        result = producer.send(Message(topic, "x"))
    sent = id_of(spans.one(f"send {topic}"))
    consumer = LitePullConsumer(f"lite-{topic}", namesrv=namesrv, start="earliest")
    consumer.subscribe(topic)
    with consumer:
        assert len(consumer.poll(timeout=30)) == 1
    polled = spans.one(f"receive {topic}")
    with PullConsumer(f"pull-{topic}", namesrv=namesrv) as puller, \
            spans.tracer.start_as_current_span("job") as job:
        puller.pull(result.queue, result.queue_offset)
    pulled = spans.named(f"receive {topic}")[-1]

    assert linked(polled) == linked(pulled) == {sent}
    assert (polled.parent, pulled.parent.span_id) == (None, id_of(job))
    assert polled.kind is SpanKind.CLIENT
    assert pulled.attributes["messaging.consumer.group.name"] == f"pull-{topic}"


def test_one_s_own_loop_works_in_the_span(namesrv, spans, topic):
    with Producer("p", namesrv=namesrv) as producer:
        producer.send(Message(topic, "x"))
        producer.send(Message(topic, "y"), shard=1)
    seen = []
    with Consumer(f"g-{topic}", topic, namesrv=namesrv, start="earliest", ack="manual") as consumer:
        with contextlib.suppress(KeyError), next(consumer).processing():
            seen.append(trace.get_current_span().get_span_context().span_id)
            raise KeyError
        with next(consumer).processing():
            seen.append(trace.get_current_span().get_span_context().span_id)
        wait_until(lambda: len(spans.named(f"process {topic}")) == 2, "both have ended")
    processed = spans.named(f"process {topic}")
    assert [id_of(span) for span in processed] == seen
    assert {span.parent.span_id for span in processed} == {
        id_of(span) for span in spans.named(f"send {topic}")}
    assert [span.status.status_code for span in processed] == [StatusCode.ERROR, StatusCode.UNSET]


def test_failures_are_said(namesrv, spans, topic):
    def handle(message):
        raise KeyError("seven")

    with Producer("p", namesrv=namesrv) as producer, pytest.raises(ConfigError):
        producer.send(Message(topic, "x"), timeout=-1)
    with Producer("p", namesrv=namesrv, template_topic="none") as producer, \
            pytest.raises(NoRouteError):
        producer.send(Message(topic, "x"))
    with Producer("p", namesrv=namesrv) as producer:
        producer.send(Message(topic, "x"))
    with PushConsumer(f"g-{topic}", topic, handle, namesrv=namesrv, start="earliest"):
        processed = spans.one(f"process {topic}")
    refused, sent = spans.named(f"send {topic}")

    assert refused.status.status_code is StatusCode.ERROR
    assert refused.attributes["error.type"] == "NoRouteError"
    assert sent.status.status_code is StatusCode.UNSET
    assert processed.status.status_code is StatusCode.ERROR
    assert processed.attributes["error.type"] == "KeyError"
    assert [event.name for event in processed.events] == ["exception"]


def test_kinds_of_messages(namesrv, spans, topic):
    with Producer("p", namesrv=namesrv) as producer:
        producer.send(Message(topic, "x", delay_level=1))
        producer.send_oneway(Message(topic, "y"))
    with TransactionProducer("t", check=lambda _: LocalTransactionState.COMMIT,
                             namesrv=namesrv) as producer, \
            producer.transaction(Message(topic, "z")):
        pass
    delayed, oneway, half = spans.named(f"send {topic}")
    assert delayed.attributes["rocketmq.message.type"] == "delay"
    assert delayed.attributes["rocketmq.message.delay_time_level"] == 1
    assert half.attributes["rocketmq.message.type"] == "transaction"
    assert "messaging.message.id" not in oneway.attributes


def test_nothing_happens_after_uninstrument(namesrv, spans, topic):
    with Producer("p", namesrv=namesrv) as producer:
        producer.send(Message(topic, "x"))
        opentelemetry.instrument()              # a second time: without effect
        opentelemetry.uninstrument()
        producer.send(Message(topic, "y"))
        opentelemetry.uninstrument()
    assert len(spans.named(f"send {topic}")) == 1
