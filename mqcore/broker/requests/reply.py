"""
Replies to requests that travelled as messages: pushed to the client that waits for them.

broker.md 2.6, remoting.md 4.1.5, 4.8 (RocketMQ 4.9.8: ReplyMessageProcessor). The requester is a
producer of this broker; the replier named its client id in the property REPLY_TO_CLIENT. A reply is
stored besides, if the broker is set so: also one that no client took, and then again each time that
its sender tries again.
"""
from __future__ import annotations

import logging
import random
from collections.abc import Callable

from mqcore.broker.core import Core
from mqcore.broker.ports import Put
from mqcore.broker.request import Answer, FieldError, Request, answers, remote_address
from mqcore.broker.requests.send_back import Place, delay
from mqcore.broker.requests.send_rules import (
    SendHeader,
    SendRefusal,
    answer_fields,
    check_timer,
    checked_topic,
    delay_level,
)
from mqcore.broker.tables.client_calls import CallEnd
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command
from mqcore.wire.command import request as make_request
from mqcore.wire.ids import offset_message_id
from mqcore.wire.properties import (
    DELAY,
    REPLY_TO_CLIENT,
    WAIT,
    decode_properties,
    encode_properties,
)

PUSH_TIMEOUT_MS = 10_000
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
NOT_STORED_ID, NOT_STORED_OFFSET = "0", "0"

_log = logging.getLogger(__name__)


@answers(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
def send_reply(core: Core, request: Request) -> Answer | None:
    """SEND_REPLY_MESSAGE (324, 325): answered when the client has taken the reply, or has not."""
    ext = answer_fields(core)
    if request.body_size > len(request.command.body):     # the header was in a form of its own
        return Answer(ResponseCode.SYSTEM_ERROR, f"the reply has {request.body_size} bytes, which "
                      "come only with a header as clients of RocketMQ write it", ext)
    try:
        header = SendHeader.read(request)
        topic = checked_topic(core, request, header)
        properties = decode_properties(header.properties)
        delay_level(properties.get(DELAY))
        if check_timer(core, request, properties):
            raise SendRefusal(ResponseCode.MESSAGE_ILLEGAL, "a reply has no time of delivery")
    except SendRefusal as refusal:
        return Answer(refusal.code, refusal.remark, ext)
    except FieldError as error:
        return Answer(ResponseCode.SYSTEM_ERROR, str(error), ext)
    queue_id = header.queue_id
    if queue_id < 0:
        queue_id = random.randrange(max(topic.write_queue_count, 1))
    place = Place(header.topic, queue_id)

    def pushed(trouble: str | None) -> None:
        _finish(core, request, header, place, properties, trouble)

    client = properties.get(REPLY_TO_CLIENT)
    connection = core.clients.producer_connection(client) if client else None
    if client is None:
        pushed(f"push reply message fail, property {REPLY_TO_CLIENT} is missing.")
    elif connection is None:
        pushed(f"push reply message fail, channel of <{client}> not found.")
    else:
        _push(core, request, header, place, properties, connection, pushed)
    return None


def _push(
    core: Core, request: Request, header: SendHeader, place: Place, properties: dict[str, str],
    connection: int, pushed: Callable[[str | None], None],
) -> None:
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326); pushed: with the reason why it failed, or None."""

    def done(end: Command | CallEnd) -> None:
        if isinstance(end, CallEnd):
            pushed(f"push reply message fail, {end.value}.")
        elif end.code != ResponseCode.SUCCESS:
            pushed(f"push reply message fail, the client answered {end.code}: {end.remark}")
        else:
            pushed(None)

    now = str(core.wall_ms(request.now_ms))
    core.calls.call(connection, make_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, {
        "bornHost": request.remote,
        "storeHost": core.settings.store_addr,
        "storeTimestamp": now,
        "producerGroup": header.producer_group,
        "topic": place.topic,
        "defaultTopic": header.default_topic,
        "defaultTopicQueueNums": str(header.default_queue_count),
        "queueId": str(place.queue_id),
        "sysFlag": str(header.sys_flag),
        "bornTimestamp": str(header.born_ms),
        "flag": str(header.flag),
        "properties": encode_properties({PUSH_REPLY_TIME: now} | properties),
        "reconsumeTimes": str(header.reconsume_times),
        "unitMode": "true" if header.unit_mode else "false",
    }, request.command.body), PUSH_TIMEOUT_MS, done, request.now_ms)


def _finish(
    core: Core, request: Request, header: SendHeader, place: Place, properties: dict[str, str],
    trouble: str | None,
) -> None:
    """Store the reply if the broker is set so, then answer."""
    queue_id = place.queue_id
    code = ResponseCode.SUCCESS if trouble is None else ResponseCode.SYSTEM_ERROR
    plain = answer_fields(core)
    if trouble is None:
        plain |= {
            "msgId": NOT_STORED_ID, "queueId": str(queue_id), "queueOffset": NOT_STORED_OFFSET}
    if not core.settings.broker.store_reply_messages or core.settings.is_slave:
        core.answer(request, Answer(code, trouble, plain))
        return

    def stored(put: Put) -> None:
        ext = plain
        if put.status.stored:
            host = (core.settings.broker.advertised_ip, core.settings.broker.listen_port)
            ext = plain | {"msgId": offset_message_id(*host, put.position),
                           "queueId": str(queue_id), "queueOffset": str(put.queue_offset)}
        else:
            _log.error("a reply for %s was not stored: %s", place.topic, put.status.name)
        core.answer_saved(request, header.topic, Answer(code, trouble, ext))

    waits = properties.get(WAIT, "").lower() != "false"
    delay(place, properties, len(core.settings.delay_levels_ms))
    core.ports.appender.append(
        place.topic, place.queue_id, request.command.body, properties, born_ms=header.born_ms,
        flag=header.flag, sys_flag=header.sys_flag, reconsume_times=header.reconsume_times,
        born_host=remote_address(request.remote), waits=waits, done=stored)
