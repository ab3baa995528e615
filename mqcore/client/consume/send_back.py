"""Messages that come again: by the broker, by a copy, or here (client.md 4.12, 4.13)."""
from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from typing import Final

from mqcore.client.core import redelivery
from mqcore.client.errors import RocketMQError
from mqcore.client.network.pool import client_request
from mqcore.client.produce.send_header import send_fields
from mqcore.client.produce.sending import STATUS
from mqcore.client.received import ReceivedMessage
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire.codes import RETRY_PREFIX, RequestCode
from mqcore.wire.command import Ext
from mqcore.wire.properties import (
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    encode_properties,
)

SEND_BACK_TIMEOUT_S = 5.0
PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"

log: Final = logging.getLogger("mqcore.client")


class SendBack:
    """Sends messages of one group back."""

    def __init__(self, instance: ClientInstance, group: str, retries_max: int) -> None:
        self._instance = instance
        self._group = group
        self._retries_max = retries_max

    async def later(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Have the message delivered again; whether a broker has it now.

        delay_level   0 = the broker decides, -1 = to the dead letters
        """
        try:
            await self._ask(message, delay_level)
            return True
        except RocketMQError as error:
            log.warning("sending %s back failed, a copy is sent: %s", message, error)
        if delay_level == redelivery.DEAD_LETTER:
            return await self.to_dead_letters(message)
        return await self._copy(message, redelivery.fallback_properties(
            message.read_properties(), topic=message.topic, message_id=message.message_id,
            reconsume_times=message.reconsume_times, retries_max=self._limit))

    async def to_dead_letters(self, message: ReceivedMessage) -> bool:
        """Send a copy that the broker puts to the dead letters; whether it has it."""
        return await self._copy(message, redelivery.dead_letter_properties(
            message.read_properties(), topic=message.topic, message_id=message.message_id,
            reconsume_times=message.reconsume_times, retries_max=self._limit))

    @property
    def _limit(self) -> int:
        return self._retries_max if self._retries_max >= 0 else 2**31 - 1

    async def _ask(self, message: ReceivedMessage, delay_level: int) -> None:
        broker_name = message.queue.broker_name
        ext: Ext = {
            "offset": str(message.commit_log_offset), "group": self._group,
            "delayLevel": str(delay_level),
            "originTopic": self._instance.wrap(message.topic),
            "originMsgId": message.properties.get(ORIGIN_MESSAGE_ID) or message.message_id,
            "unitMode": "false", "maxReconsumeTimes": str(self._limit), "bname": broker_name,
        }
        await self._instance.call(
            self._instance.routes.master(broker_name),
            client_request(RequestCode.CONSUMER_SEND_MSG_BACK, ext), timeout=SEND_BACK_TIMEOUT_S)

    async def _copy(self, message: ReceivedMessage, properties: Mapping[str, str]) -> bool:
        """Send a new message to the group's retry topic (remoting.md 4.1.2)."""
        topic = RETRY_PREFIX + self._group
        kept: dict[str, str | None] = dict(properties)
        times = kept.pop(RECONSUME_TIME)
        times_max = kept.pop(MAX_RECONSUME_TIMES)
        try:
            queue = random.choice(await self._instance.routes.queues_to_publish(topic))
            ext = send_fields(
                PRODUCER_GROUP, topic, queue, encode_properties(kept),
                born_ms=time.time_ns() // 1_000_000, flag=message.flag,
                sys_flag=message.sys_flag & 0x1, reconsume_times=times,
                reconsume_times_max=times_max)
            await self._instance.call(
                self._instance.routes.master(queue.broker_name),
                client_request(RequestCode.SEND_MESSAGE_V2, ext, message.stored_body),
                timeout=SEND_BACK_TIMEOUT_S)
        except RocketMQError as error:
            if error.code in STATUS:         # stored there, as a producer would be told
                log.warning("a copy of %s: %s", message, error)
                return True
            log.warning("a copy of %s could not be sent: %s", message, error)
            return False
        return True
