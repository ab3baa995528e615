"""Where statistics come from: ends of queues, counters (mqcore/broker/tables/statistics.py)."""
from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from mqcore.layout import RECORD_FIXED_SIZE
from mqcore.shm.figure_slots import BY_NAME
from mqcore.shm.latencies import NONE
from mqcore.shm.retention import QueueLives
from mqcore.workers.coordinator.figures import StoreFigures, size_text
from mqcore.workers.coordinator.shared_queues import SharedQueues
from mqcore.workers.process.layout import StoreFiles
from tests.store.harness import Run
from tests.workers.test_shared_queues import own

TURN_MS = 1000


class Store:
    """A run whose writer and dispatcher are turned by hand."""

    def __init__(self, root: Path) -> None:
        self.run = Run(root, segment_size=8192, file_entries=10)
        self.writer, self.probe = self.run.writer("async", 0), self.run.probe()
        self.queues = SharedQueues(self.run.segment, lambda: 0, own(), lambda: True)

    def send(self, topic: str, queue_id: int, count: int) -> None:
        for number in range(count):
            assert self.probe.send(topic, queue_id, [b"body"], opaque=number)
        self.writer.run(TURN_MS)
        self.run.dispatch_all(self.run.segment.log_state()["published"])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def sizes(queues: SharedQueues) -> dict[tuple[str, int], tuple[int, int, int]]:
    """(topic, queue id) -> messages, bytes and requests since the last look."""
    return {(grown.topic, grown.queue_id): grown[2:] for grown in queues.growth()}


def record_size(topic: str) -> int:
    return RECORD_FIXED_SIZE + len(b"body") + len(topic)


def test_only_what_comes_after_the_first_look_is_growth(store: Store) -> None:
    store.send("T", 0, 3)
    assert list(store.queues.growth()) == []
    assert list(store.queues.growth()) == []


def test_growth_is_told_queue_by_queue_with_its_bytes_and_requests(store: Store) -> None:
    store.send("T", 0, 1)
    list(store.queues.growth())
    store.send("T", 0, 2)
    store.send("T", 1, 3)
    assert store.probe.send("Uvw", 0, [b"body", b"body"], opaque=9)
    store.send("T", 1, 1)

    size = record_size("T")
    assert sizes(store.queues) == {
        ("T", 0): (2, 2 * size, 2), ("T", 1): (4, 4 * size, 4),
        ("Uvw", 0): (2, 2 * record_size("Uvw"), 1)}
    assert list(store.queues.growth()) == []


def test_what_a_new_dispatcher_does_again_is_counted_once(store: Store) -> None:
    store.send("T", 0, 3)
    list(store.queues.growth())
    store.run.segment.set_dispatched(0, 0)            # as after a death before it moved on
    store.run.dispatch_all(store.run.segment.log_state()["published"])

    assert list(store.queues.growth()) == []


def test_a_queue_that_was_removed_counts_from_nothing(store: Store) -> None:
    store.send("T", 0, 5)
    list(store.queues.growth())
    QueueLives(store.run.segment).finish(0)

    assert [(grown.messages, grown.bytes) for grown in store.queues.growth()] == [(0, 0)]


def test_the_counts_of_all_queues_come_in_their_order(store: Store) -> None:
    lives = QueueLives(store.run.segment)
    assert lives.counts() == b""
    store.send("T", 0, 3)
    store.send("U", 0, 2)

    words = memoryview(lives.counts()).cast("q").tolist()
    assert words[::3] == [state.max_offset for state in lives.all()] == [3, 2]
    assert words[1::3] == [3 * record_size("T"), 2 * record_size("U")]
    assert words[2::3] == [3, 2]


class Segment:
    """The counters of one writer and one serving process."""

    serving_count = 1

    def __init__(self) -> None:
        self.figures: dict[tuple[int, int], int] = {}

    def figure(self, slot: int, number: int) -> int:
        return self.figures.get((slot, number), 0)

    def put_figure(self, slot: int, number: int, value: int) -> None:
        self.figures[slot, number] = value

    def set(self, name: str, value: int) -> None:
        figure = BY_NAME[name]
        assert figure.role is not None
        self.put_figure(figure.role.slot, figure.id, value)


def test_totals_go_on_when_a_process_starts_again(tmp_path: Path) -> None:
    segment = Segment()
    figures = StoreFigures(segment, StoreFiles(tmp_path), found=lambda: 0,
                           times=lambda _name: NONE)
    segment.set("appends", 10)
    segment.set("pulled_messages", 4)
    assert figures.totals() == (10, 4)
    segment.set("appends", 3)
    assert figures.totals() == (13, 4)
    segment.set("appends", 5)
    assert figures.totals() == (15, 4)


def test_rates_under_steady_load_are_steady_whenever_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: clock)
    segment, dice = Segment(), Random(7)
    found = 0
    figures = StoreFigures(segment, StoreFiles(tmp_path), found=lambda: found,
                           times=lambda _name: NONE)
    for pause_s in [*(dice.uniform(0.2, 1.5) for _ in range(700)), 45.0, 0.001, 900.0, 0.001]:
        clock += pause_s
        done = int((clock - 1000.0) * 100)
        for name in ("appends", "pulls", "pulled_messages"):
            segment.set(name, done)
        found = done
        figures.sample()
        told = figures.rates()
        for key in ("putTps", "getTotalTps", "getFoundTps", "getTransferedTps"):
            rates = [float(rate) for rate in told[key].split()]
            assert all(90 <= rate <= 101 for rate in rates), (key, rates, clock)


@pytest.mark.parametrize(("size", "text"), [
    (-1, "0 B"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1648, "1.6 KiB"),
    (1 << 20, "1.0 MiB"), (3 << 29, "1.5 GiB"), (1 << 41, "2048.0 GiB"),
])
def test_sizes_are_told_in_words(size: int, text: str) -> None:
    assert size_text(size) == text
