"""
Repair of a store at rest, stock or ours: what `mqcore store verify` calls damaged is made such that
a broker starts, ours or a stock one, and reads on behind it.

The commit log is the truth: its damaged stretches are bridged (records.py), and what can be
made from it again (queues, index, checkpoint) is moved away when it is wrong: the next start writes
it anew. Changed and moved files lie in a folder beside the store afterwards, with a report.
docs/verify.md says what is done in which case.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqcore.store.files import write_atomically
from mqcore.store.ownership import StoreLock
from mqcore.store.recovery import queue_ends
from mqcore.store.repair.files import Salvage
from mqcore.store.repair.log import LogRepair
from mqcore.store.verify import timer as verify_timer
from mqcore.store.verify.config import SHAPES, WHOLE_FILE, ShapeError
from mqcore.store.verify.files import need_log
from mqcore.store.verify.report import (
    DAMAGE,
    STATUS_DAMAGED,
    STATUS_MEND,
    WORDS,
    NamedFinding,
    Report,
)
from mqcore.store.verify.store import DELAY_LEVELS_MS, verify
from mqcore.wire import fastjson

LOG, QUEUES, INDEX = "commitlog", "consumequeue", "index"
CHECKPOINT, CONFIG = "checkpoint", "config"
EXT = "consumequeue_ext"
ENDS = f"{CONFIG}/{queue_ends.NAME}"


@dataclass
class Outcome:
    """
    before, after: verifications; after is None in a dry run; lost: how many messages were given up
    for placeholders; report: the file that tells all.
    """

    before: Report
    actions: list[str]
    after: Report | None = None
    lost: int = 0
    report: Path | None = None

    @property
    def status(self) -> int:
        """The exit status, as of verify."""
        return (self.after or self.before).status

    @property
    def verdict(self) -> str:
        """That of verify, but for what the repair gave up."""
        if not self.lost:
            return WORDS[self.status]
        mends = self.status == STATUS_MEND
        return (f"{'the next start mends the rest' if mends else WORDS[self.status]}; {self.lost} "
                "messages are lost: placeholders stand for them")

    def as_dict(self) -> dict[str, Any]:
        """before, after, lost and verdict, as JSON has them."""
        return {"before": self.before.as_dict(), "lost": self.lost, "verdict": self.verdict,
                "after": None if self.after is None
                else {**self.after.as_dict(), "verdict": self.verdict}}


def repair(root: Path, folder: Path, *, dry: bool, index: bool = True,
           index_slots: int | None = None,
           delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS) -> Outcome:
    """
    Repair the store at `root`; a store without damage is not changed.

    folder  where copies of what is changed go, with report.json; made when there is something
    dry     change nothing, say what would be done
    Others as for verify. Raises StoreInUseError, FileNotFoundError (no store there; NoLogError:
    not its log: nothing is touched), OSError: what
    was done until then stays done, and the repair may be started again.
    """
    options: dict[str, Any] = {"index": index, "index_slots": index_slots, "locked": True,
                               "delay_levels_ms": delay_levels_ms}
    if not (root / LOG).is_dir() and not (root / QUEUES).is_dir():
        raise FileNotFoundError(f"{root}: no store: neither commitlog nor consumequeue is there")
    need_log(root, "where it lies elsewhere, let that be a link to its folder as long as the "
                   "repair runs; where it is lost, an empty folder")
    lock = StoreLock(root, changes=True)
    try:
        before = verify(root, **options)
        outcome = Outcome(before, [])
        if before.status != STATUS_DAMAGED:
            return outcome
        salvage = Salvage(root, folder, dry=dry)
        log = LogRepair(salvage, delay_levels_ms)
        log.run()
        found = before if dry or not (log.changed or log.mended) else verify(root, **options)
        _repair_rest(salvage, found, log_changed=log.changed)
        outcome.actions = salvage.lines()
        outcome.lost = sum(len(action.get("messages", ())) for action in salvage.actions)
        if not dry:
            outcome.after = verify(root, **options)
            outcome.report = salvage.report(**outcome.as_dict())
    finally:
        lock.release()
    return outcome


def _repair_rest(salvage: Salvage, found: Report, *, log_changed: bool) -> None:
    """Everything but the log, by the findings of a verification."""
    damaged = [finding for finding in found.findings if finding.severity == DAMAGE]
    by_part: dict[str, list[NamedFinding]] = {}
    for finding in damaged:
        by_part.setdefault(finding.file.split("/")[0], []).append(finding)
    no_log = any(finding.file == LOG and finding.text.startswith("no segment, expected those")
                 for finding in by_part.get(LOG, []))
    if by_part.get(QUEUES) or log_changed or no_log:
        # all of them: a stock broker builds queues again only when none is there that knows of a
        # record in the log (store.md 9.7)
        text = "made from the log; the next start does it anew"
        kept = set() if no_log else found.expired_queues()
        if kept:
            salvage.move_queues(QUEUES, kept, text)
        _take_away(salvage, (EXT, INDEX) if kept else (QUEUES, EXT, INDEX), text)
        if (salvage.root / ENDS).exists() and not _ends_hold(salvage.root, found):
            salvage.move(ENDS, "no longer true")
    elif by_part.get(INDEX):
        _take_away(salvage, (INDEX,), "made from the log; the next start does it anew")
    timer = next((finding for part in (verify_timer.WHEEL, verify_timer.LOG, CONFIG)
                  for finding in by_part.get(part, [])
                  if part != CONFIG or finding.file == verify_timer.CHECK), None)
    if timer is not None:
        for name in (verify_timer.WHEEL, verify_timer.LOG, verify_timer.CHECK):
            if (salvage.root / name).exists():
                salvage.move(name, f"{timer.text}; made from the log, the next start does it anew")
    if by_part.get(CHECKPOINT):
        salvage.move(CHECKPOINT, by_part[CHECKPOINT][0].text)
    for name in sorted({finding.file.removeprefix(f"{CONFIG}/")
                        for finding in by_part.get(CONFIG, [])
                        if finding.file != verify_timer.CHECK}):
        if name == queue_ends.NAME:
            salvage.move(ENDS, "it tells of records that are gone")
        else:
            _config(salvage, name)


def _ends_hold(root: Path, found: Report) -> bool:
    """Whether the next start knows of every queue what it has to hold, and will miss a lost one."""
    ends = queue_ends.read(root / ENDS)
    return (ends is not None and not (root / "abort").exists()
            and (ends.first, ends.end) == (found.figures["first"], found.figures["end"]))


def _take_away(salvage: Salvage, names: Sequence[str], text: str) -> None:
    for name in names:
        if (salvage.root / name).is_dir():
            salvage.move(name, text)


def _config(salvage: Salvage, name: str) -> None:
    """A JSON file that no reader understands: the members that can be read stay."""
    name = name.removesuffix(".bak")
    for each in (name, f"{name}.bak"):
        path = salvage.root / CONFIG / each
        if not path.exists():
            continue
        try:
            value = fastjson.loads(path.read_bytes(), **WHOLE_FILE)
        except fastjson.JsonError as error:
            salvage.move(f"{CONFIG}/{each}", f"not JSON ({error})")
            continue
        if not isinstance(value, dict):
            salvage.move(f"{CONFIG}/{each}", f"a {type(value).__name__}, expected an object")
            continue
        kept, dropped = _sound(name, value)
        if dropped:
            raw = path.read_bytes()
            saved = salvage.save(f"{CONFIG}/{each}", 0, len(raw))
            salvage.tell(f"{CONFIG}/{each}", None, f"members dropped: {'; '.join(dropped)[:2000]}",
                         saved=saved)
            if not salvage.dry:
                write_atomically(path, fastjson.dumps(kept))


def _sound(name: str, value: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """(the members of a config file that readers understand, what is wrong with the others)."""
    shape = SHAPES.get(name)
    if shape is None:
        return value, []
    kept: dict[str, Any] = {}
    dropped = []
    for table, members in value.items():
        try:
            shape({table: members})
            kept[table] = members
            continue
        except ShapeError as error:
            if not isinstance(members, dict):
                dropped.append(str(error))
                continue
        kept[table] = {}
        for key, member in members.items():
            sound, wrong = _sound_member(shape, table, key, member)
            dropped += wrong
            if sound is not None:
                kept[table][key] = sound
    return kept, dropped


def _sound_member(shape: Any, table: str, key: Any, member: Any) -> tuple[Any, list[str]]:
    """A member, or those of its own members that can be understood; None: nothing of it."""
    try:
        shape({table: {key: member}})
        return member, []
    except ShapeError as error:
        if not isinstance(member, dict):
            return None, [str(error)]
    kept, dropped = {}, []
    for inner, value in member.items():
        try:
            shape({table: {key: {inner: value}}})
            kept[inner] = value
        except ShapeError as error:
            dropped.append(str(error))
    return kept, dropped
