"""One send on its way: from `Sender.submit` to its outcome, without a task of its own."""
from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from mqcore.client.core.guard import raised
from mqcore.client.core.retry import Tries
from mqcore.client.errors import RequestTimeout, RocketMQError, send_error
from mqcore.client.message import (
    Message,
    MessageQueue,
    SendResult,
    SendStatus,
    TimedSendResult,
)
from mqcore.client.native.answers import Waiter
from mqcore.client.network.connection import Connection
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command
from mqcore.wire.numbers import I32_MAX, whole_number

log: Final = logging.getLogger("mqcore.client")

STATUS = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


class OutcomeTaker(Protocol):
    """Where a send's outcome goes: an asyncio or a concurrent future; one that was cancelled raises
    InvalidStateError."""

    def set_result(self, result: SendResult, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...


def deliver(
    outcome: OutcomeTaker | None, result: SendResult | None, error: RocketMQError | None
) -> None:
    """Tell the outcome of a send; its waiter may be gone."""
    if outcome is None:
        return
    try:
        if result is not None:
            outcome.set_result(result)
        elif error is not None:
            outcome.set_exception(error)
    except (asyncio.InvalidStateError, concurrent.futures.InvalidStateError):
        log.debug("no waiter is left for the outcome of a send")
    except BaseException as failure:    # of the application's on_done
        raised(failure, "on_done of a send failed")


class Ended(Protocol):
    """A further receiver of the outcome."""

    def end(self, result: SendResult | None, error: RocketMQError | None) -> None: ...


class Owner(Protocol):
    """Decides what comes after a try: the Sender."""

    namespace: str
    recaller: Callable[..., Any]            # the producer's `recall`

    def stored(self, sending: Sending, result: SendResult) -> None: ...
    def failed(self, sending: Sending, error: RocketMQError) -> None: ...


class Sending(Waiter):
    """A message, or a batch, that is sent until it is stored or given up.

    queue     where it must go; None: the sender chooses
    shard     whose hash chooses the queue, or a function of the queues; None: turns
    is_alone  the next one of its queue waits for its outcome, so that their order stays
    may_move  another try may go to another queue, although `queue` is given
    is_oneway its outcome is not awaited, and brokers tell none
    """

    __slots__ = (
        "after", "batch", "began", "body", "broker", "call", "chosen", "code", "connection",
        "has_room", "here", "is_alone", "is_ended", "is_oneway", "key", "may_move",
        "message", "outcome", "properties", "queue", "sender", "sent_to", "shard", "size",
        "stored_not_ok", "sys_flag", "topic", "tries",
    )

    def __init__(
        self, message: Message, topic: str, key: str, body: bytes, sys_flag: int, size: int,
        tries: Tries, properties: dict[str, str] | None = None,
    ) -> None:
        """properties   None: those of the message"""
        self.message: Message = message         # of a batch: its first one
        self.topic: str = topic                 # as the broker knows it
        self.key: str = key
        self.body: bytes = body
        self.sys_flag: int = sys_flag
        self.size: int = size
        self.tries: Tries = tries
        self.properties: dict[str, str] = (
            message.properties if properties is None else properties)
        self.code: int = int(RequestCode.SEND_MESSAGE_V2)
        self.batch: list[Message] | None = None
        self.queue: MessageQueue | None = None
        self.shard: object = None
        self.is_alone: bool = False
        self.is_ended: bool = False             # it has its outcome: whatever is said later is late
        self.may_move: bool = False
        self.is_oneway: bool = False
        self.outcome: OutcomeTaker | None = None
        self.call: Ended | None = None          # of hooks
        self.after: Callable[[Sending], None] | None = None     # called when the outcome is known
        self.stored_not_ok: SendResult | None = None    # of an earlier try: stored, but not OK
        self.sender: Owner | None = None
        self.here: int = 0                      # the opaque, if a thread writes and reads it itself
        self.has_room: bool | None = None
        self.chosen: MessageQueue | None = None     # for a try that waits for its connection
        self.sent_to: MessageQueue | None = None
        self.broker: str = ""
        self.connection: Connection | None = None
        self.began: float = 0.0
        self.wants_place = True

    def finish(self, result: SendResult | None, error: RocketMQError | None) -> None:
        """Tell the outcome; a one-way send that was written has neither."""
        if self.call is not None:
            self.call.end(result, error)
        deliver(self.outcome, result, error)

    def result_of(
        self, code: int, queue_id: int, queue_offset: int, offset_message_id: str, region_id: str,
        transaction_id: str, is_traced: bool, recall_handle: str = "",
    ) -> SendResult:
        """The result in an answer that says it is stored."""
        sender, queue = self.sender, self.sent_to
        assert sender is not None
        assert queue is not None
        if sender.namespace or queue.queue_id != queue_id:
            queue = MessageQueue(self.message.topic, queue.broker_name, queue_id)
        kind = TimedSendResult if recall_handle else SendResult
        result = kind(
            STATUS[code], self.key, offset_message_id, queue, queue_offset,
            region_id or "DefaultRegion", transaction_id, is_traced, recall_handle)
        if isinstance(result, TimedSendResult):
            result.recaller = sender.recaller
        return result

    # -- what the connection calls ----------------------------------------------------------------

    def stored(
        self, code: int, queue_id: int, queue_offset: int, offset_message_id: str, region_id: str,
        transaction_id: str, is_traced: bool, recall_handle: str = "",
    ) -> None:
        assert self.sender is not None
        self.sender.stored(self, self.result_of(
            code, queue_id, queue_offset, offset_message_id, region_id, transaction_id, is_traced,
            recall_handle))

    def answered(self, command: Command) -> None:
        assert self.sender is not None
        ext = command.ext or {}
        queue_id, offset = ext.get("queueId"), ext.get("queueOffset")
        queue_number = whole_number(queue_id or "", 0, I32_MAX)
        queue_offset = whole_number(offset or "", 0)
        if command.code in STATUS and queue_number is not None and queue_offset is not None:
            self.stored(command.code, queue_number, queue_offset, ext.get("msgId") or "",
                        ext.get("MSG_REGION") or "", ext.get("transactionId") or "",
                        ext.get("TRACE_ON") != "false", ext.get("recallHandle") or "")
            return
        error = send_error(command.code, command.remark, self.broker, self.message.topic)
        if command.code in STATUS:
            error.stored = True         # stored, but not known where
        self.sender.failed(self, error)

    def failed(self, error: RocketMQError) -> None:
        assert self.sender is not None
        error.topic = self.message.topic
        connection = self.connection
        if isinstance(error, RequestTimeout) and connection is not None \
                and connection.heard_at < self.began:
            connection.abort()          # silent all the time: the next try starts afresh
        self.sender.failed(self, error)
