"""
A message is taken back before its time of delivery (timer.md 3; RocketMQ 5.3.3:
RecallMessageProcessor).
"""
from __future__ import annotations

from collections.abc import Generator, Iterable

from mqcore.broker.core import Core
from mqcore.broker.ports import AppendStatus, Put
from mqcore.broker.request import Answer, Fields, OutcomeJob, Request, answers, refused
from mqcore.broker.tables.recall_waits import Recall, Standing
from mqcore.turns import Job
from mqcore.wire.codes import TIMER_TOPIC, RequestCode, ResponseCode
from mqcore.wire.properties import REAL_QUEUE_ID, REAL_TOPIC, TAGS, TIMER_OUT_MS, UNIQ_KEY
from mqcore.wire.recall_handle import (
    OUTCOME,
    SECOND_MS,
    HandleError,
    RecallHandle,
    RecallOutcome,
)
from mqcore.wire.records import Record, RecordError, decode_record

RECALL_TAG = "_RECALL_TAG_"
RECALL_BODY = b"0"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
SURE_MS = 2_000                      # what is due later cannot be on its way
RECORDS_MAX = 64                     # of one key: a message, and its recalls
AHEAD_MS = 3_600_000                 # the index looks so far beyond this process's clock
REMARK_TIME = "recall failed, timestamp invalid: its time has come, or is too far ahead"


@answers(RequestCode.RECALL_MESSAGE)
def recall(core: Core, request: Request) -> Answer | OutcomeJob | None:
    """
    RECALL_MESSAGE (370): answered when the record that takes the message back is stored, and it is
    known whether that was in time (`outcome`).
    """
    fields = Fields.of(request.command)
    topic = fields.text("topic")
    if core.settings.broker.timer_messages != "at_time":
        return refused(ResponseCode.NO_PERMISSION, "recall failed: no message waits for a time of"
                       " delivery (broker.timer_messages)")
    if not core.writable:
        return refused(ResponseCode.NO_PERMISSION,
                       f"the broker {core.settings.advertised_addr} is not writable")
    if core.topics.get(topic) is None:
        return refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic[{topic}] not exist")
    try:
        handle = RecallHandle.read(fields.text("recallHandle"))
    except HandleError as error:
        return refused(ResponseCode.ILLEGAL_OPERATION, f"recall failed, handle is invalid: {error}")
    if handle.topic != topic:
        return refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
    if handle.broker_name != core.settings.broker.name:
        return refused(ResponseCode.ILLEGAL_OPERATION,
                       "recall failed, broker service not available")
    ahead_ms = handle.second_ms + SECOND_MS - core.wall_ms(request.now_ms)
    if ahead_ms > SECOND_MS * (core.settings.broker.timer_max_delay_s + 1):
        return refused(ResponseCode.ILLEGAL_OPERATION, REMARK_TIME)
    if ahead_ms <= 0:
        return _too_late(core, handle, request.now_ms)

    def done(put: Put) -> None:
        if put.status is not AppendStatus.PUT_OK:
            core.answer_saved(request, TIMER_TOPIC, refused(
                ResponseCode.SYSTEM_ERROR, put.status.name))
        elif not core.recalls.add(request, handle, put.queue_offset, put.position,
                                  request.now_ms, in_time=ahead_ms > SURE_MS):
            core.answer_saved(request, TIMER_TOPIC, _said(handle, RecallOutcome.UNKNOWN))

    if core.topics.create_on_demand(TIMER_TOPIC, 1, request.now_ms) is None:
        return refused(ResponseCode.SYSTEM_ERROR, f"topic {TIMER_TOPIC} could not be made")
    core.ports.appender.append(
        TIMER_TOPIC, 0, RECALL_BODY,
        {TAGS: RECALL_TAG, TIMER_DEL_UNIQKEY: f"{topic}+{handle.message_id}",
         UNIQ_KEY: handle.message_id, TIMER_OUT_MS: str(handle.second_ms), REAL_TOPIC: topic,
         REAL_QUEUE_ID: "0"},
        born_ms=core.wall_ms(request.now_ms), waits=True, done=done)
    return None


