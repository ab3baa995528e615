"""
A transport for kombu, and so for Celery: `rocketmq://host:9876`, known when this is imported.

A queue is a topic with one consumer group. Exchanges and bindings are this process's: messages for
a queue reach it from anywhere, but a fanout or topic exchange reaches only queues that were bound
here. Celery therefore sees no fanout: no remote control, events or gossip between workers.

K1  A message is acked at the broker when kombu acks it: what a process had and did not ack comes
    again when it ends, or after `visibility_timeout`.
K2  A requeued message is a copy, sent before the first one is acked: twice at worst, never lost.
    What was left of its expiration goes with it.
K3  Whatever is none of kombu's goes to the dead letters where it comes in, and never further.
"""
from __future__ import annotations

import hashlib
import logging
import math
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.json import dumps, loads
from kombu.utils.uuid import uuid

from mqcore.client import (
    Admin,
    BlockingDelivery,
    BrokerError,
    ClosedError,
    ConfigError,
    Consumer,
    FilterHookContext,
    MessageQueue,
    NoRouteError,
    Producer,
    RemotingError,
    RocketMQError,
)

TOPIC_PREFIX = "kombu-"
TOPIC_CHARACTERS_MAX = 100              # brokers put %RETRY% and %DLQ% before the group
_DIGEST = 16
_OTHER_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")
# Seconds of the broker's delay levels 1 to 18, as they are when nobody changes them.
DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
LATE_S = 10.0                           # a worker holds what is due sooner than this
WAIT_S = 1.0                            # between two looks for room in the prefetch window
PURGE_WAIT_S = 0.2
PURGE_COUNT = 1_000
ROUTING_KEY_CHARACTERS_MAX = 255

log = logging.getLogger("mqcore.contrib.kombu")


def topic_of(queue: str) -> str:
    """The topic of a queue: other characters than topics have are %XX, long names are cut."""
    name = TOPIC_PREFIX + _OTHER_CHARACTERS.sub(
        lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), queue)
    if len(name) > TOPIC_CHARACTERS_MAX:
        digest = hashlib.sha256(queue.encode()).hexdigest()[:_DIGEST]
        name = f"{name[:TOPIC_CHARACTERS_MAX - _DIGEST - 1]}-{digest}"
    return name


def delay_level(seconds: float) -> int:
    """The longest delay that is not longer than `seconds`; 0: none is."""
    return sum(delay <= seconds for delay in DELAYS_S)


def _seconds_left(message: dict[str, Any]) -> float:
    """Until a Celery task's `eta`; 0 of others."""
    eta = (message.get("headers") or {}).get("eta")
    if not isinstance(eta, str):
        return 0.0
    try:
        due = datetime.fromisoformat(eta)
    except ValueError:
        return 0.0                      # the worker will say what is wrong with it
    due = due if due.tzinfo else due.replace(tzinfo=UTC)
    return max(0.0, due.timestamp() - time.time())


class ForeignError(ValueError):
    """A body that is no message of kombu's."""


def message_in(body: bytes) -> dict[str, Any]:
    """The message that a body is, as kombu's virtual transports know it; raises ForeignError."""
    try:
        message = loads(body.decode())
    except Exception as error:          # of any type that an application has registered, too
        raise ForeignError(f"no JSON of kombu's: {error!r}") from error
    if not isinstance(message, dict):
        raise ForeignError(f"a {type(message).__name__}: expected an object")
    properties = _part(message, "properties", dict)
    info = _part(properties, "delivery_info", dict, type(None)) or {}
    properties["delivery_info"] = info
    _part(message, "headers", dict, type(None))
    for name in ("content-type", "content-encoding"):
        _part(message, name, str, type(None))
    for name in ("exchange", "routing_key", "consumer_tag"):
        _part(info, name, str, type(None))
    encoding = _part(properties, "body_encoding", str, type(None))
    content = _part(message, "body", str, bytes)
    try:
        if encoding and encoding.lower() != "utf-8":
            virtual.Channel.codecs[encoding].decode(content)
    except (KeyError, ValueError) as error:
        raise ForeignError(f"its body is not in {encoding}: {error!r}") from error
    _life_ms(properties)
    return message


def _part(of: dict[str, Any], name: str, *kinds: type) -> Any:
    value = of.get(name)
    if not isinstance(value, kinds):
        raise ForeignError(f"{name}: a {type(value).__name__}")
    return value


