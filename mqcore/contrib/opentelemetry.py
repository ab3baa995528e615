"""
OpenTelemetry: spans for what is sent, received and processed, and their context in messages.

The context travels in user properties (`traceparent`, `tracestate`, `baggage` with the W3C
propagators); what of it would make a message's properties too large stays out, the baggage first.
Names are those of the semantic conventions for messaging; RocketMQ's own attributes are
`rocketmq.message.tag` and so on.
"""
from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from mqcore.client import (
    CallResult,
    ConfigError,
    ConsumeHookContext,
    Message,
    ReceivedMessage,
    SendCallContext,
    add_hook,
    remove_hook,
)

SCHEMA_URL = "https://opentelemetry.io/schemas/1.37.0"
PROPERTIES_BYTES_MAX = 32_767           # of brokers; the length of properties is an i16
LATER_BYTES = 1_024                     # of what the client and brokers set behind the hooks
_LEFT_OUT_FIRST = ("baggage", "tracestate")
_SPAN = "opentelemetry"
_CONTEXT = "opentelemetry.context"

Attributes = dict[str, AttributeValue]

log = logging.getLogger("mqcore.contrib.opentelemetry")
_lock = threading.Lock()
_installed: _Spans | None = None


def instrument(
    *, tracer_provider: TracerProvider | None = None,
    propagator: TextMapPropagator | None = None,
) -> None:
    """Make spans for every producer and consumer of this process, whenever made.

    tracer_provider   None: the global one
    propagator        what puts the context into messages; None: the global one
    Without effect when it was called before, until `uninstrument`.
    """
    global _installed
    with _lock:
        if _installed is None:
            _installed = _Spans(tracer_provider, propagator)
            add_hook(_installed)


def uninstrument() -> None:
    """Make no more spans; those that have begun are ended. Without effect when there is none."""
    global _installed
    with _lock:
        if _installed is not None:
            remove_hook(_installed)
            _installed = None


def _carry(message: Message, carrier: dict[str, str]) -> None:
    """Give a context to a message: what there is room for, baggage last."""
    for name in carrier.keys() & message.user_properties.keys():
        del message.properties[name]                # of an earlier send
    room = PROPERTIES_BYTES_MAX - LATER_BYTES - sum(
        _size(name, value) for name, value in message.properties.items())
    for name in sorted(carrier, key=_rank):
        room -= _size(name, carrier[name])
        if room < 0:
            log.debug("no room for %s in a message to %s", name, message.topic)
            break
        with contextlib.suppress(ConfigError):      # a blank value: nothing to carry
            message.set_property(name, carrier[name])


def _rank(name: str) -> int:
    return len(_LEFT_OUT_FIRST) - _LEFT_OUT_FIRST.index(name) if name in _LEFT_OUT_FIRST else 0


def _size(name: str, value: str) -> int:
    """Bytes of a property among others."""
    return len(f"{name}{value}".encode("utf-8", "replace")) + 2


class _Properties(Getter[ReceivedMessage]):
    """The properties of messages as what carries a context."""

    def get(self, carrier: ReceivedMessage, key: str) -> list[str] | None:
        value = carrier.properties.get(key)
        return None if value is None else [value]

    def keys(self, carrier: ReceivedMessage) -> list[str]:
        return list(carrier.properties)


_properties = _Properties()


