"""`state` of a transaction's context says what is decided, before, in and after its block."""
from __future__ import annotations

import contextlib

import pytest

from mqcore.client import ClientError, LocalTransactionState, Message, MessageQueue
from mqcore.client.message import SendResult, SendStatus
from mqcore.client.produce.blocking_transaction import Transaction

UNKNOWN, COMMIT, ROLLBACK = (
    LocalTransactionState.UNKNOWN, LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK)


class Producer:
    """Stores half messages, and keeps the decisions that are sent."""

    def __init__(self, status: SendStatus = SendStatus.SEND_OK) -> None:
        self.status = status
        self.sent: list[LocalTransactionState] = []

    def begin(self, message, timeout):
        return SendResult(self.status, "id", "00" * 16, MessageQueue("T", "b", 0), 0)

    def end(self, message, result, state):
        self.sent.append(state)


@pytest.mark.parametrize(("rolls_back", "fails", "after", "sent"), [
    (False, False, COMMIT, [COMMIT]), (True, False, ROLLBACK, [ROLLBACK]),
    (False, True, UNKNOWN, []), (True, True, ROLLBACK, [ROLLBACK])])
def test_nothing_is_decided_before_the_block_is_left_but_a_rollback(
        rolls_back, fails, after, sent):
    producer = Producer()
    transaction = Transaction(producer, Message("T", "x"), None)
    assert transaction.state is UNKNOWN
    with contextlib.suppress(RuntimeError), transaction:
        assert transaction.state is UNKNOWN
        if rolls_back:
            transaction.rollback()
            assert transaction.state is ROLLBACK
        if fails:
            raise RuntimeError
    assert (transaction.state, producer.sent) == (after, sent)


def test_a_half_message_that_is_not_safe_is_rolled_back():
    producer = Producer(SendStatus.FLUSH_DISK_TIMEOUT)
    transaction = Transaction(producer, Message("T", "x"), None)
    with pytest.raises(ClientError, match="not safe"), transaction:
        raise AssertionError
    assert (transaction.state, producer.sent) == (ROLLBACK, [ROLLBACK])
