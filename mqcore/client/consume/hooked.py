"""Hooks around listener calls, and the trace messages that they make (client.md 4.11, 7.1)."""
from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

from mqcore.client.config import ClientConfig
from mqcore.client.consume.listener import ConsumeStatus, ListenerCall, Outcome
from mqcore.client.consume.options import GroupSettings
from mqcore.client.core.trace import after_consume_record, before_consume_record
from mqcore.client.hooks import TRACE_GROUP_PREFIX, Hooks
from mqcore.client.message import MessageQueue
from mqcore.client.produce.producer import AsyncProducer
from mqcore.client.produce.trace import TRACE_MESSAGE_SIZE_MAX, TraceDispatcher
from mqcore.client.received import ReceivedMessage
from mqcore.wire.properties import KEYS

TRACE_SEND_TIMEOUT_S = 5.0
DEFAULT_REGION = "DefaultRegion"

_tracer_numbers = itertools.count()


Operation = Literal["process", "receive"]


class CallResult(IntEnum):
    """How a listener call ended, by Java's numbers."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


@dataclass(slots=True)
class ConsumeHookContext:
    """The application's work on messages as hooks see it; `result` and `took` (seconds) are set
    after it.

    operation   "process": a listener's call, or from the hand-out of a message to its ack;
                "receive": a poll or pull that returned messages, with nothing between
                before_consume and after_consume
    began       epoch seconds: when the call, or the poll, began
    error       what the listener raised
    props       the hooks' own, kept from before_consume to after_consume
    """

    group: str
    messages: list[ReceivedMessage]
    queue: MessageQueue
    namespace: str
    result: CallResult | None = None
    took: float = 0.0
    operation: Operation = "process"
    began: float = field(default_factory=time.time)
    error: BaseException | None = None
    props: dict[str, Any] = field(default_factory=dict)

    @property
    def success(self) -> bool:
        """Whether the work ended well, and in time."""
        return self.result is CallResult.SUCCESS


@dataclass(slots=True)
class FilterHookContext:
    """Messages of a pull; a `filter_messages` hook takes out of the list what is not wanted."""

    group: str
    queue: MessageQueue
    messages: list[ReceivedMessage]


class HookedCall:
    """A listener call with hooks before and after it, in the same thread."""

    def __init__(self, call: ListenerCall, hooks: Hooks, group: str, namespace: str,
                 timeout: float) -> None:
        """`timeout` seconds make a call that succeeded a TIME_OUT for hooks."""
        self._call = call
        self._hooks = hooks
        self._group = group
        self._namespace = namespace
        self._timeout = timeout
        self.name: str = call.name
        self.is_async: bool = call.is_async

    async def call(self, messages: list[ReceivedMessage], queue: MessageQueue) -> Outcome:
        if not self._hooks.all:
            return await self._call.call(messages, queue)
        context, began = self._before(messages, queue)
        try:
            with self._hooks.consuming(context):
                outcome = await self._call.call(messages, queue)
        except asyncio.CancelledError:          # it took too long
            self._after(context, Outcome(ConsumeStatus.RECONSUME_LATER), time.monotonic() - began)
            raise
        self._after(context, outcome, time.monotonic() - began)
        return outcome

    def call_here(self, messages: list[ReceivedMessage], queue: MessageQueue) -> Outcome:
        if not self._hooks.all:
            return self._call.call_here(messages, queue)
        context, began = self._before(messages, queue)
        with self._hooks.consuming(context):
            outcome = self._call.call_here(messages, queue)
        self._after(context, outcome, time.monotonic() - began)
        return outcome

    def _before(self, messages: list[ReceivedMessage],
                queue: MessageQueue) -> tuple[ConsumeHookContext, float]:
        context = ConsumeHookContext(self._group, messages, queue, self._namespace)
        self._hooks.call("before_consume", context)
        return context, time.monotonic()

    def _after(self, context: ConsumeHookContext, outcome: Outcome, took: float) -> None:
        context.took, context.error = took, outcome.error
        if outcome.error is not None:
            context.result = CallResult.EXCEPTION
        elif not outcome.is_success:
            context.result = CallResult.FAILED
        else:
            context.result = CallResult.TIME_OUT if took >= self._timeout else CallResult.SUCCESS
        self._hooks.call("after_consume", context)


class ConsumerHooks:
    """The hooks of one consumer, whatever its role, and what writes its trace messages."""

    def __init__(self, group: str, config: ClientConfig, settings: GroupSettings) -> None:
        self._group = group
        self._namespace = config.namespace
        self.hooks: Hooks = Hooks(group, config.namespace)
        self._tracer: ConsumeTracer | None = None
        if settings.trace:
            self._tracer = ConsumeTracer(group, settings.trace_topic, config)
            self.hooks.add(self._tracer)

    async def start(self) -> None:
        """Start what writes trace messages; raises ClientError."""
        if self._tracer is not None:
            await self._tracer.start()

    async def close(self, timeout: float) -> None:
        """Send the trace messages that wait, within `timeout` seconds."""
        if self._tracer is not None:
            await self._tracer.close(timeout)

    def wanted(
        self, messages: list[ReceivedMessage], queue: MessageQueue
    ) -> list[ReceivedMessage]:
        """Those that no `filter_messages` hook took out, in their order."""
        if not self.hooks.all:
            return messages
        kept = list(messages)
        self.hooks.call("filter_messages", FilterHookContext(self._group, queue, kept))
        wanted = set(map(id, kept))
        return [message for message in messages if id(message) in wanted]

    def handed_out(self, message: ReceivedMessage) -> ConsumeHookContext | None:
        """A message is the application's until `settled`; None without hooks."""
        if not self.hooks.all:
            return None
        context = ConsumeHookContext(self._group, [message], message.queue, self._namespace)
        self.hooks.call("before_consume", context)
        return context

    def settled(self, context: ConsumeHookContext | None, result: CallResult) -> None:
        """The application is done with what was handed out."""
        if context is not None:
            context.result, context.took = result, max(0.0, time.time() - context.began)
            self.hooks.call("after_consume", context)

    def received(
        self, messages: list[ReceivedMessage], queue: MessageQueue, began: float
    ) -> None:
        """A poll or pull that began then (epoch seconds) returns messages."""
        if self.hooks.all and messages:
            context = ConsumeHookContext(self._group, messages, queue, self._namespace,
                                         operation="receive", began=began)
            self.hooks.call("before_consume", context)
            context.result, context.took = CallResult.SUCCESS, max(0.0, time.time() - began)
            self.hooks.call("after_consume", context)


