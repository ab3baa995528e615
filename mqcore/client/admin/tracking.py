"""The state of a message at groups, and handing one to a member (client.md 6.2)."""
from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from mqcore.client.admin import arguments
from mqcore.client.admin.bodies import document
from mqcore.client.admin.link import Found, Link, limited, some_at_once
from mqcore.client.admin.messages import Messages
from mqcore.client.core.options import check_group
from mqcore.client.errors import ConfigError, RocketMQError
from mqcore.client.received import ReceivedMessage
from mqcore.wire.codes import RequestCode


class TrackState(StrEnum):
    """The state of a message for a group."""

    CONSUMED = "CONSUMED"                               # its offset is beyond the message
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"     # so, but its tag is not subscribed
    PULL = "PULL"                                       # a pull consumer: not known
    NOT_CONSUMED_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    UNKNOWN = "UNKNOWN"


class Track(Struct, frozen=True):
    """One group, and what it has done with a message; `error` says why that is UNKNOWN."""

    group: str
    state: TrackState
    error: RocketMQError | None = None


class DirectResult(Struct, frozen=True):
    """A listener's result for a message that was handed to it (309); `result`: CR_SUCCESS ..."""

    result: str
    order: bool
    auto_commit: bool
    remark: str
    took: float                     # seconds


class Tracking(Messages, Link):
    """What AsyncAdmin does with messages and the groups that consume them."""

    @limited
    async def consumed_by(self, message: ReceivedMessage) -> Found[Track]:
        """
        The message's state for each group that knows its topic (messageTrackDetail).

        "Consumed" means that the committed offset of the message's queue is beyond it. `message`
        as `message`, `query` or a consumer gives it.
        """
        if not isinstance(message, ReceivedMessage):
            raise ConfigError(f"message {message!r:.120}: expected a ReceivedMessage")
        groups = await self.topic_groups(message.queue.topic)
        tracks = await some_at_once(groups, lambda group: self._track(group, message))
        return Found(tuple(tracks), groups.unreachable)

    async def _track(self, group: str, message: ReceivedMessage) -> Track:
        try:
            members = await self.members(group)
            if not members.members:
                return Track(group, TrackState.NOT_ONLINE)
            if members.consume_type == "CONSUME_ACTIVELY":
                return Track(group, TrackState.PULL)
            if members.message_model == "BROADCASTING":
                return Track(group, TrackState.UNKNOWN)
            lag = await self.lag(group, message.queue.topic)
            if not any(queue.queue == message.queue
                       and queue.consumer_offset > message.queue_offset for queue in lag.queues):
                return Track(group, TrackState.NOT_CONSUMED_YET)
            filtered = any(subscription.topic == message.queue.topic
                           and not subscription.matches(message.tags)
                           for subscription in members.subscriptions)
            return Track(
                group, TrackState.CONSUMED_BUT_FILTERED if filtered else TrackState.CONSUMED)
        except RocketMQError as error:
            return Track(group, TrackState.UNKNOWN, error)

    @limited
    async def consume_directly(
        self, group: str, client_id: str, message_id: str, *, topic: str | None = None,
    ) -> DirectResult:
        """Hand a stored message to the listener of one member (309); offsets do not change.

        group, client_id   the member
        message_id         the broker's id of the message; of a client's id with its topic
        """
        check_group(group)
        arguments.text(client_id, "client_id")
        message = await self.message(message_id, topic=topic)
        host, port = message.store_host
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        answer = await self._ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, {
            "consumerGroup": group, "clientId": client_id, "msgId": message.offset_message_id,
            "brokerName": message.queue.broker_name}, slow=True)
        body = document(answer, address)
        return DirectResult(
            body.text("consumeResult"), body.flag("order"), body.flag("autoCommit"),
            body.text("remark"), body.number("spentTimeMills") / 1000)
