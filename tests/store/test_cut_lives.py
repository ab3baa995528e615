"""A log that is cut where lives of queues end: the store says the same as the log that is left."""
from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mqcore.backup.make import to_folder
from mqcore.backup.restore import Until, restore
from mqcore.broker.tables import queue_hints
from mqcore.broker.tables.queue_restarts import RestartFile
from mqcore.participants import COORDINATOR
from mqcore.replication import epochs
from mqcore.replication import rejoin as rejoins
from mqcore.replication.epochs import Epoch, History, Standing, State
from mqcore.replication.greeting import Greeting
from mqcore.replication.log_bytes import log_crc
from mqcore.shm.retention import QueueLives
from mqcore.store import cutting, last_run
from mqcore.store.log.folders import LogFolders
from mqcore.store.log.producer import LogProducer
from mqcore.store.recovery import queue_ends
from mqcore.store.verify.report import NOTE
from mqcore.store.verify.store import verify
from tests.store.harness import Run
from tests.store.test_queue_lives import FILE_ENTRIES, SEGMENT, Copy, Leader

FIRST = Epoch(1, 0, "first", 1)
KNOWN = ("b",)                         # topics of the store's table: "a" was deleted there


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    made = Leader(tmp_path / "leader")
    (made.root / "config").mkdir()
    return made


def end_run(copy: Copy, *, clean: bool) -> None:
    """All is dispatched; the files that the run's end leaves, and those of a broker's tables."""
    leave_ends(copy, clean=clean)
    (copy.root / "config" / "topics.json").write_text(json.dumps(
        {"topicConfigTable": {topic: {} for topic in KNOWN}}))


def leave_ends(copy: Copy, *, clean: bool) -> None:
    copy.checkpoint(stopped=clean)
    assert copy.ends is not None
    queue_ends.write(copy.root / "config" / queue_ends.NAME, copy.ends, 1)
    if not clean:
        last_run.mark(copy.root / "abort", "async")


