"""
Who takes part in a run: a row for each kind of process, in the order of their places.

Whatever has one place for each of them (slots in shared memory with their doorbells, rings, rows of
interest) is numbered by this table; native code has the numbers as constants, which setup.py makes
of it (participants.pxd), and goes through the rows in the head of the segment. A new kind of
process is a row here and a file in workers/, which is called like it and has a function `live`.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum


class Start(IntEnum):
    """When a process is started: what belongs to a step runs before the next step begins."""

    BESIDE = 0                   # first, and no other waits for it
    LOG = 1                      # it says where the log ends
    QUEUES = 2                   # and brings the queues there
    ALL = 3


class Holds(IntEnum):
    """What of its work is in memory alone until it has ended."""

    NOTHING = 0
    MADE_AGAIN = 1               # by the next start
    LOST = 2


@dataclass(frozen=True)
class Participant:
    """
    One kind of process.

    name      of the process, as ps, log lines and `mqcore status` have it
    word      in the names of native constants
    count_max how many there may be; from two on they are called name-0, name-1, ...
    slot      of the first of them in shared memory
    start     see Start
    stop      in this step of a stop, after all of the steps before have ended
    holds     a slow disk is waited for while it stops, unless that is nothing
    stores    the store is whole only if it has stopped in order
    results   bytes of the ring by which it hears what became of its appends; 0: it appends nothing
    producer  number of its rings, of the first of them; -1: it has none
    hears     bytes of the ring by which the dispatcher tells it of queues; 0: it hears of none
    listener  number of that ring, likewise
    follows   it is rung when the log has grown
    optional  its file says with `wanted` whether a run has it
    section   of the settings, whose `enable` says whether its file is loaded; "": it always is
    """

    name: str
    word: str
    count_max: int
    slot: int
    start: Start
    stop: int
    holds: Holds
    stores: bool
    results: int
    producer: int
    hears: int
    listener: int
    follows: bool
    optional: bool
    section: str

    @property
    def module(self) -> str:
        """Of its process: a file in workers/."""
        return f"mqcore.processes.{self.name.replace('-', '_')}"

    def process_name(self, index: int = 0) -> str:
        """What the process number `index` of this kind is called."""
        return self.name if self.count_max == 1 else f"{self.name}-{index}"


_rows: list[Participant] = []


def _row(name: str, *, word: str = "", count_max: int = 1, start: Start = Start.ALL, stop: int = 0,
         holds: Holds = Holds.NOTHING, stores: bool = False, results: int = 0, hears: int = 0,
         follows: bool = False, optional: bool = False, section: str = "") -> Participant:
    before = tuple(_rows)
    _rows.append(Participant(
        name, word or name.replace("-", "_").upper(), count_max,
        slot=sum(row.count_max for row in before), start=start, stop=stop, holds=holds,
        stores=stores, results=results, hears=hears, follows=follows, optional=optional,
        section=section,
        producer=sum(row.count_max for row in before if row.results) if results else -1,
        listener=sum(row.count_max for row in before if row.hears) if hears else -1))
    return _rows[-1]


KIB, MIB = 1 << 10, 1 << 20

SUPERVISOR = _row("supervisor")
# the first that appends and that hears of queues: its index is its number there
SERVING = _row("pull-serving", word="SERVING", count_max=16, stop=1, results=4 * MIB,
               hears=256 * KIB)
WRITER = _row("writer", start=Start.LOG, stop=5, holds=Holds.LOST, stores=True)
DISPATCHER = _row("dispatcher", start=Start.QUEUES, stop=6, holds=Holds.MADE_AGAIN, stores=True,
                  follows=True)
SCHEDULER = _row("scheduler", stop=4, holds=Holds.LOST, results=256 * KIB, hears=256 * KIB,
                 optional=True)
TRANSACTION_CHECK = _row("transaction-check", stop=2, results=256 * KIB, optional=True)
COORDINATOR = _row("coordinator", stop=3, holds=Holds.LOST, results=256 * KIB)
NAMESRV = _row("namesrv", start=Start.BESIDE, stop=7, optional=True)
# ends behind the writer: what that one waits for at its end has to reach the slaves
HA_MASTER = _row("ha-master", stop=6, follows=True, optional=True)
HA_SLAVE = _row("ha-slave", stop=4, results=256 * KIB, optional=True)
# lets another lead when all that was acknowledged has reached the others
FAILOVER = _row("failover", stop=7, optional=True, section="failover")
# answers how the others are, from the first of a start to the last of a stop
HTTP = _row("http", start=Start.BESIDE, stop=7, section="http")

PARTICIPANTS = tuple(_rows)
SLOT_COUNT = sum(row.count_max for row in PARTICIPANTS)


def processes(serving_count: int) -> Iterator[tuple[Participant, int]]:
    """(row, index) of every process that a run may have."""
    for row in PARTICIPANTS:
        for index in range(serving_count if row is SERVING else row.count_max):
            yield row, index


def declarations() -> str:
    """The numbers of the table as native constants: participants.pxd."""
    producers = [row for row in PARTICIPANTS if row.results]
    listeners = [row for row in PARTICIPANTS if row.hears]
    lines = ["# Made from participants.py by setup.py.", "cdef enum:"]
    lines += [f"    SLOT_{row.word} = {row.slot}" for row in PARTICIPANTS]
    lines += [f"    PRODUCER_{row.word} = {row.producer}" for row in producers]
    lines += [f"    LISTENER_{row.word} = {row.listener}" for row in listeners]
    lines += [
        f"    SLOT_COUNT = {SLOT_COUNT}",
        f"    SERVING_COUNT_MAX = {SERVING.count_max}",
        f"    PRODUCER_COUNT = {sum(row.count_max for row in producers)}",
        f"    LISTENER_COUNT = {sum(row.count_max for row in listeners)}",
        f"    FOLLOWER_COUNT = {sum(row.count_max for row in PARTICIPANTS if row.follows)}",
    ]
    return "\n".join(lines) + "\n"
