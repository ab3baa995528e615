"""Messages: by id, key, offset and time; entries of queues (client.md 6.2)."""
from __future__ import annotations

from typing import Final

from msgspec import Struct

from mqcore.client.admin import arguments
from mqcore.client.admin.bodies import document, header_number
from mqcore.client.admin.connections import Connections, read_subscription
from mqcore.client.admin.link import SUCCESS, Found, Link, Target, limited, now, now_ms
from mqcore.client.core.options import check_group, check_topic
from mqcore.client.errors import (
    BrokerError,
    ClientError,
    ConfigError,
    NoRouteError,
)
from mqcore.client.message import MessageQueue
from mqcore.client.network.route import subscribe_queues
from mqcore.client.received import ReceivedMessage
from mqcore.wire.codes import (
    MASTER_ID,
    PULL_FLAG_SUBSCRIPTION,
    UNIQUE_KEY_QUERY,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.command import Ext
from mqcore.wire.ids import parse_offset_message_id
from mqcore.wire.records import Record, decode_record, decode_records
from mqcore.wire.tags import EXPRESSION_SQL92, EXPRESSION_TAG, Subscription, parse_subscription

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
QUERY_COUNT_MAX: Final = 64             # a broker gives no more
READ_COUNT_MAX: Final = 100_000         # messages that one call brings
READ_BYTES_MAX: Final = 64 << 20        # and their bodies
PULL_COUNT: Final = 32
NOT_FOUND: Final = int(ResponseCode.NO_MESSAGE)


class StoredEntry(Struct, frozen=True):
    """An entry of a consume queue (321)."""

    offset: int
    log_position: int
    size: int
    tag_code: int
    matches: bool | None            # whether the group's filter takes it; None: no group was given
    remark: str                     # what the broker says about an entry that it cannot read


class QueueEntries(Struct, frozen=True):
    """Entries of a queue, its bounds, and the subscription of the group that was asked for."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    entries: tuple[StoredEntry, ...]
    subscription: Subscription | None
    filter_text: str


class Messages(Connections, Link):
    """
    What AsyncAdmin does with messages.

    read_bytes_max   bodies that one `read` brings, shared by the queues; one each at least
    """

    read_bytes_max: int = READ_BYTES_MAX

    @limited
    async def message(self, message_id: str, *, topic: str | None = None) -> ReceivedMessage:
        """The message with an id.

        message_id   the broker's (offset message id), or, with `topic`, a client's; of several
                     copies that carry a client's id, the one stored earliest
        Raises ConfigError for what is no id, BrokerError or ClientError with code 208 when there
        is none.
        """
        arguments.text(message_id, "message_id")
        if topic is not None:
            check_topic(topic)
        try:
            host, port, position = parse_offset_message_id(message_id)
        except ValueError as error:
            if topic is None:
                raise ConfigError(
                    f"message_id {message_id!r:.120}: expected 32 or 56 hex digits, or give the"
                    " topic of a client's id") from error
            return await self._by_unique_key(topic, message_id)
        target = Target(f"{host}:{port}", f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        if topic is not None and not await self._is_known(target):
            return await self._by_unique_key(topic, message_id)
        try:
            record = await self._view(target, position)
        except BrokerError as error:
            if topic is None:
                raise _none(f"no message {message_id} at {target}: {error.remark}") from error
            return await self._by_unique_key(topic, message_id)
        return await self._received(record)

    @limited
    async def message_at(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """The message at an offset of a queue (queryMsgByOffset); ClientError 208: none there."""
        arguments.number(offset, "offset")
        arguments.message_queue(queue)
        target = await self._address(queue.broker_name, "queue.broker_name")
        found, _ = await self._pull(target, queue, offset, parse_subscription(queue.topic, "*"), 1)
        if not found or found[0].queue_offset != offset:
            raise _none(f"no message at offset {offset} of {queue}")
        return found[0]

    @limited
    async def query(
        self, topic: str, key: str, *, count: int = QUERY_COUNT_MAX,
        begin: arguments.Moment | None = None, end: arguments.Moment | None = None,
    ) -> Found[ReceivedMessage]:
        """
        Messages of a topic that have a key, in the order in which they were stored (12).

        key          one of the message's keys, or its client's id
        count        at most so many of each broker, the newest; brokers give at most 64
        begin, end   times between which they were stored; None: no bound
        Raises NoRouteError. Nothing found is an empty result.
        """
        arguments.number(count, "count", 1, QUERY_COUNT_MAX)
        begin_ms = 0 if begin is None else arguments.moment_ms(begin, "begin", now())
        end_ms = arguments.I64_MAX if end is None else arguments.moment_ms(end, "end", now())
        return await self._query(topic, key, count, begin_ms, end_ms, unique=False)

    async def _query(
        self, topic: str, key: str, count: int, begin_ms: int, end_ms: int, *, unique: bool,
    ) -> Found[ReceivedMessage]:
        arguments.text(key, "key")

        async def one(target: Target) -> list[ReceivedMessage]:
            ext: Ext = {"topic": topic, "key": key, "maxNum": str(count),
                        "beginTimestamp": str(begin_ms), "endTimestamp": str(end_ms),
                        UNIQUE_KEY_QUERY: "true" if unique else None}
            answer = await self._ask(target.address, RequestCode.QUERY_MESSAGE, ext, slow=True,
                                     accept=(*SUCCESS, ResponseCode.QUERY_NOT_FOUND))
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            return [ReceivedMessage.from_record(
                        record, MessageQueue(record.topic, target.name, record.queue_id))
                    for record in decode_records(answer.body) if _has_key(record, topic, key)]

        answers, failures = await self._read(
            f"messages of topic {topic} with key {key}",
            await self._readers(check_topic(topic)), one)
        found = [message for _, messages in answers for message in messages]
        found.sort(key=lambda message: (message.store_timestamp_ms, message.queue,
                                        message.queue_offset))
        return Found(tuple(found), failures,
                     any(len(messages) >= count for _, messages in answers))

    async def _by_unique_key(self, topic: str, key: str) -> ReceivedMessage:
        found = await self._query(topic, key, QUERY_COUNT_MAX, 0, arguments.I64_MAX, unique=True)
        copies = [message for message in found if message.message_id == key]
        if not copies:
            if found.unreachable:
                raise found.unreachable[0].error
            raise _none(f"no message of topic {topic} has the id {key}")
        return copies[0]

    @limited
    async def read(
        self, topic: str, *, begin: arguments.Moment | None = None,
        end: arguments.Moment | None = None,
        expression: str = "*", sql: bool = False, count: int = 128, broker_name: str | None = None,
        queue_id: int | None = None,
    ) -> Found[ReceivedMessage]:
        """
        Messages of a topic, without a group and without committing (printMsg, consumeMessage).

        begin, end              times between which they were stored; None: no bound
        expression, sql         `TagA || TagB`, or with sql=True a SQL92 condition
        count                   at most so many of each queue; `more` says that there are more, as
                                it does after 64 MiB of bodies
        broker_name, queue_id   only queues of that broker, or with that number
        In the order in which they were stored. Raises ConfigError, NoRouteError.
        """
        check_topic(topic)
        arguments.number(count, "count", 1, READ_COUNT_MAX)
        arguments.flag(sql, "sql")
        if queue_id is not None:
            arguments.number(queue_id, "queue_id", 0, arguments.I32_MAX)
        begin_ms = None if begin is None else arguments.moment_ms(begin, "begin", now())
        end_ms = None if end is None else arguments.moment_ms(end, "end", now())
        try:
            subscription = parse_subscription(
                topic, expression, now_ms(), EXPRESSION_SQL92 if sql else EXPRESSION_TAG)
        except (AttributeError, ValueError) as error:
            raise ConfigError(f"expression {expression!r:.120}: {error}") from error
        route = await self._known_route(topic)
        masters = {data.broker_name: data.addresses for data in route.brokers if data.addresses}
        queues = [queue for queue in subscribe_queues(topic, route)
                  if broker_name in (None, queue.broker_name)
                  and queue_id in (None, queue.queue_id) and queue.broker_name in masters]
        if not queues:
            raise NoRouteError(f"topic {topic} has no such readable queue", topic=topic)

        async def one(target: Target) -> tuple[list[ReceivedMessage], bool]:
            return await self._read_queue(
                Target(places[target].broker_name, target.address), places[target], subscription,
                count, self.read_bytes_max // len(queues), begin_ms, end_ms)

        places = {}
        for queue in queues:
            addresses = masters[queue.broker_name]
            address = addresses.get(MASTER_ID) or next(iter(addresses.values()))
            places[Target(f"{queue.broker_name} queue {queue.queue_id}", address)] = queue
        answers, failures = await self._read(f"messages of topic {topic}", list(places), one)
        # of a queue that was cut by its bytes later messages lack: those of others wait for them
        last_ms = min((messages[-1].store_timestamp_ms for _, (messages, more) in answers
                       if more and len(messages) < count), default=arguments.I64_MAX)
        found = [message for _, (messages, _) in answers for message in messages
                 if message.store_timestamp_ms <= last_ms]
        found.sort(key=lambda message: (message.store_timestamp_ms, message.queue,
                                        message.queue_offset))
        return Found(tuple(found), failures, any(more for _, (_, more) in answers))

    async def _read_queue(
        self, target: Target, queue: MessageQueue, subscription: Subscription, count: int,
        size: int, begin_ms: int | None, end_ms: int | None,
    ) -> tuple[list[ReceivedMessage], bool]:
        """
        Up to `count` messages of one queue, fewer where their bodies have more than `size` bytes,
        and whether the queue has more.
        """
        if begin_ms is None:
            offset = await self._offset(target, queue, RequestCode.GET_MIN_OFFSET)
        else:       # of several messages of one millisecond a broker finds any, so one before
            offset = await self._offset(
                target, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, max(0, begin_ms - 1))
        end = await self._offset(target, queue, RequestCode.GET_MAX_OFFSET)
        found: list[ReceivedMessage] = []
        while offset < end:
            messages, offset_after = await self._pull(
                target, queue, offset, subscription, PULL_COUNT)
            for message in messages:
                if message.queue_offset >= end or (
                        end_ms is not None and message.store_timestamp_ms > end_ms):
                    return found, False
                if begin_ms is not None and message.store_timestamp_ms < begin_ms:
                    continue
                size -= len(message.body)
                if len(found) == count or (found and size < 0):
                    return found, True
                found.append(message)
            if offset_after <= offset:
                break
            offset = offset_after
        return found, False

    async def _pull(
        self, target: Target, queue: MessageQueue, offset: int, subscription: Subscription,
        count: int,
    ) -> tuple[list[ReceivedMessage], int]:
        """One pull that does not wait and commits nothing; the messages and the next offset."""
        answer = await self._ask(target.address, RequestCode.PULL_MESSAGE, {
            "consumerGroup": TOOLS_GROUP, "topic": queue.topic, "queueId": str(queue.queue_id),
            "queueOffset": str(offset), "maxMsgNums": str(count),
            "sysFlag": str(PULL_FLAG_SUBSCRIPTION), "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": subscription.expression,
            "subVersion": str(subscription.version_ms),
            "expressionType": subscription.expression_type, "bname": queue.broker_name,
        }, accept=(ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND,
                   ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED),
            slow=True, topic=queue.topic)
        following = header_number(answer, "nextBeginOffset", target.address)
        if answer.code not in SUCCESS:
            return [], following
        return [ReceivedMessage.from_record(record, queue)
                for record in decode_records(answer.body)
                if subscription.matches(record.tags)], following

    @limited
    async def queue_entries(
        self, queue: MessageQueue, index: int, count: int = 10, *, group: str | None = None,
        broker: str | None = None,
    ) -> QueueEntries:
        """Entries of a consume queue from an offset on (queryCq).

        index    the offset of the first one
        count    how many, at most
        group    also say whether its filter takes each
        broker   ask this one, `host:port` or a name, instead of the queue's master
        Raises BrokerError for a queue that does not exist; an offset outside gives no entries.
        """
        arguments.message_queue(queue)
        arguments.number(index, "index")
        arguments.number(count, "count", 1, 10_000)
        if group is not None:
            check_group(group)
        target = await self._address(queue.broker_name if broker is None else broker)
        return await self._entries(target, queue, index, count, group)

    async def _entries(
        self, target: Target, queue: MessageQueue, index: int, count: int, group: str | None,
    ) -> QueueEntries:
        answer = await self._ask(target.address, RequestCode.QUERY_CONSUME_QUEUE, {
            "topic": queue.topic, "queueId": str(queue.queue_id), "index": str(index),
            "count": str(count), "consumerGroup": group or ""}, topic=queue.topic)
        body = document(answer, target.address)
        entries = tuple(StoredEntry(
            index + number, fields.number("physicOffset"), fields.number("physicSize"),
            fields.number("tagsCode"), fields.flag("eval") if group else None, fields.text("msg"),
        ) for number, fields in enumerate(body.objects("queueData")))
        subscription = body.members.get("subscriptionData")
        return QueueEntries(
            queue, body.number("minQueueIndex"), body.number("maxQueueIndex"), entries,
            None if subscription is None else read_subscription(body.object("subscriptionData")),
            body.text("filterData"))

    # -- inside -----------------------------------------------------------------------------------

    async def _view(self, target: Target, position: int) -> Record:
        answer = await self._ask(
            target.address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(position)})
        return decode_record(answer.body)

    async def _received(self, record: Record) -> ReceivedMessage:
        """A record as a message; the name of its broker is looked up by its address."""
        host, port = record.store_host
        name = await self._name_of(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return ReceivedMessage.from_record(
            record, MessageQueue(record.topic, name, record.queue_id))

    async def _name_of(self, address: str) -> str:
        """The name of the broker at an address; the address itself when it is unknown."""
        if self._instance.name_servers.addresses:
            for data in await self._brokers():
                if address in data.addresses.values():
                    return data.broker_name
        return address

    async def _is_known(self, target: Target) -> bool:
        return await self._name_of(target.address) != target.address


def _has_key(record: Record, topic: str, key: str) -> bool:
    """Brokers match by a hash: what they give may have another topic or key."""
    return record.topic == topic and (key in record.keys or record.message_id == key)


def _none(text: str) -> ClientError:
    return ClientError(text, NOT_FOUND)
