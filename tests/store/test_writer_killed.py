"""The writer is killed at random moments, again and again: nothing is lost, nothing doubled."""
from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter

import pytest

from mqcore.layout import PUT_OK, PUT_WRITER_RESTARTED
from mqcore.participants import WRITER
from tests.store.harness import Run

LIVES = 20                       # of a run, which has dice of its own
IN_FLIGHT_MAX = 200
DEADLINE_S = 60.0


def writer_process(run, mode, first):
    """A forked writer: recovers what an earlier one left, then appends until it is killed."""
    pid = os.fork()
    if pid:
        return pid
    try:
        run.segment.begin_incarnation(WRITER.slot)
        found = run.recover_tail()
        loop = run.writer(mode, found.end)
        if not first:
            loop.drop_requests()
        while True:
            loop.run(1000)
    finally:
        os._exit(1)


class Sender:
    """Keeps the ring full of numbered messages and notes what it hears of each."""

    def __init__(self, run, dice):
        self.run, self.probe, self.dice = run, run.probe(), dice
        self.heard: dict[int, list[int]] = {}
        self.places: dict[int, tuple[int, int]] = {}
        self.sent = 0
        self.settled = 0

    def resume(self):
        while self.sent - self.settled < IN_FLIGHT_MAX:
            body = b"%d:" % self.sent + b"." * self.dice.randrange(400)
            if not self.probe.send("topic", self.sent % 3, [body], opaque=self.sent):
                break
            self.sent += 1
        self.run.segment.ring_bell(WRITER.slot)
        for opaque, status, offset, position, _ in self.probe.take():
            heard = self.heard.setdefault(opaque, [])
            self.settled += not heard
            heard.append(status)
            if status == PUT_OK:
                self.places[opaque] = (offset, position)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_writer_killed_at_any_moment_loses_and_doubles_nothing(mode, tmp_path):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    run = Run(tmp_path / "store", segment_size=1 << 18)
    run.recover(clean=False)
    sender = Sender(run, dice)
    deadline = time.monotonic() + DEADLINE_S
    for life in range(LIVES):
        pid = writer_process(run, mode, life == 0)
        enough = len(sender.places) + dice.randrange(1, 300)
        try:
            while len(sender.places) < enough:
                assert time.monotonic() < deadline
                assert os.waitpid(pid, os.WNOHANG) == (0, 0), "the writer ended by itself"
                sender.resume()
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    found = run.recover_tail()
    sender.probe.take()

    records = {}
    numbers = Counter()
    for record in run.records(found.end):
        if not record.get("blank"):
            number = int(record["body"].split(b":")[0])
            numbers[number] += 1
            records[number] = (record["queueOffset"], record["physicalOffset"])
            assert record["queueId"] == number % 3
    assert max(numbers.values()) == 1
    assert {number: records.get(number) for number in sender.places} == sender.places
    for queue in range(3):
        offsets = sorted(offset for number, (offset, _) in records.items() if number % 3 == queue)
        assert offsets == list(range(len(offsets)))
    # stored and told "not known" is allowed; told "stored" is final, and nothing is told it twice
    assert all(heard in ([PUT_OK], [PUT_WRITER_RESTARTED], [PUT_OK, PUT_WRITER_RESTARTED])
               for heard in sender.heard.values())
    assert len(sender.places) > LIVES
