"""
Transactions as far as they are not native: ends that serving processes cannot read, and the revival
of half messages that were given up.

broker.md 5.2, 5.9 (RocketMQ 4.9.8: EndTransactionProcessor, AdminBrokerProcessor). The regular ends
are mqcore/net/serving/transaction.pyx; the check-back is the transaction-check process.
"""
from __future__ import annotations

from mqcore.broker.core import Core
from mqcore.broker.ports import AppendStatus, Put
from mqcore.broker.request import REDO, Answer, FieldError, Fields, Outcome, Request, answers
from mqcore.wire.codes import GIVEN_UP_TOPIC, HALF_TOPIC, RequestCode, ResponseCode
from mqcore.wire.ids import parse_offset_message_id
from mqcore.wire.properties import CHECK_TIMES
from mqcore.wire.records import FLAG_TRANSACTION_MASK, decode_record

DECISIONS = (0, 8, 12)             # unknown, commit, rollback: bits of the sys flag
RESUMED = (HALF_TOPIC, GIVEN_UP_TOPIC)       # where half messages are: nobody may send there


@answers(RequestCode.END_TRANSACTION)
def end_transaction(core: Core, request: Request) -> Outcome:
    """END_TRANSACTION (37) that a serving process could not read: names the field, or Redo."""
    fields = Fields.of(request.command)
    fields.text("producerGroup")
    fields.i64("tranStateTableOffset")
    fields.i64("commitLogOffset")
    decision = fields.i32("commitOrRollback")
    if decision not in DECISIONS:
        raise FieldError(f"header field commitOrRollback is {decision}: expected 0, 8 or 12")
    return REDO


@answers(RequestCode.RESUME_CHECK_HALF_MESSAGE)
def resume_check(core: Core, request: Request) -> Answer | None:
    """
    RESUME_CHECK_HALF_MESSAGE (323): the message of an offset message id becomes a half message
    again, unchecked so far. Answered when it is stored.
    """
    message_id = Fields.of(request.command).text("msgId")
    try:
        _, _, position = parse_offset_message_id(message_id)
    except ValueError as error:
        return Answer(ResponseCode.SYSTEM_ERROR, f"msgId: {error}")
    data = core.ports.store.named_record(position)
    if data is None:
        return Answer(ResponseCode.SYSTEM_ERROR, f"no message at log position {position}")
    record = decode_record(data)
    if record.topic not in RESUMED:        # what it says of its real topic is the broker's own word
        return Answer(ResponseCode.SYSTEM_ERROR,
                      f"the message at log position {position} is no half message")

    def stored(put: Put) -> None:
        good = put.status is AppendStatus.PUT_OK
        answer = Answer(ResponseCode.SUCCESS if good else ResponseCode.SYSTEM_ERROR,
                        None if good else f"the half message is not stored: {put.status.name}")
        core.answer(request, answer)

    core.ports.appender.append(
        HALF_TOPIC, 0, record.body, {**record.properties, CHECK_TIMES: "0"},
        born_ms=record.born_timestamp_ms, sys_flag=record.sys_flag & ~FLAG_TRANSACTION_MASK,
        born_host=record.born_host, store_host=record.store_host, waits=True, done=stored)
    return None
