"""
Random histories of messages with a time of delivery: sends, recalls, rests, deaths, lost wheels and
logs that are cut, at a clock that the test sets. The log says afterwards what should have come.

TIMER_SEED and TIMER_HISTORIES in the environment: other histories, and how many.
"""
from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.tables.config_file import DELAY_FILE
from mqcore.shm.delays import timer_figures
from mqcore.wire.properties import decode_properties
from mqcore.workers.scheduling import scheduler
from mqcore.workers.scheduling.scheduler import DelayOffsets, begin
from tests.schedule.desk import Desk, now_ms
from tests.schedule.test_lives import kill_writer, shown

DAY_MS = 86_400_000
SEED = int(os.environ.get("TIMER_SEED", "1"))
HISTORIES = int(os.environ.get("TIMER_HISTORIES", "16"))
STEPS = 60


def words(record: dict[str, Any]) -> dict[str, str]:
    return decode_properties(record["properties"].decode())


class World:
    """One history. A message is named by its unique key."""

    def __init__(self, root: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.boots = 0
        self.repeats = False             # the wheel was lost: what came may come again
        monkeypatch.setattr(scheduler, "boot_id", lambda: f"boot {self.boots}")
        self.dice = random.Random(seed)
        self.desk = Desk(root, segment_size=1 << 20)
        self.at = now_ms() // 2_000 * 2_000 + self.dice.randrange(2_000)   # the same in each run
        self.count = 0
        self.promised: dict[str, int] = {}       # key -> log position of a recall in time
        self.file = self.offsets_file()
        self.file_end = 0                        # of the log that the file speaks of
        self.save()
        self.latest_ms = self.at
        if self.dice.random() < 0.5:
            self.desk.probe.send("plain", 0, [b"first"], opaque=1, properties=b"", born_ms=1)
            self.desk.store()

    # -- what happens ------------------------------------------------------------------------------

    def send(self) -> None:
        for _ in range(self.dice.randrange(1, 6)):
            ahead = self.dice.choice((
                lambda: self.dice.randrange(-3_000, 1), lambda: self.dice.randrange(1, 1_000),
                lambda: self.dice.randrange(1, 6_000), lambda: self.dice.randrange(1, 6_000),
                lambda: self.dice.randrange(DAY_MS, 6 * DAY_MS)))()
            self.count += 1
            self.latest_ms = max(self.latest_ms, self.at + ahead)
            self.desk.at_time(self.at + ahead, b"%d" % self.count, unique=f"K{self.count}")

    def recall(self) -> None:
        waiting = self.waiting()
        came = self.came()
        if not waiting:
            return
        key = self.dice.choice(list(waiting))
        self.desk.recall(waiting[key], key)
        if key not in self.came() and key not in came:
            position = next(r["physicalOffset"] for r in reversed(self.desk.records())
                            if words(r).get("TIMER_DEL_UNIQKEY") == f"Orders+{key}")
            self.promised.setdefault(key, position)

    def turn(self) -> None:
        self.desk.turn(self.at)

    def store(self) -> None:
        self.desk.store()

    def settle(self) -> None:
        self.desk.settle(self.at)

    def pass_time(self) -> None:
        self.at += self.dice.choice((1, 20, 300, 900, 2_500, 20_000))

    def rest(self) -> None:
        self.at += self.dice.choice((3_600_000, DAY_MS, 3 * DAY_MS))

    def step_back(self) -> None:
        self.at -= self.dice.choice((1, 400, 1_500, 60_000))

    def save(self) -> None:
        """As the scheduler process does now and then."""
        known = self.desk.scheduler.snapshot()
        self.file.save(known, exact=False)
        self.file_end = known.end

    def kill_scheduler(self) -> None:
        self.desk.scheduler = self.desk.new_scheduler(begin=False)
        self.begin_scheduler()

    def kill_writer(self) -> None:
        kill_writer(self.desk)
        shown(self.desk)
        self.desk.store()

    def kill_all(self) -> None:
        self.begin()

    def lose_power(self) -> None:
        self.boots += 1
        self.repeats = True
        self.begin()

    def lose_the_wheel(self) -> None:
        self.remove_wheel()
        self.begin()

    def take_over(self) -> None:
        """As a slave that has a part of what came after its master last said how far it was."""
        self.remove_wheel()
        later = [r for r in self.desk.records() if r["physicalOffset"] >= self.file_end]
        if later:
            self.cut(self.dice.choice(later)["physicalOffset"])
        self.begin()

    # -- how ---------------------------------------------------------------------------------------

    def remove_wheel(self) -> None:
        self.repeats = True
        for file in (*self.desk.root.glob("timerlog/*"), self.desk.root / "timerwheel"):
            file.unlink(missing_ok=True)

    def cut(self, position: int) -> None:
        with (self.desk.run.log_folder / f"{0:020d}").open("r+b") as file:
            file.seek(position)
            file.write(bytes((1 << 20) - position))
        self.promised = {key: at for key, at in self.promised.items() if at < position}

    def offsets_file(self) -> DelayOffsets:
        (self.desk.root / "config").mkdir(exist_ok=True)
        return DelayOffsets(self.desk.root / "config" / DELAY_FILE, self.desk.root)

    def begin(self) -> None:
        self.desk.begin(load=False)
        self.begin_scheduler()

    def begin_scheduler(self) -> None:
        self.file = self.offsets_file()
        if begin(self.desk.scheduler, self.file, self.desk.run.segment, failover=False):
            self.save()

    # -- what should be ----------------------------------------------------------------------------

    def waiting(self) -> dict[str, int]:
        """Key -> due, of every message in the timer's topic."""
        return {found["UNIQ_KEY"]: int(found["TIMER_DELIVER_MS"])
                for found in map(words, self.desk.records()) if "TIMER_OUT_MS" in found
                and "TIMER_DEL_UNIQKEY" not in found}

    def came(self) -> Counter[str]:
        return Counter(words(r)["UNIQ_KEY"] for r in self.desk.records() if r["topic"] == "Orders")

    def check(self) -> None:
        for record in self.desk.delivered():
            found = decode_properties(record.properties.decode())
            if "TIMER_DELIVER_MS" in found:
                assert int(found["TIMER_DEQUEUE_MS"]) >= int(found["TIMER_DELIVER_MS"])
        came = self.came()
        assert self.repeats or max(came.values(), default=0) <= 1, came.most_common(3)
        assert not came.keys() & self.promised.keys(), "it came, and was recalled in time"

    def end(self) -> None:
        self.check()
        recalled = {words(r)["TIMER_DEL_UNIQKEY"].partition("+")[2] for r in self.desk.records()
                    if "TIMER_DEL_UNIQKEY" in words(r)}
        for _ in range(4):                       # a message that is stored again waits once more
            self.at = max(self.at, self.latest_ms) + 2 * DAY_MS
            self.desk.settle(self.at)
        self.check()
        missing = self.waiting().keys() - self.came().keys() - recalled
        assert not missing, f"{missing} did not come"
        shown = timer_figures(self.desk.run.segment, self.at)
        assert shown["counted"]
        assert shown.items() >= {
            "pending": 0, "topics": {}, "others": 0, "hours": {}, "later": 0}.items()


STEPS_OF = (
    ("send", 8), ("recall", 5), ("turn", 5), ("store", 2), ("settle", 6), ("pass_time", 12),
    ("rest", 1), ("step_back", 2), ("save", 4), ("kill_scheduler", 3), ("kill_writer", 2),
    ("kill_all", 2), ("lose_power", 1), ("lose_the_wheel", 1), ("take_over", 1))


@pytest.mark.parametrize("seed", range(SEED * 1000, SEED * 1000 + HISTORIES))
def test_random_histories(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(tmp_path, seed, monkeypatch)
    names, weights = zip(*STEPS_OF, strict=True)
    done = []
    for name in world.dice.choices(names, weights, k=STEPS):
        done.append((name, world.at))
        getattr(world, name)()
    try:
        world.end()
    except AssertionError:
        print(done)
        raise
