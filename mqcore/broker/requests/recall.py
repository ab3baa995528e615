"""
A message is taken back before its time of delivery (timer.md 3; RocketMQ 5.3.3:
RecallMessageProcessor).
"""
from __future__ import annotations

from mqcore.broker.core import Core
from mqcore.broker.ports import AppendStatus, Put
from mqcore.broker.request import Answer, Fields, Request, answers, refused
from mqcore.wire.codes import TIMER_TOPIC, RequestCode, ResponseCode
from mqcore.wire.properties import REAL_QUEUE_ID, REAL_TOPIC, TAGS, TIMER_OUT_MS, UNIQ_KEY
from mqcore.wire.recall_handle import SECOND_MS, HandleError, RecallHandle

RECALL_TAG = "_RECALL_TAG_"
RECALL_BODY = b"0"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"


@answers(RequestCode.RECALL_MESSAGE)
def recall(core: Core, request: Request) -> Answer | None:
    """RECALL_MESSAGE (370): answered when the record that takes the message back is stored."""
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
    if not 0 < ahead_ms <= SECOND_MS * (core.settings.broker.timer_max_delay_s + 1):
        return refused(ResponseCode.ILLEGAL_OPERATION,
                       "recall failed, timestamp invalid: its time has come, or is too far ahead")

    def done(put: Put) -> None:
        core.answer_saved(request, TIMER_TOPIC, Answer(
            ResponseCode.SUCCESS, ext={"msgId": handle.message_id})
            if put.status is AppendStatus.PUT_OK
            else refused(ResponseCode.SYSTEM_ERROR, put.status.name))

    if core.topics.create_on_demand(TIMER_TOPIC, 1, request.now_ms) is None:
        return refused(ResponseCode.SYSTEM_ERROR, f"topic {TIMER_TOPIC} could not be made")
    core.ports.appender.append(
        TIMER_TOPIC, 0, RECALL_BODY,
        {TAGS: RECALL_TAG, TIMER_DEL_UNIQKEY: f"{topic}+{handle.message_id}",
         UNIQ_KEY: handle.message_id, TIMER_OUT_MS: str(handle.second_ms), REAL_TOPIC: topic,
         REAL_QUEUE_ID: "0"},
        born_ms=core.wall_ms(request.now_ms), waits=True, done=done)
    return None
