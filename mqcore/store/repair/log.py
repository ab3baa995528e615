"""
Repair of a commit log at rest: rounds of one verification and the changes that its findings ask
for, until a round finds nothing more to do. store.py does the rest.
"""
from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqcore.store import files as disk
from mqcore.store import last_run
from mqcore.store.log.folders import CHECKSUMS
from mqcore.store.paths import PathError, queue_folder
from mqcore.store.repair.checksums import LogChecksums
from mqcore.store.repair.evidence import Gap, Stretch, assign, entries_at, stretches
from mqcore.store.repair.files import Salvage
from mqcore.store.repair.record_fields import BORN_V6, claim_of, patched
from mqcore.store.repair.records import (
    BLANK,
    LIGHT_PREFIX,
    LOST_PROPERTY,
    MAGIC_BLANK,
    MAGIC_MESSAGE,
    SCHEDULE_TOPIC,
    NoRoomError,
)
from mqcore.store.verify.files import (
    StoreListing,
    misplaced_checksums,
    read_log,
    read_queues,
    usual,
)
from mqcore.store.verify.findings import FindingKind
from mqcore.store.verify.log import LogVerifier
from mqcore.store.verify.report import Report
from mqcore.store.verify.scan import LogScan
from mqcore.store.verify.store import STEP_BYTES
from mqcore.store.verify.words import RESULTS
from mqcore.wire.records import decode_record

ROUNDS_MAX: Final = 64
FINDINGS_OF_A_KIND: Final = 1 << 14
PRINTED_QUEUES: Final = 4
NO_ENTRY: Final = (-1, 0, 0)
EXTENDED_BELOW: Final = -(1 << 31)      # a tag code below names a unit of the queue's extension


@dataclass
class WalkedLog:
    """What one walk over the log found."""

    found: list[dict[str, int]]
    queues: list[tuple[bytes, int]]          # by number

    def of(self, *kinds: int) -> list[dict[str, int]]:
        return [one for one in self.found if one["kind"] in kinds]


