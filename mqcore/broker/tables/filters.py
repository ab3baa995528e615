"""
The SQL92 filters of consumer groups: registered by heartbeats, kept over restarts.

broker.md 7.7, store.md 12.6 (RocketMQ 4.9.8: ConsumerFilterManager). A group that goes away leaves
its filters behind as dead ones, and its next heartbeat revives them; the serving processes have
copies of all of them. Persisted as config/consumerFilter.json.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from mqcore.broker.request import ROWS_A_TURN
from mqcore.broker.settings.model import BrokerSettings
from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_table import fits
from mqcore.broker.tables.groups import GROUP_LENGTH_MAX
from mqcore.filter.bloom import BloomFilter
from mqcore.filter.sql92_filter import Filter
from mqcore.layout import TOPIC_LENGTH_MAX
from mqcore.wire.fastjson import quote
from mqcore.wire.tags import EXPRESSION_SQL92, EXPRESSION_TAG, Subscription

_MEMBER = "filterDataByTopic"
ENTRIES_A_STEP = 16                # that are written to the file between two pauses
DEAD_AT_LOAD_MS = 30_000           # a filter that was alive in the file died this long ago
_log = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class FilterData:
    """What one group filters one topic by."""

    group: str
    topic: str
    expression: str
    version_ms: int                    # subVersion of the newest subscription that asked for it
    born_ms: int                       # since when this expression is registered
    positions: tuple[int, ...]         # its bits in the bit maps of queue extension units
    bit_count: int                     # of such a map
    program: bytes
    dead_ms: int = 0                   # when its group went away; 0: it is there
    expression_type: str = EXPRESSION_SQL92

    @property
    def dead(self) -> bool:
        return self.dead_ms >= self.born_ms

    def as_json(self) -> dict[str, Any]:
        return {
            "bloomFilterData": {"bitNum": self.bit_count, "bitPos": list(self.positions)},
            "bornTime": self.born_ms,
            "clientVersion": self.version_ms,
            "consumerGroup": self.group,
            "dead": self.dead,
            "deadTime": self.dead_ms,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }


class Shown(Protocol):
    """The copies in shared memory (mqcore.broker.ports.Tables)."""

    def publish_filter(self, data: FilterData, now_ms: int) -> None: ...
    def remove_filter(self, group: str, topic: str) -> None: ...
    def filters(self) -> list[tuple[str, str]]: ...


def compiled(expression: str, expression_type: str) -> Filter:
    """The filter of an expression. Raises ValueError (SqlError) when there is none."""
    if expression_type != EXPRESSION_SQL92:
        raise ValueError(f"expression type {expression_type!r:.40}: expected TAG or SQL92")
    return Filter.compile(expression)


def _topics_text(
    topics: dict[str, list[FilterData]], unknown: dict[tuple[str, str], dict[str, Any]],
    pieces: list[bytes],
) -> Iterator[None]:
    """The table of the file, as config_file.pretty has it, with pauses."""
    separator, number = "{", 0
    for topic, filters in topics.items():
        pieces.append(f'{separator}\n\t\t{quote(topic)}:{{\n\t\t\t"groupFilterData":'.encode())
        separator = "{"
        for data in filters:
            members = config_file.merged(data.as_json(), unknown.get((data.group, topic), {}))
            pieces.append(f"{separator}\n\t\t\t\t{quote(data.group)}:"
                          f"{config_file.pretty(members, 4)}".encode())
            separator = ","
            number += 1
            if number % ENTRIES_A_STEP == 0:
                yield
        pieces.append(f'\n\t\t\t}},\n\t\t\t"topic":{quote(topic)}\n\t\t}}'.encode())
    pieces.append(b"\n\t}" if topics else b"{}")


class FilterTable:
    """All filters by group and topic. `gone` may be called any time, `mark_gone` does the work."""

    def __init__(self, settings: BrokerSettings, path: Path, shown: Shown) -> None:
        self._path = path
        self._shown = shown
        self._clean_ms = settings.filter_clean_ms
        self._client_expiry_ms = settings.client_expiry_ms
        self._strangers_until_ms: int | None = None
        self._bloom = BloomFilter.for_rate(
            settings.filter_error_percent, settings.filter_expected_count
        )
        self._groups: dict[str, dict[str, FilterData]] = {}
        self._gone: set[str] = set()
        self._unknown: dict[str, Any] = {}                       # members of the file ...
        self._unknown_of: dict[tuple[str, str], dict[str, Any]] = {}     # ... and of its entries
        self.dirty = False

    def reconfigure(self, settings: BrokerSettings) -> None:
        """Another time that dead filters are kept."""
        self._clean_ms = settings.filter_clean_ms
        self._client_expiry_ms = settings.client_expiry_ms

    def load(self, now_ms: int, passed: Callable[[int], int] | None = None) -> None:
        """
        Read the file; every filter is dead until its group comes back. passed: how many ms ago a
        time in the file was, None: as `now_ms` has it. Raises TablesFull.
        """
        self._groups = {}
        self._strangers_until_ms = now_ms + self._client_expiry_ms
        stored = config_file.load(self._path) or {}
        self._unknown = config_file.unknown_members(self._path, stored, (_MEMBER,))
        topics = config_file.entries(self._path, stored.get(_MEMBER), lambda _, value: value)
        found: list[FilterData] = []
        for topic, value in topics.items():
            table = value.get("groupFilterData") if isinstance(value, dict) else None
            for data in config_file.entries(self._path, table, self._read).values():
                if data is None:
                    _log.warning("%s: its bit maps have another size: ignored", self._path)
                    return
                found.append(replace(data, topic=topic))
                unknown = config_file.unknown_members(
                    self._path, (table or {}).get(data.group), data.as_json())
                if unknown:
                    self._unknown_of[data.group, topic] = unknown
        for data in found:
            if passed is not None and data.dead:
                dead_ms = max(now_ms - passed(data.dead_ms), data.born_ms)
                data = replace(data, dead_ms=dead_ms)
            self._take_stored(data, now_ms)

    def persist(self) -> None:
        """Write config/consumerFilter.json. Raises OSError."""
        for _ in self.begin():
            continue

    def begin(self) -> Iterator[None]:
        """
        The steps that write the file, as the table is now: an iterator to be run to its end, by any
        thread, before the next. It raises OSError; then the table is `dirty` as before.
        """
        self.dirty = False
        return self._steps([*self.all()], dict(self._unknown_of))

    def _steps(
        self, filters: list[FilterData], unknown: dict[tuple[str, str], dict[str, Any]]
    ) -> Iterator[None]:
        try:
            members = {name: config_file.pretty(value, 1) for name, value in self._unknown.items()
                       if value is not None}
            topics: dict[str, list[FilterData]] = {}
            for data in filters:
                topics.setdefault(data.topic, []).append(data)
            pieces = [b"{"]
            for name in sorted({*members, _MEMBER}):
                pieces.append(f"{'' if len(pieces) == 1 else ','}\n\t{quote(name)}:".encode())
                if name == _MEMBER:
                    yield from _topics_text(topics, unknown, pieces)
                else:
                    pieces.append(members[name].encode())
            pieces.append(b"\n}")
            config_file.save_bytes(self._path, pieces)
        except OSError:
            self.dirty = True
            raise

    def get(self, group: str, topic: str) -> FilterData | None:
        """A group's filter of a topic, dead or not; None: it has none, or a bad expression."""
        return self._groups.get(group, {}).get(topic)

    def all(self) -> Iterator[FilterData]:
        for topics in self._groups.values():
            yield from topics.values()

    def register(
        self, group: str, subscriptions: Iterable[Subscription], now_ms: int
    ) -> Generator[None, None, None]:
        """
        A heartbeat of the group named these subscriptions, all that it has; with pauses. Raises
        TablesFull.

        A newer version with another expression replaces the filter, or removes it when it does
        not compile; the same version revives a dead one; an older one changes nothing.
        """
        ended = dict(self._groups.get(group, {})) if group in self._gone else {}
        self._gone.discard(group)
        wanted = {one.topic: one for one in subscriptions}
        for number, (topic, one) in enumerate(wanted.items(), 1):
            if number % ROWS_A_TURN == 0:
                yield
            if topic in ended and self.get(group, topic) is ended[topic]:
                self._end(ended[topic], now_ms)
            if one.expression_type != EXPRESSION_TAG and one.expression:
                self._register(group, topic, one, now_ms)
                yield
        for topic in [topic for topic in self._groups.get(group, {}) if topic not in wanted]:
            known = self.get(group, topic)
            if known is not None:
                self._end(known, now_ms)
                yield

    def gone(self, group: str) -> None:
        """The last member of the group has left."""
        if group in self._groups:
            self._gone.add(group)

    def mark_gone(self, now_ms: int) -> Generator[None, None, None]:
        """Mark the filters of groups that have gone as dead; with pauses."""
        for group in list(self._gone):
            for known in list(self._groups.get(group, {}).values()):
                if group not in self._gone:
                    break                  # it has come back
                self._end(known, now_ms)
                yield
            self._gone.discard(group)

    def _end(self, known: FilterData, now_ms: int) -> None:
        if not known.dead:
            self._put(replace(known, dead_ms=now_ms), now_ms)

    def clean(self, now_ms: int) -> Generator[None, None, None]:
        """
        Forget the filters that have been dead for long (broker.filter_clean_ms), and once those
        that a killed coordinator left in shared memory and whose groups did not come back. With
        pauses.
        """
        yield from self.mark_gone(now_ms)
        if self._strangers_until_ms is not None and now_ms >= self._strangers_until_ms:
            self._strangers_until_ms = None
            for group, topic in self._shown.filters():
                if self.get(group, topic) is None:
                    self._shown.remove_filter(group, topic)
        for known in [*self.all()]:
            if (known.dead and now_ms - known.dead_ms >= self._clean_ms
                    and self.get(known.group, known.topic) is known):
                self._remove(known)
                yield

    def _register(self, group: str, topic: str, wanted: Subscription, now_ms: int) -> None:
        known = self.get(group, topic)
        if known is None:
            self._build(group, topic, wanted, now_ms)
        elif wanted.version_ms > known.version_ms:
            if (wanted.expression, wanted.expression_type) != (
                known.expression, known.expression_type
            ):
                if not self._build(group, topic, wanted, now_ms):
                    self._remove(known)
            else:
                self._put(replace(known, version_ms=wanted.version_ms, dead_ms=0), now_ms)
        elif wanted.version_ms == known.version_ms and known.dead:
            self._put(replace(known, dead_ms=0), now_ms)

    def _build(self, group: str, topic: str, wanted: Subscription, now_ms: int) -> bool:
        if not (fits(group, GROUP_LENGTH_MAX) and fits(topic, TOPIC_LENGTH_MAX)):
            return False
        try:
            program = compiled(wanted.expression, wanted.expression_type).program
        except ValueError as error:
            _log.warning("group %s, topic %s: %s", group, topic, error)
            return False
        self._put(FilterData(
            group, topic, wanted.expression, wanted.version_ms, now_ms,
            self._bloom.subscription_positions(group, topic), self._bloom.bit_count, program,
        ), now_ms)
        return True

    def _put(self, data: FilterData, now_ms: int) -> None:
        self._shown.publish_filter(data, now_ms)
        self._groups.setdefault(data.group, {})[data.topic] = data
        self.dirty = True

    def _remove(self, data: FilterData) -> None:
        self._shown.remove_filter(data.group, data.topic)
        self._unknown_of.pop((data.group, data.topic), None)
        del self._groups[data.group][data.topic]
        if not self._groups[data.group]:
            del self._groups[data.group]
        self.dirty = True

    def _read(self, group: str, value: dict[str, Any]) -> FilterData | None:
        """One entry of the file, without its program; None: made for another size of bit maps."""
        bits = value.get("bloomFilterData") or {}
        positions = tuple(int(one) for one in bits.get("bitPos") or ())
        if (int(bits.get("bitNum", 0)) != self._bloom.bit_count
                or len(positions) != self._bloom.hash_count):
            return None
        times = (int(value["clientVersion"]), int(value["bornTime"]), int(value.get("deadTime", 0)))
        if not all(-(1 << 63) <= time < 1 << 63 for time in times):
            raise ValueError("clientVersion, bornTime and deadTime: expected 64-bit numbers")
        return FilterData(
            group, str(value["topic"]), str(value["expression"]), times[0], times[1], positions,
            self._bloom.bit_count, b"", times[2], str(value["expressionType"]),
        )

    def _take_stored(self, data: FilterData, now_ms: int) -> None:
        if not data.dead:
            data = replace(data, dead_ms=max(now_ms - DEAD_AT_LOAD_MS, data.born_ms))
        if not (fits(data.group, GROUP_LENGTH_MAX) and fits(data.topic, TOPIC_LENGTH_MAX)):
            return
        try:
            program = compiled(data.expression, data.expression_type).program
        except ValueError as error:
            _log.warning("%s: group %s, topic %s: %s", self._path, data.group, data.topic, error)
            return
        self._put(replace(data, program=program), now_ms)
