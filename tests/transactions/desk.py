"""A store, its writer, its dispatcher and its transaction check in one process, turned by hand."""
from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqcore.broker.requests.transaction import CHECK_TIMES
from mqcore.participants import TRANSACTION_CHECK, WRITER
from mqcore.shm.check_ring import CheckRequest, CheckRing, Progress
from mqcore.store.log.append_loop import AppendLoop
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.store.transactions.loop import TransactionCheckLoop
from mqcore.wire.codes import HALF_TOPIC, OP_TOPIC
from mqcore.wire.command import decode
from mqcore.wire.properties import decode_properties, encode_properties
from mqcore.wire.records import decode_record
from tests.store.harness import Run

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "PG"
TURN_MS = 20_000                 # a turn ends when nothing is waiting; this only bounds a bug
TURNS_MAX = 10_000
TIMEOUT_MS = 6_000
HOURS_72_MS = 72 * 3_600_000
COMMITTED = 8                    # sysFlag
ITEMS_MAX = 100_000


@dataclass(frozen=True)
class Question:
    """A check (39) as the producer gets it: where the copy is, and what it says."""

    half_offset: int
    body: bytes
    times: int
    group: str


class Desk:
    """
    One run of a broker. Time is the test's: `ahead_ms` is how far its clock is ahead of the real
    one, which stamps the records. What producers do is written as the serving process writes it.
    """

    def __init__(self, root: Path, *, check_max: int = 15, mode: str = "async",
                 reserved_ms: int = HOURS_72_MS, **sizes: Any) -> None:
        self.root, self.check_max, self.mode, self.sizes = root, check_max, mode, sizes
        self.reserved_ms = reserved_ms
        self.ahead_ms = self.steady_ms = 0
        self.known = (0, 0)                      # what the coordinator has heard
        self.begin((0, 0))

    def begin(self, offsets: tuple[int, int]) -> None:
        """A run begins over what is in the folder, with what consumerOffset.json says."""
        self.run = Run(self.root, **self.sizes)
        found = self.run.recover(clean=False)
        self.known = offsets
        self.run.segment.begin_incarnation(WRITER.slot)
        self.run.segment.request_stop(WRITER.slot)
        self.writer = self.run.writer(self.mode, found.end)
        self.dispatcher = self.run.dispatcher()
        self.probe = AppendProbe(self.run.segment)
        self.dispatch()
        self.begin_check()

    def begin_check(self) -> None:
        """The transaction check starts, for the first time or after its death."""
        segment = self.run.segment
        segment.begin_incarnation(TRANSACTION_CHECK.slot)
        self.ring = CheckRing(segment)
        self.check = TransactionCheckLoop(
            segment, os.fsencode(self.run.log_folder), os.fsencode(self.run.queue_folder),
            file_entries=self.run.file_entries, timeout_ms=TIMEOUT_MS, check_max=self.check_max,
            reserved_ms=self.reserved_ms)
        self.check.seek(*(self.check.known() or self.known))
        self.check.ahead_ms = self.ahead_ms
        self.in_round = False

    def kill_writer(self) -> None:
        """A new writer has found the log's end and answered what was in flight."""
        self.run.segment.begin_incarnation(WRITER.slot)
        self.run.segment.request_stop(WRITER.slot)
        self.writer = AppendLoop(
            self.run.segment, os.fsencode(self.run.log_folder), self.mode,
            self.run.recover_tail().end, flush_interval_ms=500, flush_least_bytes=16384,
            flush_thorough_interval_ms=10_000, sync_timeout_ms=5000, commit_interval_ms=200,
            commit_least_bytes=16384)
        self.writer.drop_requests()
        self.writer.publish_start(0)
        self.probe.take()

    # -- producers ---------------------------------------------------------------------------------

    def prepare(self, body: bytes, *, topic: str = "Orders", tag: int = 1,
                **properties: str) -> None:
        """A half message that is born now, by the desk's clock."""
        text = encode_properties({
            "TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": body.decode(), "WAIT": "true",
            "REAL_TOPIC": topic, "REAL_QID": "0", **properties})
        assert self.probe.send(HALF_TOPIC, 0, [body], opaque=tag, properties=text.encode(),
                               born_ms=time.time_ns() // 1_000_000 + self.ahead_ms)

    def end(self, half_offset: int, *, commit: bytes | None = None, topic: str = "Orders") -> None:
        """The op record of a half message, behind the final message if it is committed."""
        if commit is not None:
            assert self.probe.send(topic, 0, [commit], opaque=2, sys_flag=COMMITTED,
                                   properties=b"PGROUP\x01PG")
        self.op(b"%d" % half_offset, after_previous=commit is not None)

    def op(self, body: bytes, *, tag: bytes = b"d", after_previous: bool = False) -> None:
        assert self.probe.send(OP_TOPIC, 0, [body], opaque=3, oneway=True,
                               properties=b"WAIT\x01true\x02TAGS\x01" + tag,
                               after_previous=after_previous)

    def questions(self) -> list[Question]:
        """What is asked now; offsets on the way are noted, as the coordinator does."""
        found = []
        for item in self.ring.receive(ITEMS_MAX):
            if isinstance(item, CheckRequest):
                fields = decode(item.frame[4:]).ext or {}
                record = decode_record(decode(item.frame[4:]).body)
                found.append(Question(int(fields["tranStateTableOffset"] or -1), record.body,
                                      int(record.properties[CHECK_TIMES]), item.group))
            elif isinstance(item, Progress):
                self.known = (item.half_offset, item.op_offset)
        return found

    # -- the processes -----------------------------------------------------------------------------

    def write(self) -> dict[int, tuple[int, int]]:
        """What the writer answers to producers: tag -> (PutStatus, queue offset)."""
        self.writer.run(TURN_MS)
        return {tag: (status, offset) for tag, status, offset, _, _ in self.probe.take()}

    def dispatch(self) -> None:
        assert self.dispatcher.run(TURN_MS) == 0, self.dispatcher.failure()

    def store(self) -> None:
        self.write()
        self.dispatch()

    def turn(self, pass_ms: int = 4) -> bool:
        """
        A step of a round; a new one begins when there is none. True: it is over. pass_ms: of the
        clock of the check's pace, before it.
        """
        if not self.in_round:
            self.check.round_begin()
            self.in_round = True
        self.steady_ms += pass_ms
        if self.check.turn(self.steady_ms):
            self.in_round = False
            return True
        return False

    def pass_time(self, ms: int) -> None:
        self.ahead_ms += ms
        self.check.ahead_ms = self.ahead_ms

    def round(self, *, later_ms: int = TIMEOUT_MS + 1) -> list[Question]:
        """A whole round, with the writer's and the dispatcher's turns; what it asks."""
        self.pass_time(later_ms)
        asked: list[Question] = []
        for _ in range(TURNS_MAX):
            over = self.turn()
            self.store()
            asked += self.questions()
            if over:
                return asked
        raise AssertionError(f"still at work after {TURNS_MAX} turns")

    # -- what is there -----------------------------------------------------------------------------

    @property
    def offsets(self) -> tuple[int, int]:
        """(half offset, op offset) in shared memory: what a successor goes on from."""
        found = self.check.known()
        assert found is not None
        return found

    def ends(self) -> tuple[int, int]:
        ranges = self.run.queue_ranges()
        return (ranges.get((HALF_TOPIC, 0), (0, 0))[1], ranges.get((OP_TOPIC, 0), (0, 0))[1])

    def records(self, topic: str) -> list[dict[str, Any]]:
        end = self.run.segment.log_state()["published"]
        return [record for record in self.run.records(end)
                if not record.get("blank") and record["topic"] == topic]

    def bodies(self, topic: str) -> list[bytes]:
        return [record["body"] for record in self.records(topic)]


def said(record: dict[str, Any]) -> dict[str, str]:
    """A record's properties."""
    return dict(decode_properties(record["properties"]))