class _Spans:
    """The hook: `begin_send` to `end_send`, `before_consume` to `after_consume`."""

    def __init__(
        self, provider: TracerProvider | None, propagator: TextMapPropagator | None
    ) -> None:
        self._tracer = trace.get_tracer(
            "mqcore.contrib.opentelemetry", version("mqcore"), provider, SCHEMA_URL)
        self._propagator = propagator

    # -- sending ----------------------------------------------------------------------------------

    def begin_send(self, call: SendCallContext) -> None:
        """One message: its span is the creation of it. Several: each gets a span of its own, and
        that of the call has links to them."""
        topic = call.messages[0].topic
        attributes = _common("send", "send", call.messages, call.namespace)
        if len(call.messages) == 1:
            attributes |= _of_message(call.messages[0])
            span = self._tracer.start_span(
                f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
            self._inject(call.messages[0], span)
        else:
            links = [self._create(message, call.namespace) for message in call.messages]
            span = self._tracer.start_span(
                f"send {topic}", kind=SpanKind.CLIENT, attributes=attributes, links=links)
        call.props[_SPAN] = span

    def _create(self, message: Message, namespace: str) -> Link:
        attributes = _common("create", "create", (message,), namespace) | _of_message(message)
        span = self._tracer.start_span(
            f"create {message.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        self._inject(message, span)
        span.end()
        return Link(span.get_span_context())

    def _inject(self, message: Message, span: Span) -> None:
        carrier: dict[str, str] = {}
        (self._propagator or propagate.get_global_textmap()).inject(
            carrier, trace.set_span_in_context(span))
        _carry(message, carrier)

    def end_send(self, call: SendCallContext) -> None:
        """The outcome of all tries."""
        span = call.props.get(_SPAN)
        if span is None:
            return                      # begun before `instrument`
        if call.result is not None:
            span.set_attribute("messaging.message.id", call.result.message_id)
            span.set_attribute(
                "messaging.destination.partition.id", _partition(call.result.queue))
        if call.error is not None:
            _fail(span, type(call.error).__name__, str(call.error), call.error)
        span.end()

    # -- consuming --------------------------------------------------------------------------------

    def before_consume(self, work: ConsumeHookContext) -> None:
        """A listener's call, or a message that is handed out: a child of the message's creation;
        for several, and for polls, links."""
        found = [self._extract(message) for message in work.messages]
        attributes = _common(work.operation, work.operation, work.messages, work.namespace)
        attributes["messaging.consumer.group.name"] = work.group
        attributes["messaging.destination.partition.id"] = _partition(work.queue)
        is_single = work.operation == "process" and len(found) == 1
        if is_single:
            attributes |= _of_message(work.messages[0])
            attributes["messaging.message.id"] = work.messages[0].message_id
        parent = found[0] if is_single else None
        if parent is None and work.operation == "process":
            parent = Context()          # not of what happens to run in the client's thread
        links = [] if is_single else [
            Link(creation) for one in found
            if (creation := trace.get_current_span(one).get_span_context()).is_valid]
        work.props[_CONTEXT] = parent or Context()
        work.props[_SPAN] = self._tracer.start_span(
            f"{work.operation} {work.messages[0].topic}", context=parent, links=links,
            kind=SpanKind.CONSUMER if work.operation == "process" else SpanKind.CLIENT,
            attributes=attributes, start_time=round(work.began * 1e9))

    def _extract(self, message: ReceivedMessage) -> Context:
        return (self._propagator or propagate.get_global_textmap()).extract(
            message, Context(), _properties)

    @contextlib.contextmanager
    def consuming(self, work: ConsumeHookContext) -> Iterator[None]:
        """The application's code runs in the span."""
        span = work.props.get(_SPAN)
        if span is None:
            yield
            return
        token = contexts.attach(trace.set_span_in_context(span, work.props[_CONTEXT]))
        try:
            yield
        finally:
            contexts.detach(token)

    def after_consume(self, work: ConsumeHookContext) -> None:
        """What became of it."""
        span = work.props.get(_SPAN)
        if span is None:
            return
        if work.error is not None:
            _fail(span, type(work.error).__name__, str(work.error), work.error)
        elif work.result is not CallResult.SUCCESS:
            word = "timeout" if work.result is CallResult.TIME_OUT else "retry"
            _fail(span, word, "it comes again", None)
        span.end()


def _fail(span: Span, kind: str, text: str, error: BaseException | None) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, text)
    if error is not None:
        span.record_exception(error)


def _partition(queue: object) -> str:
    return f"{getattr(queue, 'broker_name', '')}/{getattr(queue, 'queue_id', '')}"


def _common(
    name: str, kind: str, messages: Sequence[Message | ReceivedMessage], namespace: str
) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "rocketmq", "messaging.operation.name": name,
        "messaging.operation.type": kind, "messaging.destination.name": messages[0].topic,
    }
    if len(messages) > 1 or kind == "receive":
        attributes["messaging.batch.message_count"] = len(messages)
    if namespace:
        attributes["rocketmq.namespace"] = namespace
    return attributes


def _of_message(message: Message | ReceivedMessage) -> Attributes:
    size = len(message.body) if isinstance(message, Message) else message.body_size
    attributes: Attributes = {"messaging.message.body.size": size,
                              "rocketmq.message.type": _type(message)}
    if message.tags:
        attributes["rocketmq.message.tag"] = message.tags
    if message.keys:
        attributes["rocketmq.message.keys"] = message.keys
    if message.delay_level:
        attributes["rocketmq.message.delay_time_level"] = message.delay_level
    return attributes


def _type(message: Message | ReceivedMessage) -> str:
    if message.properties.get("TRAN_MSG") == "true":
        return "transaction"
    return "delay" if message.delay_level else "normal"