class LogRepair:
    """Makes the log of the store at `salvage.root` whole, as far as that can be done."""

    def __init__(self, salvage: Salvage, delay_levels_ms: Sequence[int]) -> None:
        self._salvage = salvage
        self._root: Path = salvage.root
        self._delay_levels_ms = list(delay_levels_ms)
        self._made: list[tuple[int, int]] = []      # segments that were missing: (start, end)
        self._replaced: set[int] = set()            # positions of records whose fields were mended
        self._bridged: list[Stretch] = []
        self._checksums = LogChecksums(self._root)
        self._same_boot = (self._checksums.hold
                           and last_run.read(self._root / "abort").same_boot)
        self._lost: list[int] = []                  # segments whose checksums went
        self._end = 0                               # of the log, as the last walk found it
        self.mended = False             # the log is again what queues and index were made of
        self.changed = False

    def run(self) -> None:
        """
        All rounds; a dry run makes one of each kind. Raises OSError.

        Checksums first put right what is one bit. Then the records speak for themselves and the
        queues for them; records that are whole so get the checksums that they lack, and what
        checksums still call wrong in the end is given up.
        """
        self._segments()
        if self._look():
            self._misplaced()
        for _ in range(ROUNDS_MAX if self._checksums.hold and self._look() else 0):
            bits = [self._bit(one["position"])
                    for one in self._walk(checksums=True).of(
                        FindingKind.FOUND_BAD_RECORD, FindingKind.FOUND_FIELD)]
            if not any(bits):                # one in a size hides others behind it till then
                break
            self.mended = True
            if self._salvage.dry:
                break
        self._rounds(checksums=False)
        if self._checksums.hold and not (self._refit() and self._salvage.dry):
            self._rounds(checksums=True)

    def _rounds(self, *, checksums: bool) -> None:
        for _ in range(ROUNDS_MAX):
            if not self._look() or not self._round(self._walk(checksums=checksums)):
                break
            self.changed = True
            for segment, ranges in self._salvage.written(self._root / "commitlog"):
                self._checksums.rewrite(segment, ranges)
            if self._salvage.dry:
                break

    def _misplaced(self) -> None:
        """What stands where checksums belong goes; those of its segments are made anew."""
        for name in misplaced_checksums(self._files):
            self._salvage.move(name, "not the checksums of a log")
            self._lost += [start for start, _ in self._files.segments
                           if name in (CHECKSUMS, f"{CHECKSUMS}/{start:020d}")]
        self.mended |= bool(self._lost)
        if self._lost and self._salvage.dry:       # they are still there, and cannot be read
            self._checksums.hold = self._same_boot = False

    def _refit(self) -> int:
        """Checksums that are not of these records: made anew, of a log whose records are whole."""
        made = 0
        for base, size in self._files.segments:
            segment = self._root / f"commitlog/{base:020d}"
            name = f"checksums/{segment.name}"
            if base in self._lost and base < self._end:
                self._salvage.tell(name, None, "checksums are made of what the records are now")
                self._checksums.make(segment, size, self._end - base)
                continue
            found = self._checksums.refit(
                segment, size, self._end - base,
                lambda offset, base=base: self._vouched(base + offset))      # type: ignore[misc]
            if found.made == 0:
                continue
            kept = self._salvage.save(name, 0, (self._root / name).stat().st_size)
            self._salvage.tell(name, None, f"{found.made} checksums that are not of these records "
                                           "are made of what those are now", saved=kept)
            for offset in found.kept:
                self._salvage.tell(
                    f"commitlog/{segment.name}", offset, "the record differs from its checksum in "
                    "more than one bit; its body, position and queue entry are right: it stays",
                    logPosition=base + offset)
            if not self._salvage.dry:
                self._checksums.write(segment, found.entries)
            made += found.made
        self.mended |= made > 0
        return made

    def _vouched(self, position: int) -> bool:
        """
        Whether the queue's entry means the whole record at a position as it is: its place, size and
        tag code.
        """
        raw = self._record(position)
        if not raw:
            return False
        record = decode_record(raw)
        place, size, tag = self._entry(claim_of(raw))
        return (place, size) == (position, len(raw)) and (
            tag == record.tag_code or tag < EXTENDED_BELOW
            or os.fsencode(record.topic) == SCHEDULE_TOPIC)

    def _look(self) -> bool:
        """Whether there are segments."""
        self._files = StoreListing(self._root)
        read_log(self._files, Report(str(self._root)), unclean=True)
        read_queues(self._files, Report(str(self._root)), unclean=True)
        return bool(self._files.segments)

    # -- files -------------------------------------------------------------------------------------

    def _segments(self) -> None:
        """Foreign files, wrong lengths, missing segments (store.md 1)."""
        folder = self._root / "commitlog"
        found: dict[int, int] = {}
        for entry in sorted(os.scandir(folder), key=lambda one: one.name):
            name = f"commitlog/{entry.name}"
            if not (entry.is_file() and len(entry.name) == 20 and entry.name.isdecimal()):
                self._salvage.move(name, "not a segment")
            elif entry.stat().st_size == 0:
                self._salvage.move(name, "an empty file")
            else:
                found[int(entry.name)] = entry.stat().st_size
        size = usual(found.values())
        for start, length in sorted(found.items()):
            name = f"commitlog/{start:020d}"
            if start % size:
                self._salvage.move(name, f"begins at {start}, no multiple of {size}")
                del found[start]
            elif length != size:
                self._resize(name, length, size)
        for start in range(min(found, default=0), max(found, default=0), size or 1):
            if start not in found:
                self._salvage.tell(f"commitlog/{start:020d}", None, "missing: made again, empty")
                self._made.append((start, start + size))
                self._resize(f"commitlog/{start:020d}", 0, size, new=True)

    def _resize(self, name: str, length: int, size: int, *, new: bool = False) -> None:
        if length > size:
            kept = self._salvage.save(name, size, length - size)
            self._salvage.tell(name, size, f"{length} bytes, cut to {size}", saved=kept)
        elif not new:
            self._salvage.tell(name, length, f"{length} bytes, made {size} long")
        self.changed = True
        if not self._salvage.dry:
            with disk.opened(self._root / name, os.O_RDWR | os.O_CREAT) as fd:
                disk.calls.truncate(fd, size)
                disk.calls.sync(fd)
            disk.sync_folder(self._root / "commitlog")

    # -- a round -----------------------------------------------------------------------------------

    def _walk(self, *, checksums: bool) -> WalkedLog:
        walker = LogVerifier(
            os.fsencode(self._root / "commitlog"), self._files.segments,
            os.fsencode(self._root / "consumequeue"), os.fsencode(self._root / "consumequeue_ext"),
            self._files.file_entries, self._delay_levels_ms, of_a_kind_max=FINDINGS_OF_A_KIND,
            gaps_wanted=True, checksums=checksums, same_boot=self._same_boot)
        for queue in self._files.queues:
            walker.add_queue(os.fsencode(queue.topic), queue.queue_id, queue.first, queue.limit,
                             queue.ext_bytes)
        while walker.step(STEP_BYTES):
            pass
        self._end = walker.figures()["end"]
        for number in range(walker.queue_count):
            walker.scan_queue(number)
        queues = [walker.queue(number) for number in range(walker.queue_count)]
        return WalkedLog(walker.findings()[0],
                         [(queue["topic"], int(queue["queue_id"])) for queue in queues])

    def _round(self, walked: WalkedLog) -> bool:
        """Whether something was changed; what depends on other changes waits for the next round."""
        unread = walked.of(FindingKind.FOUND_BAD_RECORD, FindingKind.FOUND_UNREADABLE)
        ranges = [(one["position"], one["expected"]) for one in unread]
        results = {one["position"]: RESULTS.get(one["found"], "bytes that cannot be read")
                   for one in unread}
        if self._salvage.dry:
            ranges += self._made
        for one in walked.of(FindingKind.FOUND_FIELD):
            if not self._field(one):
                ranges.append((one["position"], one["position"] + self._size(one["position"])))
                results[one["position"]] = "a record with an impossible field"
        for one in walked.of(FindingKind.FOUND_BLANK_SIZE):
            self._blank(one)
        fields = bool(walked.of(FindingKind.FOUND_FIELD, FindingKind.FOUND_BLANK_SIZE))
        if not ranges:
            mended = [self._stray(one) for one in self._strays(walked)]
            mended += [self._number(gap) for gap in self._gaps(walked)]
            return any(mended) or fields
        found = stretches(ranges, sorted({*self._files.segments, *(
            (start, end - start) for start, end in self._made)}))
        claims = entries_at(self._root, self._files.queues, found)
        _, without_room = assign(found, claims, self._gaps(walked))
        if without_room:
            self._salvage.tell("commitlog", None, f"{without_room} lost messages have no room for "
                                                  "a placeholder: their numbers stay free")
        bridged = [self._bridge(stretch, results) for stretch in found]
        return any(bridged) or fields

    def _bridge(self, stretch: Stretch, results: dict[int, str]) -> bool:
        name, base = self._place(stretch.start)
        length = stretch.end - stretch.start
        queues = sorted({f"{os.fsdecode(one.queues[0][0])}/{one.queues[0][1]}"
                         for one in stretch.lost})
        of = ", ".join(queues[:PRINTED_QUEUES]) + (" ..." if len(queues) > PRINTED_QUEUES else "")
        lost = f", {len(stretch.lost)} lost messages of {of}" if stretch.lost else ""
        what = results.get(stretch.start, "no record")
        time_ms = self._time_at(stretch.behind)
        try:
            parts = list(stretch.fill(time_ms)) if length <= STEP_BYTES else None
        except NoRoomError as error:
            self._salvage.tell(name, stretch.start - base, f"cannot be repaired: {error}")
            return False
        kept = None
        if not any(start <= stretch.start < end for start, end in self._made):
            kept = self._salvage.save(name, stretch.start - base, length)
        self._salvage.tell(
            name, stretch.start - base, f"{what}; {length} bytes are bridged{lost}", saved=kept,
            logPosition=stretch.start, bytes=length,
            messages=[[os.fsdecode(topic), queue_id, offset]
                      for one in stretch.lost for topic, queue_id, offset in one.queues[:1]])
        self._salvage.write(name, base, parts if parts is not None else stretch.fill(time_ms))
        self._bridged.append(stretch)
        return True

    def _bit(self, position: int) -> bool:
        """Put right what differs in one bit from what its checksum was made of."""
        name, base = self._place(position)
        found = self._checksums.mended(self._root / name, position - base)
        if found is None:
            return False
        raw, made = found
        if raw != made:
            return self._rewrite(position, raw, made)
        self._salvage.tell(name, position - base, "the record's checksum has one wrong bit, and is "
                                                  "made anew")
        if not self._salvage.dry:
            self._checksums.put(self._root / name, position - base, raw)
        return True

    def _blank(self, one: dict[str, int]) -> None:
        name, base = self._place(one["position"])
        self._salvage.tell(name, one["position"] - base, f"a blank record of {one['found']} bytes "
                                                         f"becomes one of {one['expected']}")
        self._salvage.write(name, base, [(one["position"],
                                          BLANK.pack(one["expected"], MAGIC_BLANK))])

    # -- what records say of themselves ------------------------------------------------------------

    def _field(self, one: dict[str, int]) -> bool:
        """Mend a field; False: nothing says what it was, the record has to be given up."""
        position = one["position"]
        if position in self._replaced:
            return True
        raw = self._record(position)
        place = Stretch(position, position + 1, closes=False, behind=position + 1)
        claims = entries_at(self._root, self._files.queues, [place]).get(position, [])
        made = patched(raw, one["detail"], claims, self._time_at(position + len(raw)))
        self._replaced.add(position)
        return made is not None and self._rewrite(position, raw, made)

    def _strays(self, walked: WalkedLog) -> list[tuple[int, tuple[bytes, int, int]]]:
        """(log position, what a queue says lies there) where the record says something else."""
        return [(one["found"], (*walked.queues[one["number"]], one["detail"]))
                for one in walked.of(FindingKind.FOUND_ENTRY_STRAY)]

    def _stray(self, claimed: tuple[int, tuple[bytes, int, int]]) -> bool:
        """A record that no queue has where it says, and one has elsewhere, is put right."""
        position, queue = claimed
        if position in self._replaced or queue[0].startswith(LIGHT_PREFIX):
            return False
        raw = self._record(position)
        if LOST_PROPERTY in raw or any(one.start <= position < one.end for one in self._bridged):
            return False                       # the queue is older than the placeholder there
        own = claim_of(raw) if raw else None
        if own is None or len(own[0]) != len(queue[0]) or self._entry(own)[0] == position:
            return False
        self._replaced.add(position)
        made = patched(raw, 0, [queue], 0)
        return made is not None and self._rewrite(position, raw, made)

    def _gaps(self, walked: WalkedLog) -> list[Gap]:
        return [Gap(walked.queues[one["number"]], one["expected"], one["found"], one["detail"],
                    one["position"]) for one in walked.of(FindingKind.FOUND_OFFSET_GAP)]

    def _number(self, gap: Gap) -> bool:
        """A record whose number jumps while the next one's continues from before is put right."""
        topic, queue_id = gap.queue
        scan = LogScan(os.fsencode(self._root / "commitlog"), self._files.segments,
                       start=gap.before, topic=topic, queue_id=queue_id)
        raw, behind = scan.next(), scan.next()
        following = claim_of(behind) if behind else None
        if raw is None or gap.before in self._replaced or following is None or (
                following[2] != gap.first + 1):
            return False
        self._replaced.add(gap.before)
        made = patched(raw, 0, [(topic, queue_id, gap.first)], 0)
        return made is not None and self._rewrite(gap.before, raw, made)

    def _rewrite(self, position: int, raw: bytes, made: bytes) -> bool:
        name, base = self._place(position)
        kept = self._salvage.save(name, position - base, len(raw))
        changed = [at for at in range(len(raw)) if raw[at] != made[at]]
        self._salvage.tell(
            name, position - base, f"the record's bytes {changed[0]} to {changed[-1]} become "
            f"{made[changed[0]:changed[-1] + 1].hex()}, they were "
            f"{raw[changed[0]:changed[-1] + 1].hex()}", saved=kept)
        self._salvage.write(name, base, [(position, made)])
        return True

    # -- reading -----------------------------------------------------------------------------------

    def _place(self, position: int) -> tuple[str, int]:
        """(segment's name, its log position)."""
        base = position // self._files.segment_bytes * self._files.segment_bytes
        return f"commitlog/{base:020d}", base

    def _read(self, position: int, length: int) -> bytes:
        name, base = self._place(position)
        path = self._root / name
        if not path.exists():
            return b""
        with path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), length, position - base)

    def _size(self, position: int) -> int:
        return int(struct.unpack(">i", self._read(position, 4))[0])

    def _record(self, position: int) -> bytes:
        """The whole record at a position, b"": there is none."""
        scan = LogScan(os.fsencode(self._root / "commitlog"), self._files.segments, start=position,
                       stop=position + 1)
        try:
            return scan.next() or b""
        except OSError:
            return b""

    def _entry(self, queue: tuple[bytes, int, int]) -> tuple[int, int, int]:
        """(log position, size, tag code) in a queue's entry; position -1: there is none."""
        topic, queue_id, offset = queue
        at = offset * 20
        size = self._files.file_entries * 20
        if offset < 0:
            return NO_ENTRY
        try:
            folder = queue_folder(self._root / "consumequeue", os.fsdecode(topic), queue_id)
        except PathError:                      # what a damaged record says
            return NO_ENTRY
        path = folder / f"{at // size * size:020d}"
        if not path.is_file():
            return NO_ENTRY
        with path.open("rb", buffering=0) as file:
            raw = os.pread(file.fileno(), 20, at % size)
        position, length, tag = struct.unpack(">qiq", raw.ljust(20, b"\0"))
        return (position, length, tag) if length > 0 else NO_ENTRY

    def _time_at(self, position: int) -> int:
        """
        Store time in ms of the record at a position or, where a segment ends, of the next; of the
        segment's file where there is none.
        """
        name, base = self._place(position)
        for place in (position, base + self._files.segment_bytes):
            head = self._read(place, 76)
            if len(head) == 76 and struct.unpack_from(">i", head, 4)[0] == MAGIC_MESSAGE:
                flags = struct.unpack_from(">i", head, 36)[0]
                found = struct.unpack_from(">q", head, 68 if flags & BORN_V6 else 56)[0]
                if found > 0:
                    return int(found)
        path = self._root / name
        return path.stat().st_mtime_ns // 1_000_000 if path.exists() else 1
