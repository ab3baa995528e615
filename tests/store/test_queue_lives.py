"""The log says where lives of queues begin, the same in each copy (store/queue/lives.pxd)."""
from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from mqcore.participants import COORDINATOR
from mqcore.shm.retention import QueueLives
from mqcore.store.log.producer import LogProducer
from mqcore.store.paths import remove_queue
from mqcore.store.probes import append_probe
from mqcore.store.queue.dispatch import DispatchFailure
from mqcore.store.reader import StoreReader
from mqcore.store.recovery.compare import queue_ends
from mqcore.store.recovery.queue_ends import QueueEnds
from tests.store.harness import Run, log_records, read_entries
from tests.store.test_raw import pieces, put

SEGMENT, FILE_ENTRIES, TURN_MS = 4096, 8, 1000
MARKERS = "rmq_sys_queue_lives"
SEAL = 0x6C697665
QUEUES = [("a", 0), ("a", 1), ("b", 0)]
STEPS = 50


class Copy:
    """A store with its writer, and a dispatcher that is made anew each time."""

    segment_size = SEGMENT

    def __init__(self, root: Path, *, clean: bool = False) -> None:
        self.root = root
        self.ends: QueueEnds | None = None       # as config/queueEnds.bin has them
        self.begin(clean)

    def begin(self, clean: bool) -> None:
        self.run = Run(self.root, segment_size=self.segment_size, file_entries=FILE_ENTRIES)
        found = self.run.recover(clean=clean, same_boot=True, ends=self.ends)
        self.probe = self.run.probe()
        self.loop = self.run.writer("async", found.end)
        self.loop.publish_start(found.end)

    @property
    def end(self) -> int:
        return int(self.run.segment.log_state()["published"])

    def dispatch(self) -> None:
        """As the process does, with its removals."""
        lives, dispatcher = QueueLives(self.run.segment), self.run.dispatcher(index_enabled=False)
        while (failure := dispatcher.run(TURN_MS)) == DispatchFailure.DISPATCH_REMOVAL:
            begun = dispatcher.removals_begun()
            for queue in lives.begun():
                dispatcher.forget_queue(queue.number)
                remove_queue(self.run.queue_folder, queue.topic, queue.queue_id, None)
                lives.finish(queue.number)
            dispatcher.removals_done(begun)
        assert failure == 0, dispatcher.failure()
        dispatcher.sync()
        dispatcher.close()

    def checkpoint(self, *, stopped: bool = False) -> None:
        self.dispatch()
        self.ends = queue_ends(self.run.segment, stopped=stopped)

    def stop(self) -> None:
        self.checkpoint(stopped=True)
        self.begin(clean=True)

    def crash(self) -> None:
        self.begin(clean=False)

    def bodies(self) -> dict[tuple[str, int], list[bytes]]:
        """The messages that consumers get, by queue; empty queues are left out."""
        self.dispatch()
        at = {record["physicalOffset"]: record["body"]
              for record in log_records(self.run.log_folder, self.segment_size, self.end)
              if not record.get("blank")}
        found = {}
        for (topic, queue_id), (least, most) in self.run.queue_ranges().items():
            if topic == MARKERS:
                continue
            assert least == 0
            entries = read_entries(self.run.queue_folder / topic / str(queue_id), 0, most,
                                   FILE_ENTRIES)
            found[topic, queue_id] = [at[position] for position, _, _ in entries]
        return found

    def nexts(self) -> dict[tuple[str, int], int]:
        return {(queue.topic, queue.queue_id): queue.next_offset
                for queue in QueueLives(self.run.segment).all()
                if queue.next_offset and queue.topic != MARKERS}


