"""
Verification of a store at rest, stock or ours: every rule of the format, and a verdict.

The log is read once, record by record; consume queues and key index are held against it as it
goes by, then by themselves; checkpoint and config/*.json after them. Nothing is written.
store.md 1 to 5, 9, 12; docs/verify.md says what each verdict means.
"""
from __future__ import annotations

import mmap
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from mqcore.store import files, last_run
from mqcore.store.checkpoint import PAGE_SIZE, TIMES
from mqcore.store.log.folders import LogFolders
from mqcore.store.log.owner import alone
from mqcore.store.ownership import StoreInUseError, StoreLock
from mqcore.store.record import ParseResult
from mqcore.store.recovery import queue_ends
from mqcore.store.verify import config as verify_config
from mqcore.store.verify import timer as verify_timer
from mqcore.store.verify.files import (
    StoreListing,
    misplaced_checksums,
    need_log,
    read_index,
    read_log,
    read_queues,
)
from mqcore.store.verify.log import UNREADABLE, LogVerifier
from mqcore.store.verify.report import DAMAGE, MEND, NOTE, Report
from mqcore.store.verify.scan import LogScan
from mqcore.store.verify.words import RESULTS, Context, queue_name
from mqcore.wire.codes import UNLISTED_BEGINNINGS
from mqcore.wire.records import decode_record

STEP_BYTES: Final = 64 << 20
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
DELAY: Final = re.compile(r"([0-9]{1,9})([smhd])")
DELAY_UNITS_MS: Final = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": 24 * HOUR}
DELAY_LEVELS_MS: Final = (
    SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, *(n * MINUTE for n in range(1, 11)),
    20 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR)
CHECKPOINT_NAMES: Final = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
REPLAY_BACK_MS: Final = 3000
COUNTED = {"on_disk", "first", "limit", "records", "bytes", "body_bytes", "first_time_ms",
           "last_time_ms", "end", "first_live", "live", "expired", "fillers", "missing",
           "missing_first", "superseded"}

Progress = Callable[[int, int], None]


def delay_levels_ms(text: str) -> tuple[int, ...]:
    """Of a stock messageDelayLevel: durations with a unit, between blanks. Raises ValueError."""
    parts = text.split()
    matches = [DELAY.fullmatch(part) for part in parts]
    if not 1 <= len(parts) < 64 or None in matches:
        raise ValueError(f"{text!r}: expected 1 to 63 durations such as 10s 5m 2h")
    return tuple(int(match[1]) * DELAY_UNITS_MS[match[2]] for match in matches if match)


def verify(root: Path, *, force: bool = False, index: bool = True, index_slots: int | None = None,
           delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
           progress: Progress | None = None, locked: bool = False,
           log_folders: LogFolders | None = None) -> Report:
    """
    Verify the store at `root`.

    log_folders      where the commit log lies, None: in "commitlog" below root
    force            also while a broker runs on it; what it writes meanwhile may show as findings
    index            check the key index; False: the broker runs without one
    index_slots      hash slots of an index file, None: found out from the files
    delay_levels_ms  the broker's messageDelayLevel, from level 1
    progress         called with log bytes done and in all
    locked           the caller holds the store's lock

    Raises StoreInUseError, FileNotFoundError (no store there; NoLogError: not its log), OSError.
    """
    began = time.monotonic()
    verification = Verification(root, delay_levels_ms, progress, log_folders or LogFolders(()))
    folders = (*verification.files.log.all(), root / "consumequeue")
    if not any(folder.is_dir() for folder in folders):
        raise FileNotFoundError(f"{root}: no store: neither commitlog nor consumequeue is there")
    if log_folders is None:
        need_log(root, "name the folder that it lies in with --commit-log")
    lock: StoreLock | None = None
    try:
        lock = None if locked else StoreLock(root, log_folders)
    except StoreInUseError as error:
        if not force:
            raise
        verification.report.add(NOTE, "lock", None, f"{error}: a moving picture, its last writes "
                                                    "may show as findings")
    try:
        report = verification.run(index=index, index_slots=index_slots)
    finally:
        if lock is not None:
            lock.release()
    report.seconds = time.monotonic() - began
    return report


