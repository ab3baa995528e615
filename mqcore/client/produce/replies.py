"""Requests that travel as messages, and their replies (client.md 2.12)."""
from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import Final

from mqcore.client.errors import (
    CODE_NO_REPLY,
    CODE_NOT_A_REQUEST,
    ClientError,
    QueueFull,
    RequestTimeout,
)
from mqcore.client.message import Message, MessageQueue
from mqcore.client.received import ReceivedMessage
from mqcore.wire.codes import ResponseCode
from mqcore.wire.command import Command, response
from mqcore.wire.numbers import whole_number
from mqcore.wire.properties import (
    ARRIVE_TIME,
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY,
    REPLY_TO_CLIENT,
    TTL,
    decode_properties,
)
from mqcore.wire.records import Record, RecordError, body_crc

WAITING_COUNT_MAX = 100_000
_REPLY_TOPIC_END = "_REPLY_TOPIC"

log: Final = logging.getLogger("mqcore.client")


def create_reply(request: ReceivedMessage, body: bytes | str) -> Message:
    """The reply to a request that was received; any producer may send it (client.md 2.12).

    body   bytes; a str is sent as UTF-8
    Raises ClientError 10007 for a message that is no request.
    """
    properties = request.properties
    cluster, correlation, client = (
        properties.get(name) for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT))
    if not cluster or not correlation or not client:
        raise ClientError(f"message {request.message_id} is no request: it does not say where to"
                          " reply", CODE_NOT_A_REQUEST, topic=request.topic)
    reply = Message(cluster + _REPLY_TOPIC_END, body)
    reply.properties.update({
        MESSAGE_TYPE: REPLY, CORRELATION_ID: correlation, REPLY_TO_CLIENT: client,
        TTL: properties.get(TTL, "0"),
    })
    return reply


class Replies:
    """Waits for replies, in one client."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def ask(self, message: Message, client_id: str, timeout: float) -> tuple[Message, str]:
        """A copy of a message as a request, and the id of its reply. Raises QueueFull."""
        if len(self._waiting) >= WAITING_COUNT_MAX:
            raise QueueFull(f"{len(self._waiting)} requests wait for replies", topic=message.topic)
        correlation = str(uuid.uuid4())
        asked = Message(message.topic, message.body, flag=message.flag)
        asked.properties = {**message.properties, CORRELATION_ID: correlation,
                            REPLY_TO_CLIENT: client_id, TTL: str(round(timeout * 1000))}
        self._waiting[correlation] = asyncio.get_running_loop().create_future()
        return asked, correlation

    async def wait(self, correlation: str, deadline: float) -> ReceivedMessage:
        """The reply; raises RequestTimeout 10006 when it does not come in time."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._waiting[correlation]
        except TimeoutError:
            raise RequestTimeout("the request was stored, but no reply came in time",
                                 CODE_NO_REPLY, stored=True) from None

    def forget(self, correlation: str) -> None:
        """Its waiter is gone."""
        self._waiting.pop(correlation, None)

    async def on_reply(self, command: Command) -> Command:
        """326: a broker brings a reply."""
        try:
            reply = _received(command)
        except (RecordError, ValueError) as error:
            log.warning("a reply cannot be read: %s", error)
            return response(command, ResponseCode.SYSTEM_ERROR, "the reply cannot be read")
        future = self._waiting.get(reply.properties.get(CORRELATION_ID, ""))
        if future is None or future.done():
            log.warning("no request waits for the reply %s", reply.message_id)
        else:
            future.set_result(reply)
        return response(command, ResponseCode.SUCCESS)


def _received(command: Command) -> ReceivedMessage:
    ext = command.ext or {}
    properties = decode_properties(ext.get("properties") or "")
    properties[ARRIVE_TIME] = str(time.time_ns() // 1_000_000)
    topic, queue_id = ext.get("topic") or "", _number(ext.get("queueId"))
    record = Record(
        topic=topic, queue_id=queue_id, queue_offset=0, physical_offset=0,
        flag=_number(ext.get("flag")), sys_flag=_number(ext.get("sysFlag")),
        body_crc=body_crc(command.body), born_timestamp_ms=_number(ext.get("bornTimestamp")),
        born_host=_host(ext.get("bornHost")), store_timestamp_ms=_number(ext.get("storeTimestamp")),
        store_host=_host(ext.get("storeHost")),
        reconsume_times=_number(ext.get("reconsumeTimes")), prepared_transaction_offset=0,
        body=command.body, properties=properties, size=0,
    )
    return ReceivedMessage.from_record(record, MessageQueue(topic, "", queue_id))


def _number(text: str | None) -> int:
    return whole_number(text or "") or 0


def _host(text: str | None) -> tuple[str, int]:
    host, _, port = (text or "").lstrip("/").rpartition(":")
    return host or "0.0.0.0", _number(port)
