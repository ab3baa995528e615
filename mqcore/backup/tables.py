"""
The tables of a store whose log is cut: no offset is beyond its queue's end, and what was settled
behind the cut, a delivery or a transaction, is to be settled again.
"""
from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from mqcore.backup.cut import (
    RestingLog,
    deliveries,
    delivery_entries,
    last_time,
    queue_ends,
    queue_files,
    scan,
)
from mqcore.backup.errors import BadBackupError
from mqcore.backup.manifest import CONFIG
from mqcore.broker.requests.check_sender import GROUP as TRANSACTION_GROUP
from mqcore.broker.requests.transaction import CHECK_TIMES
from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_file import DELAY_FILE, ConfigFileError
from mqcore.broker.tables.light_queues import LIGHT_FILE, PLAIN_FILE, LightOffsetTable
from mqcore.broker.tables.offsets import OffsetTable, is_light
from mqcore.layout import CQ_FILLER_RECORD_SIZE
from mqcore.store import files
from mqcore.store.log.folders import LogFolders
from mqcore.wire.codes import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from mqcore.wire.properties import UNIQ_KEY
from mqcore.wire.records import Record, RecordError, decode_record

LATE_MS: Final = 3_600_000               # what was due so long before a cut is looked at again

Array = npt.NDArray[np.int64]
Ends = Mapping[tuple[str, int], int]     # topic, queue id -> the queue's end


@dataclass(frozen=True)
class Cut:
    """
    Where a log ends that is cut: its position, the store time of its youngest record in ms; undone:
    of each delay level, how many deliveries lay behind.
    """

    position: int
    time_ms: int
    undone: Mapping[int, int]


def trim(root: Path, log: RestingLog, ends: Ends, cut: Cut) -> int:
    """
    Bring the offsets of a restored store back to what it holds; how many were beyond.

    log: as it was backed up; ends: of every queue. Raises BadBackupError, OSError.
    """
    settled_back = cut.position < log.end
    with _readable(root):
        changes = _transactions(log, ends, cut.position) if settled_back else {}
        count = _consumers(root / CONFIG, ends, changes)
        return count + _delays(root, ends, cut if settled_back else None)


def settle_again(store: Path, log: LogFolders, segment_bytes: int, end: int, cut: int) -> None:
    """
    Before a log that ends at `end` is cut: the deliveries and transactions that were settled
    behind the cut are open. Whoever is interrupted does it again. Consumers' offsets stay as they
    are: a start as a master takes them back to what is there. Raises BadBackupError, OSError.
    """
    first = next((start for start, _ in log.segments()), 0)
    whole = RestingLog(log, segment_bytes, first, end)
    ends = {place: at for topic in (HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC)
            for place, at in queue_ends(store, topic, cut).items()}
    with _readable(store):
        if (HALF_TOPIC, 0) in ends:
            least = {topic: ends.get((topic, 0), 0) for topic in (HALF_TOPIC, OP_TOPIC)}
            _consumers(store / CONFIG, None, least | _cut_transactions(store, whole, ends, cut))
        _delays(store, ends, Cut(cut, last_time(whole, cut), deliveries(store, whole, cut)))


@contextmanager
def _readable(root: Path) -> Iterator[None]:
    """Tables that are not end in one kind of error."""
    try:
        yield
    except ConfigFileError as error:
        raise BadBackupError(str(error)) from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise BadBackupError(f"{root / CONFIG}: a table that cannot be read: {error}") from None