class Walked(Protocol):
    """The state of log, queues and index after the read: LogVerifier has the meanings."""

    @property
    def queue_count(self) -> int: ...
    def figures(self) -> dict[str, int]: ...
    def queue(self, number: int) -> dict[str, Any]: ...
    def findings(self) -> tuple[list[dict[str, int]], list[int]]: ...
    def rest(self) -> int: ...
    def replay_from(self, before_ms: int) -> int: ...


class Verification:
    """One run of `verify`: what lies there, what reading it found, and what that means."""

    def __init__(self, root: Path, delay_levels_ms: Sequence[int],
                 progress: Progress | None, log_folders: LogFolders) -> None:
        self.root = root
        self.report = Report(str(root))
        self.files = StoreListing(root, log_folders)
        self.unclean = (root / "abort").exists()
        self.checksums = alone(root / "lock")
        last = last_run.read(root / "abort")
        self.ours = last.ours
        self.same_boot = self.checksums and last.same_boot
        self.delay_levels_ms = list(delay_levels_ms)
        self.progress = progress

    def run(self, *, index: bool, index_slots: int | None) -> Report:
        maps = self.look(index=index, index_slots=index_slots)
        walker = LogVerifier(
            self.files.log.text(), self.files.segments,
            os.fsencode(self.root / "consumequeue"), os.fsencode(self.root / "consumequeue_ext"),
            self.files.file_entries, self.delay_levels_ms,
            checksums=self.checksums, same_boot=self.same_boot)
        for queue in self.files.queues:
            walker.add_queue(os.fsencode(queue.topic), queue.queue_id, queue.first, queue.limit,
                             queue.ext_bytes)
        for content in maps:
            walker.add_index(content, self.files.index_slots, self.files.index_entries)
        if index:
            walker.check_keys()
        self._walk(walker)
        for number in range(len(maps)):
            walker.check_chains(number)
        if index:
            walker.finish_keys()
        for number in range(walker.queue_count):
            walker.scan_queue(number)
        self.judge(walker, index=index)
        return self.report

    def look(self, *, index: bool, index_slots: int | None) -> list[mmap.mmap]:
        """List the files; those of the index, mapped. Raises OSError."""
        if self.unclean:
            self.report.add(MEND, "abort", None, "the last run did not end cleanly")
        read_log(self.files, self.report, unclean=self.unclean)
        misplaced = misplaced_checksums(self.files)
        for name in misplaced:
            self.report.add(DAMAGE, name, None, "expected a folder of checksums" if "/" not in name
                            else "no file of checksums: no broker of ours starts with it")
        self.checksums = self.checksums and not misplaced
        self.same_boot = self.same_boot and not misplaced
        read_queues(self.files, self.report, unclean=self.unclean)
        return read_index(self.files, self.report, index_slots) if index else []

    def _walk(self, walker: LogVerifier) -> None:
        first = self.files.segments[0][0] if self.files.segments else 0
        total = sum(size for _, size in self.files.segments)
        while walker.step(STEP_BYTES):
            if self.progress is not None:
                self.progress(walker.position - first, total)
        if self.progress is not None:
            self.progress(total, total)

    # -- judgement ---------------------------------------------------------------------------------

    def judge(self, walker: Walked, *, index: bool) -> None:
        """Add to the report what reading found, and what that means."""
        figures = walker.figures()
        queues = [walker.queue(number) for number in range(walker.queue_count)]
        times = self._checkpoint(figures)
        replay = walker.replay_from(max(0, min(times[:2]) - REPLAY_BACK_MS))
        context = Context(self.files, [queue_name(queue) for queue in queues], self.unclean, replay)
        kept, counts = walker.findings()
        self.report.findings += [context.finding(found) for found in kept]
        for kind, count in enumerate(counts):
            shown = sum(1 for found in kept if found["kind"] == kind)
            if count > shown:
                like = context.finding(next(f for f in kept if f["kind"] == kind))
                self.report.add(like.severity, like.file.split("/")[0], None,
                                f"{count - shown} more of this kind: {like.text}")
        decoded = verify_config.check(self.root, self.report)
        self._log_end(walker, figures, context)
        self._missing_entries(queues, verify_config.topics_of(decoded))
        if index:
            self._missing_keys(figures, context)
        self._notes(figures, queues)
        verify_config.check_offsets(
            decoded, {queue_name(queue): int(queue["end"]) for queue in queues if queue["on_disk"]},
            self.report)
        first = self.files.segments[0][0] if self.files.segments else 0
        verify_timer.check(self.root, decoded.get("delayOffset.json", {}).get("timer"),
                           (first, figures["end"]), self.report)
        self._summary(figures, queues)

    def _checkpoint(self, figures: dict[str, int]) -> tuple[int, int, int]:
        """Check the checkpoint (store.md 5); its three times, 0: unknown."""
        try:
            raw = files.read(self.root / "checkpoint")
        except FileNotFoundError:
            self.report.add(MEND, "checkpoint", None, "missing, expected 4096 bytes")
            return 0, 0, 0
        if len(raw) < PAGE_SIZE:
            self.report.add(MEND, "checkpoint", None, f"{len(raw)} bytes, expected {PAGE_SIZE}")
        if len(raw) < TIMES.size:
            return 0, 0, 0
        behind = next((at for at in range(TIMES.size, len(raw)) if raw[at]), None)
        if behind is not None:
            self.report.add(DAMAGE, "checkpoint", behind,
                            f"{raw[behind]}, expected zeros up to the end")
        times: tuple[int, int, int] = TIMES.unpack_from(raw)
        for i, value in enumerate(times):
            if value < 0:
                self.report.add(DAMAGE, "checkpoint", 8 * i,
                                f"{CHECKPOINT_NAMES[i]} is {value}, expected 0 or a time")
            elif value > figures["last_time_ms"]:
                self.report.add(
                    DAMAGE, "checkpoint", 8 * i,
                    f"{CHECKPOINT_NAMES[i]} is {value}, expected at most the youngest record's "
                    f"{figures['last_time_ms']}: records that were on disk are gone")
        return times

    def _log_end(self, walker: Walked, figures: dict[str, int], context: Context) -> None:
        if not self.files.segments:
            if any(queue.limit for queue in self.files.queues) and any(
                    walker.queue(n)["beyond"] for n in range(walker.queue_count)):
                self.report.add(DAMAGE, "commitlog", None,
                                "no segment, expected those to which the consume queues point")
            return
        rest = walker.rest()
        self._records_gone(figures)
        if rest >= 0 and figures["end_result"] != UNREADABLE:
            what = RESULTS.get(figures["end_result"], "bytes that are no record")
            place = context.log(figures["end"])
            if context.log(rest)[0] != place[0]:           # this segment is empty from there on
                place = context.log(rest)
            flipped = figures["end_result"] == ParseResult.PARSE_BAD_CHECKSUM and not self.unclean
            lost = self.same_boot and checksums_lost(
                self.files, figures["end_result"], figures["end"])
            self.report.add(
                DAMAGE if flipped or lost else MEND, *place,
                f"{what} behind the last whole record, which ends at log position "
                f"{figures['end']}: " + (
                    "the last run ended cleanly, so it was whole then" if flipped
                    else "whole records as they were written, whose checksums are lost" if lost
                    else "a torn end, cut at the next start"))
        ahead = [start for start, _ in self.files.segments if start > figures["end"]]
        if ahead and rest < 0:
            self.report.add(MEND if self.unclean else NOTE, f"commitlog/{ahead[0]:020d}", None,
                            "made ahead and empty; removed at the next start")

    def _records_gone(self, figures: dict[str, int]) -> None:
        """Whether the last run has left word of a longer log: no start continues then."""
        ends = queue_ends.read(self.root / "config" / queue_ends.NAME)
        if ends is None:
            return
        if not self.unclean and ends.end > figures["end"]:
            left = f"it ended at {ends.end} when the broker was stopped"
        elif self.unclean and self.ours and self.checksums and figures["end"] < ends.flushed:
            left = f"it was on the disk up to {ends.flushed}"
        else:
            return
        self.report.add(DAMAGE, f"config/{queue_ends.NAME}", None,
                        f"the log ends at log position {figures['end']}, and {left}: records are "
                        "gone")

    def _missing_entries(self, queues: list[dict[str, Any]], topics: set[str] | None) -> None:
        """Records without an entry: the queue is missing, behind, or begins too late."""
        some_queues = any(queue["on_disk"] for queue in queues)
        for queue in queues:
            if not queue["missing"]:
                continue
            topic, queue_id = queue_name(queue)
            folder = f"consumequeue/{topic}/{queue_id}"
            count, first = queue["missing"], queue["missing_first"]
            removed = (some_queues and topics is not None and topic not in topics
                       and not topic.startswith(UNLISTED_BEGINNINGS))
            if not queue["on_disk"] and removed:
                self.report.add(NOTE, folder, None, f"not there, nor is its topic: {count} records "
                                                    "of a removed topic are still in the log")
            elif not queue["on_disk"]:
                self.report.add(MEND, folder, None, f"missing: {count} records have no entry, the "
                                                    f"first is number {first}")
            elif first >= queue["end"]:
                self.report.add(MEND, folder, None, f"behind the log: {count} records from number "
                                                    f"{first} on have no entry")
            else:
                self.report.add(MEND, folder, None, f"{count} records have no entry, the first is "
                                                    f"number {first}; the queue goes on behind it")

    def _missing_keys(self, figures: dict[str, int], context: Context) -> None:
        if not figures["keys_missing"]:
            return
        at = figures["keys_missing_first"]
        state = "missing" if not self.files.index else (
            "behind the log" if not figures["keys_passed"] else "incomplete")
        self.report.add(MEND, "index", None,
                        f"{state}: {figures['keys_missing']} of {figures['keys']} keys have no "
                        f"entry, the first of the record at log position {at}")

    def _notes(self, figures: dict[str, int], queues: list[dict[str, Any]]) -> None:
        notes = (
            ("time_steps_back", "commitlog",
             "records are older than the one before them: the clock went back"),
            ("plain_delays", "consumequeue/SCHEDULE_TOPIC_XXXX",
             "entries carry a tag code instead of the delivery time: delivered at once"),
            ("keys_doubled", "index", "keys are indexed a second time, as after a crash"),
            ("unknown_side_queues", "consumequeue", "names of multi-dispatch lists have no queue"),
            ("keys_passed", "index", "keys point into stretches of the log that cannot be read"),
        )
        for name, file, text in notes:
            if figures[name]:
                self.report.add(NOTE, file, None, f"{figures[name]} {text}")
        replaced = sum(int(queue["superseded"]) for queue in queues)
        if replaced:
            self.report.add(NOTE, "commitlog", None, f"{replaced} records are of a topic that was "
                                                     "removed and made again later")

    def _summary(self, figures: dict[str, int], queues: list[dict[str, Any]]) -> None:
        figures["segments"] = len(self.files.segments)
        figures["segment_bytes"] = self.files.segment_bytes
        figures["first"] = self.files.segments[0][0] if self.files.segments else 0
        figures["index_files"] = len(self.files.index)
        figures["index_slots"] = self.files.index_slots
        figures["index_entries"] = self.files.index_entries
        figures["queue_file_entries"] = self.files.file_entries
        figures["entries"] = sum(int(queue["live"]) for queue in queues)
        self.report.figures = figures
        named = [(queue_name(queue), queue) for queue in queues]
        self.report.queues = [
            {"topic": topic, "queueId": queue_id,
             **{name: int(queue[name]) for name in sorted(COUNTED)}}
            for (topic, queue_id), queue in sorted(named, key=lambda item: item[0])]


def checksums_lost(files: StoreListing, result: int, end: int) -> bool:
    """
    Whether a start in the boot that wrote the log takes its end, where `result` lies, for damage
    (recovery/start.pyx, judge_entries): a whole record has its checksum, only the last another.
    """
    needed = {ParseResult.PARSE_NO_CHECKSUM: 1, ParseResult.PARSE_BAD_CHECKSUM: 2}.get(
        ParseResult(result), 0)
    if not needed:
        return False
    scan = LogScan(files.log.text(), files.segments, start=end)
    for number in range(needed):
        raw = scan.next()
        if raw is None:
            return number > 0 and ParseResult(scan.result) is ParseResult.PARSE_BLANK
        if not decode_record(raw).crc_matches():
            return False
    return True
