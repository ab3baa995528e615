"""A removed queue is gone, its next life begins at 0, no crash brings the old one back (Q1-Q4)."""
from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.tables.config_file import ConfigFileError
from mqcore.broker.tables.queue_restarts import RestartFile
from mqcore.shm.retention import QueueLives
from mqcore.store.log.append_loop import AppendLoop
from mqcore.store.paths import remove_queue
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.store.queue.dispatch import DispatchFailure, DispatchLoop
from mqcore.store.reader import StoreReader
from tests.store.harness import Run

TURN_MS = 1000


class Store:
    """Writer and dispatcher of one run, turned by hand as their processes do."""

    def __init__(self, root: Path, **recovery: Any) -> None:
        self.run = Run(root, segment_size=8192, file_entries=10)
        self.lives = QueueLives(self.run.segment)
        self.restarts = RestartFile(root / "config" / "queueRestarts.json", self.run.queue_folder)
        self.restarts.load()
        self.restarts.apply(self.lives.set_restart)
        found = self.run.recover(**(recovery or {"clean": True}))
        self.restarts.recovered(self.lives.set_restart, found.first, found.end)
        self.start_writer(found.end)
        self.dispatcher: DispatchLoop = self.run.dispatcher()

    def start_writer(self, end: int) -> None:
        self.writer: AppendLoop = self.run.writer("async", end)
        self.probe: AppendProbe = self.run.probe()

    def send(self, topic: str, *bodies: bytes) -> list[int]:
        """Store messages in queue 0; their queue offsets."""
        for number, body in enumerate(bodies):
            assert self.probe.send(topic, 0, [body], opaque=number)
        self.writer.run(TURN_MS)
        results = self.probe.take()
        assert [status for _, status, _, _, _ in results] == [0] * len(bodies)
        return [offset for _, _, offset, _, _ in results]

    def ask(self, topic: str) -> int:
        number = self.lives.number(topic, 0)
        self.lives.ask([number])
        return number

    def begin(self) -> int:
        """The writer's part; the position at which the next life begins."""
        asked = self.writer.removals_asked()
        self.writer.run(TURN_MS)                       # returns at once: it is called for
        self.writer.answer_removals(asked)
        position: int = self.writer.restart_position()
        queues = self.lives.asked()
        self.restarts.add([(queue.topic, queue.queue_id) for queue in queues], position, 0)
        self.lives.begin([queue.number for queue in queues], position)
        return position

    def finish(self) -> None:
        """The dispatcher's part."""
        assert self.dispatcher.run(TURN_MS) == DispatchFailure.DISPATCH_REMOVAL
        begun = self.dispatcher.removals_begun()
        for queue in self.lives.begun():
            self.dispatcher.forget_queue(queue.number)
            assert remove_queue(self.run.queue_folder, queue.topic, queue.queue_id, 200) == []
            self.lives.finish(queue.number)
        self.dispatcher.removals_done(begun)

    def dispatch(self) -> None:
        assert self.dispatcher.run(TURN_MS) == 0, self.dispatcher.failure()

    def bodies(self, topic: str) -> list[bytes]:
        """What a consumer that begins at the queue's first offset gets."""
        reader = StoreReader(
            self.run.segment, os.fsencode(self.run.log_folder), os.fsencode(self.run.queue_folder),
            file_entries=10, memory_bytes=1 << 30)
        least, most = reader.queue_range(topic, 0) or (0, 0)
        entries = [reader.entry(topic, 0, offset) for offset in range(least, most)]
        records = [reader.record(entry[0]) for entry in entries]
        positions = {record["physicalOffset"]: record["body"]
                     for record in self.run.records(self.run.segment.log_state()["published"])
                     if not record.get("blank")}
        assert all(record is not None for record in records)
        return [positions[int.from_bytes(record[28:36], "big")] for record in records]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A queue with 25 messages in three files, and another one."""
    store = Store(tmp_path / "store")
    store.send("gone", *(b"old %d" % number for number in range(25)))
    store.send("stays", b"a", b"b")
    store.dispatch()
    return store


def test_the_next_life_begins_at_0_with_what_came_after_the_removal(store: Store) -> None:
    assert len(store.bodies("gone")) == 25
    store.ask("gone")
    store.begin()
    store.finish()
    assert store.run.queue_ranges() == {("stays", 0): (0, 2)}
    assert not (store.run.queue_folder / "gone" / "0").exists()

    assert store.send("gone", b"new 0", b"new 1") == [0, 1]
    store.dispatch()
    assert store.bodies("gone") == [b"new 0", b"new 1"]
    assert store.bodies("stays") == [b"a", b"b"]
    left = [store.lives.number("gone", 0)]
    store.lives.let_go(left, 1)
    assert left == []


def test_messages_that_are_not_dispatched_yet_go_with_their_queue(store: Store) -> None:
    store.send("gone", b"late 0", b"late 1")
    store.ask("gone")
    store.begin()
    assert store.send("gone", b"new") == [0]
    store.finish()
    store.dispatch()

    assert store.bodies("gone") == [b"new"]


def test_a_reader_that_held_a_file_of_the_old_life_reads_the_new_one(store: Store) -> None:
    reader = StoreReader(
        store.run.segment, os.fsencode(store.run.log_folder), os.fsencode(store.run.queue_folder),
        file_entries=10, memory_bytes=1 << 30)
    old = reader.entry("gone", 0, 0)
    store.ask("gone")
    position = store.begin()
    store.finish()
    assert reader.entry("gone", 0, 0) is None
    store.send("gone", b"new")
    store.dispatch()

    new = reader.entry("gone", 0, 0)
    assert old is not None
    assert new is not None
    assert old[0] == 0
    assert new[0] == position


def test_a_queue_may_be_removed_again_and_again(store: Store) -> None:
    for life in range(5):
        store.ask("gone")
        store.begin()
        store.finish()
        assert store.send("gone", b"life %d" % life) == [0]
        store.dispatch()
        assert store.bodies("gone") == [b"life %d" % life]


# -- whoever dies, nothing of the old life comes back ----------------------------------------------


def restart_writer(store: Store) -> None:
    """The writer dies, and a new one takes over in the same run."""
    found = store.run.recover_tail()
    store.start_writer(found.end)
    store.writer.drop_requests()


@pytest.mark.parametrize("dies", ["asked", "begun", "done"])
def test_a_writer_that_dies_on_the_way_is_followed_by_one_that_goes_on(
    store: Store, dies: str,
) -> None:
    store.send("gone", b"not dispatched")
    store.ask("gone")
    if dies == "asked":
        restart_writer(store)
        assert [queue.topic for queue in store.lives.asked()] == ["gone"]
    store.begin()
    if dies == "begun":
        restart_writer(store)
        assert store.lives.asked() == []
    assert store.send("gone", b"new 0") == [0]
    store.finish()
    if dies == "done":
        restart_writer(store)
    assert store.send("gone", b"new 1") == [1]
    store.dispatch()

    assert store.bodies("gone") == [b"new 0", b"new 1"]


def test_a_dispatcher_that_dies_on_the_way_is_followed_by_one_that_goes_on(store: Store) -> None:
    store.ask("gone")
    store.begin()
    store.send("gone", b"new")
    assert store.dispatcher.run(TURN_MS) == DispatchFailure.DISPATCH_REMOVAL
    (store.run.queue_folder / "gone" / "0" / f"{200:020d}").unlink()      # ... half way

    store.dispatcher = store.run.dispatcher()
    store.finish()
    store.dispatch()
    assert store.bodies("gone") == [b"new"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("removed", [True, False])
def test_a_later_start_does_not_bring_the_old_life_back(
    store: Store, tmp_path: Path, clean: bool, removed: bool,
) -> None:
    store.ask("gone")
    store.begin()
    if removed:                                  # else everything dies before the dispatcher's part
        store.finish()
        store.send("gone", b"new 0")
        store.dispatch()
    store.dispatcher.sync()
    copy = tmp_path / "later"
    shutil.copytree(tmp_path / "store", copy)

    later = Store(copy, clean=clean)
    later.dispatch()
    expected = [b"new 0"] if removed else []
    assert later.bodies("gone") == expected
    assert later.send("gone", b"new 1") == [len(expected)]
    later.dispatch()
    assert later.bodies("gone") == [*expected, b"new 1"]
    assert later.bodies("stays") == [b"a", b"b"]


def test_a_power_cut_that_takes_the_logs_end_does_not_take_later_messages(
    store: Store, tmp_path: Path,
) -> None:
    end = store.run.segment.log_state()["published"]
    shutil.copytree(tmp_path / "store", tmp_path / "later")           # the log as it is on disk
    store.send("gone", *(b"never on disk %d" % number for number in range(3)))
    store.ask("gone")
    assert store.begin() > end
    shutil.copytree(tmp_path / "store" / "config", tmp_path / "later" / "config",
                    dirs_exist_ok=True)

    later = Store(tmp_path / "later", clean=False)
    assert later.send("gone", b"new 0", b"new 1") == [0, 1]
    later.dispatch()
    assert later.bodies("gone") == [b"new 0", b"new 1"]


def test_a_position_is_forgotten_when_the_log_no_longer_reaches_below_it(tmp_path: Path) -> None:
    path = tmp_path / "queueRestarts.json"
    restarts = RestartFile(path, tmp_path)
    restarts.add([("a", 0), ("b", 3)], 5000, 0)
    restarts.add([("c", 1)], 9000, 5000)
    read: list[tuple[str, int, int]] = []
    again = RestartFile(path, tmp_path)
    again.load()
    again.apply(lambda *entry: read.append(entry))

    assert read == [("c", 1, 9000)]


@pytest.mark.parametrize("content", ['{"restarts":{"topic":5}}', '{"restarts":{"t@0":"x"}}',
                                     '{"restarts":{"t@q":5}}', '{"restarts":{"t@0":-1}}'])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "queueRestarts.json"
    path.write_text(content)

    with pytest.raises(ConfigFileError, match=r"queueRestarts\.json: entry 't"):
        RestartFile(path, tmp_path).load()
