"""
Where reads begin and end: what users write, what checkpoints hold, and what it comes to.

The JSON is that of Apache's connector, topic by broker by queue:
`{"orders":{"broker-a":{"0":12}}}`.
In checkpoints it is `offsets` beside a version `v`, with sorted keys: Spark compares texts.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from mqcore.client.core.options import check_topic
from mqcore.client.errors import ConfigError
from mqcore.client.message import MessageQueue
from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.options import Options, exactly_one
from mqcore.spark.topics.catalog import Catalog, Offsets

VERSION = 1
EARLIEST, LATEST = -2, -1           # in place of an offset, as in Kafka's source
SOURCES = ("topic", "subscribe", "subscribePattern", "assign")

Nested = dict[str, dict[str, dict[str, int]]]


# -- JSON -----------------------------------------------------------------------------------------


def nested(offsets: Mapping[MessageQueue, int]) -> Nested:
    """topic -> broker -> queue id -> offset, keys sorted."""
    found: Nested = {}
    for queue in sorted(offsets):
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[
            str(queue.queue_id)] = offsets[queue]
    for topic, brokers in found.items():
        found[topic] = {name: dict(sorted(ids.items())) for name, ids in sorted(brokers.items())}
    return dict(sorted(found.items()))


def as_checkpoint(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """What a stream's offset is to Spark."""
    return {"offsets": nested(offsets), "v": VERSION}


def from_checkpoint(said: Mapping[str, Any]) -> Offsets:
    """The offsets of a checkpoint; raises SparkSourceError for one of a later version."""
    version = said.get("v")
    if version != VERSION:
        raise SparkSourceError(f"the checkpoint's offsets are of version {version!r}: this source"
                               f" reads version {VERSION}; use the version that wrote it")
    return _flat(said.get("offsets"), "checkpoint")


def parse_offsets(name: str, text: str) -> Offsets:
    """What a user wrote, or copied out of a checkpoint; raises OptionError."""
    try:
        said = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}: expected a word or JSON: {error}") from None
    if isinstance(said, dict) and isinstance(said.get("v"), int):
        said = said.get("offsets")
    return _flat(said, name)


def _flat(said: Any, name: str) -> Offsets:
    shape = f'{name}: expected {{"topic":{{"broker-a":{{"0":123}}}}}}'
    found: Offsets = {}
    for topic, brokers in _items(said, shape):
        for broker, ids in _items(brokers, shape):
            for queue_id, offset in _items(ids, shape):
                if (not queue_id.isascii() or not queue_id.isdigit() or isinstance(offset, bool)
                        or not isinstance(offset, int) or offset < EARLIEST):
                    raise OptionError(f"{shape}, not {queue_id!r}: {offset!r}")
                found[MessageQueue(topic, broker, int(queue_id))] = offset
    return found


