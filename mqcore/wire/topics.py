"""Topic configurations, routes and registration bodies: what brokers, name servers and clients
tell each other about topics (remoting.md 4.7, 5.4)."""
from __future__ import annotations

import struct
import zlib
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from msgspec import Struct

from mqcore.turns import finished
from mqcore.wire import fastjson
from mqcore.wire.numbers import whole_number

SINGLE_TAG = "SINGLE_TAG"
MULTI_TAG = "MULTI_TAG"
SYS_FLAG_UNIT = 0x1
SYS_FLAG_UNIT_SUB = 0x2

KIND_ATTRIBUTE = "message.type"         # of a topic's attributes
KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")     # any other value: every kind
MESSAGE_TYPES = (*KINDS, "MIXED")
_FILTER_TYPES = (SINGLE_TAG, MULTI_TAG)
_INFLATED_SIZE_MAX = 64 * 1024 * 1024
_PIECE_SIZE = 256 << 10                 # bytes of it, between two pauses
_PART_SIZE_MAX = 64 << 10               # bytes of a version or of one topic
_TOPIC_COUNT_MAX = 1_000_000
_TOPICS_A_TURN = 200                    # that are read between two pauses
_INT = struct.Struct(">i")


class BodyError(ValueError):
    """A body does not have the shape that its code asks for; the text names the field."""


@dataclass(slots=True, frozen=True)
class DataVersion:
    """The version of a table; two are equal when both fields are."""

    counter: int = 0
    timestamp: int = 0

    @property
    def text(self) -> str:
        """In one word, for a header."""
        return f"{self.counter}@{self.timestamp}"

    def as_json(self) -> dict[str, Any]:
        return {"counter": self.counter, "timestamp": self.timestamp}

    @classmethod
    def from_json(cls, value: Any, where: str = "dataVersion") -> DataVersion:
        """Read the JSON object; a missing one is version 0/0. Raises BodyError."""
        members = _members(value, where)
        return cls(
            _number(members.get("counter"), f"{where}.counter"),
            _number(members.get("timestamp"), f"{where}.timestamp"),
        )


class TopicConfig(Struct, frozen=True, gc=False):
    """
    One topic of a broker; there are many, and none is part of a circle.

    more: members that only newer brokers know, as JSON; its `attributes` are RocketMQ 5's.
    """

    name: str
    read_queue_count: int = 16
    write_queue_count: int = 16
    perm: int = 6
    filter_type: str = SINGLE_TAG
    sys_flag: int = 0
    order: bool = False
    more: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        """The kind of messages that it takes; "": it does not say, and takes all (grpc.md 2.9)."""
        attributes = (self.more or {}).get("attributes")
        kind = attributes.get(KIND_ATTRIBUTE) if isinstance(attributes, dict) else None
        return kind if isinstance(kind, str) and kind in KINDS else ""

    def as_json(self) -> dict[str, Any]:
        members = {
            "order": self.order, "perm": self.perm, "readQueueNums": self.read_queue_count,
            "topicFilterType": self.filter_type, "topicName": self.name,
            "topicSysFlag": self.sys_flag, "writeQueueNums": self.write_queue_count,
        }
        return dict(sorted((self.more | members).items())) if self.more else members

    @classmethod
    def from_json(cls, name: str, value: Any) -> TopicConfig:
        """Read one entry of a topic table; raises BodyError."""
        where = f"topicConfigTable.{name}"
        members = _members(value, where)
        return cls(
            name=name,
            read_queue_count=_number(members.get("readQueueNums"), f"{where}.readQueueNums", 16),
            write_queue_count=_number(members.get("writeQueueNums"), f"{where}.writeQueueNums", 16),
            perm=_number(members.get("perm"), f"{where}.perm", 6),
            filter_type=_filter_type(members.get("topicFilterType")),
            sys_flag=_number(members.get("topicSysFlag"), f"{where}.topicSysFlag"),
            order=members.get("order") in (True, "true"),
        )


def _filter_type(value: Any) -> str:
    if isinstance(value, int) and value in (0, 1):
        return _FILTER_TYPES[value]
    name = str(value).upper()
    return name if name in _FILTER_TYPES else SINGLE_TAG


