"""
What a topic has been seen to hold so far: an audit that goes on from where it stopped.

After every kill only what is new is read, so that hundreds of kills can be checked in minutes; and
what was read once is final, whatever dies later.
"""
from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter

from tests.workers.load import QUEUES, TOPIC, Asker, Name, Promises, body_of, name_of

WAIT_S = 60.0
LOOK_S = 0.002
FOUND, NOTHING_NEW = 0, 19


class Ledger:
    """
    The audit of one topic over all lives of its broker.

    seed: of the bodies. AssertionError from `check` for whatever is not as it was promised: every
    acknowledged message once and where its answer said, bodies as sent, queue offsets without gap,
    each producer's order kept.
    """

    def __init__(self, seed: int, topic: str = TOPIC) -> None:
        self._seed = seed
        self._topic = topic
        self._next = [0] * QUEUES                       # the first offset that was not read yet
        self._newest: list[dict[int, int]] = [{} for _ in range(QUEUES)]
        self._checked = 0                               # of the promises, in their order
        self._unsure: Counter[int] = Counter()          # by producer: names below it, but kept ones
        self._kept: set[Name] = set()
        self.seen: dict[Name, tuple[int, int]] = {}
        self.forgiven = 0

    def forgive(self, promises: Promises, committed: int) -> None:
        """
        The writer has died with a pool: of all that was sent by now, only what lay below the log
        position `committed` was promised.
        """
        for name in itertools.islice(promises.acknowledged, self._checked, None):
            if promises.positions[name] < committed:
                self._kept.add(name)
        self._unsure = Counter(promises.sent)

    def next_life(self) -> None:
        """The next promises are those of other producers."""
        self._checked = 0
        self._kept.clear()
        self._unsure.clear()

    def check(self, address: str, promises: Promises) -> None:
        """Read what is new, as far as promises reach, and hold it against them."""
        due = {name: where for name, where in itertools.islice(
            promises.acknowledged.items(), self._checked, None) if self._is_due(name)}
        self.forgiven += len(promises.acknowledged) - self._checked - len(due)
        self._checked = len(promises.acknowledged)
        reach = [0] * QUEUES
        for queue_id, offset in due.values():
            reach[queue_id] = max(reach[queue_id], offset + 1)
        with Asker(address) as asker:
            for queue_id, end in enumerate(reach):
                self._read(asker, queue_id, end)
        wrong = {name: (where, self.seen.get(name)) for name, where in due.items()
                 if self.seen.get(name) != where}
        assert not wrong, (f"{len(wrong)} acknowledged, not where promised: "
                           f"{list(wrong.items())[:5]}")

    def _is_due(self, name: Name) -> bool:
        return name in self._kept or name[1] >= self._unsure[name[0]]

    def _read(self, asker: Asker, queue_id: int, end: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while self._next[queue_id] < end:
            answer = asker.pull(self._topic, queue_id, self._next[queue_id])
            if answer.code == FOUND:
                for record in asker.records(answer):
                    self._enter(queue_id, record.queue_offset, record.body)
                continue
            assert answer.code == NOTHING_NEW, (answer.code, answer.remark, queue_id, self._next)
            assert time.monotonic() < deadline, (      # dispatch may lag a little behind
                f"queue {queue_id} ends at {self._next[queue_id]}, promised up to {end}")
            signal.sigtimedwait([], LOOK_S)
            os.sched_yield()

    def _enter(self, queue_id: int, offset: int, body: bytes) -> None:
        where, name = (queue_id, offset), name_of(body)
        newest = self._newest[queue_id]
        assert offset == self._next[queue_id], f"offset {offset} at {(queue_id, self._next)}"
        assert body == body_of(self._seed, name), f"body of {name} at {where}"
        assert name not in self.seen, f"{name} at {where} and at {self.seen[name]}"
        assert newest.get(name[0], -1) < name[1], f"{name} behind {newest[name[0]]} at {where}"
        newest[name[0]] = name[1]
        self.seen[name] = where
        self._next[queue_id] = offset + 1