def _items(said: Any, shape: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(said, dict):
        raise OptionError(shape)
    return said.items()


def _assigned(text: str) -> list[MessageQueue]:
    """`{"topic":{"broker-a":[0,1]}}`; raises OptionError."""
    shape = 'assign: expected {"topic":{"broker-a":[0,1]}}'
    try:
        said = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{shape}: {error}") from None
    found = []
    for topic, brokers in _items(said, shape):
        for broker, ids in _items(brokers, shape):
            if not isinstance(ids, list) or not all(
                    isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in ids):
                raise OptionError(shape)
            found += [MessageQueue(topic, broker, one) for one in ids]
    if not found:
        raise OptionError(f"{shape}, with at least one queue")
    return sorted(set(found))


# -- queues ---------------------------------------------------------------------------------------


class Subject:
    """Which queues are read: topics by name, by pattern, or queues."""

    def __init__(self, options: Options, source: str = "rocketmq") -> None:
        """Raises OptionError."""
        self.topics: list[str] = []
        self.pattern: re.Pattern[str] | None = None
        self.assigned: list[MessageQueue] = []
        kind = exactly_one(options, SOURCES, source)
        value = options[kind]
        try:
            if kind == "assign":
                self.assigned = _assigned(value)
                self.topics = sorted({queue.topic for queue in self.assigned})
            elif kind == "subscribePattern":
                self.pattern = re.compile(value)
            else:
                self.topics = [value] if kind == "topic" else value
            for topic in self.topics:
                check_topic(topic, kind)
        except (re.error, ConfigError) as error:
            raise OptionError(f"{kind} {value!r}: {error}") from None

    def __str__(self) -> str:
        return f"pattern {self.pattern.pattern}" if self.pattern else ", ".join(self.topics)

    def queues(self, catalog: Catalog) -> tuple[list[MessageQueue], list[str]]:
        """
        The queues there are, and the named topics that are not there.

        Raises OptionError for a queue that its topic has not; RocketMQError.
        """
        names = self.topics
        if self.pattern is not None:
            names = [name for name in catalog.topics() if self.pattern.fullmatch(name)]
        found: list[MessageQueue] = []
        away = []
        for topic in names:
            queues = catalog.queues(topic)
            if queues is None:
                if self.pattern is None:
                    away.append(topic)
                continue
            found += queues
        if self.assigned:
            known = set(found)
            for queue in self.assigned:
                if queue not in known and queue.topic not in away:
                    there = _names(one for one in found if one.topic == queue.topic)
                    raise OptionError(f"assign: {shown(queue)} is not there: there are {there}")
            found = [queue for queue in self.assigned if queue in known]
        return sorted(found), away

    def existing(self, catalog: Catalog) -> list[MessageQueue]:
        """The queues; raises SparkSourceError when a named topic is not there."""
        queues, away = self.queues(catalog)
        if away:
            raise SparkSourceError(
                f"topic {away[0]} has no route: no name server of nameServer knows it; check the"
                " name, or make the topic first")
        return queues


def shown(queue: MessageQueue) -> str:
    """As errors name a queue."""
    return f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"


def _names(queues: Iterable[MessageQueue]) -> str:
    by_broker: dict[str, list[int]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append(queue.queue_id)
    return "; ".join(f"{broker}: {min(ids)} to {max(ids)}"
                     for broker, ids in sorted(by_broker.items())) or "no queue to read"


# -- from options to offsets ----------------------------------------------------------------------


def begins(
    options: Options, catalog: Catalog, queues: list[MessageQueue], default: str
) -> Offsets:
    """
    Where a read begins, for each queue.

    A queue in which a group has committed nothing begins at its first message if the group has
    committed offsets of the topic's other queues: the queue was added since.

    default   earliest or latest: without an option, of queues that JSON does not name, and of
              topics in which a group has committed nothing
    Raises OptionError, RocketMQError.
    """
    if options.has("startingTimestamp"):
        wanted = dict.fromkeys(queues, options["startingTimestamp"])
        return _at_times(options, catalog, wanted, "startingTimestamp")
    if options.has("startingOffsetsByTimestamp"):
        name = "startingOffsetsByTimestamp"
        said = parse_offsets(name, options[name])
        _check_named(name, said, queues)
        found = _by_word(catalog, [one for one in queues if one not in said], default)
        return found | _at_times(options, catalog, said, name)
    text = options["startingOffsets"] or default
    if text.lower() == "group":
        if not options.has("group"):
            raise OptionError("startingOffsets group: expected the option group, too")
        committed = catalog.committed(options["group"], queues)
        known = {queue.topic for queue in committed}
        rest = [queue for queue in queues if queue not in committed]
        added = [queue for queue in rest if queue.topic in known]
        new = [queue for queue in rest if queue.topic not in known]
        return (committed | _by_word(catalog, added, "earliest")
                | _by_word(catalog, new, default))
    if text.lower() in ("earliest", "latest"):
        return _by_word(catalog, queues, text.lower())
    return _by_json("startingOffsets", text, catalog, queues, default)


def ends(options: Options, catalog: Catalog, queues: list[MessageQueue]) -> Offsets:
    """Where a batch ends: the first offset of each queue that is not read. Raises likewise."""
    if options.has("endingTimestamp"):
        return catalog.at_times(dict.fromkeys(queues, options["endingTimestamp"]))
    if options.has("endingOffsetsByTimestamp"):
        name = "endingOffsetsByTimestamp"
        said = parse_offsets(name, options[name])
        _check_named(name, said, queues)
        rest = _by_word(catalog, [one for one in queues if one not in said], "latest")
        return rest | catalog.at_times(said)
    text = options["endingOffsets"]
    if text.lower() == "latest":
        return catalog.ends(queues)
    found = _by_json("endingOffsets", text, catalog, queues, "latest")
    for queue, end in catalog.ends(queues).items():
        if found[queue] > end:
            raise OptionError(f"endingOffsets: {shown(queue)} ends at {end}, before {found[queue]}")
    return found


def _by_word(catalog: Catalog, queues: list[MessageQueue], word: str) -> Offsets:
    if not queues:
        return {}
    return catalog.begins(queues) if word == "earliest" else catalog.ends(queues)


def _by_json(
    name: str, text: str, catalog: Catalog, queues: list[MessageQueue], default: str
) -> Offsets:
    said = parse_offsets(name, text)
    _check_named(name, said, queues)
    found = {queue: offset for queue, offset in said.items() if offset >= 0}
    for word, mark in (("earliest", EARLIEST), ("latest", LATEST)):
        found |= _by_word(catalog, [one for one, offset in said.items() if offset == mark], word)
    return found | _by_word(catalog, [one for one in queues if one not in said], default)


def _check_named(name: str, said: Offsets, queues: list[MessageQueue]) -> None:
    known = set(queues)
    for queue in said:
        if queue not in known:
            raise OptionError(f"{name}: {shown(queue)} is none that is read: there are"
                              f" {_names(one for one in queues if one.topic == queue.topic)}")


def _at_times(options: Options, catalog: Catalog, wanted: Offsets, name: str) -> Offsets:
    found = catalog.at_times(wanted)
    if options["startingOffsetsByTimestampStrategy"] == "error":
        late = catalog.ends(list(wanted))
        for queue, offset in found.items():
            if offset >= late[queue]:
                raise OptionError(
                    f"{name}: {shown(queue)} has nothing that was stored at {wanted[queue]} or"
                    " later; with startingOffsetsByTimestampStrategy=latest it begins at its end")
    return found
