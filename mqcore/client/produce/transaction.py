"""The transaction producer: messages that are seen if a local transaction commits (client.md 3).

A message is first stored as a half message, unseen by consumers. Then the application does its own
work; a decision makes the message seen or drops it. Where the decision is lost the broker asks any
producer of the group: `check` must answer from shared, durable state, by UNIQ_KEY or KEYS.
"""
from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self, Unpack

from mqcore.client.config import ClientConfig
from mqcore.client.core.options import whole
from mqcore.client.errors import ClientError, ConfigError, RocketMQError
from mqcore.client.hooks import EndTransactionContext
from mqcore.client.message import (
    Message,
    MessageQueue,
    SendResult,
    SendStatus,
)
from mqcore.client.network.pool import client_request
from mqcore.client.produce.producer import AsyncProducer
from mqcore.client.produce.producer_config import ProducerOptions
from mqcore.client.received import ReceivedMessage
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import Command, Ext
from mqcore.wire.ids import parse_offset_message_id
from mqcore.wire.properties import DELAY, PRODUCER_GROUP, TRANSACTION_PREPARED
from mqcore.wire.records import RecordError, decode_record

CHECK_COUNT_MAX = 2_000             # checks that wait or run; more are dropped, and asked again
CHECK_ANSWER_TIMEOUT_S = 3.0
_DECISION_TEXT = {"COMMIT": "8", "ROLLBACK": "12", "UNKNOWN": "0"}

log: Final = logging.getLogger("mqcore.client")


