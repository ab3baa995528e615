"""The transaction producer for code that blocks."""
from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, Unpack

from mqcore.client.config import ClientConfig
from mqcore.client.message import Message, SendResult, SendStatus
from mqcore.client.produce.blocking_producer import BlockingProducer
from mqcore.client.produce.producer_config import ProducerOptions
from mqcore.client.produce.transaction import (
    AsyncTransactionProducer,
    Check,
    Decision,
    LocalTransactionState,
    TransactionScope,
    TransactionSendResult,
    decided,
    transaction_result,
)

log: Final = logging.getLogger("mqcore.client")


class TransactionProducer(BlockingProducer[AsyncTransactionProducer]):
    """AsyncTransactionProducer for code that blocks: local transactions run in the caller's
    thread, checks in threads of the client."""

    def __init__(
        self, group: str, *, check: Check, check_threads: int = 1,
        config: ClientConfig | None = None, **options: Unpack[ProducerOptions],
    ) -> None:
        """Like AsyncTransactionProducer."""
        super().__init__(AsyncTransactionProducer(
            group, check=check, check_threads=check_threads, config=config, **options))

    def transaction(self, message: Message, *, timeout: float | None = None) -> Transaction:
        """A context for the local transaction of one message.

        Leaving it well commits, an exception leaves the message to the check, only `rollback()`
        rolls back: as AsyncTransactionProducer.transaction.
        """
        return Transaction(self, message, timeout)

    def send_in_transaction(
        self, message: Message, execute: Callable[[Message, Any], Decision], arg: object = None, *,
        timeout: float | None = None,
    ) -> TransactionSendResult:
        """Java's sendMessageInTransaction, as AsyncTransactionProducer.send_in_transaction."""
        result = self.begin(message, timeout)
        state, error = LocalTransactionState.ROLLBACK, None
        if result.status is SendStatus.SEND_OK:
            try:
                state = decided(execute(message, arg))
            except Exception as failure:    # the application's code: whatever it raises
                state, error = LocalTransactionState.UNKNOWN, failure
                log.warning("a local transaction failed: the check decides", exc_info=True)
        self.end(message, result, state, error)
        return transaction_result(result, state, error)

    def begin(self, message: Message, timeout: float | None) -> SendResult:
        """Of the client itself: store the half message."""
        return self._call(self._role.begin, message, timeout)

    def end(
        self, message: Message, result: SendResult, state: LocalTransactionState,
        error: BaseException | None = None,
    ) -> None:
        """Of the client itself: send the decision, one-way; a failure is logged, for then the check
        decides.
        """
        self._call(self._role.end, message, result, state, error)


class Transaction(TransactionScope):
    """`with producer.transaction(message) as tx:`"""

    def __init__(
        self, producer: TransactionProducer, message: Message, timeout: float | None
    ) -> None:
        """Of the client itself: `transaction` of the producer makes it."""
        super().__init__(message, timeout)
        self._producer = producer

    def __enter__(self) -> Self:
        self._result = self._producer.begin(self.message, self._timeout)
        if self._result.status is not SendStatus.SEND_OK:
            self._producer.end(self.message, self._result, LocalTransactionState.ROLLBACK)
            raise self.not_safe()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        state = self.decision(error)
        if state is not None:
            self._producer.end(self.message, self.result, state)
