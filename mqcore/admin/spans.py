"""
Spans of OpenTelemetry from the messages of a trace topic (client.md 7.1), pushed by OTLP over HTTP.

A record becomes a span by itself, with ids that follow from what it says: one that is pushed twice
is the same span, and a message's send and its consumers have one trace. SubBefore without
SubAfter is no span. The SDK (`pip install mqcore[otlp]`) is imported with
the first push.
"""
from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

import mqcore
from mqcore.client.admin.traces import trace_records
from mqcore.client.received import ReceivedMessage
from mqcore.wire.numbers import whole_number

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

TEXT_MAX: Final = 1_024                  # characters of an attribute
NUMBER_MAX: Final = 1 << 42              # ms: the year 2109
PUSH_S: Final = 10.0                     # for a push, with what the SDK tries again


class TraceSpan(Struct, frozen=True):
    """One span; parent: None for the send that went well."""

    name: str
    kind: str                            # PRODUCER, CONSUMER or CLIENT
    trace: bytes
    span: bytes
    parent: bytes | None
    start_ms: int
    end_ms: int
    success: bool
    attributes: dict[str, str | int]


def spans_of(message: ReceivedMessage) -> Iterator[TraceSpan]:
    """The spans of one message of a trace topic; what is no record gives none."""
    client, stored_ms = message.born_host[0], message.store_timestamp_ms
    for kind, fields in trace_records(message.body):
        if kind == "Pub" and fields[4]:
            yield _send(fields, client)
        elif kind == "SubAfter" and fields[1]:
            yield _consume(fields, client, stored_ms)
        elif kind == "EndTransaction" and fields[4]:
            yield _end(fields, client)


def _send(fields: list[str], client: str) -> TraceSpan:
    at_ms, message_id, success = _number(fields[0]), fields[4], (fields[12] or fields[11]) == "true"
    return TraceSpan(
        f"send {_text(fields[3])}", "PRODUCER", _trace_id(message_id),
        # of several tries the one that went well is the parent of what follows
        _send_id(message_id) if success else _span_id(message_id, "try", fields[0], fields[7]),
        None if success else _send_id(message_id), at_ms, at_ms + _number(fields[9]), success,
        _attributes("send", "send", message_id, client, {
            "messaging.destination.name": fields[3], "messaging.producer.group.name": fields[2],
            "messaging.rocketmq.message.tag": fields[5],
            "messaging.rocketmq.message.keys": fields[6], "server.address": fields[7],
            "messaging.message.body.size": _number(fields[8])}))


def _consume(fields: list[str], client: str, stored_ms: int) -> TraceSpan:
    """Old clients do not tell when: their span ends when its record was stored."""
    message_id, end_ms, success = fields[1], _number(fields[6]) or stored_ms, fields[3] == "true"
    return TraceSpan(
        "process", "CONSUMER", _trace_id(message_id), _span_id(message_id, "after", fields[0]),
        _send_id(message_id), max(0, end_ms - _number(fields[2])), end_ms, success,
        _attributes("process", "process", message_id, client, {
            "messaging.consumer.group.name": fields[7],
            "messaging.rocketmq.message.keys": fields[4]}))


def _end(fields: list[str], client: str) -> TraceSpan:
    at_ms, message_id, state = _number(fields[0]), fields[4], fields[10]
    return TraceSpan(
        f"settle {_text(fields[3])}", "CLIENT", _trace_id(message_id),
        _span_id(message_id, "end", fields[0], state), _send_id(message_id), at_ms, at_ms, True,
        _attributes("settle", "settle", message_id, client, {
            "messaging.destination.name": fields[3], "messaging.producer.group.name": fields[2],
            "mqcore.transaction.state": state, "mqcore.transaction.checked": fields[11]}))


def _attributes(name: str, kind: str, message_id: str, client: str,
                more: dict[str, str | int]) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "messaging.system": "rocketmq", "messaging.operation.name": name,
        "messaging.operation.type": kind, "messaging.message.id": message_id,
        "messaging.client.address": client, **more}
    return {key: _text(value) if isinstance(value, str) else value
            for key, value in found.items() if value != ""}


def _text(text: str) -> str:
    """Protobuf takes no half of a surrogate pair."""
    return text[:TEXT_MAX].encode(errors="replace").decode()


def _number(text: str) -> int:
    """Not below 0; as milliseconds the sum of two has nanoseconds that fit."""
    return min(max(whole_number(text) or 0, 0), NUMBER_MAX)


def _trace_id(message_id: str) -> bytes:
    return hashlib.sha256(b"trace " + message_id.encode(errors="replace")).digest()[:16]


def _span_id(*texts: str) -> bytes:
    return hashlib.sha256("\x00".join(texts).encode(errors="replace")).digest()[:8]


def _send_id(message_id: str) -> bytes:
    return _span_id(message_id, "send")


class SpanPush:
    """Pushes spans to a collector. Raises ModuleNotFoundError where the extra is not installed."""

    def __init__(self, url: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        # -- the SDK's own lines: each failure of each try, with its traceback
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter: Any = OTLPSpanExporter(endpoint=url, timeout=PUSH_S)

    def send(self, spans: list[TraceSpan]) -> bool:
        """Whether the collector has taken them. Waits up to PUSH_S."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        return bool(self._exporter.export(_readable(spans)) is SpanExportResult.SUCCESS)

    def stop(self) -> None:
        self._exporter.shutdown()


def _readable(spans: list[TraceSpan]) -> list[ReadableSpan]:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    def context(trace: bytes, span: bytes) -> SpanContext:
        return SpanContext(int.from_bytes(trace), int.from_bytes(span), is_remote=False,
                           trace_flags=TraceFlags(TraceFlags.SAMPLED))

    resource = Resource({"service.name": "rocketmq", "telemetry.sdk.name": "mqcore"})
    scope = InstrumentationScope("mqcore.admin.spans", mqcore.__version__)
    return [ReadableSpan(
        one.name, context(one.trace, one.span),
        None if one.parent is None else context(one.trace, one.parent), resource, one.attributes,
        kind=SpanKind[one.kind], instrumentation_scope=scope,
        status=Status(StatusCode.OK if one.success else StatusCode.ERROR),
        start_time=one.start_ms * 1_000_000, end_time=one.end_ms * 1_000_000) for one in spans]