class LocalTransactionState(Enum):
    """The outcome of a local transaction; Java's names are aliases."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    UNKNOWN = "UNKNOWN"
    COMMIT_MESSAGE = "COMMIT"
    ROLLBACK_MESSAGE = "ROLLBACK"
    UNKNOW = "UNKNOWN"


Decision = LocalTransactionState | None
Check = Callable[[ReceivedMessage], Decision | Awaitable[Decision]]
Execute = Callable[[Message, Any], Decision | Awaitable[Decision]]


@dataclass(slots=True)
class TransactionSendResult(SendResult):
    """A SendResult with what was decided, and what the local transaction raised, if it did."""

    local_state: LocalTransactionState = LocalTransactionState.UNKNOWN
    error: Exception | None = None


def half_message(message: Message, key: str, group: str) -> Message:
    """The half of a message: a copy without delay, marked, with the group that is asked."""
    half = Message(message.topic, message.body, flag=message.flag)
    half.properties = {name: value for name, value in message.properties.items() if name != DELAY}
    half.properties.update({TRANSACTION_PREPARED: "true", PRODUCER_GROUP: group})
    assert half.unique_key == key
    return half


def decided(outcome: object) -> LocalTransactionState:
    """The result of a check or local transaction; None is UNKNOWN. Raises ConfigError."""
    if outcome is None:
        return LocalTransactionState.UNKNOWN
    if not isinstance(outcome, LocalTransactionState):
        raise ConfigError(
            f"a transaction's decision {outcome!r}: expected a LocalTransactionState or None")
    return outcome


class AsyncTransactionProducer(AsyncProducer):
    """A producer whose messages are seen if a local transaction commits."""

    def __init__(
        self, group: str, *, check: Check, check_threads: int = 1,
        config: ClientConfig | None = None, **options: Unpack[ProducerOptions],
    ) -> None:
        """
        check           called with a message whose decision the broker does not know; returns
                        COMMIT, ROLLBACK, or UNKNOWN (or None): then it is asked again. A plain
                        function runs in a thread, a coroutine function in the event loop
        check_threads   checks at a time
        The other parameters and errors are those of AsyncProducer.
        """
        if not callable(check):
            raise ConfigError(f"check {check!r}: expected a function of a message")
        super().__init__(group, config=config, **options)
        self._check_transaction = check
        self._check_threads = whole(check_threads, "check_threads", 1, 1_000)
        self._check_slots = asyncio.Semaphore(self._check_threads)
        self._checks: set[asyncio.Task[None]] = set()
        self._executor: ThreadPoolExecutor | None = None
        self._instance.on_from(RequestCode.CHECK_TRANSACTION_STATE, self._on_check)

    def transaction(self, message: Message, *, timeout: float | None = None) -> AsyncTransaction:
        """A context for the local transaction of one message (client.md 3.1).

        Entering it stores the half message; timeout is that of `send`. Leaving it well commits. An
        exception leaves the message open: `check` decides, for the local transaction may have
        committed all the same. Only `rollback()` rolls back. Entering raises like `send`, and
        ClientError when the half message is stored but not safe; nothing is seen then.
        """
        return AsyncTransaction(self, message, timeout)

    async def send_in_transaction(
        self, message: Message, execute: Execute, arg: object = None, *,
        timeout: float | None = None,
    ) -> TransactionSendResult:
        """Java's sendMessageInTransaction: store the half message, call `execute(message, arg)`,
        and send what it decides (client.md 3.1).

        A plain function runs in a thread. What `execute` raises is the result's `error`, and the
        state UNKNOWN. It is not called, and the state is ROLLBACK, unless the half message is
        stored with SEND_OK. Raises like `send`.
        """
        result = await self.begin(message, timeout)
        state, error = LocalTransactionState.ROLLBACK, None
        if result.status is SendStatus.SEND_OK:
            try:
                state = decided(await self._in_application(execute, message, arg))
            except Exception as failure:    # the application's code: whatever it raises
                state, error = LocalTransactionState.UNKNOWN, failure
                log.warning("a local transaction failed: the check decides", exc_info=True)
        await self.end(message, result, state, error)
        return transaction_result(result, state, error)

    # -- the two steps -----------------------------------------------------------------------------

    async def begin(self, message: Message, timeout: float | None) -> SendResult:
        """Of the client itself: store the half message."""
        self._life.check()
        (key,) = self.check_all([message])
        return await self.send(half_message(message, key, self._group), timeout=timeout)

    async def end(
        self, message: Message, result: SendResult, state: LocalTransactionState,
        error: BaseException | None = None,
    ) -> None:
        """Of the client itself: send the decision, one-way; a failure is logged, for then the check
        decides.
        """
        _, _, position = parse_offset_message_id(result.offset_message_id)
        ext: Ext = {
            "producerGroup": self._group, "tranStateTableOffset": str(result.queue_offset),
            "commitLogOffset": str(position), "commitOrRollback": _DECISION_TEXT[state.value],
            "fromTransactionCheck": "false", "msgId": result.message_id,
            "transactionId": result.transaction_id or result.message_id,
            "bname": result.queue.broker_name,
        }
        try:
            address = self._instance.routes.master(result.queue.broker_name)
            await self._decide(address, ext, message, state, error, self._config.send_timeout)
        except RocketMQError as failure:
            log.warning("the decision %s about %s was not sent, the check decides: %s",
                        state.value, result.message_id, failure)

    async def _decide(
        self, address: str, ext: Ext, message: Message, state: LocalTransactionState,
        error: BaseException | None, timeout: float,
    ) -> None:
        if self._hooks.all:
            self._hooks.call("end_transaction", EndTransactionContext(
                self.group, message, address, ext["msgId"] or "", ext["transactionId"] or "",
                state.value, ext["fromTransactionCheck"] == "true"))
        command = client_request(RequestCode.END_TRANSACTION, ext, oneway=True)
        if error is not None:
            command.remark = f"{type(error).__name__}: {error}"
        await self._instance.pool.send_oneway(address, command, timeout=timeout)

    # -- the broker asks ---------------------------------------------------------------------------

    async def _on_check(self, command: Command, address: str) -> None:
        """39: start the check, unless it is another group's or there are too many."""
        try:
            record = decode_record(command.body)
            queue = MessageQueue(self._instance.unwrap(record.topic), "", record.queue_id)
            message = ReceivedMessage.from_record(record, queue)
        except RecordError as error:
            log.warning("a check of %s cannot be read: %s", address, error)
            return
        message.topic = queue.topic
        if message.properties.get(PRODUCER_GROUP) != self._group:
            return
        if len(self._checks) >= CHECK_COUNT_MAX:
            log.warning("%d checks are waiting: %s is dropped, and asked about again",
                        len(self._checks), message.message_id)
            return
        task = self._instance.spawn(self._answer_check(message, command.ext or {}, address))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _answer_check(self, message: ReceivedMessage, asked: Ext, address: str) -> None:
        state, error = LocalTransactionState.UNKNOWN, None
        async with self._check_slots:
            try:
                state = decided(await self._in_application(self._check_transaction, message))
            except Exception as failure:    # the application's code: whatever it raises
                error = failure
                log.warning("the check of %s failed: it is asked again", message.message_id,
                            exc_info=True)
        ext: Ext = {
            "producerGroup": self._group,
            "tranStateTableOffset": asked.get("tranStateTableOffset"),
            "commitLogOffset": asked.get("commitLogOffset"),
            "commitOrRollback": _DECISION_TEXT[state.value], "fromTransactionCheck": "true",
            "msgId": message.message_id, "transactionId": asked.get("transactionId"),
            "bname": asked.get("bname"),
        }
        seen = Message(message.topic, message.body)
        seen.properties = dict(message.properties)
        try:
            await self._decide(address, ext, seen, state, error, CHECK_ANSWER_TIMEOUT_S)
        except RocketMQError as failure:
            log.warning("the check of %s could not be answered, it is asked again: %s",
                        message.message_id, failure)

    async def _in_application(self, function: Callable[..., Any], *arguments: object) -> object:
        """The result of the application's function; a plain one runs in a thread."""
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._check_threads, "mqcore-check")
        outcome = await asyncio.get_running_loop().run_in_executor(
            self._executor, function, *arguments)
        return await outcome if inspect.isawaitable(outcome) else outcome

    async def _stop(self, timeout: float) -> None:
        try:
            if self._checks:
                await asyncio.wait(self._checks, timeout=timeout / 4)
            await super()._stop(timeout / 2)
        finally:
            if self._executor is not None:
                self._executor.shutdown(wait=False, cancel_futures=True)


