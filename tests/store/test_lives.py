"""A store through many lives: what was acknowledged is there once, whatever went wrong."""
from __future__ import annotations

import errno
import random

import pytest

from mqcore.layout import PUT_OK, PUT_WRITER_RESTARTED
from mqcore.store.probes import append_probe
from tests.store.harness import Run, read_entries

SEGMENT, FILE_ENTRIES, TURN_MS = 4096, 16, 1000
STEPS = 60
PREPARED = 4


class Life:
    """A run over a store, and what its producer was promised."""

    def __init__(self, root, dice, mode):
        self.root, self.dice, self.mode = root, dice, mode
        self.acknowledged: dict[bytes, tuple[int, int]] = {}   # body -> queue, offset
        self.waiting: dict[int, tuple[int, list[bytes]]] = {}
        self.serial = 0
        self.begin()

    def begin(self):
        self.run = Run(self.root, segment_size=SEGMENT, file_entries=FILE_ENTRIES)
        found = self.run.recover(clean=False)
        self.probe = self.run.probe()
        self.loop = self.run.writer(self.mode, found.end)
        self.waiting.clear()

    def send(self):
        self.serial += 1
        count = self.dice.choice((1, 1, 1, 4))
        kind = PREPARED if count == 1 and self.dice.random() < 0.1 else 0
        bodies = [b"%d.%d " % (self.serial, n) + b"." * self.dice.randrange(300)
                  for n in range(count)]
        queue = self.dice.randrange(3)
        assert self.probe.send("topic", queue, bodies, opaque=self.serial, sys_flag=kind)
        self.waiting[self.serial] = (-1 if kind else queue, bodies)

    def turn(self):
        self.loop.run(TURN_MS)
        self.settle()

    def settle(self):
        for opaque, status, offset, position, positions in self.probe.take():
            queue, bodies = self.waiting.pop(opaque)
            if status != PUT_OK:
                continue
            assert position == positions[0] if positions else len(bodies) == 1
            for number, body in enumerate(bodies):
                self.acknowledged[body] = (queue, offset + number if queue >= 0 else 0)

    def fail_a_write(self):
        append_probe.watch(self.run.segment)
        append_probe.fail("write", self.dice.choice((errno.ENOSPC, errno.EIO)),
                          first_bytes=self.dice.randrange(500), after=self.dice.randrange(2))
        try:
            for _ in range(self.dice.randrange(1, 20)):
                self.send()
            self.turn()
        finally:
            append_probe.unwatch()
        self.begin()                                    # the refusal ends with the run

    def new_writer(self):
        """The writer is gone: its requests are answered by the next, which finds the end itself."""
        for _ in range(self.dice.randrange(4)):
            self.send()
        found = self.run.recover_tail()
        assert found.torn == ""
        self.loop = self.run.writer(self.mode, found.end)
        self.loop.drop_requests()
        statuses = [status for _, status, *_ in self.probe.take()]
        assert statuses == [PUT_WRITER_RESTARTED] * len(self.waiting)
        self.waiting.clear()

    def dispatch(self):
        self.run.dispatch_all(self.run.segment.log_state()["published"], index_enabled=False)

    def check(self):
        """The log, and after a whole dispatch the queues, say what was promised, once each."""
        end = self.run.segment.log_state()["published"]
        records = [r for r in self.run.records(end) if not r.get("blank")]
        found = {r["body"]: (r["queueId"] if not r["sysFlag"] & 12 else -1, r["queueOffset"])
                 for r in records}
        assert len(found) == len(records), "a record is there twice"
        assert {body: found.get(body) for body in self.acknowledged} == self.acknowledged
        self.dispatch()
        ranges = self.run.queue_ranges()
        for queue in range(3):
            wanted = [[r["physicalOffset"], r["size"], 0] for r in records
                      if r["queueId"] == queue and not r["sysFlag"] & 12]
            assert ranges.get(("topic", queue), (0, 0)) == (0, len(wanted))
            folder = self.run.queue_folder / "topic" / str(queue)
            assert read_entries(folder, 0, len(wanted), FILE_ENTRIES) == wanted


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("seed", range(12))
def test_what_was_acknowledged_is_there_once_through_failures_and_restarts(seed, mode, tmp_path):
    dice = random.Random(f"{seed} {mode}")
    life = Life(tmp_path / "store", dice, mode)
    for _ in range(STEPS):
        step = dice.choices(
            (life.send, life.turn, life.dispatch, life.new_writer, life.begin, life.fail_a_write),
            (12, 6, 2, 1, 1, 1))[0]
        step()
    life.turn()
    life.check()
    life.begin()
    life.check()
    assert life.serial > STEPS // 4