def _consumers(config: Path, ends: Ends | None, least: Mapping[str, int]) -> int:
    """
    ends: of every queue, None: only transactions are looked at; least: by topic, where the
    transactions' own group goes back to.
    """
    present = [(config / name, kind) for name, kind in
               ((PLAIN_FILE, OffsetTable), (LIGHT_FILE, LightOffsetTable))
               if (config / name).exists() or (config / name).with_suffix(".journal").exists()]
    count = 0
    for path, kind in sorted(present, key=lambda one: _written_ns(one[0])):
        table = kind(path)
        table.load()
        for topic in least:
            queues = table.of_queues(TRANSACTION_GROUP, topic)
            if queues:
                back = {queue: min(offset, least[topic]) for queue, offset in queues.items()}
                table.put(f"{topic}@{TRANSACTION_GROUP}", back)
        if ends is not None:
            named = {(key.partition("@")[0], queue)
                     for member in OffsetTable.as_json(table).values()
                     for key, queues in member.items() for queue in queues}
            count += table.cut([(*queue, ends.get(queue, 0)) for queue in named
                                if queue in ends or not is_light(queue[0])])
        written_ns = _written_ns(path)
        table.persist()
        files.beside(path, ".bak").unlink(missing_ok=True)     # it has offsets that are beyond
        os.utime(path, ns=(written_ns, written_ns))            # the younger one counts, as before
    return count


def _written_ns(path: Path) -> int:
    return max(one.stat().st_mtime_ns for one in (path, path.with_suffix(".journal"))
               if one.exists())


# -- delayed messages ------------------------------------------------------------------------------

def _delays(root: Path, ends: Ends, cut: Cut | None) -> int:
    """
    cut: what was delivered behind it is gone, and due again. Deliveries are in the order of their
    level, so as many are due as lay behind; more, where entries were passed over that could not be
    delivered. From `logPosition` on a broker of ours looks for what was delivered before the cut.
    """
    path = root / CONFIG / DELAY_FILE
    value = config_file.load(path)
    table = value.get("offsetTable") if value is not None else None
    if value is None or not isinstance(table, dict):
        return 0
    before = {str(level): offset for level, offset in table.items() if isinstance(offset, int)}
    offsets = {level: min(offset, ends.get((SCHEDULE_TOPIC, _queue_of(level)), 0))
               for level, offset in before.items()}
    count = sum(offsets[level] != before[level] for level in before)
    if cut is not None:
        due: dict[int, tuple[int, int]] = {}
        first = {_queue_of(level): offset - cut.undone.get(int(level), 0)
                 for level, offset in before.items() if level.isdecimal()}
        for queue_id, offset, position, time_ms in delivery_entries(
                root, SCHEDULE_TOPIC, cut.position):
            if time_ms > cut.time_ms - LATE_MS or offset >= first.get(queue_id, 0):
                due.setdefault(queue_id, (offset, position))
        positions = [position for _, position in due.values()]
        offsets = {level: min(offset, due.get(_queue_of(level), (offset, 0))[0])
                   for level, offset in offsets.items()}
        value.pop("delivered", None)
        if value.pop("timer", None) is not None:       # the log tells which were delivered
            value["timer"] = {"second": 0, "queueOffset": 0}
            positions.append(0)
        if positions:
            value["logPosition"] = min(positions)
        else:
            value.pop("logPosition", None)
    value["offsetTable"] = {int(level): offset for level, offset in offsets.items()}
    config_file.save(path, value)
    files.beside(path, ".bak").unlink(missing_ok=True)
    return count


def _queue_of(level: str) -> int:
    return int(level) - 1 if level.isdecimal() else -1


# -- transactions ----------------------------------------------------------------------------------

def _transactions(log: RestingLog, ends: Ends, cut: int) -> dict[str, int]:
    """
    Where the half and the op queue's reader goes back to: the first half message that nothing
    before the cut settles, and the first op record behind it. A half message that was put back is
    settled with its copy: both have one unique key.
    """
    named = {offset for record in _records(log, cut, OP_TOPIC)
             for word in record.body.split(b",") if (offset := _number(word)) is not None}
    halves: dict[str, list[tuple[int, int]]] = {}
    for record in _records(log, cut, HALF_TOPIC):
        key = record.properties.get(UNIQ_KEY) or f"@{record.queue_offset}"
        halves.setdefault(key, []).append((record.queue_offset, record.physical_offset))
    undecided = [max(copies) for copies in halves.values()
                 if not any(offset in named for offset, _ in copies)]
    if not undecided:
        return {}
    offset, position = min(undecided)
    ops = [record.queue_offset for record in _records(log, cut, OP_TOPIC, position)]
    return {HALF_TOPIC: offset, OP_TOPIC: min(ops, default=ends.get((OP_TOPIC, 0), 0))}