def transaction_result(
    result: SendResult, state: LocalTransactionState, error: Exception | None
) -> TransactionSendResult:
    """The result of a transaction; its id is the unique key, which a broker of 4.9 leaves out."""
    return TransactionSendResult(
        result.status, result.message_id, result.offset_message_id, result.queue,
        result.queue_offset, result.region_id, result.transaction_id or result.message_id,
        result.is_traced, result.recall_handle, state, error)


class TransactionScope:
    """The common part of the contexts of both kinds of producers."""

    def __init__(self, message: Message, timeout: float | None) -> None:
        self.message = message
        self._state = LocalTransactionState.UNKNOWN
        self._timeout = timeout
        self._result: SendResult | None = None

    @property
    def result(self) -> SendResult:
        """Where the half message is stored; raises ClientError before it is."""
        if self._result is None:
            raise ClientError("the transaction has not begun: use it as a context manager")
        return self._result

    @property
    def state(self) -> LocalTransactionState:
        """The decision: UNKNOWN before the context is left, and after an exception left it to the
        check; ROLLBACK from `rollback` on, and for a half message that was not safe."""
        return self._state

    def rollback(self) -> None:
        """Drop the message when the context is left, well or by an exception."""
        self._state = LocalTransactionState.ROLLBACK

    def decision(self, error: BaseException | None) -> LocalTransactionState | None:
        """Of the client itself: what to send when the context is left; None: leave it open, the
        check decides.
        """
        if self._state is LocalTransactionState.ROLLBACK:
            return self._state
        if error is not None:
            log.info("a transaction was left by %r: the check decides about %s", error,
                     self.result.message_id)
            return None
        self._state = LocalTransactionState.COMMIT
        return self._state

    def not_safe(self) -> ClientError:
        """Of the client itself: the error for a half message that is stored, but not as it
        must be.
        """
        self._state = LocalTransactionState.ROLLBACK
        return ClientError(f"the half message is not safe ({self.result.status.name}): it is rolled"
                           " back", topic=self.message.topic, stored=False)


class AsyncTransaction(TransactionScope):
    """`async with producer.transaction(message) as tx:`"""

    def __init__(
        self, producer: AsyncTransactionProducer, message: Message, timeout: float | None
    ) -> None:
        """Of the client itself: `transaction` of the producer makes it."""
        super().__init__(message, timeout)
        self._producer = producer

    async def __aenter__(self) -> Self:
        self._result = await self._producer.begin(self.message, self._timeout)
        if self._result.status is not SendStatus.SEND_OK:
            await self._producer.end(self.message, self._result, LocalTransactionState.ROLLBACK)
            raise self.not_safe()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        state = self.decision(error)
        if state is not None:
            await self._producer.end(self.message, self.result, state)
