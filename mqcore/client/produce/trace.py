"""Trace messages: what was sent and consumed, when, and how long it took (client.md 7.1).

A hook turns each outcome into a record; records leave together, after half a second or as soon as
they fill a message. Too many at a time are dropped and counted: a trace must not slow what it
traces.
"""
from __future__ import annotations

import asyncio
import logging
import time
from typing import Final, Protocol

from mqcore.client.core.trace import end_transaction_record, publish_record
from mqcore.client.errors import QueueFull, RocketMQError
from mqcore.client.hooks import EndTransactionContext, MessageType, SendContext
from mqcore.client.message import Message, SendResult, SendStatus
from mqcore.wire.properties import KEYS

LINGER_S = 0.5
SEGMENT_LENGTH_MAX = 118_000        # characters of one trace message
RECORD_COUNT_MAX = 2_048            # that wait to leave
TRACE_MESSAGE_SIZE_MAX = 128_000
_JAVA_STATES = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE", "UNKNOWN": "UNKNOW"}

log: Final = logging.getLogger("mqcore.client")


class TraceSender(Protocol):
    """The producer of the trace messages."""

    def send_soon(self, message: Message, /) -> asyncio.Future[SendResult]: ...


class TraceDispatcher:
    """Collects the records of one role and sends them; also a hook of producers."""

    def __init__(self, producer: TraceSender, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._records: list[str] = []
        self._keys: set[str] = set()
        self._length = 0
        self._timer: asyncio.TimerHandle | None = None
        self.dropped_count: int = 0

    def after_send(self, context: SendContext) -> None:
        """Called by the hooks: one try of a send has ended."""
        message, result = context.message, context.result
        if (result is None or message.topic == self._topic or not result.is_traced
                or message.properties.get("TRACE_ON") == "false"):
            return
        cost_ms = round((asyncio.get_running_loop().time() - context.began) * 1000)
        self.add(publish_record(
            time_ms=_now_ms() - cost_ms, region=result.region_id, group=context.producer_group,
            topic=message.topic, message_id=result.message_id, tags=message.tags,
            keys=message.properties.get(KEYS), store_host=context.broker,
            body_length=len(message.body), cost_ms=cost_ms, message_type=context.message_type,
            offset_message_id=result.offset_message_id,
            success=result.status is SendStatus.SEND_OK,
        ), [result.message_id, *message.keys])

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Called by the hooks: a transaction is decided."""
        message = context.message
        self.add(end_transaction_record(
            time_ms=_now_ms(), region="DefaultRegion", group=context.producer_group,
            topic=message.topic, message_id=context.message_id, tags=message.tags,
            keys=message.properties.get(KEYS), store_host=context.broker,
            message_type=MessageType.TRANSACTION_COMMIT, transaction_id=context.transaction_id,
            state=_JAVA_STATES[context.state], from_check=context.from_check,
        ), [context.message_id, *message.keys])

    def add(self, record: str, keys: list[str]) -> None:
        """Have a record sent, findable by `keys`; dropped when too many wait."""
        if len(self._records) >= RECORD_COUNT_MAX:
            self.dropped_count += 1
            return
        if self._length + len(record) > SEGMENT_LENGTH_MAX:
            self.flush()
        self._records.append(record)
        self._keys.update(keys)
        self._length += len(record)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self.flush)

    def flush(self) -> None:
        """Send what was collected, without waiting for the outcome."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._records:
            return
        message = Message(self._topic, "".join(self._records), keys=sorted(self._keys))
        count = len(self._records)
        self._records, self._keys, self._length = [], set(), 0
        try:
            self._producer.send_soon(message).add_done_callback(_log_failure)
        except (QueueFull, ValueError) as error:
            self.dropped_count += count
            log.warning("%d trace records were dropped: %s", count, error)


def _log_failure(future: asyncio.Future[SendResult]) -> None:
    error = None if future.cancelled() else future.exception()
    if isinstance(error, RocketMQError):
        log.warning("a trace message was not sent: %s", error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