def _cut_transactions(store: Path, log: RestingLog, ends: Ends, cut: int) -> dict[str, int]:
    """
    The same by what is cut: back to the first half message that was settled, put back or
    given up there. Below the cut the queues are read, and of the log the half messages down to the
    last two kinds.
    """
    end = ends[HALF_TOPIC, 0]
    first = min((offset for record in _records(log, log.end, OP_TOPIC, cut)
                 for word in record.body.split(b",")
                 if (offset := _number(word)) is not None and offset < end), default=end)
    moved: set[str] = set()
    fresh: set[str] = set()
    for topic in (HALF_TOPIC, GIVEN_UP_TOPIC):
        for record in _records(log, log.end, topic, cut):
            is_fresh = topic == HALF_TOPIC and CHECK_TIMES not in record.properties
            (fresh if is_fresh else moved).add(record.properties.get(UNIQ_KEY, ""))
    first = min(first, _copied_from(store, log, moved - fresh - {""}, cut, end))
    position = next((int(positions[at]) for offsets, positions in _entries(store, HALF_TOPIC, cut)
                     if (at := int(np.searchsorted(offsets, first))) < len(offsets)), None)
    if position is None:
        return {}
    op = next((int(offsets[at]) for offsets, positions in _entries(store, OP_TOPIC, cut)
               if (at := int(np.searchsorted(positions, position, "right"))) < len(offsets)),
              ends.get((OP_TOPIC, 0), 0))
    return {HALF_TOPIC: first, OP_TOPIC: op}


def _copied_from(store: Path, log: RestingLog, keys: set[str], cut: int, end: int) -> int:
    """The first of the half messages before the cut that these are copies of; or the end."""
    first = end
    for offsets, positions in _entries(store, HALF_TOPIC, cut, from_end=True):
        for offset, position in zip(reversed(offsets), reversed(positions), strict=True):
            if not keys or position < log.first:
                return first
            record = next(_records(log, int(position) + 1, HALF_TOPIC, int(position)), None)
            key = record.properties.get(UNIQ_KEY) if record is not None else None
            if key in keys:
                keys.discard(key)
                first = int(offset)
    return first


def _entries(store: Path, topic: str, stop: int, *,
             from_end: bool = False) -> Iterator[tuple[Array, Array]]:
    """Of each file of queue 0: offsets and log positions of the records before `stop`."""
    for _, base, entries in queue_files(store, topic, only=0, from_end=from_end):
        kept = np.flatnonzero((entries["size"] > 0) & (entries["position"] < stop)
                              & (entries["size"] != CQ_FILLER_RECORD_SIZE))
        yield kept + base, entries["position"][kept].astype("i8")


def _records(log: RestingLog, cut: int, topic: str, start: int = 0) -> Iterator[Record]:
    records = scan(log, start=max(start, log.first), stop=cut, topic=topic.encode())
    while (raw := records.next()) is not None:
        try:
            yield decode_record(raw)
        except RecordError:                      # whole, and yet not to be read: it settles nothing
            continue


def _number(word: bytes) -> int | None:
    text: Any = word.strip()
    return int(text) if text.isdigit() and len(text) < 20 else None


def ends_of(queues: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    """The end of each queue that is known, from a verification's counts (LogVerifier.queue)."""
    found = {}
    for queue in queues:
        end = int(queue["end"]) if queue["on_disk"] else 0
        if queue["missing"]:
            end = max(end, int(queue["missing_first"]) + int(queue["missing"]))
        found[queue["topic"], int(queue["queueId"])] = end
    return found


