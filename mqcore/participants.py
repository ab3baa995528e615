"""
Who takes part in a run: a row for each kind of process, in the order of their places.

Whatever has one place for each of them (slots in shared memory, doorbells) is numbered by this
table; native code has the numbers as constants, which setup.py makes of it (participants.pxd). A
new kind of process is a row here and its file in workers/, which is called like it.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Participant:
    """
    One kind of process.

    name       of the process, as ps, log lines and `mqcore status` have it
    word       in the names of native constants
    count_max  how many there may be; from two on they are called name-0, name-1, ...
    slot       of the first of them in shared memory
    """

    name: str
    word: str
    count_max: int
    slot: int

    def process_name(self, index: int = 0) -> str:
        """What the process number `index` of this kind is called."""
        return self.name if self.count_max == 1 else f"{self.name}-{index}"


_rows: list[Participant] = []


def _row(name: str, *, word: str = "", count_max: int = 1) -> Participant:
    row = Participant(
        name, word or name.replace("-", "_").upper(), count_max,
        slot=sum(each.count_max for each in _rows))
    _rows.append(row)
    return row


SUPERVISOR = _row("supervisor")
SERVING = _row("pull-serving", word="SERVING", count_max=16)
WRITER = _row("writer")
DISPATCHER = _row("dispatcher")
COORDINATOR = _row("coordinator")
SCHEDULER = _row("scheduler")
TRANSACTION_CHECK = _row("transaction-check")
NAMESRV = _row("namesrv")

PARTICIPANTS = tuple(_rows)
SLOT_COUNT = sum(each.count_max for each in PARTICIPANTS)


def processes(serving_count: int) -> Iterator[tuple[Participant, int]]:
    """(row, index) of every process that a run may have."""
    for row in PARTICIPANTS:
        for index in range(serving_count if row is SERVING else row.count_max):
            yield row, index


def declarations() -> str:
    """The numbers of the table as native constants: participants.pxd."""
    lines = ["# Made from participants.py by setup.py.", "cdef enum:"]
    lines += [f"    SLOT_{row.word} = {row.slot}" for row in PARTICIPANTS]
    lines += [f"    SLOT_COUNT = {SLOT_COUNT}", f"    SERVING_COUNT_MAX = {SERVING.count_max}"]
    return "\n".join(lines) + "\n"