class Leader(Copy):
    """`kept` has the messages that its queues should hold."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.kept: dict[tuple[str, int], list[bytes]] = {}
        self.serial = 0

    def send(self, queue: tuple[str, int], count: int = 1) -> int:
        """Store so many messages; the offset of the first."""
        bodies = [b"%d " % number + b"." * (37 * number % 300)
                  for number in range(self.serial, self.serial + count)]
        self.serial += count
        for number, body in enumerate(bodies):
            assert self.probe.send(*queue, [body], opaque=number)
        self.loop.run(TURN_MS)
        results = self.probe.take()
        assert [status for _, status, *_ in results] == [0] * count
        self.kept.setdefault(queue, []).extend(bodies)
        return results[0][2]

    def remove(self, *queues: tuple[str, int], seal: int = SEAL) -> int:
        """A marker, as the coordinator appends it; its status."""
        own = LogProducer(self.run.segment, COORDINATOR.producer, ("127.0.0.1", 1), 0)
        body = "".join(f"{topic}@{queue_id}\n" for topic, queue_id in queues).encode()
        assert own.append(MARKERS, 0, body, b"", born_ms=1, prepared_position=seal, tag=1)
        self.loop.run(TURN_MS)
        (_, status, _, _), = own.take_results()
        if status == 0 and seal == SEAL:
            for queue in queues:
                self.kept.pop(queue, None)
        return int(status)

    def remove_here(self, *queues: tuple[str, int]) -> None:
        """As a stock master does: the log does not say so."""
        lives = QueueLives(self.run.segment)
        position = self.loop.restart_position()
        lives.begin(lives.numbers(queues), position)
        for queue in queues:
            self.kept.pop(queue, None)


def follow(leader: Copy, follower: Copy, records: int = 50) -> None:
    for position, data in pieces(leader.run.log_folder, SEGMENT, leader.end, records):
        if position + len(data) <= follower.end:
            continue
        if position < follower.end:
            position, data = follower.end, data[follower.end - position:]
        assert put(follower.loop, follower.probe, (position, data)) == 0


def copy_of(leader: Copy, root: Path) -> Copy:
    """A store with nothing but the log."""
    shutil.copytree(leader.run.log_folder, root / "commitlog")
    shutil.copytree(leader.root / "checksums", root / "checksums")
    return Copy(root)


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return Leader(tmp_path / "leader")


def test_a_marker_ends_the_lives_that_it_names_in_each_copy(leader: Leader, tmp_path: Path) -> None:
    follower = Copy(tmp_path / "follower")
    for queue in QUEUES:
        leader.send(queue, 20)
    follow(leader, follower)
    assert leader.bodies() == follower.bodies() == leader.kept
    assert leader.remove(("a", 1), ("b", 0), ("never", 3)) == 0
    follow(leader, follower)
    fresh = copy_of(leader, tmp_path / "fresh")
    for copy in (leader, follower, fresh):
        assert set(copy.bodies()) == {("a", 0)}
        assert copy.nexts() == {("a", 0): 20}

    assert leader.send(("b", 0), 2) == 0
    follow(leader, follower)
    fresh = copy_of(leader, tmp_path / "fresh2")
    for copy in (leader, follower, fresh):
        assert copy.bodies() == leader.kept


def test_an_offset_0_behind_others_ends_a_life_where_there_is_no_marker(
        leader: Leader, tmp_path: Path) -> None:
    follower = Copy(tmp_path / "follower")
    leader.send(("a", 0), 20)
    leader.send(("a", 1), 3)
    follow(leader, follower)
    follower.dispatch()
    leader.remove_here(("a", 0))
    leader.send(("a", 0), 5)
    follow(leader, follower)
    assert follower.bodies() == leader.bodies() == leader.kept
    assert copy_of(leader, tmp_path / "fresh").bodies() == leader.kept


def test_a_life_may_begin_within_one_request_of_raw_bytes(leader: Leader, tmp_path: Path) -> None:
    leader.send(("a", 0), 2)
    leader.remove(("a", 0))
    leader.send(("a", 0), 1)
    leader.remove(("a", 0))
    leader.send(("a", 0), 3)
    follower = Copy(tmp_path / "follower")
    ((position, data),) = pieces(leader.run.log_folder, SEGMENT, leader.end)
    assert put(follower.loop, follower.probe, (position, data)) == 0
    assert follower.bodies() == leader.bodies() == leader.kept
    assert follower.nexts() == {("a", 0): 3}


def test_a_message_that_only_looks_like_a_marker_ends_nothing(leader: Leader, tmp_path: Path
                                                              ) -> None:
    leader.send(("a", 0), 2)
    for seal in (0, SEAL + 1):
        assert leader.remove(("a", 0), seal=seal) == 0
    assert leader.probe.send(MARKERS, 0, [b"a@0\n"], opaque=1)     # as a client could
    leader.loop.run(TURN_MS)
    assert [status for _, status, *_ in leader.probe.take()] == [0]
    assert len(leader.bodies()["a", 0]) == 2
    assert len(copy_of(leader, tmp_path / "fresh").bodies()["a", 0]) == 2


@pytest.mark.parametrize("body", [
    b"", b"\n\n", b"a", b"a@", b"@0", b"a@0x", b"a@65535", b"a@99999999999999999999", b"a@-1",
    b"a@1\0", b"x" * 300 + b"@0", b"\xff@0", b"a@ 0"])
def test_a_marker_that_names_no_queue_ends_nothing(leader: Leader, tmp_path: Path, body: bytes
                                                   ) -> None:
    leader.send(("a", 0), 2)
    own = LogProducer(leader.run.segment, COORDINATOR.producer, ("127.0.0.1", 1), 0)
    assert own.append(MARKERS, 0, body, b"", born_ms=1, prepared_position=SEAL)
    leader.loop.run(TURN_MS)
    assert [status for _, status, *_ in own.take_results()] == [0]
    for copy in (leader, copy_of(leader, tmp_path / "fresh")):
        assert copy.bodies() == leader.kept


def test_a_marker_that_could_not_be_written_ends_nothing(leader: Leader) -> None:
    leader.send(("a", 0), 2)
    append_probe.watch(leader.run.segment)
    append_probe.fail("write", errno.ENOSPC)
    try:
        assert leader.remove(("a", 0)) != 0
    finally:
        append_probe.unwatch()
    assert leader.bodies() == leader.kept
    assert leader.nexts() == {("a", 0): 2}


def test_a_writer_that_died_behind_a_marker_has_a_successor_that_ends_the_lives(
        leader: Leader) -> None:
    leader.send(("a", 0), 3)
    leader.dispatch()
    before = leader.end
    leader.remove(("a", 0))
    lives = QueueLives(leader.run.segment)
    number = lives.number("a", 0)
    # as if it had died between the write and all that followed
    lives.set_restart("a", 0, 0)
    leader.loop.publish_start(before)
    del leader.loop
    found = leader.run.recover_tail()
    leader.loop = leader.run.writer("async", found.end)
    leader.loop.publish_start(found.end)
    assert lives.state(number).restart_position == before
    assert leader.bodies() == {}
    assert leader.send(("a", 0)) == 0


def test_a_life_that_was_ended_is_not_ended_again_by_a_successor(leader: Leader) -> None:   # QL4
    """The files are deleted, and the marker is not dispatched yet, when the writer dies."""
    leader.send(("a", 0), 3)
    leader.dispatch()
    before = leader.end
    leader.remove(("a", 0))
    lives, dispatcher = QueueLives(leader.run.segment), leader.run.dispatcher(index_enabled=False)
    assert dispatcher.run(TURN_MS) == DispatchFailure.DISPATCH_REMOVAL
    (queue,) = lives.begun()
    dispatcher.forget_queue(queue.number)
    remove_queue(leader.run.queue_folder, "a", 0, None)
    lives.finish(queue.number)
    dispatcher.close()
    assert leader.run.segment.log_state()["dispatched"] == before
    del leader.loop
    leader.run.recover_tail()
    assert lives.begun() == []


@pytest.mark.parametrize("marks", [True, False], ids=["markers", "offsets only"])
@pytest.mark.parametrize("seed", range(10))
def test_all_copies_of_a_log_have_the_same_queues(seed: int, marks: bool, tmp_path: Path) -> None:
    """Removals, crashes, lost queue files at the leader, at the follower, and afresh."""
    dice = random.Random(f"{seed} {marks}")
    leader, follower = Leader(tmp_path / "leader"), Copy(tmp_path / "follower")

    def remove() -> None:
        queues = [queue for queue in QUEUES if dice.random() < 0.5 and queue in leader.kept]
        if marks:
            leader.remove(*queues)
        else:
            leader.remove_here(*queues)
            for queue in queues:                 # else no record ends the life
                leader.send(queue)

    def lose_files(copy: Copy) -> None:
        """A crash, and folders of queues are gone."""
        if dice.random() < 0.5:
            copy.dispatch()
        for topic in os.listdir(copy.run.queue_folder):
            if dice.random() < 0.4:
                shutil.rmtree(copy.run.queue_folder / topic)
        copy.crash()

    # a broker that removes without a marker keeps the removal in a file, which is not here
    restarts = (
        (leader.crash, 1), (leader.stop, 1), (leader.checkpoint, 2),
        (lambda: lose_files(leader), 1)) if marks else ()
    steps = (
        *restarts,
        (lambda: leader.send(dice.choice(QUEUES), dice.randrange(1, 6)), 20), (remove, 4),
        (leader.dispatch, 3), (follower.dispatch, 3),
        (lambda: follow(leader, follower, dice.randrange(1, 20)), 6),
        (follower.crash, 1), (follower.stop, 1), (follower.checkpoint, 2),
        (lambda: lose_files(follower), 1))
    leader.send(("a", 0))
    for _ in range(STEPS):
        dice.choices([step for step, _ in steps], [weight for _, weight in steps])[0]()
    follow(leader, follower)
    wanted = {queue: bodies for queue, bodies in leader.kept.items() if bodies}
    copies = {"leader": leader, "follower": follower, "fresh": copy_of(leader, tmp_path / "fresh")}
    for name, copy in copies.items():
        assert copy.bodies() == wanted, name
        assert copy.nexts() == {queue: len(bodies) for queue, bodies in wanted.items()}, name


@pytest.mark.parametrize("known", [True, False], ids=["ends are known", "they are not"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
def test_files_of_an_ended_life_that_are_put_back_are_not_believed(
        leader: Leader, tmp_path: Path, clean: bool, known: bool) -> None:
    leader.send(("a", 0), 20)
    leader.send(("b", 0), 3)
    leader.dispatch()
    shutil.copytree(leader.run.queue_folder, tmp_path / "earlier")
    leader.remove(("a", 0))
    leader.send(("a", 0), 5)
    leader.send(("b", 0), 3)
    leader.checkpoint(stopped=clean)
    shutil.rmtree(leader.run.queue_folder / "a")
    shutil.copytree(tmp_path / "earlier" / "a", leader.run.queue_folder / "a")
    leader.ends = leader.ends if known else None
    leader.begin(clean)
    assert leader.bodies() == leader.kept
    assert leader.nexts() == {("a", 0): 5, ("b", 0): 6}


def test_an_ended_life_that_a_start_meets_as_it_looks_back_goes(leader: Leader, tmp_path: Path
                                                                ) -> None:
    """An older version left files of an ended life; others are lost."""
    leader.send(("b", 0), 3)
    leader.send(("a", 0), 20)
    follower = Copy(tmp_path / "follower")
    follow(leader, follower)
    follower.dispatch()
    shutil.copytree(follower.run.queue_folder / "a", tmp_path / "earlier")
    leader.remove_here(("a", 0))
    leader.send(("a", 0), 5)
    follow(leader, follower)
    follower.checkpoint()
    shutil.rmtree(follower.run.queue_folder)
    shutil.copytree(tmp_path / "earlier", follower.run.queue_folder / "a")
    follower.crash()
    assert follower.bodies() == leader.kept
    assert follower.nexts() == {("a", 0): 5, ("b", 0): 3}


def test_a_reader_leaves_the_files_of_an_ended_life(leader: Leader) -> None:                 # C4
    """It has the file of the queue's former life open; the new one's has the same name."""
    reader = StoreReader(
        leader.run.segment, os.fsencode(leader.run.log_folder),
        os.fsencode(leader.run.queue_folder), file_entries=FILE_ENTRIES, memory_bytes=1 << 20)
    leader.send(("a", 0), 2)
    leader.dispatch()
    before = reader.entry("a", 0, 0)
    assert before is not None
    assert leader.remove(("a", 0)) == 0
    leader.dispatch()
    start = leader.end
    assert leader.send(("a", 0), 1) == 0
    leader.dispatch()
    after = reader.entry("a", 0, 0)
    assert (before[0], after and after[0]) == (0, start)


def test_the_writer_hears_that_queues_are_to_be_removed(leader: Leader) -> None:             # Q1
    leader.send(("a", 0))
    lives, heard = QueueLives(leader.run.segment), leader.loop.removals_asked()
    lives.ask([lives.number("a", 0)])
    assert leader.loop.removals_asked() == heard + 1
    assert [(queue.topic, queue.queue_id) for queue in lives.asked()] == [("a", 0)]