def _life_ms(properties: dict[str, Any]) -> float | None:
    """How long a message may wait, from when it was sent; None: for ever. Raises ForeignError."""
    expiration = properties.get("expiration")
    if expiration is None:
        return None
    try:
        life = float(expiration)
    except (TypeError, ValueError, OverflowError) as error:
        raise ForeignError(f"expiration: {error}") from error
    if not math.isfinite(life):
        raise ForeignError(f"expiration: {life}")
    return life


def _life_left_ms(properties: dict[str, Any], delivery: BlockingDelivery) -> float | None:
    """How long a message may wait yet; None: for ever."""
    life = _life_ms(properties)
    return None if life is None else delivery.born_timestamp_ms + life - time.time() * 1000


def _shorten(properties: dict[str, Any], delivery: BlockingDelivery) -> None:
    """A copy lives as long as the message that it is a copy of; K2."""
    left = _life_left_ms(properties, delivery)
    if left is not None:
        properties["expiration"] = str(max(0, math.ceil(left)))


def _keys_of(properties: dict[str, Any]) -> list[str]:
    """What a task is found by at the broker: its id, if that is fit for it."""
    key = str(properties.get("correlation_id") or "").replace(" ", "_")
    return [key] if key.isprintable() and 0 < len(key) <= ROUTING_KEY_CHARACTERS_MAX else []


class _Reader:
    """One queue that a channel reads: a member of its group."""

    def __init__(self, transport: Transport, queue: str) -> None:
        topic = topic_of(queue)
        self.cancelled = False
        self.out: set[str] = set()      # delivery tags
        self._arrived = transport.arrived
        self.consumer = Consumer(
            topic, topic, ack="manual", start="earliest", persist_interval=1.0,
            handler_timeout=transport.visibility_timeout, **transport.client_options)
        self.consumer.add_hook(self)
        self.consumer.start()

    def filter_messages(self, context: FilterHookContext) -> None:
        """A hook, in the client's thread: messages came, so whoever waits may look."""
        self._arrived.set()