def _members(value: Any, where: str) -> dict[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BodyError(f"{where}: expected an object")
    return value


def _number(value: Any, where: str, missing: int = 0) -> int:
    if value is None:
        return missing
    if isinstance(value, str):
        value = whole_number(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise BodyError(f"{where}: expected a number")
    return int(value)


# -- registration (103) ---------------------------------------------------------------------------


@dataclass(slots=True)
class TopicTable:
    """
    All topics of a broker, or one changed topic, with the table's version; left_out: how many more
    it had than a reader takes.
    """

    version: DataVersion = field(default_factory=DataVersion)
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    left_out: int = 0

    def as_json(self) -> dict[str, Any]:
        """TopicConfigSerializeWrapper."""
        return {
            "dataVersion": self.version.as_json(),
            "topicConfigTable": {name: topic.as_json() for name, topic in self.topics.items()},
        }

    @classmethod
    def from_json(
        cls, value: Any, topic_count_max: int = _TOPIC_COUNT_MAX
    ) -> Generator[None, None, TopicTable]:
        """Read TopicConfigSerializeWrapper up to so many topics, with pauses; raises BodyError."""
        members = _members(value, "topicConfigSerializeWrapper")
        table = _members(members.get("topicConfigTable"), "topicConfigTable")
        topics = {}
        for number, (name, item) in enumerate(islice(table.items(), topic_count_max), 1):
            topics[str(name)] = TopicConfig.from_json(str(name), item)
            if number % _TOPICS_A_TURN == 0:
                yield
        return cls(DataVersion.from_json(members.get("dataVersion")), topics,
                   len(table) - len(topics))


def encode_registration(table: TopicTable, *, compressed: bool = False) -> bytes:
    """The body of REGISTER_BROKER (remoting.md 4.7.1); the compressed form loses flags."""
    if not compressed:
        return fastjson.dumps(
            {"filterServerList": [], "topicConfigSerializeWrapper": table.as_json()}
        )
    parts = [_sized(fastjson.dumps(table.version.as_json())), _INT.pack(len(table.topics))]
    for topic in table.topics.values():
        text = (f"{topic.name} {topic.read_queue_count} {topic.write_queue_count} {topic.perm}"
                f" {topic.filter_type}")
        parts.append(_sized(text.encode()))
    parts.append(_sized(b"[]"))
    return zlib.compress(b"".join(parts), 9)


def _sized(text: bytes) -> bytes:
    return _INT.pack(len(text)) + text


def decode_registration(
    body: bytes, *, compressed: bool, bare: bool = False, topic_count_max: int = _TOPIC_COUNT_MAX,
) -> TopicTable:
    """Read the body of REGISTER_BROKER; `bare` is the form of senders before 3.0.11.

    No body is an empty table with version 0/0. Topics after the first `topic_count_max` are
    counted. Raises BodyError.
    """
    return finished(decode_registration_in_turns(
        body, compressed=compressed, bare=bare, topic_count_max=topic_count_max))


def decode_registration_in_turns(
    body: bytes, *, compressed: bool, bare: bool = False,
    topic_count_max: int = _TOPIC_COUNT_MAX,
) -> Generator[None, None, TopicTable]:
    """`decode_registration`, with pauses."""
    if not body:
        return TopicTable()
    if compressed:
        return (yield from _decode_compressed((yield from _inflated(body)), topic_count_max))
    try:
        document = yield from fastjson.loads_in_turns(body)
    except fastjson.JsonError as error:
        raise BodyError(f"registration body: {error}") from error
    try:
        table = yield from TopicTable.from_json(document if bare else _members(
            document, "registration body").get("topicConfigSerializeWrapper"), topic_count_max)
    except BodyError:
        yield from fastjson.dismantled(document)
        raise
    yield from fastjson.dismantled(document)
    return table


def _inflated(body: bytes) -> Generator[None, None, bytearray]:
    """A frame of 64 KiB may become 64 MiB: piece by piece, with pauses."""
    stream = zlib.decompressobj()
    plain, rest = bytearray(), body
    try:
        while not stream.eof and len(plain) <= _INFLATED_SIZE_MAX:
            piece = stream.decompress(rest[:_PIECE_SIZE], _PIECE_SIZE)
            rest = stream.unconsumed_tail + rest[_PIECE_SIZE:]
            plain += piece
            if not piece and not rest:
                break
            yield
    except zlib.error as error:
        raise BodyError(f"compressed registration body: {error}") from error
    if not stream.eof:
        raise BodyError(f"compressed registration body: cut off or over {_INFLATED_SIZE_MAX} bytes")
    return plain


class _Parts:
    """Walks the length-prefixed parts of a compressed registration."""

    def __init__(self, plain: bytearray) -> None:
        self._plain = plain
        self._position = 0

    def number(self) -> int:
        if self._position + _INT.size > len(self._plain):
            raise BodyError("compressed registration body: cut off")
        (value,) = _INT.unpack_from(self._plain, self._position)
        self._position += _INT.size
        return int(value)

    def text(self) -> str:
        length = self.number()
        end = self._position + length
        if length < 0 or end > len(self._plain):
            raise BodyError(f"compressed registration body: length {length} exceeds the body")
        if length > _PART_SIZE_MAX:
            raise BodyError(f"compressed registration body: length {length}: expected at most "
                            f"{_PART_SIZE_MAX}")
        piece = self._plain[self._position:end]
        self._position = end
        return piece.decode("utf-8", "replace")


def _decode_compressed(
    plain: bytearray, topic_count_max: int
) -> Generator[None, None, TopicTable]:
    parts = _Parts(plain)
    try:
        version = DataVersion.from_json(fastjson.loads(parts.text()))
    except fastjson.JsonError as error:
        raise BodyError(f"compressed registration body: dataVersion: {error}") from error
    count = parts.number()
    if count < 0:
        raise BodyError(f"compressed registration body: topic count {count}")
    topics = {}
    for number in range(min(count, topic_count_max)):
        if number % _TOPICS_A_TURN == 0:
            yield
        text = parts.text()
        tokens = text.split(" ")
        if len(tokens) != 5:
            raise BodyError(f"compressed registration body: topic {text[:64]!r}: expected 5 parts")
        name = tokens[0]
        topics[name] = TopicConfig(
            name=name, read_queue_count=_number(tokens[1], f"{name}.readQueueNums"),
            write_queue_count=_number(tokens[2], f"{name}.writeQueueNums"),
            perm=_number(tokens[3], f"{name}.perm"), filter_type=_filter_type(tokens[4]),
        )
    return TopicTable(version, topics, max(0, count - topic_count_max))


# -- routes (105) ---------------------------------------------------------------------------------


class QueueData(Struct, frozen=True, gc=False):
    """The queues of one topic on one broker; of these, too, a name server may have a million."""

    broker_name: str
    read_queue_count: int
    write_queue_count: int
    perm: int
    sys_flag: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "brokerName": self.broker_name, "perm": self.perm,
            "readQueueNums": self.read_queue_count, "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queue_count,
        }


@dataclass(slots=True, frozen=True)
class BrokerData:
    """The addresses of one broker name by broker id."""

    cluster: str
    broker_name: str
    addresses: dict[int, str]

    def as_json(self) -> dict[str, Any]:
        return {
            "brokerAddrs": dict(self.addresses), "brokerName": self.broker_name,
            "cluster": self.cluster,
        }


@dataclass(slots=True, frozen=True)
class TopicRoute:
    """Where a topic is (TopicRouteData)."""

    queues: tuple[QueueData, ...]
    brokers: tuple[BrokerData, ...]
    order_conf: str | None = None

    def encode(self, *, strict: bool, for_5: bool = False) -> bytes:
        """
        The body of the answer to 105, in one of its two styles (remoting.md 4.7.2). for_5: with the
        member of 5.x that clients of that version may demand; no slave acts as a master here.
        """
        return finished(self.encode_in_turns(strict=strict, for_5=for_5))

    def encode_in_turns(
        self, *, strict: bool, for_5: bool = False
    ) -> Generator[None, None, bytes]:
        """`encode`, with pauses: a topic may be on thousands of brokers."""
        brokers = self.brokers if not for_5 else [
            {**broker.as_json(), "enableActingMaster": False} for broker in self.brokers]
        return fastjson.dumps_in_turns({
            "brokerDatas": brokers, "filterServerTable": {},
            "orderTopicConf": self.order_conf, "queueDatas": self.queues,
        }, strict=strict)


def decode_route(body: bytes) -> TopicRoute:
    """Read TopicRouteData in either style; raises BodyError."""
    try:
        members = _members(fastjson.loads(body), "route")
    except fastjson.JsonError as error:
        raise BodyError(f"route: {error}") from error
    order_conf = members.get("orderTopicConf")
    return TopicRoute(
        tuple(_queue_data(item) for item in _items(members, "queueDatas")),
        tuple(decode_broker_data(item) for item in _items(members, "brokerDatas")),
        str(order_conf) if order_conf else None,
    )


def has_brokers(body: bytes) -> bool:
    """Whether ClusterInfo (the answer to 106) names a broker; raises BodyError."""
    try:
        members = _members(fastjson.loads(body), "cluster info")
    except fastjson.JsonError as error:
        raise BodyError(f"cluster info: {error}") from error
    return bool(members.get("brokerAddrTable"))


def _items(members: dict[Any, Any], name: str) -> list[Any]:
    value = members.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BodyError(f"{name}: expected an array")
    return value


def _queue_data(value: Any) -> QueueData:
    members = _members(value, "queueDatas")
    return QueueData(
        broker_name=str(members.get("brokerName", "")),
        read_queue_count=_number(members.get("readQueueNums"), "readQueueNums"),
        write_queue_count=_number(members.get("writeQueueNums"), "writeQueueNums"),
        perm=_number(members.get("perm"), "perm"),
        sys_flag=_number(members.get("topicSysFlag"), "topicSysFlag"),
    )


def decode_broker_data(value: Any) -> BrokerData:
    """Read one BrokerData object, with quoted or bare broker ids; raises BodyError."""
    members = _members(value, "brokerDatas")
    addresses = _members(members.get("brokerAddrs"), "brokerAddrs")
    return BrokerData(
        cluster=str(members.get("cluster", "")), broker_name=str(members.get("brokerName", "")),
        addresses={_number(key, "brokerAddrs"): str(item) for key, item in addresses.items()},
    )