def answer_due(core: Core, now_ms: int) -> None:
    """Answer the recalls whose outcome is known, or whose time for it is over."""
    if not len(core.recalls):
        return
    cleared, published = core.ports.figures.timer_cleared()
    due = core.recalls.due(
        Standing(cleared, published, core.ports.store.log_range()[1]), now_ms)
    if due:
        core.spawn(_answer(core, due, now_ms))


def _answer(core: Core, recalls: Iterable[Recall], now_ms: int) -> Job:
    for each in recalls:
        outcome = RecallOutcome.DELIVERING
        if each.known:
            outcome = yield from _outcome(core, each.handle, now_ms)
        core.answer_saved(each.request, TIMER_TOPIC, _said(each.handle, outcome))
        yield


def _said(handle: RecallHandle, outcome: RecallOutcome) -> Answer:
    ext: dict[str, str | None] = {"msgId": handle.message_id, OUTCOME: outcome.value}
    if outcome is RecallOutcome.DELIVERED:
        return Answer(ResponseCode.ILLEGAL_OPERATION, "recall failed, it is delivered", ext)
    return Answer(ResponseCode.SUCCESS, ext=ext)


def _outcome(
    core: Core, handle: RecallHandle, now_ms: int,
) -> Generator[None, None, RecallOutcome]:
    """When the recall is read, and the outcome of what was handed over before is in the index."""
    if (yield from _is_delivered(core, handle, now_ms)):
        return RecallOutcome.DELIVERED
    records = yield from _records(core, TIMER_TOPIC, handle, 0, now_ms)
    if any(not _recalls(record, handle) for record in records):
        return RecallOutcome.RECALLED
    return RecallOutcome.UNKNOWN


def _too_late(core: Core, handle: RecallHandle, now_ms: int) -> OutcomeJob:
    """The answer to a recall whose time has come: a stock client hears no more than that."""
    outcome = RecallOutcome.UNKNOWN
    cleared, _ = core.ports.figures.timer_cleared()
    if (yield from _is_delivered(core, handle, now_ms)):
        outcome = RecallOutcome.DELIVERED
    else:
        records = yield from _records(core, TIMER_TOPIC, handle, 0, now_ms)
        if any(_recalls(record, handle) and record.queue_offset < cleared for record in records):
            outcome = RecallOutcome.RECALLED
        elif records:
            outcome = RecallOutcome.DELIVERING
    return Answer(ResponseCode.ILLEGAL_OPERATION, REMARK_TIME,
                  {"msgId": handle.message_id, OUTCOME: outcome.value})


def _is_delivered(
    core: Core, handle: RecallHandle, now_ms: int,
) -> Generator[None, None, bool]:
    begin_ms = handle.second_ms - SECOND_MS                  # the index has whole seconds
    records = yield from _records(core, handle.topic, handle, begin_ms, now_ms)
    return any(TIMER_DEQUEUE_MS in record.properties for record in records)


def _recalls(record: Record, handle: RecallHandle) -> bool:
    return record.properties.get(TIMER_DEL_UNIQKEY) == f"{handle.topic}+{handle.message_id}"


def _records(
    core: Core, topic: str, handle: RecallHandle, begin_ms: int, now_ms: int,
) -> Generator[None, None, list[Record]]:
    """The newest records of a topic with the message's id, stored from then on."""
    found = yield from core.ports.store.find_key(
        topic, handle.message_id, RECORDS_MAX, begin_ms, core.wall_ms(now_ms) + AHEAD_MS)
    records = []
    for position in found.positions:
        stored = core.ports.store.record(position)
        try:
            record = None if stored is None else decode_record(stored)
        except RecordError:                      # the index points at what is none
            continue
        if (record is not None and record.topic == topic
                and record.properties.get(UNIQ_KEY) == handle.message_id
                and record.properties.get(REAL_TOPIC, handle.topic) == handle.topic):
            records.append(record)
    return records
