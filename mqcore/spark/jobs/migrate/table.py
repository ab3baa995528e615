"""
Which offset of the old cluster is which one of the new: kept in a file, made of what is stored.

A queue's copies are in the order of their origin, so the difference of the two offsets stays the
same over long stretches: each is a segment.

  M1  A group's offset is never translated beyond the first message that it has not consumed.
  M2  The table says nothing that the new cluster does not hold: it is read from there.
"""
from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from mqcore.client.message import MessageQueue
from mqcore.spark.errors import SparkSourceError
from mqcore.spark.whole_files import put

VERSION: Final = 1
FILE: Final = "offsets.json"


@dataclass(slots=True)
class Segment:
    """Offsets `begin` to `end` - 1 of the old queue are at `target` and on in the new one."""

    begin: int
    end: int
    target: int

    @property
    def target_end(self) -> int:
        return self.target + self.end - self.begin


@dataclass(slots=True)
class QueueMap:
    """
    One queue.

    segments    by their place in the new queue
    read_to     the new queue's offset up to which the segments are known
    foreign     the first message of the new queue that is no copy; None: all are
    expired     messages that the old cluster deleted before they were copied
    broken      copies with a body that nobody can decompress
    """

    segments: list[Segment] = field(default_factory=list)
    read_to: int = 0
    foreign: int | None = None
    expired: int = 0
    broken: int = 0

    @property
    def end(self) -> int | None:
        """Behind the last offset that was copied; None: nothing was."""
        return max((one.end for one in self.segments), default=None)

    @property
    def copied(self) -> int:
        return sum(one.end - one.begin for one in self.segments)

    @property
    def duplicates(self) -> int:
        """How many messages are there a second time."""
        count, reached = 0, -1
        for one in self.segments:
            count += max(min(one.end, reached) - one.begin, 0)
            reached = max(reached, one.end)
        return count

    def add(self, found: Iterable[Segment]) -> None:
        """Note what was found behind `read_to`."""
        for one in sorted(found, key=lambda segment: segment.target):
            last = self.segments[-1] if self.segments else None
            if last is not None and (last.end, last.target_end) == (one.begin, one.target):
                last.end = one.end
            else:
                self.segments.append(one)

    def translate(self, offset: int) -> int:
        """Where a group goes on that consumed all below `offset` (M1)."""
        found = [one.target + max(offset - one.begin, 0) for one in self.segments
                 if one.end > offset]
        place = min(found, default=max((one.target_end for one in self.segments), default=0))
        return place if self.foreign is None else min(place, self.foreign)


@dataclass(slots=True)
class MigrationTable:
    """All queues of a migration, by their names on the old cluster; `brokers`: old to new."""

    brokers: dict[str, str] = field(default_factory=dict)
    queues: dict[MessageQueue, QueueMap] = field(default_factory=dict)

    def target(self, queue: MessageQueue) -> MessageQueue:
        """A queue on the new cluster."""
        return MessageQueue(queue.topic, self.brokers[queue.broker_name], queue.queue_id)

    def of(self, queue: MessageQueue) -> QueueMap:
        return self.queues.setdefault(queue, QueueMap())

    def save(self, folder: Path) -> None:
        """Put it into a folder, whole or not at all. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        said = {"v": VERSION, "brokers": self.brokers, "queues": [
            {"topic": queue.topic, "broker": queue.broker_name, "queueId": queue.queue_id,
             **asdict(self.queues[queue])} for queue in sorted(self.queues)]}
        put(folder / FILE, json.dumps(said).encode())

    @classmethod
    def load(cls, folder: Path) -> MigrationTable:
        """The table of a folder; an empty one when there is none yet. Raises SparkSourceError."""
        path = folder / FILE
        try:
            said: Any = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError) as error:
            raise SparkSourceError(f"--state: {path} cannot be read: {error}") from None
        if not isinstance(said, dict) or said.get("v") != VERSION:
            raise SparkSourceError(f"--state: {path} is no table of offsets of version {VERSION}:"
                                   " another folder, or the version that wrote it?")
        return cls(said["brokers"], {
            MessageQueue(one["topic"], one["broker"], one["queueId"]): QueueMap(
                [Segment(**segment) for segment in one["segments"]], one["read_to"],
                one["foreign"], one["expired"], one.get("broken", 0)) for one in said["queues"]})