class ConsumeTracer:
    """A hook that has every listener call written to the trace topic."""

    def __init__(self, group: str, topic: str, config: ClientConfig) -> None:
        self._producer = AsyncProducer(
            f"{TRACE_GROUP_PREFIX}-{group}-CONSUME-{next(_tracer_numbers)}", config=config,
            send_timeout=TRACE_SEND_TIMEOUT_S, message_size_max_bytes=TRACE_MESSAGE_SIZE_MAX,
            batch_bytes=TRACE_MESSAGE_SIZE_MAX)
        self._dispatcher = TraceDispatcher(self._producer, topic)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Start its producer; raises ClientError."""
        self._loop = asyncio.get_running_loop()
        await self._producer.start()

    async def close(self, timeout: float) -> None:
        """Send what was collected, within `timeout` seconds."""
        self._dispatcher.flush()
        await self._producer.close(timeout)

    def before_consume(self, context: ConsumeHookContext) -> None:
        request_id = context.props["trace"] = uuid.uuid4().hex.upper()
        for message in _traced(context):
            properties = message.properties
            self._add(before_consume_record(
                time_ms=_now_ms(), region=properties.get("MSG_REGION", DEFAULT_REGION),
                group=context.group, request_id=request_id, message_id=message.message_id,
                retry_times=message.reconsume_times, keys=properties.get(KEYS)), message)

    def after_consume(self, context: ConsumeHookContext) -> None:
        took = context.took if context.operation == "process" else 0.0     # as Java's polls
        cost_ms = round(took * 1000 / len(context.messages))
        for message in _traced(context):
            self._add(after_consume_record(
                request_id=context.props["trace"], message_id=message.message_id, cost_ms=cost_ms,
                success=context.success, keys=message.properties.get(KEYS),
                context_code=int(context.result or CallResult.SUCCESS), time_ms=_now_ms(),
                group=context.group), message)

    def _add(self, record: str, message: ReceivedMessage) -> None:
        """Listeners of threads call from there: the dispatcher is the loop's."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(
            self._dispatcher.add, record, [message.message_id, *message.keys])


def _traced(context: ConsumeHookContext) -> list[ReceivedMessage]:
    return [message for message in context.messages
            if message.properties.get("TRACE_ON") != "false"]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
