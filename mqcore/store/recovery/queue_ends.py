"""
The queues' ends: which entries each consume queue had on disk, and how far the log was dispatched.

`config/queueEnds.bin` is ours alone, a stock broker passes it over. Written at a clean stop and
with checkpoints; a start holds the queues against it and builds again what is missing
(mqcore/store/recovery/compare.pyx). docs/formats.md draws it. When it is missing or no longer true,
a start looks at the ends of the log instead.
"""
from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack

from mqcore.store.files import read as read_file
from mqcore.store.files import write_atomically

NAME = "queueEnds.bin"
KIND = "mqcore queue ends"
VERSION = 2
COPIED_NS = 2_000_000_000      # a file that is younger than it says was copied: times say nothing


@dataclass(frozen=True)
class QueueEnds:
    """
    first, end: of the log, in bytes; all records below `end` were dispatched, those below `flushed`
    were on the disk. The five columns have one item a queue, native i32 or i64; `topic_numbers`
    index `topics`. index: (name, log position of the last record) of the key index's files, None:
    that run kept no index. unchanged_ns: time behind which a file of a queue was changed by
    somebody else, or by that run where it is `since_ns`; 0: not known. stopped: written at a clean
    stop. since_ns: that run had not looked at all files when it ended, and believed those that were
    older; 0: it had. in_place: times of inodes count, too: the store was not copied.
    """

    first: int
    end: int
    flushed: int = 0
    topics: list[bytes] = field(default_factory=list)
    topic_numbers: bytes = b""
    queue_ids: bytes = b""
    min_offsets: bytes = b""
    max_offsets: bytes = b""
    index: list[tuple[str, int]] | None = field(default_factory=list)
    unchanged_ns: int = 0
    stopped: bool = False
    since_ns: int = 0
    in_place: bool = False

    @property
    def by_folders(self) -> bool:
        """
        Whether a queue may be believed by its folder alone, until its files are used (as_left Y4).
        """
        return self.stopped and self.in_place and self.unchanged_ns > 0 and not self.since_ns


@dataclass(frozen=True)
class Hints:
    """
    What other files of the store say about its queues. topics: those that there are, None: unknown;
    offsets: by (topic, queue id), a number below which consumers have had everything.
    """

    topics: Collection[str] | None = None
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)


def write(path: Path, ends: QueueEnds, now_ns: int) -> None:
    """Replace the file, synced with its folder. Raises OSError."""
    body = msgpack.packb({
        "first": ends.first, "end": ends.end, "flushed": ends.flushed, "writtenNs": now_ns,
        "stopped": ends.stopped, "sinceNs": ends.since_ns,
        "topics": ends.topics,
        "topicNumbers": ends.topic_numbers, "queueIds": ends.queue_ids,
        "minOffsets": ends.min_offsets, "maxOffsets": ends.max_offsets,
        "index": None if ends.index is None else [list(file) for file in ends.index]})
    write_atomically(path, msgpack.packb([KIND, VERSION, zlib.crc32(body), body]))


def read(path: Path) -> QueueEnds | None:
    """The file's content; None: missing, of another version, or not as it was written."""
    try:
        raw = read_file(path)
        status = path.stat()
    except OSError:
        return None
    try:
        kind, version, checksum, body = msgpack.unpackb(raw)
        if (kind, version) != (KIND, VERSION) or checksum != zlib.crc32(body):
            return None
        return _decoded(msgpack.unpackb(body, strict_map_key=True), status)
    except (ValueError, TypeError, KeyError):
        return None


def _decoded(value: dict[str, Any], status: os.stat_result) -> QueueEnds | None:
    written_ns, since_ns = int(value["writtenNs"]), int(value["sinceNs"])
    kept = abs(status.st_mtime_ns - written_ns) <= COPIED_NS
    ends = QueueEnds(
        first=int(value["first"]), end=int(value["end"]), flushed=int(value["flushed"]),
        topics=list(value["topics"]),
        topic_numbers=bytes(value["topicNumbers"]), queue_ids=bytes(value["queueIds"]),
        min_offsets=bytes(value["minOffsets"]), max_offsets=bytes(value["maxOffsets"]),
        index=(None if value["index"] is None
               else [(str(name), int(end)) for name, end in value["index"]]),
        unchanged_ns=(since_ns or status.st_mtime_ns) if kept else 0,
        stopped=bool(value["stopped"]), since_ns=since_ns,
        in_place=kept and abs(status.st_ctime_ns - written_ns) <= COPIED_NS)
    count = len(ends.topic_numbers) // 4
    if [len(ends.queue_ids), len(ends.min_offsets), len(ends.max_offsets)] != [
            4 * count, 8 * count, 8 * count]:
        return None
    return ends
