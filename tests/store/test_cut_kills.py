"""
A log that is cut where lives of queues end, by a `rejoin` that is killed between any two writes: a
start has the queues of the log that it finds, and so has a start behind a second `rejoin`.
"""
from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from mqcore.broker.tables.queue_restarts import RestartFile
from mqcore.store import files
from tests.replication.test_rejoin_kills import KilledError, killed_at
from tests.store.harness import log_records
from tests.store.test_cut_lives import Started, end_run, rejoined, sound
from tests.store.test_queue_lives import MARKERS, SEGMENT, Copy, Leader

OWN = ("c", 0)
Queues = dict[tuple[str, int], list[bytes]]


def of_log(copy: Copy, removed: int | None) -> Queues:
    """The queues that the log says. removed: where the broker removed OWN, None: it forgot."""
    found: Queues = {}
    for record in log_records(copy.run.log_folder, SEGMENT, copy.end):
        if record.get("blank"):
            continue
        queue = record["topic"], record["queueId"]
        if record["topic"] == MARKERS:
            for line in record["body"].decode().splitlines():
                topic, _, number = line.rpartition("@")
                found.pop((topic, int(number)), None)
        elif queue != OWN or removed is None or record["physicalOffset"] >= removed:
            found.setdefault(queue, []).append(record["body"])
    return found


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
def test_a_rejoin_that_is_killed_at_any_write_leaves_the_queues_of_its_log(
        tmp_path: Path, clean: bool) -> None:
    leader = Leader(tmp_path / "leader")
    (leader.root / "config").mkdir()
    for queue, count in ((("a", 0), 20), (("b", 0), 3), (OWN, 4)):
        leader.send(queue, count)
    cut, kept = leader.end, {queue: list(bodies) for queue, bodies in leader.kept.items()}
    leader.send(("b", 0), 30)
    assert leader.remove(("a", 0)) == 0
    leader.send(("a", 0), 2)
    leader.remove_here(OWN)
    removed = leader.end
    leader.send(("b", 0), 15)
    end_run(leader, clean=clean)
    restarts = leader.root / "config" / "queueRestarts.json"
    RestartFile(restarts, leader.run.queue_folder).add([OWN], removed, 0)
    end, folders = leader.end, tmp_path / "killed"
    assert cut // SEGMENT < removed // SEGMENT - 1 < end // SEGMENT - 1

    for number in itertools.count(1):
        shutil.copytree(leader.root, folders / "begins")
        killed = Copy.__new__(Copy)                  # only its files: no process runs on it
        killed.root, killed.run = folders / "begins", leader.run
        try:
            with killed_at(number):
                rejoined(killed, cut)
            break
        except KilledError:
            shutil.copytree(killed.root, folders / "again")
        with files.replaced(sync=lambda _: None):
            knows = (killed.root / restarts.relative_to(leader.root)).exists()
            begun = Started(killed.root)
            assert cut <= begun.end <= end
            assert begun.bodies() == of_log(begun, removed if knows else None), number
            again = Copy.__new__(Copy)
            again.root, again.run = folders / "again", leader.run
            rejoined(again, cut)
            second = Started(again.root)
            assert second.bodies() == kept, number
            assert second.nexts() == {queue: len(bodies) for queue, bodies in kept.items()}
            sound(again.root)
        shutil.rmtree(folders)
    assert number > 20
