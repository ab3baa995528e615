"""Messages as FastStream sees them, and how they become the client's."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faststream.message import StreamMessage, decode_message
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand

from mqcore.client import Delivery, Message, ReceivedMessage

CONTENT_TYPE = "content-type"
CORRELATION = "correlation_id"
REPLY_TO = "reply_to"
EMPTY_BODY = "faststream_empty"         # brokers take no empty bodies: a blank stands for one
REPLY_TO_ASKER = "<asker>"              # of a request: the reply goes to who waits for it
_OURS = frozenset({CONTENT_TYPE, CORRELATION, REPLY_TO, EMPTY_BODY})


class RocketMQMessage(StreamMessage[ReceivedMessage]):
    """A message in a subscriber; `raw_message` is the client's."""

    async def ack(self) -> None:
        """It is done."""
        if self.committed is None and isinstance(self.raw_message, Delivery):
            self.raw_message.ack()
        await super().ack()

    async def nack(self, delay_level: int = 0) -> None:
        """It comes again: after this level of the broker's delays, 0: the broker decides."""
        if self.committed is None and isinstance(self.raw_message, Delivery):
            await self.raw_message.retry(delay_level)
        await super().nack()

    async def reject(self) -> None:
        """No more tries: to the dead letters of the group."""
        if self.committed is None and isinstance(self.raw_message, Delivery):
            await self.raw_message.reject()
        await super().reject()


class RocketMQPublishCommand(PublishCommand):
    """One message to send.

    asked   the request that this is the reply to
    """

    def __init__(
        self, message: Any, *, _publish_type: PublishType, topic: str = "",
        correlation_id: str | None = None, headers: Mapping[str, Any] | None = None,
        reply_to: str = "", tags: str | None = None, key: str | None = None,
        shard: object = None, delay_level: int = 0, timeout: float | None = None,
        asked: ReceivedMessage | None = None,
    ) -> None:
        super().__init__(message, _publish_type=_publish_type, destination=topic,
                         correlation_id=correlation_id, headers=dict(headers or {}),
                         reply_to=reply_to)
        self.tags = tags
        self.key = key
        self.shard = shard
        self.delay_level = delay_level
        self.timeout = timeout
        self.asked = asked

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> RocketMQPublishCommand:
        """The same of any command."""
        if isinstance(cmd, cls):
            return cmd
        return cls(cmd.body, _publish_type=cmd.publish_type, topic=cmd.destination,
                   correlation_id=cmd.correlation_id, headers=cmd.headers, reply_to=cmd.reply_to)


def describe(message: Message, command: RocketMQPublishCommand, content_type: str | None) -> None:
    """Set the properties that say what a message is; raises ConfigError."""
    told = {**command.headers, CONTENT_TYPE: content_type, CORRELATION: command.correlation_id,
            REPLY_TO: command.reply_to}
    for name, value in told.items():
        if value is not None and str(value).strip():
            message.set_property(name, str(value))


def message_of(payload: bytes, command: RocketMQPublishCommand,
               content_type: str | None) -> Message:
    """What is sent for a command whose body is encoded; raises ConfigError."""
    message = Message(command.destination, payload or b" ", tags=command.tags, keys=command.key,
                      delay_level=command.delay_level)
    if not payload:
        message.set_property(EMPTY_BODY, "true")
    describe(message, command, content_type)
    return message


class Parser:
    """FastStream's view of a received message."""

    @staticmethod
    async def parse(message: ReceivedMessage) -> RocketMQMessage:
        """Headers are the properties that are not RocketMQ's own.

        Raises ValueError for a body that cannot be decompressed, which goes to the dead letters.
        """
        properties = message.properties
        try:
            body = b"" if properties.get(EMPTY_BODY) == "true" else message.body
        except ValueError:
            if isinstance(message, Delivery):
                await message.reject()          # nobody else can ack it: it is in no hands yet
            raise
        headers = {name: value for name, value in message.user_properties.items()
                   if name not in _OURS}
        if CONTENT_TYPE in properties:
            headers[CONTENT_TYPE] = properties[CONTENT_TYPE]
        reply_to = properties.get(REPLY_TO, "")
        if not reply_to and "REPLY_TO_CLIENT" in properties and message.topic:
            reply_to = REPLY_TO_ASKER
        return RocketMQMessage(
            raw_message=message, headers=headers, reply_to=reply_to, body=body,
            content_type=properties.get(CONTENT_TYPE), correlation_id=properties.get(CORRELATION),
            message_id=message.message_id)

    @staticmethod
    async def decode(message: StreamMessage[Any]) -> Any:
        """By its content type."""
        return decode_message(message)