def rejoined(copy: Copy, cut: int) -> None:
    """The log ends at `cut` by the word of a new master, which has all that is before."""
    root, end, size = copy.root, copy.end, copy.segment_size
    log = LogFolders((root / "commitlog",), store=root)
    start = max(cut - 1, 0) // size * size
    epochs.write(root, Standing(History("a" * 32, (FIRST,)), State.LEADS))
    greeting = Greeting(cut, start, cut, log_crc(log, start, cut, size), "b", "c", size,
                        History("a" * 32, (FIRST, Epoch(2, cut, "second", 2))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rejoins, "greeted", lambda *_: greeting)
        assert rejoins.rejoin_at(root, log, ("master", 1), end, 0).position == cut


class Started(Copy):
    """A start of a broker on the store, with what the files beside the log say."""

    def begin(self, clean: bool) -> None:
        config = self.root / "config"
        last = last_run.read(self.root / "abort")
        ends = queue_ends.read(config / queue_ends.NAME) if last.clean or last.ours else None
        self.run = Run(self.root, segment_size=self.segment_size, file_entries=FILE_ENTRIES)
        set_restart = QueueLives(self.run.segment).set_restart
        restarts = RestartFile(config / "queueRestarts.json", self.run.queue_folder)
        restarts.load()
        restarts.apply(set_restart)
        found = self.run.recover(clean=last.clean, same_boot=last.same_boot, ends=ends,
                                 hints=lambda: queue_hints.read(config))
        restarts.recovered(set_restart, found.first, found.end)
        self.probe = self.run.probe()
        self.loop = self.run.writer("async", found.end)
        self.loop.publish_start(found.end)


def sound(root: Path) -> None:
    """A verification finds nothing wrong in queues."""
    assert [one.line() for one in verify(root).findings
            if one.severity != NOTE and one.file.startswith("consumequeue")] == []


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
@pytest.mark.parametrize("place", ["removal", "made again", "behind both", "second removal"])
def test_queues_are_as_the_log_that_is_left_says(leader: Leader, place: str, clean: bool) -> None:
    """The topic is the log's oldest, and unknown to the table of topics."""
    places, kept = {}, {}

    def may_end(name: str) -> None:
        places[name] = leader.end
        kept[name] = {queue: list(bodies) for queue, bodies in leader.kept.items()}

    leader.send(("a", 0), 20)
    leader.send(("b", 0), 3)
    may_end("removal")
    assert leader.remove(("a", 0)) == 0
    leader.send(("b", 0), 1)
    may_end("made again")
    leader.send(("a", 0), 2)
    leader.send(("b", 0), 1)
    may_end("behind both")
    leader.send(("a", 0), 1)
    may_end("second removal")
    assert leader.remove(("a", 0), ("b", 0)) == 0
    leader.send(("a", 0), 3)
    end_run(leader, clean=clean)

    rejoined(leader, places[place])
    started = Started(leader.root)
    assert started.bodies() == kept[place]
    assert started.nexts() == {queue: len(bodies) for queue, bodies in kept[place].items()}
    sound(leader.root)


def test_a_life_that_a_stock_master_ended_comes_back_when_all_queues_are_written_anew(
        leader: Leader) -> None:
    """Its log has no marker of the removal: the next life begins with offset 0."""
    leader.send(("b", 0), 3)
    leader.send(("a", 0), 20)
    cut, kept = leader.end, {queue: list(bodies) for queue, bodies in leader.kept.items()}
    leader.remove_here(("a", 0))
    leader.send(("a", 0), 2)
    end_run(leader, clean=True)
    rejoined(leader, cut)
    assert Started(leader.root).bodies() == {("b", 0): kept["b", 0]}

    shutil.rmtree(leader.root / "consumequeue")
    assert Started(leader.root).bodies() == kept


@pytest.mark.parametrize("again", [False, True], ids=["at once", "interrupted"])
def test_a_removal_of_the_brokers_own_behind_the_cut_is_undone(
        leader: Leader, again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a slave removes queues of topics that its table has not: the log does not say so."""
    leader.send(("a", 0), 20)
    leader.send(("b", 0), 3)
    cut, kept = leader.end, {queue: list(bodies) for queue, bodies in leader.kept.items()}
    leader.send(("b", 0), 1)
    leader.remove_here(("a", 0))
    end_run(leader, clean=True)
    restarts = RestartFile(leader.root / "config" / "queueRestarts.json", leader.run.queue_folder)
    restarts.add([("a", 0)], leader.end, 0)

    if again:
        monkeypatch.setattr(cutting, "cut_log", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rejoined(leader, cut)
        monkeypatch.undo()
    rejoined(leader, cut)
    assert not list((leader.root / "config").glob("queueRestarts*"))
    started = Started(leader.root)
    assert started.bodies() == kept
    sound(leader.root)


def test_a_removal_of_the_brokers_own_before_the_cut_stays(leader: Leader) -> None:
    leader.send(("a", 0), 20)
    leader.remove_here(("a", 0))
    removed = leader.end
    leader.send(("b", 0), 2)
    kept, cut = {("b", 0): list(leader.kept["b", 0])}, leader.end
    leader.send(("b", 0), 1)
    end_run(leader, clean=True)
    path = leader.root / "config" / "queueRestarts.json"
    RestartFile(path, leader.run.queue_folder).add([("a", 0)], removed, 0)

    rejoined(leader, cut)
    assert json.loads(path.read_bytes()) == {"restarts": {"a@0": removed}}
    assert Started(leader.root).bodies() == kept


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_queue_whose_records_are_all_deleted_keeps_its_end(leader: Leader) -> None:
    """Retention took its messages, and its consumers' offsets count on."""
    leader.send(("b", 0), 2 * FILE_ENTRIES)
    leader.send(("a", 0), 60)
    leader.dispatch()
    cut = leader.end
    assert leader.remove(("a", 0)) == 0
    end_run(leader, clean=True)
    segments = LogFolders((leader.root / "commitlog",)).segments()
    gone = [one for start, one in segments if start + SEGMENT <= cut - SEGMENT]
    assert len(gone) > 2
    for one in gone:
        one.unlink()
        (leader.root / "checksums" / one.name).unlink(missing_ok=True)

    rejoined(leader, cut)
    assert Started(leader.root).nexts()["b", 0] == 2 * FILE_ENTRIES


def test_a_restore_to_before_a_removal_gives_the_messages_back(leader: Leader, tmp_path: Path
                                                               ) -> None:
    """The topic is the log's oldest, and gone when the backup was made."""
    own = LogProducer(leader.run.segment, COORDINATOR.producer, ("127.0.0.1", 1), 0)
    kept = {("a", 0): [b"a%d" % number for number in range(20)], ("b", 0): [b"b"]}
    for (topic, queue_id), bodies in kept.items():
        for body in bodies:
            assert own.append(topic, queue_id, body, b"", born_ms=1)
            leader.loop.run(1000)
            assert own.take_results()[0][1] == 0
    cut = leader.end
    assert leader.remove(("a", 0)) == 0
    end_run(leader, clean=True)
    to_folder(leader.root, tmp_path / "backups", copy=True)

    done = restore(tmp_path / "backups", tmp_path / "restored", Until(position=cut))
    assert done.end == cut
    started = Started(tmp_path / "restored")
    assert started.bodies() == kept
    sound(started.root)
