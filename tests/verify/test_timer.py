"""The index by time of messages with a time of delivery: what verify says, and what repair does."""
from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.broker.tables.config_file import DELAY_FILE
from mqcore.store.repair.store import repair
from mqcore.store.verify.report import DAMAGE, MEND
from mqcore.store.verify.store import verify
from mqcore.workers.scheduling.scheduler import DelayOffsets, begin
from tests.schedule.desk import Desk, now_ms

SLOT_COUNT, SLOT_BYTES = 1_209_600, 32


@pytest.fixture
def base(tmp_path: Path) -> int:
    """A store with three messages in one second, and one in another; the second of the three."""
    desk = Desk(tmp_path, load=False, segment_size=1 << 20)
    (tmp_path / "config").mkdir(exist_ok=True)
    file = DelayOffsets(tmp_path / "config" / DELAY_FILE, tmp_path)
    begin(desk.scheduler, file, desk.run.segment, failover=False)
    second = now_ms() // 1000 + 1_000
    for ahead_ms in (10, 20, 30, 2_000):
        desk.at_time(second * 1000 + ahead_ms, b"x", unique="0A")
    desk.turn(now_ms())
    assert desk.scheduler.end(1_000)
    file.save(desk.scheduler.snapshot(), exact=True)
    return second


def found(root: Path) -> list[tuple[str, str]]:
    return [(one.severity, one.file) for one in verify(root, force=True).findings
            if one.file.startswith(("timer", "config/timer"))]


def write(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def slot(second: int) -> int:
    return second % SLOT_COUNT * SLOT_BYTES


DAMAGES: dict[str, tuple[str, Callable[[Path, int], object]]] = {
    "a slot's second": ("timerwheel", lambda root, second: write(
        root / "timerwheel", slot(second), struct.pack(">q", second + 5))),
    "a slot's last unit": ("timerwheel", lambda root, second: write(
        root / "timerwheel", slot(second) + 16, struct.pack(">q", 52 << 20))),
    "a slot's count": ("timerwheel", lambda root, second: write(
        root / "timerwheel", slot(second) + 24, struct.pack(">i", 4))),
    "a unit's predecessor": ("timerwheel", lambda root, second: write(
        root / "timerlog" / ("0" * 20), 52 + 4, struct.pack(">q", -1))),
    "a unit's record": ("timerwheel", lambda root, second: write(
        root / "timerlog" / ("0" * 20), 28, struct.pack(">q", 1 << 40))),
    "a short wheel": ("timerwheel", lambda root, second: (root / "timerwheel").open("r+b").truncate(
        slot(second))),
    "a short log": ("timerlog/" + "0" * 20, lambda root, second: (
        root / "timerlog" / ("0" * 20)).open("r+b").truncate(52)),
    "a short check": ("config/timercheck", lambda root, second: (
        root / "config/timercheck").open("r+b").truncate(32)),
}


def test_a_whole_wheel_is_sound_and_a_lost_one_is_made_again(tmp_path: Path, base: int) -> None:
    assert found(tmp_path) == []
    for path in (tmp_path / "timerwheel", tmp_path / "config/timercheck",
                 *(tmp_path / "timerlog").iterdir()):          # what a repair takes away
        path.unlink()
    assert found(tmp_path) == [(MEND, "timerwheel")]
    comes(tmp_path, base)


@pytest.mark.parametrize("name", list(DAMAGES))
def test_damage_is_found_and_taken_away_by_a_repair(
    tmp_path: Path, base: int, name: str,
) -> None:
    file, damage = DAMAGES[name]
    damage(tmp_path, base)
    assert found(tmp_path) == [(DAMAGE, file)]
    repair(tmp_path, tmp_path.with_name("kept"), dry=False)
    assert not (tmp_path / "timerwheel").exists()
    assert list((tmp_path / "timerlog").glob("*")) == []
    assert found(tmp_path) == [(MEND, "timerwheel")]


@pytest.mark.parametrize("name", [name for name in DAMAGES if name != "a slot's second"])
def test_a_start_meets_the_damage_itself(tmp_path: Path, base: int, name: str) -> None:
    DAMAGES[name][1](tmp_path, base)
    comes(tmp_path, base)


def comes(root: Path, second: int) -> None:
    desk = Desk(root, load=False, segment_size=1 << 20)
    begin(desk.scheduler, DelayOffsets(root / "config" / DELAY_FILE, root), desk.run.segment,
          failover=False)
    desk.settle(second * 1000 + 5_000)
    desk.settle(second * 1000 + 5_000)
    assert desk.bodies() == [b"x"] * 4
