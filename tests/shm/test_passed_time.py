"""
The clock that outlives a run (store_clock.pxd, T10 to T12): no step of the wall clock makes
anything older or due earlier than it is, and time that the machine was off comes to be believed.

The tests have a world with a true time. The wall clock is it and an error, the steady clock begins
anew at each boot, and a run ends in order, by a kill, or with the machine.
"""
from __future__ import annotations

import contextlib
import json
import random
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mqcore.shm.run_clock import RunClock
from mqcore.shm.store_clock import ClockProbe
from mqcore.store import clock_file
from mqcore.store.clock_file import ClockFileError
from mqcore.store.log.folders import LogFolders
from mqcore.workers.writer import kept_clock
from tests.store.harness import new_segment

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
YEAR = 365 * DAY
BEGAN = 1_800_000_000_000
LOOK = 200                       # ms between two turns of the writer, at most
STEPS = (SECOND * 2, MINUTE, HOUR, DAY, 10 * DAY, YEAR, 30 * YEAR)
SET = (0, *STEPS, *(-step for step in STEPS))
OFF = (SECOND, MINUTE, HOUR, 10 * DAY)


@dataclass
class World:
    """A machine, its clocks, and a broker on it with a clock that is kept in a file."""

    folder: Path
    true: int = BEGAN
    error: int = 0               # of the wall clock
    booted: int = BEGAN - HOUR
    boot: int = 0
    probe: ClockProbe = field(default_factory=ClockProbe)
    last_store: int = 0

    def __post_init__(self) -> None:
        self.probe.begin_after(0, self.wall, self.steady)

    @property
    def wall(self) -> int:
        return self.true + self.error

    @property
    def steady(self) -> int:
        return self.true - self.booted

    @property
    def path(self) -> Path:
        return self.folder / "clock"

    def live(self, ms: int) -> None:
        """The writer turns for so long, as often as it does at least."""
        end = self.true + ms
        while self.true < end:
            self.true += min(LOOK if ms <= MINUTE else ms // 40, end - self.true)
            self.turn()

    def turn(self) -> int:
        self.last_store = max(self.last_store, self.probe.turn(self.wall, self.steady))
        return self.last_store

    def keep(self) -> None:
        clock_file.write(self.path, self.probe.state(self.wall, self.steady))

    def start(self, *, same_boot: bool) -> None:
        known = clock_file.read(self.path)
        assert known is not None
        self.probe = ClockProbe()
        self.probe.resume(known[0], same_boot, self.wall, self.steady)
        self.probe.begin(self.wall, self.steady, self.last_store)
        self.turn()

    def restart(self, off_ms: int, step: int = 0) -> None:
        """Another run, in the same boot; the wall clock is set meanwhile."""
        self.true += off_ms
        self.error += step
        self.start(same_boot=True)

    def reboot(self, off_ms: int, step: int = 0) -> None:
        self.true += off_ms
        self.booted, self.boot = self.true - 5 * SECOND, self.boot + 1
        self.error += step
        self.start(same_boot=False)

    def passed(self, wall: int) -> int:
        return self.probe.passed(wall, self.steady)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("step", [sign * step for step in STEPS for sign in (1, -1)])
@pytest.mark.parametrize("end", ["none", "restart", "reboot"])
def test_a_minute_old_file_is_a_minute_old_after_any_step(
        world: World, step: int, end: str) -> None:
    world.live(HOUR)
    written, at = world.wall, world.true
    world.live(MINUTE)
    world.keep()
    if end == "none":
        world.error += step
    elif end == "restart":
        world.restart(SECOND, step)
    else:
        world.reboot(SECOND, step)
    world.live(HOUR)

    passed, really = world.passed(written), world.true - at
    assert passed <= really + 1
    assert passed >= HOUR - LOOK or step < 0
    later, at = world.wall, world.true
    world.live(MINUTE)
    assert world.passed(later) == pytest.approx(world.true - at, abs=1)


def test_a_time_that_a_step_left_out_counts_from_the_step(world: World) -> None:          # T10
    world.live(HOUR)
    never_shown = world.wall + 30 * MINUTE
    world.error += HOUR
    world.live(MINUTE)
    assert world.passed(never_shown) == pytest.approx(MINUTE, abs=LOOK)


def test_ten_honest_days_without_a_boot_are_measured(world: World) -> None:
    world.live(HOUR)
    written, at = world.wall, world.true
    world.live(MINUTE)
    world.keep()
    world.restart(10 * DAY)
    assert world.passed(written) == world.true - at


def test_ten_honest_days_with_the_machine_off_are_believed_after_one_more(world: World) -> None:
    world.live(HOUR)
    written = world.wall
    world.live(MINUTE)
    world.keep()
    world.reboot(10 * DAY)
    young = world.wall
    world.live(DAY - MINUTE)
    assert MINUTE <= world.passed(written) <= DAY + MINUTE
    world.live(2 * MINUTE)
    assert world.passed(written) == pytest.approx(11 * DAY + 2 * MINUTE, abs=2 * SECOND)
    assert world.passed(young) == pytest.approx(DAY + MINUTE, abs=2)


def test_a_clock_that_is_kept_by_small_steps_is_believed_all_the_same(world: World) -> None:
    world.live(HOUR)
    written = world.wall
    world.keep()
    world.reboot(10 * DAY)
    for _ in range(25):
        world.error += 300
        world.live(HOUR)
    assert world.passed(written) == pytest.approx(11 * DAY + HOUR, abs=10 * SECOND)


def test_a_clock_that_is_set_again_is_believed_a_day_after_that(world: World) -> None:
    world.live(HOUR)
    written = world.wall
    world.keep()
    world.reboot(HOUR, 10 * DAY)
    world.live(DAY - HOUR)
    world.error = 0
    world.live(2 * HOUR)
    assert world.passed(written) <= DAY + 2 * HOUR
    world.live(DAY)
    assert world.passed(written) == pytest.approx(2 * DAY + 2 * HOUR, abs=2 * SECOND)


def test_a_doubt_goes_on_over_a_restart_and_over_a_boot(world: World) -> None:
    world.live(HOUR)
    written, at = world.wall, world.true
    world.keep()
    world.reboot(HOUR)
    world.live(HOUR)
    world.keep()
    world.restart(MINUTE)
    world.live(HOUR)
    world.keep()
    world.reboot(HOUR)
    world.live(DAY - MINUTE)
    assert world.passed(written) <= DAY + 2 * HOUR + MINUTE
    world.live(2 * MINUTE)
    assert world.passed(written) == pytest.approx(world.true - at, abs=2 * SECOND)


def test_the_first_run_on_a_store_of_a_stock_broker_believes_the_wall_clock_after_a_day(
        tmp_path: Path) -> None:
    world = World(tmp_path)
    world.probe.begin_after(world.wall - 10 * DAY, world.wall, world.steady)
    world.probe.begin(world.wall, world.steady)
    old, youngest = world.wall - 14 * DAY, world.wall - 10 * DAY
    assert (world.passed(old), world.passed(youngest)) == (4 * DAY, 0)
    world.live(DAY + MINUTE)
    assert world.passed(youngest) == pytest.approx(11 * DAY + MINUTE, abs=2 * SECOND)


def test_what_waits_is_never_early_over_a_restart_with_the_clock_set_forward(
        world: World) -> None:
    world.live(HOUR)
    stored, at = world.turn(), world.steady
    world.keep()
    world.restart(MINUTE, 10 * DAY)
    for _ in range(3):
        world.live(MINUTE)
        assert world.probe.steady_of(stored) >= at


def test_what_waited_while_the_machine_was_off_is_believed_after_ten_seconds(
        world: World) -> None:
    world.live(HOUR)
    stored = world.turn()
    world.keep()
    world.reboot(HOUR)
    world.live(8 * SECOND)
    assert world.steady - world.probe.steady_of(stored) <= 9 * SECOND
    world.live(4 * SECOND)
    assert world.steady - world.probe.steady_of(stored) == pytest.approx(HOUR + 12_000, abs=10)


def test_a_clock_that_goes_away_and_comes_back_makes_nothing_younger(world: World) -> None:
    world.live(HOUR)
    written, at = world.wall, world.true
    world.live(2 * MINUTE)
    for step in (10 * DAY, -10 * DAY, -10 * DAY, 10 * DAY):
        world.error += step
        world.live(2 * MINUTE)
        assert world.passed(written) == pytest.approx(world.true - at, abs=1)


@pytest.mark.parametrize("seed", range(40))
def test_no_life_of_a_machine_makes_a_file_older_than_it_is(tmp_path: Path, seed: int) -> None:
    """A life of hours: in a day a wrong clock would come to be believed."""
    rng = random.Random(seed)
    world = World(tmp_path)
    files: list[tuple[int, int]] = []              # wall clock then, true time
    world.keep()
    for _ in range(120):
        what = rng.random()
        if what < 0.35:
            world.live(rng.choice((SECOND, MINUTE)))
        elif what < 0.65:
            files.append((world.wall, world.true))
            world.live(SECOND)
        elif what < 0.85:
            world.error += rng.choice(SET)
            world.turn()
        elif what < 0.95:
            world.keep()
            world.restart(rng.choice((SECOND, MINUTE)), rng.choice(SET))
        else:
            world.keep()
            world.reboot(rng.choice(OFF), rng.choice(SET))
        for wall, true in files[-50:]:
            assert world.passed(wall) <= world.true - true + 1
    assert world.probe.pieces <= 32


@pytest.mark.parametrize("raw", [
    b"", b"\0" * 500, b"[]", b"{}", b'{"version": 2}', b"[" * 60_000, b"{" + b" " * 70_000 + b"}"])
def test_a_file_of_others_is_refused_with_a_sentence(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "clock").write_bytes(raw)
    with pytest.raises(ClockFileError, match="clock: "):
        clock_file.read(tmp_path / "clock")


@pytest.mark.parametrize(("name", "value"), [
    ("knots", []), ("knots", [[0, 0, 0, 0]]), ("knots", [[1, 1, 1, 1]] * 65),
    ("knots", [[9 * DAY, 1, 1, 1]]), ("knots", [[1.5, 1, 1, 1]]), ("knots", [[True, 1, 1, 1]]),
    ("walls", None), ("walls", [[1, 1, 0]] * 33), ("walls", [[2, 1, 0], [1, 1, 0]]),
    ("walls", [[1, 1]]), ("walls", [[1, 1, -1]]),
    ("knots", [[0, 2, 1, 1], [0, 1, 1, 1]]), ("stoodSince", 9 * DAY), ("doubtedSince", 9 * DAY),
    ("late", [2, 0, 0]), ("old", [-1, 0, 0]), ("old", [0, 1 << 60, 0]), ("steady", "1"),
    ("wall", None), ("boot", 1)])
def test_a_file_with_a_wrong_member_says_which(
        world: World, name: str, value: Any) -> None:
    world.keep()
    whole = json.loads(world.path.read_bytes())
    assert clock_file.read(world.path) is not None
    world.path.write_text(sealed({**whole, name: value}))
    with pytest.raises(ClockFileError, match=f"{name}: expected|'{name}'"):
        clock_file.read(world.path)


def sealed(value: dict[str, Any]) -> str:
    """The text of a file with these members."""
    members = {name: one for name, one in value.items() if name != "crc32"}
    return json.dumps({**members, "crc32": zlib.crc32(
        json.dumps(members, sort_keys=True).encode())})


def test_no_flipped_bit_and_no_cut_is_believed(world: World) -> None:
    """A bit in the white space of JSON changes nothing that is read."""
    world.live(HOUR)
    world.error += 10 * DAY
    world.live(MINUTE)
    world.keep()
    raw = world.path.read_bytes()
    known = clock_file.read(world.path)
    for at in range(8 * len(raw)):
        world.path.write_bytes(raw[:at // 8] + bytes([raw[at // 8] ^ 1 << at % 8])
                               + raw[at // 8 + 1:])
        with contextlib.suppress(ClockFileError):
            assert clock_file.read(world.path) == known
    for size in range(0, len(raw), 7):
        world.path.write_bytes(raw[:size])
        with pytest.raises(ClockFileError):
            clock_file.read(world.path)


def test_a_start_says_what_it_does_not_believe_and_begins_a_new_clock(
        world: World, caplog: pytest.LogCaptureFixture) -> None:
    segment = new_segment()
    kept_clock.begin(segment, world.path, LogFolders(()))
    clock_file.write(world.path, RunClock(segment).state())
    whole = world.path.read_text()
    assert '"late": [0, ' in whole
    world.path.write_text(whole.replace('"late": [0, ', '"late": [1, '))
    segment = new_segment()
    kept_clock.begin(segment, world.path, LogFolders(()))
    assert [line.getMessage() for line in caplog.records] == [
        one for one in [caplog.messages[0]] if "a new one begins" in one and "crc32" in one]
    state = RunClock(segment).state()
    assert abs(clock_file.ahead_ms(state)) < 1_000


def test_a_store_clock_years_ahead_does_not_outlive_its_run(
        world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The wall clock was ahead for a while, in which nothing was stored."""
    segment = new_segment()
    kept_clock.begin(segment, world.path, LogFolders(()))
    state = RunClock(segment).state()
    steady = state["steady"]
    clock_file.write(world.path, {**state, "knots": [
        *state["knots"], [steady, state["wall"] + 3650 * DAY, state["wall"] + 3650 * DAY, 8]]})
    segment = new_segment()
    kept_clock.begin(segment, world.path, LogFolders(()))
    assert "3650.0 days ahead" in caplog.text
    now = RunClock(segment).state()
    assert abs(clock_file.ahead_ms(now)) < 10_000
    assert now["walls"][:len(state["walls"])] == state["walls"]
