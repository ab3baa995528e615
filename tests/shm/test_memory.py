"""Where shared memory lies: named memory has its pages at once, a memfd is found in its maker."""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.shm import memory
from mqcore.shm.memory import SharedMemoryError
from mqcore.shm.segment import Segment, stale_segments

NAME = f"/mqcore-test-memory-{os.getpid()}"
SMALL = {"run_id": 9, "serving_count": 1, "segment_size": 65536, "message_bytes_max": 4096,
         "topics": 16384, "groups": 64, "subscriptions": 64, "queues": 64}
COMM = Path("/proc/self/comm")


@pytest.fixture
def as_supervisor() -> Iterator[None]:
    """This process looks like a broker's supervisor."""
    before = COMM.read_text()
    COMM.write_text("mqcore: supervisor")
    yield
    COMM.write_text(before)


def allocated(name: str) -> int:
    return os.stat(f"/dev/shm{name}").st_blocks * 512


def test_a_memfd_is_found_while_its_maker_lives(as_supervisor: None) -> None:
    made = Segment.create(NAME, **SMALL, kind="memfd")

    assert not made.named
    assert stale_segments(NAME[1:]) == [NAME]
    assert memory.named(NAME[1:]) == []
    assert Segment.attach(NAME).run_id == made.run_id

    del made
    assert stale_segments(NAME[1:]) == []


def test_a_serving_process_is_not_looked_through_for_memfds(as_supervisor: None) -> None:
    """Only supervisors make some, and such a process may have a million sockets."""
    made = Segment.create(NAME, **SMALL, kind="memfd")
    assert stale_segments(NAME[1:]) == [NAME]
    COMM.write_text("mqcore: pull-serving-0")
    assert stale_segments(NAME[1:]) == []
    del made


def test_named_memory_has_the_pages_of_all_that_does_not_grow() -> None:
    made = Segment.create(NAME, **SMALL, kind="named")
    try:
        grows = sum(end - start for start, end in made.growing())
        assert made.named
        assert allocated(NAME) >= made.size - grows
        assert allocated(NAME) < made.size - 64 * memory.MIB, "the filter arena grows"
    finally:
        made.unlink()


@pytest.mark.parametrize("kind", ["auto", "named"])
def test_a_dev_shm_without_room_gives_a_memfd_or_one_sentence(
    kind: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: memory.MIB)

    if kind == "auto":
        assert not Segment.create(NAME, **SMALL, kind=kind).named
        return
    with pytest.raises(SharedMemoryError, match="/dev/shm has 1 MiB free, and the shared memory"):
        Segment.create(NAME, **SMALL, kind=kind)
    assert memory.named(NAME[1:]) == []


def test_more_than_the_machine_has_is_refused_with_both_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "memory_bytes", lambda: 10 * memory.MIB)

    with pytest.raises(SharedMemoryError, match=r"of \d+ MiB is more than the 10 MiB of memory"):
        Segment.create(NAME, **SMALL)


def test_memory_is_what_the_control_group_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/outer/inner\n")
    (groups / "outer" / "inner").mkdir(parents=True)
    (groups / "outer" / "inner" / "memory.max").write_text("max\n")
    (groups / "outer" / "memory.max").write_text(f"{100 * memory.MIB}\n")
    monkeypatch.setattr(memory, "PROC", proc)
    monkeypatch.setattr(memory, "CGROUP", groups)

    assert memory.memory_bytes() == 100 * memory.MIB
