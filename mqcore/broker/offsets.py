"""
How far each consumer group has come: commits, the query rule, config/consumerOffset.json.

broker.md 7.4, store.md 12.4 (RocketMQ 4.9.8: ConsumerOffsetManager, ConsumerManageProcessor).
"""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqcore.broker import config_file

if TYPE_CHECKING:
    from mqcore.broker.ports import StoreReader

KEY_COUNT_MAX = 1_000_000          # topic@group pairs: commits name any topic and group they like
QUEUE_COUNT_MAX = 65_536           # queues of one pair
_SEPARATOR = "@"


class OffsetTable:
    """`topic@group` -> queue id -> next offset to consume. The last writer wins."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[str, dict[int, int]] = {}
        self.dirty = False

    def load(self) -> None:
        """Read the file; queue ids may be bare or quoted."""
        stored = config_file.load(self._path) or {}
        self._offsets = config_file.entries(
            self._path, stored.get("offsetTable"),
            lambda _, queues: {int(queue): int(offset) for queue, offset in queues.items()},
        )

    def persist(self) -> None:
        """Write config/consumerOffset.json. Raises OSError."""
        config_file.save(self._path, self.as_json())
        self.dirty = False

    def as_json(self) -> dict[str, Any]:
        """ConsumerOffsetSerializeWrapper (remoting.md 5.4)."""
        return {"offsetTable": self._offsets}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """
        Keep an offset, smaller ones too; nothing about it is validated (7.4).

        False when the table has no room for another pair or queue.
        """
        key = f"{topic}{_SEPARATOR}{group}"
        queues = self._offsets.get(key)
        if queues is None:
            if len(self._offsets) >= KEY_COUNT_MAX:
                return False
            queues = self._offsets[key] = {}
        elif queue_id not in queues and len(queues) >= QUEUE_COUNT_MAX:
            return False
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.dirty = True
        return True

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The stored offset; None when there is none."""
        return self._offsets.get(f"{topic}{_SEPARATOR}{group}", {}).get(queue_id)

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

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have offsets of a topic."""
        return {key.partition(_SEPARATOR)[2] for key in self._offsets
                if key.partition(_SEPARATOR)[0] == topic}

    def topics_of(self, group: str) -> set[str]:
        """The topics that a group has offsets of."""
        return {key.partition(_SEPARATOR)[0] for key in self._offsets
                if key.partition(_SEPARATOR)[2] == group}

    def topics_by_group(self) -> dict[str, set[str]]:
        """Every group that has offsets, with their topics."""
        topics: dict[str, set[str]] = {}
        for key in self._offsets:
            topic, _, group = key.partition(_SEPARATOR)
            topics.setdefault(group, set()).add(topic)
        return topics

    def remove_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        suffix = _SEPARATOR + group
        for key in [key for key in self._offsets if key.endswith(suffix)]:
            if key.partition(_SEPARATOR)[2] == group:        # no topic has an @, groups may
                del self._offsets[key]
                self.dirty = True

    def of_queues(self, group: str, topic: str) -> dict[int, int]:
        """Queue id -> offset of one group and topic."""
        return dict(self._offsets.get(f"{topic}{_SEPARATOR}{group}", {}))

    def clone(self, source: str, target: str, topic: str) -> bool:
        """
        Give one group another's offsets of a topic, in place of its own; without any, nothing.

        False when the table has no room for another pair.
        """
        queues = self.of_queues(source, topic)
        if not queues or source == target:
            return True
        key = f"{topic}{_SEPARATOR}{target}"
        if key not in self._offsets and len(self._offsets) >= KEY_COUNT_MAX:
            return False
        self._offsets[key] = queues
        self.dirty = True
        return True

    def cut(self, ends: Iterable[tuple[str, int, int]]) -> int:
        """
        Take back what lies beyond the data; returns how many offsets that were.

        ends: (topic, queue id, next offset) of queues. A power cut may take the log's end and leave
        the newer offset file: its group would skip as many messages of those that come next.
        """
        count = 0
        groups: dict[str, list[dict[int, int]]] = {}
        for key, queues in self._offsets.items():
            groups.setdefault(key.partition(_SEPARATOR)[0], []).append(queues)
        for topic, queue_id, end in ends:
            for queues in groups.get(topic, ()):
                if queues.get(queue_id, 0) > end:
                    queues[queue_id] = end
                    count += 1
        self.dirty = self.dirty or count > 0
        return count
