"""
How far each consumer group has come: commits and the query rule.

broker.md 7.4, store.md 12.4 (RocketMQ 4.9.8: ConsumerOffsetManager, ConsumerManageProcessor).
offset_files.py keeps the table on disk.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqcore.broker.tables.groups import SYSTEM_GROUP_PREFIX
from mqcore.broker.tables.offset_files import MEMBER, OffsetFiles, Sections, only, queues_text
from mqcore.broker.tables.shares import Shares
from mqcore.wire import fastjson
from mqcore.wire.codes import QUEUE_COUNT_MAX

if TYPE_CHECKING:
    from mqcore.broker.ports import StoreReader

BYTES_MAX = 512 << 20              # broker.consumer_offsets_bytes_max, its default
PAIR_BYTES = 400                   # memory of a topic and group without their names, about
OFFSET_BYTES = 64                  # memory of one more offset, about
FULL = ("the broker has no room for more consumer offsets of yours: expected at most %d bytes of"
        " them in all (setting broker.consumer_offsets_bytes_max), and half of the free ones from"
        " one address")
_SEPARATOR = "@"
LIGHT_PREFIX = "%LMQ%"


def is_light(name: str) -> bool:
    """Whether a topic or group is a light one by its name."""
    return name.startswith(LIGHT_PREFIX) and len(name) > len(LIGHT_PREFIX)


class OffsetTable:
    """
    Topic, group -> queue id -> next offset to consume. The last writer wins.

    Commits name any topic and group they like, as in stock, so the table has a limit in bytes of
    memory, and each address a share of what is left (shares.py).
    """

    has_light = False                  # light groups are groups like others

    def __init__(self, path: Path, bytes_max: int = BYTES_MAX, sibling: Path | None = None) -> None:
        """sibling: the file of a broker with the other value of store.light_queues_enable."""
        self._bytes_max = bytes_max
        self._sibling = sibling
        self._topics: dict[str, dict[str, dict[int, int]]] = {}
        # group -> its topics. Small tables of text and numbers are nothing for Python's collector;
        # a million sets would cost a tenth of a second whenever it looks.
        self._groups: dict[str, dict[str, None]] = {}
        self._used = 0                                   # bytes of memory, about
        self._changed: set[tuple[str, str]] = set()      # since they were handed to the files
        self._changes = 0                                # all that there were
        self._name = os.urandom(4).hex()                 # of this table, and no later one
        self._shares = Shares()
        self._only: frozenset[tuple[str, str]] | None = None         # of load_only
        self.files = OffsetFiles(path, self)

    # -- on disk ------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the file and what was written behind it. Raises ConfigFileError."""
        found = self.files.load()
        if self._sibling is not None and self._sibling_is_newer():
            other = OffsetTable(self._sibling)
            other.load()
            self._follow(other, found)
            self.files.behind = True             # and the newer one from the next time on

    def load_only(self, pairs: Collection[tuple[str, str]]) -> None:
        """
        As `load`, but for these (topic, group) pairs alone: the table is to be looked at, not to be
        written. Raises ConfigFileError.
        """
        self._only = frozenset(pairs)
        found = self.files.load(only([f"{topic}{_SEPARATOR}{group}" for topic, group in pairs]))
        if self._sibling is not None and self._sibling_is_newer():
            other = OffsetTable(self._sibling)
            other.load_only(pairs)
            self._follow(other, found)

    def _sibling_is_newer(self) -> bool:
        """Whether the last run had the other setting: it wrote that file later than this one."""
        assert self._sibling is not None
        return OffsetFiles(self._sibling, self).written_ns() > self.files.written_ns()

    def _follow(self, other: OffsetTable, found: bool) -> None:
        """
        The offsets of plain groups are the other file's: all of them, for what it has no more was
        removed. found: our own file is there, and says what there is to say of light groups.
        """
        for topic, group in [(topic, group) for topic, groups in self._topics.items()
                             for group in groups if not is_light(group)]:
            self._remove(topic, group)
        for topic, groups in other._topics.items():
            for group, queues in groups.items():
                if not is_light(group) or (self.has_light and not found):
                    self._enter(topic, group, queues)

    def persist(self) -> None:
        """Write config/consumerOffset.json, now and whole. Raises OSError."""
        self.files.save()

    @property
    def version(self) -> str:
        """Another text after every change, for slaves of ours."""
        return f"{self._name}-{self._changes}"

    @property
    def dirty(self) -> bool:
        """Whether the files are older than the table."""
        return bool(self._changed) or self.files.behind

    def unsaved(self) -> int:
        """
        How many (topic, group) pairs of consumers are in no file as they are now. What the broker's
        own groups say is found again in their queues: losing it costs time, and no message.
        """
        return sum(not group.startswith(SYSTEM_GROUP_PREFIX) for _, group in self._changed)

    def take_changed(self) -> set[tuple[str, str]]:
        """The (topic, group) pairs that changed since this was asked before."""
        changed, self._changed = self._changed, set()
        return changed

    def give_back(self, changed: set[tuple[str, str]]) -> None:
        """They could not be written: they are to be taken again."""
        self._changed |= changed

    def enter(self, table: dict[str, dict[int, int]]) -> None:
        """From a file: pairs as `topic@group`, none of which is there yet."""
        for key, queues in table.items():
            topic, _, group = key.partition(_SEPARATOR)
            self._enter(topic, group, queues)

    def put(self, key: str, queues: dict[int, int] | None) -> None:
        """From a file: a pair as `topic@group`, and all its offsets; None: it was removed."""
        topic, _, group = key.partition(_SEPARATOR)
        if self._only is not None and (topic, group) not in self._only:
            return
        self._remove(topic, group)
        if queues:
            self._enter(topic, group, queues)

    def sections(self) -> Sections:
        """The members of the file's object, each with the texts of its entries."""
        return {MEMBER: self.texts(lambda _: True)}

    def texts(self, chosen: Callable[[str], bool]) -> Iterator[str]:
        """
        The entries of the groups that are `chosen`, as text. The table may change meanwhile: what
        is new may be missing, and what was removed may be among them.
        """
        for topic in list(self._topics):
            groups = self._topics.get(topic, {})
            head = fastjson.quote(f"{topic}{_SEPARATOR}")[:-1]
            for group in list(groups):
                queues = groups.get(group)
                if queues and chosen(group):
                    yield f"{head}{fastjson.quote(group)[1:]}:{queues_text(queues)}"

    def text(self, topic: str, group: str) -> str | None:
        """One entry as text; None: there is none."""
        queues = self._topics.get(topic, {}).get(group)
        if not queues:
            return None
        return f"{fastjson.quote(f'{topic}{_SEPARATOR}{group}')}:{queues_text(queues)}"

    def as_json(self) -> dict[str, Any]:
        """ConsumerOffsetSerializeWrapper (remoting.md 5.4)."""
        return {MEMBER: {
            f"{topic}{_SEPARATOR}{group}": queues
            for topic, groups in self._topics.items() for group, queues in groups.items()
        }}

    # -- commits and questions ----------------------------------------------------------------

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, source: str = ""
    ) -> bool:
        """
        Keep an offset, smaller ones too; nothing about it is validated (broker.md 7.4).

        source: the address that it comes from. False when the table has no room for another pair
        or queue of it; `full` says why.
        """
        groups = self._topics.get(topic)
        queues = groups.get(group) if groups is not None else None
        if queues is None or queue_id not in queues:
            return self._grow(group, topic, queue_id, offset, source)
        if queues[queue_id] != offset:
            queues[queue_id] = offset
            self._note(topic, group)
        return True

    @property
    def full(self) -> str:
        """The remark for a commit that was refused."""
        return FULL % self._bytes_max

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The stored offset; None when there is none."""
        topic, group = _normal(topic, group)
        return self._topics.get(topic, {}).get(group, {}).get(queue_id)

    def query(self, group: str, topic: str, queue_id: int, store: StoreReader) -> int | None:
        """
        The offset to start at: the stored one, or 0 on a young queue; None lets the client decide.

        Young: the queue still begins at 0 and its first message is in memory (or there is none).
        """
        found = self.committed(group, topic, queue_id)
        if found is not None and found >= 0:
            return found
        bounds = store.queue_range(topic, queue_id)
        if bounds is not None and bounds[0] > 0:
            return None
        first = store.entry(topic, queue_id, 0)
        return 0 if first is None or store.in_memory(first.position) else None

    def groups(self) -> list[str]:
        """All groups that have offsets now; there may be very many."""
        return list(self._groups)

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have offsets of a topic, as they are now; there may be very many."""
        return list(self._topics.get(topic, ()))

    def has(self, group: str, topic: str) -> bool:
        """Whether a group has offsets of a topic."""
        topic, group = _normal(topic, group)
        return group in self._topics.get(topic, ())

    def topics_of(self, group: str) -> list[str]:
        """The topics that a group has offsets of, as they are now; there may be very many."""
        return list(self._groups.get(group, ()))

    def of_queues(self, group: str, topic: str) -> dict[int, int]:
        """Queue id -> offset of one group and topic."""
        topic, group = _normal(topic, group)
        return dict(self._topics.get(topic, {}).get(group, {}))

    # -- changes of more than one -------------------------------------------------------------

    def remove_group(self, group: str, most: int | None = None) -> bool:
        """Forget a group's offsets, of `most` topics now; whether all are gone."""
        for topic in list(islice(self._groups.get(group, ()), most)):
            self.remove_pair(topic, group)
        return group not in self._groups

    def remove_pair(self, topic: str, group: str) -> None:
        """Forget a group's offsets of a topic."""
        self._remove(topic, group)
        self._note(topic, group)

    def remove_topic(self, topic: str, most: int | None = None) -> bool:
        """Forget a topic's offsets, of `most` groups now; whether all are gone."""
        for group in list(islice(self._topics.get(topic, ()), most)):
            self.remove_pair(topic, group)
        return topic not in self._topics

    def topics(self) -> list[str]:
        """All topics that have offsets now; there may be very many."""
        return list(self._topics)

    def clone(self, source: str, target: str, topic: str, address: str = "") -> bool:
        """
        Give one group another's offsets of a topic, in place of its own; without any, nothing.

        address: of the peer that asks. False when the table has no room for another pair.
        """
        topic, source = _normal(topic, source)
        queues = self.of_queues(source, topic)
        if not queues or source == target:
            return True
        cost = _pair_bytes(topic, target) + OFFSET_BYTES * len(queues)
        if target not in self._topics[topic]:
            if not self._has_room(address, cost):
                return False
            self._shares.took(address, cost)
        self._remove(topic, target)
        self._enter(topic, target, queues)
        self._note(topic, target)
        return True

    def cut(self, ends: Iterable[tuple[str, int, int]]) -> int:
        """
        Take back what lies beyond the data; returns how many offsets that were.

        ends: (topic, queue id, next offset) of queues. A power cut may take the log's end and leave
        the newer offset file: its group would skip as many messages of those that come next.
        """
        count = 0
        for topic, queue_id, end in ends:
            for group, queues in self._topics.get(topic, {}).items():
                if queues.get(queue_id, 0) > end:
                    queues[queue_id] = end
                    self._note(topic, group)
                    count += 1
        return count

    # -- one pair -----------------------------------------------------------------------------

    def _note(self, topic: str, group: str) -> None:
        """A pair has changed."""
        self._changed.add((topic, group))
        self._changes += 1

    def _grow(self, group: str, topic: str, queue_id: int, offset: int, source: str) -> bool:
        """A pair or a queue that is new, or a name with an @ that stands for a known one."""
        if _SEPARATOR in topic:
            topic, group = _normal(topic, group)
            if queue_id in self._topics.get(topic, {}).get(group, ()):
                return self.commit(group, topic, queue_id, offset, source)
        queues = self._topics.get(topic, {}).get(group)
        if queues is not None and len(queues) >= QUEUE_COUNT_MAX:
            return False
        cost = OFFSET_BYTES + (_pair_bytes(topic, group) if queues is None else 0)
        if not self._has_room(source, cost):
            return False
        self._shares.took(source, cost)
        if queues is None:
            self._enter(topic, group, {queue_id: offset})
        else:
            queues[queue_id] = offset
            self._used += OFFSET_BYTES
        self._note(topic, group)
        return True

    def _has_room(self, source: str, cost: int) -> bool:
        return self._shares.may_take(source, cost, self._bytes_max - self._used)

    def _enter(self, topic: str, group: str, queues: dict[int, int]) -> None:
        groups = self._topics.get(topic)
        if groups is None:
            groups = self._topics[topic] = {}
        groups[group] = queues
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = {}
        topics[topic] = None
        self._used += _pair_bytes(topic, group) + OFFSET_BYTES * len(queues)

    def _remove(self, topic: str, group: str) -> None:
        groups = self._topics.get(topic, {})
        queues = groups.pop(group, None)
        if queues is None:
            return
        self._used -= _pair_bytes(topic, group) + OFFSET_BYTES * len(queues)
        del self._groups[group][topic]
        if not self._groups[group]:
            del self._groups[group]
        if not groups:
            del self._topics[topic]


def _normal(topic: str, group: str) -> tuple[str, str]:
    """Topic and group as the file tells them apart: no topic has an @, groups may."""
    if _SEPARATOR in topic:
        topic, _, rest = topic.partition(_SEPARATOR)
        return topic, f"{rest}{_SEPARATOR}{group}"
    return topic, group


def _pair_bytes(topic: str, group: str) -> int:
    """What a pair counts; more than its text in the file needs, whatever has to be escaped."""
    name = topic + group
    return PAIR_BYTES + (2 if name.isascii() and name.isprintable() else 6) * len(name)
