"""
Instructions that native processes execute for a message, counted by valgrind's callgrind: its
processor is the same on every machine, so the table holds everywhere. Counters of a real processor
would not do: the C library and checksums choose other code on another one.
"""
from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mqcore.admin.status import describe
from perf.ledger.bench import HOT
from perf.ledger.counts import FOLDER_VARIABLE, LedgerError, preloaded
from perf.ledger.paths import (
    QUEUES,
    SETTLED_S,
    TOPIC,
    batches,
    bursts,
    delayed,
    exchange,
    held_pulls,
    pulls,
    send_command,
    sends,
    settled_end,
    transactions,
)
from perf.ledger.table import Table
from tests.support.mqcore_process import MQCORE, MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer
from tests.wire_live.state import State

FIGURE = "instructions"
SOURCE = Path(__file__).with_name("instructions.c")
NUMBERS = struct.Struct("<2q")         # asked, told
TOTALS = "totals: "
ROLES = (*HOT, "dispatcher", "scheduler")
VALGRIND = ("valgrind", "--quiet", "--vgdb=no", "--tool=callgrind", "--instr-atstart=no")
PARTS = 4
MANY = 90                              # messages of a part
IDLE_SECONDS = 2


def lacking() -> str:
    """Why instructions cannot be counted here; empty: they can."""
    for program in ("cc", VALGRIND[0]):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    found = subprocess.run(["cc", "-E", "-xc", "-", "-o", os.devnull], capture_output=True,
                           input=b"#include <valgrind/callgrind.h>\n")
    return "valgrind/callgrind.h is not there" if found.returncode else ""


@dataclass
class Instructions:
    """Of processes of a broker that runs in callgrind. numbers: the folder of its files."""

    broker: MqcoreProcess
    numbers: Path
    table: Table = field(default_factory=dict)
    _pids: dict[str, int] = field(default_factory=dict)
    _idle: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        run = describe(self.broker.segment_name())
        if run is None:
            raise LedgerError("the broker has ended")
        self._pids = {process["role"]: process["pid"] for process in run["processes"]}
        for role in ROLES:             # from here on they count
            self._since(role)
        self._idle = {role: min(self._second(role) for _ in range(IDLE_SECONDS))
                      for role in ROLES}

    def _second(self, role: str) -> float:
        began = time.monotonic()
        self._since(role)
        time.sleep(1.0)
        counted = self._since(role)
        return counted / (time.monotonic() - began)

    def path(self, name: str, items: int, run: Callable[[int], object],
             roles: tuple[str, ...] = HOT) -> None:
        """Instructions of one item: the least of some parts, without those of an idle broker."""
        run(items)
        found: dict[str, list[float]] = {role: [] for role in roles}
        for role in roles:
            self._since(role)
        for _ in range(PARTS):
            began = time.monotonic()
            run(items)
            seconds = time.monotonic() - began
            for role in roles:
                found[role].append((self._since(role) - self._idle[role] * seconds) / items)
        self.table |= {(name, role, FIGURE): min(counted) for role, counted in found.items()}

    def _since(self, role: str) -> int:
        """How many a process executed since it was asked last."""
        pid, file = self._pids[role], self.numbers / str(self._pids[role])
        asked = NUMBERS.unpack(file.read_bytes()[:NUMBERS.size])[0] + 1
        with file.open("r+b") as numbers:
            numbers.write(asked.to_bytes(8, "little"))
        wait_until(lambda: NUMBERS.unpack(file.read_bytes()[:NUMBERS.size])[1] == asked,
                   f"the instructions of {role}")
        said = (self.numbers / f"callgrind.{pid}.{asked}").read_text().splitlines()
        return next(int(line.removeprefix(TOTALS)) for line in said if line.startswith(TOTALS))


@contextlib.contextmanager
def counted(folder: Path, *before: Path) -> Iterator[tuple[Instructions, State, list[Peer]]]:
    """A broker in callgrind, and nine old connections. before: other preloaded libraries."""
    folder.mkdir()
    numbers = folder / "instructions"
    numbers.mkdir()
    libraries = " ".join(map(str, (*before, preloaded(SOURCE, folder))))
    program = ("env", f"LD_PRELOAD={libraries}", f"{FOLDER_VARIABLE}={numbers}", *VALGRIND,
               f"--callgrind-out-file={numbers}/callgrind.%p", *MQCORE)
    with mqcore_up(folder / "broker", program=program) as broker, (
            contextlib.ExitStack()) as stack:
        state = stack.enter_context(State(broker.broker_addr))
        for topic in (TOPIC, "Late"):
            state.topic(topic, QUEUES)
        peers = [stack.enter_context(Peer(broker.broker_addr)) for _ in range(9)]
        time.sleep(SETTLED_S)
        for peer in peers:
            exchange(peer, send_command(0))
        yield Instructions(broker, numbers), state, peers


def one_send(folder: Path, *before: Path) -> Table:
    """Only the first path. before: as for `counted`."""
    with counted(folder, *before) as (bench, _, peers):
        bench.path("send, one in flight", MANY, sends(peers[0]))
        return bench.table


def instructions(_numbers: Path, folder: Path) -> Table:
    """Each path on which native code does nearly all."""
    with counted(folder) as (bench, state, peers):
        peer, consumer = peers[0], peers[1]
        bench.path("send, one in flight", MANY, sends(peer))
        bench.path("send, 8 x 32", 2 * 256, bursts(peers[:8], 32), (*HOT, "dispatcher"))
        bench.path("batch of 32", MANY, batches(peer), (*HOT, "dispatcher"))
        wait_until(lambda: state.queue_end(TOPIC, 0) > 0, "a queue")
        bench.path("pull of 32", MANY, pulls(consumer), HOT[:1])
        bench.path("held pull, end to end", MANY, held_pulls(peer, consumer, settled_end(state)),
                   HOT[:1])
        bench.path("half and commit", MANY, transactions(peer))
        bench.path("delayed", MANY, delayed(peer, state), ("writer", "scheduler"))
        return bench.table