class QoS(virtual.QoS):
    """What is delivered and not acked; K1."""

    def ack(self, delivery_tag: str) -> None:
        super().ack(delivery_tag)
        self.channel.settle(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        super().reject(delivery_tag, requeue)           # K2: the copy is sent first
        self.channel.settle(delivery_tag)


class Channel(virtual.Channel):
    """Reads and writes queues; K1, K2."""

    QoS = QoS
    do_restore = False                  # what is not acked comes again by itself
    supports_fanout = True              # to the queues that were bound here

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        self._readers: dict[str, _Reader] = {}
        self._deliveries: dict[str, tuple[_Reader, BlockingDelivery]] = {}
        self._unacked: set[str] = set()         # queues whose consumers ack nothing
        super().__init__(connection, **kwargs)

    # -- queues -----------------------------------------------------------------------------------

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return bool(self.connection.has_topic(topic_of(queue)))

    def _new_queue(self, queue: str, auto_delete: bool = False, **kwargs: Any) -> None:
        self.connection.make_topic(topic_of(queue))
        if auto_delete:
            self.connection.passing.add(queue)

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        transport = self.connection
        topic = topic_of(queue)
        if not transport.has_topic(topic):
            log.debug("a message for %s, which is not there, is dropped", queue)
            return
        level = delay_level(_seconds_left(message)) if transport.delays else 0
        transport.producer.send(
            topic, dumps(message), delay_level=level, keys=_keys_of(message["properties"]))

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str | None = None,
                    **kwargs: Any) -> None:
        for queue in self._lookup(exchange, routing_key):
            self._put(queue, message)

    def _queue_bind(self, *args: Any) -> None:
        """Bindings are in the transport's state, and nowhere else."""

    def _size(self, queue: str) -> int:
        return sum(ready for _, ready in self.connection.ready(topic_of(queue)))

    def _purge(self, queue: str) -> int:
        """What other members have pulled stays theirs."""
        transport, topic = self.connection, topic_of(queue)
        reader = self._readers.get(queue)
        count = 0
        if reader is not None:
            while found := reader.consumer.receive(PURGE_COUNT, timeout=PURGE_WAIT_S):
                for delivery in found:
                    delivery.ack()
                count += len(found)
            return count
        for place, ready in transport.ready(topic):
            if ready:
                transport.admin.set_offset(topic, place, transport.admin.max_offset(place))
                count += ready
        return count

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        self._forget(queue)
        self.connection.delete_topic(topic_of(queue))

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False,
                     **kwargs: Any) -> None:
        """Delete a queue, bound or not."""
        if if_empty and self._size(queue):
            return
        super().queue_delete(queue, **kwargs)
        self._delete(queue)

    # -- messages ---------------------------------------------------------------------------------

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """The next message; raises Empty when none is there within the option `wait_time`."""
        return self._take(queue, self.connection.wait_time if timeout is None else timeout)

    def _get_and_deliver(self, queue: str, callback: Any) -> None:
        callback(self._take(queue, 0.0), queue)

    def _take(self, queue: str, timeout: float) -> dict[str, Any]:
        reader = self._readers.get(queue)
        if reader is None:
            reader = self._readers[queue] = _Reader(self.connection, queue)
        while True:
            found = reader.consumer.receive(1, timeout=timeout)
            if not found:
                raise Empty
            (delivery,) = found
            try:
                message = message_in(delivery.body)
            except ValueError as error:         # a body that cannot be decompressed, too; K3
                log.warning("%s is none of kombu's, and goes to the dead letters: %s",
                            delivery, error)
                delivery.reject()
                continue
            properties = message["properties"]
            left_ms = _life_left_ms(properties, delivery)
            if (left_ms is not None and left_ms < 0) or self._is_early(queue, message, delivery):
                delivery.ack()
                continue
            info = properties["delivery_info"]
            info["exchange"] = info.get("exchange") or ""       # others than kombu leave them out
            info["routing_key"] = info.get("routing_key") or queue
            if queue in self._unacked:
                delivery.ack()
            tag = properties["delivery_tag"] = uuid()      # one message may be in several queues
            if queue not in self._unacked:
                reader.out.add(tag)
                self._deliveries[tag] = reader, delivery
            return message

    def _is_early(self, queue: str, message: dict[str, Any], delivery: BlockingDelivery) -> bool:
        """What is due later than in a moment goes back to the broker, for another delay."""
        if not self.connection.delays or _seconds_left(message) < LATE_S:
            return False
        properties = dict(message["properties"])
        _shorten(properties, delivery)
        try:
            self._put(queue, {**message, "properties": properties})
        except (ConfigError, RecursionError) as error:
            log.warning("%s cannot wait at the broker, but in a worker: %s", delivery, error)
            return False
        return True

    def settle(self, delivery_tag: str) -> None:
        """A message is done with: ack it."""
        reader, delivery = self._deliveries.pop(delivery_tag, (None, None))
        if reader is not None and delivery is not None:
            delivery.ack()
            reader.out.discard(delivery_tag)
            if reader.cancelled and not reader.out:
                reader.consumer.close()
        if self.connection is not None:
            self.connection.arrived.set()       # there may be room in the prefetch window

    def _restore(self, message: Any) -> None:
        _, delivery = self._deliveries.get(message.delivery_tag, (None, None))
        own = message.properties
        message.properties = dict(own)
        try:
            if delivery is not None:
                _shorten(message.properties, delivery)
            super()._restore(message)
        finally:
            message.properties = own            # who requeues it once more counts from the same
        self.settle(message.delivery_tag)

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Consume from a queue."""
        if no_ack:
            self._unacked.add(queue)
        else:
            self._unacked.discard(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Get one message, or None."""
        message = super().basic_get(queue, no_ack, **kwargs)
        if no_ack and message is not None:
            self.settle(message.delivery_tag)
        return message

    def basic_cancel(self, consumer_tag: str) -> Any:
        """Stop consuming: others get the queue, as soon as what was delivered is acked."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self._forget(queue)

    def _forget(self, queue: str) -> None:
        reader = self._readers.pop(queue, None)
        if reader is not None:
            reader.cancelled = True
            if reader.out:
                reader.consumer.suspend()
            else:
                reader.consumer.close()

    def close(self) -> None:
        """Leave all groups: what is not acked comes again at once, here or elsewhere."""
        readers = {*self._readers.values(), *(reader for reader, _ in self._deliveries.values())}
        self._readers.clear()
        self._deliveries.clear()
        super().close()
        for reader in readers:
            reader.consumer.close()


class Transport(virtual.Transport):
    """
    `rocketmq://[key:secret@]host:port`; options in `transport_options`:

    namesrv             several name servers, `host:port;host:port`, instead of the URL's
    queue_count         of a topic that is made: as many processes can share a queue (4)
    visibility_timeout  seconds that a message may be unacked, then it comes again (3600)
    wait_time           seconds in which a `get` that does not wait finds what is there (1.0)
    delays              tasks with an `eta` wait at the broker (True); off where the broker's delay
                        levels are others than RocketMQ's
    client              further options of the client's roles, a dict
    """

    Channel = Channel
    default_port = 9876
    driver_type = "rocketmq"
    driver_name = "mqcore"
    implements = virtual.Transport.implements.extend(
        exchange_type=frozenset(["direct", "topic"]))
    connection_errors = (*virtual.Transport.connection_errors, RemotingError, NoRouteError,
                         ClosedError, OSError)
    channel_errors = (*virtual.Transport.channel_errors, BrokerError)
    _process_state = virtual.BrokerState()

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        options = client.transport_options
        self.state = self._process_state
        self.arrived = threading.Event()        # something may be there, or may be taken
        self.passing: set[str] = set()          # queues that end with this connection
        self.queue_count = int(options.get("queue_count", 4))
        self.visibility_timeout = float(options.get("visibility_timeout", 3600.0))
        self.wait_time = float(options.get("wait_time", 1.0))
        self.delays = bool(options.get("delays", True))
        self.client_options = dict(options.get("client", {}))
        host, port = client.hostname or "localhost", client.port or self.default_port
        self.client_options["namesrv"] = options.get("namesrv", f"{host}:{port}")
        if client.userid:
            self.client_options["credentials"] = (client.userid, client.password or "")
        self._topics: set[str] = set()
        self._producer: Producer | None = None
        self._admin: Admin | None = None

    def driver_version(self) -> str:
        """Of mqcore."""
        return version("mqcore")

    @property
    def producer(self) -> Producer:
        assert self._producer is not None
        return self._producer

    @property
    def admin(self) -> Admin:
        assert self._admin is not None
        return self._admin

    def establish_connection(self) -> Any:
        """Connect; raises RocketMQError when the name server does not answer."""
        options = dict(self.client_options)
        admin = Admin(options.pop("namesrv"), **options)
        admin.start()
        try:
            admin.system_topics()
            self._producer = Producer("kombu", **self.client_options)
            self._producer.start()
        except RocketMQError:
            admin.close()
            raise
        self._admin = admin
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close all channels, delete the queues that were to end with this connection."""
        super().close_connection(connection)
        if self._admin is None or self._producer is None:
            return
        for queue in self.passing:
            self.state.queue_bindings_delete(queue)
            self.delete_topic(topic_of(queue))
        self.passing.clear()
        self._producer.close()
        self._admin.close()
        self._producer = self._admin = None

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message; raises TimeoutError when none came in `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self.arrived.clear()
            try:
                self.cycle.get(self._deliver, timeout=timeout)
            except Empty:
                left = WAIT_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError from None
                self.arrived.wait(min(left, WAIT_S))
            else:
                return

    # -- topics -----------------------------------------------------------------------------------

    def has_topic(self, topic: str) -> bool:
        """Whether there is such a topic; one that was seen is not asked for again."""
        if topic in self._topics:
            return True
        try:
            self.admin.topic_route(topic)
        except (BrokerError, NoRouteError):
            return False
        self._topics.add(topic)
        return True

    def make_topic(self, topic: str) -> None:
        """Make a topic unless there is one; raises RocketMQError."""
        if not self.has_topic(topic):
            self.admin.create_topic(topic, queues=self.queue_count)
            self._topics.add(topic)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its group."""
        self._topics.discard(topic)
        try:
            self.admin.delete_topic(topic)
            self.admin.delete_group(topic, remove_offsets=True)
        except RocketMQError as error:
            log.debug("%s is not deleted: %s", topic, error)

    def ready(self, topic: str) -> Iterator[tuple[MessageQueue, int]]:
        """How many messages of each place in a topic its group has not done yet."""
        if not self.has_topic(topic):
            return
        for one in self.admin.topic_stats(topic).queues:
            done = self.admin.committed(topic, one.queue)
            yield one.queue, max(0, one.max_offset - (one.min_offset if done is None else done))


TRANSPORT_ALIASES["rocketmq"] = f"{__name__}:Transport"
__all__ = ["Channel", "QoS", "Transport", "delay_level", "topic_of"]
