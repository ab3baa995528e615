"""
The index by time of messages with a time of delivery (timer_wheel.pxd), at rest: what a start
trusts must hold together; what it does not trust is made again from the queue, and is passed over.
"""
from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from mqcore.store.last_run import boot_id
from mqcore.store.verify.report import DAMAGE, MEND, Report

WHEEL, LOG, CHECK = "timerwheel", "timerlog", "config/timercheck"
SLOTS: Final = 1_209_600
SLOT: Final = struct.Struct(">qqqii")          # second, first and last unit, units, magic
UNIT: Final = struct.Struct(">iqiqiqiiq")      # size, previous, magic, ..., state
NOTED: Final = struct.Struct(">4q")            # next second in ms, end, queue offset twice
LOG_FILE_BYTES: Final = 100 << 20
CHECK_BYTES: Final = 4_096
SECOND_SHIFT: Final = 2
SLOTS_AT_ONCE: Final = 4_096
SHOWN_MAX: Final = 20
AGAIN: Final = "it is made again from the queue at the next start"


class _Broken(Exception):
    """A chain of units does not hold together; the text says where."""


def check(root: Path, said: object, log_range: tuple[int, int], report: Report) -> None:
    """
    Add to the report. said: member `timer` of delayOffset.json; log_range: the log positions from
    the first record to the end of the last. Raises OSError.
    """
    if not isinstance(said, dict):
        return
    trouble = _doubt(root / WHEEL, said)
    if trouble:
        report.add(MEND, WHEEL, None, f"{trouble}; {AGAIN}")
        return
    with ExitStack() as opened:
        logs: dict[int, mmap.mmap] = {}
        for path in sorted((root / LOG).glob("*")):
            if not path.name.isdecimal() or int(path.name) % LOG_FILE_BYTES:
                report.add(DAMAGE, LOG, None, f"{path.name}: expected files of {LOG_FILE_BYTES} "
                                              "bytes that are named by their begin")
                return
            if path.stat().st_size != LOG_FILE_BYTES:
                report.add(DAMAGE, f"{LOG}/{path.name}", None,
                           f"{path.stat().st_size} bytes, expected {LOG_FILE_BYTES}")
                return
            logs[int(path.name)] = opened.enter_context(_mapped(path))
        for name, size in ((WHEEL, SLOTS * SLOT.size), (CHECK, CHECK_BYTES)):
            found = (root / name).stat().st_size if (root / name).exists() else 0
            if found != size:
                report.add(DAMAGE, name, None, f"{found} bytes, expected {size}")
                return
        second_ms, end, _, _ = NOTED.unpack_from((root / CHECK).read_bytes())
        wheel = opened.enter_context(_mapped(root / WHEEL))
        _slots(wheel, _Units(logs, end, log_range), second_ms // 1000, report)


def _doubt(wheel: Path, said: Mapping[str, Any]) -> str | None:
    """Why a start does not trust the wheel; None: it does."""
    if not wheel.exists():
        return "missing"
    found = wheel.stat()
    if said.get("wheel") != [found.st_dev, found.st_ino]:
        return "of another folder, or left by a broker that doubted it"
    if said.get("boot") not in ("", boot_id()):
        return "the machine was started again before the broker was stopped"
    return None


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class _Units:
    """The timer log."""

    def __init__(self, logs: Mapping[int, mmap.mmap], end: int, log_range: tuple[int, int]) -> None:
        self._logs, self._end, self._range = logs, end, log_range

    def chain(self, last: int, second: int) -> Iterator[int]:
        """The positions of a slot's units, the latest first. Raises _Broken."""
        position = last
        while position >= 0:
            size, previous, _, _, _, log_position, record_size, _, state = self._unit(position)
            where = f"the unit at {position} of the slot of second {second}"
            if size != UNIT.size:
                raise _Broken(f"{where} has size {size}, expected {UNIT.size}")
            if state >> SECOND_SHIFT not in (0, second):
                raise _Broken(f"{where} is of second {state >> SECOND_SHIFT}")
            if not (record_size > 0 and 0 <= log_position <= self._range[1] - record_size):
                raise _Broken(f"{where} points at log position {log_position}, and the log ends at"
                              f" {self._range[1]}")
            if previous >= position:
                raise _Broken(f"{where} has {previous} before it")
            yield position
            position = previous

    def _unit(self, position: int) -> tuple[int, ...]:
        begin = position // LOG_FILE_BYTES * LOG_FILE_BYTES
        log = self._logs.get(begin)
        if log is None or not position < self._end or (
                position - begin > LOG_FILE_BYTES - UNIT.size):
            raise _Broken(f"there is no unit at {position}: the timer log ends at {self._end}")
        return UNIT.unpack_from(log, position - begin)


def _slots(wheel: mmap.mmap, units: _Units, first: int, report: Report) -> None:
    broken = 0
    never = bytes(SLOTS_AT_ONCE * SLOT.size)
    for begin in range(0, SLOTS, SLOTS_AT_ONCE):
        part = wheel[begin * SLOT.size:(begin + SLOTS_AT_ONCE) * SLOT.size]
        if part == never[:len(part)]:
            continue
        for number, (second, _, last, count, _) in enumerate(SLOT.iter_unpack(part), begin):
            if 0 <= second < first or last < 0:     # it is over, or was never used
                continue
            try:
                if second % SLOTS != number or second < 0:
                    raise _Broken(f"it holds second {second}")
                found = sum(1 for _ in units.chain(last, second))
                if found != count:
                    raise _Broken(f"it has {found} units, expected {count}")
            except _Broken as error:
                broken += 1
                if broken <= SHOWN_MAX:
                    report.add(DAMAGE, WHEEL, number * SLOT.size, str(error))
    if broken > SHOWN_MAX:
        report.add(DAMAGE, WHEEL, None, f"{broken - SHOWN_MAX} more slots do not hold together")
