"""Queues, keys and dead bytes of a log that a run wrote, as a verification counts them."""
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqcore.store.probes.io_stall import Stall
from mqcore.store.verify.store import verify
from tests.store.harness import Run
from tests.store.stalling import stall
from tests.store.test_queue_lives import Leader

TURN_MS = 1000

__all__ = ["stall"]             # a fixture


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "store", file_entries=20)


def stored(run: Run, count: int) -> int:
    """So many messages with a key each; the log's end."""
    loop, probe = run.writer("async", run.segment.log_state()["published"]), run.probe()
    for number in range(count):
        assert probe.send("topic", 0, [b"body %d" % number], opaque=number,
                          properties=b"KEYS\x01key-%d" % number)
    loop.run(TURN_MS)
    return int(run.segment.log_state()["published"])


def test_keys_that_no_index_has_are_counted(run: Run) -> None:                              # VI1
    run.dispatch_all(stored(run, 3))
    assert verify(run.root).figures["keys_missing"] == 0
    run.dispatch_all(stored(run, 2), index_enabled=False)
    figures = verify(run.root).figures
    assert (figures["keys"], figures["keys_matched"], figures["keys_missing"]) == (5, 3, 2)


def test_a_key_that_is_indexed_twice_is_sound(run: Run) -> None:                            # VI3
    end = stored(run, 1)
    run.dispatch_all(end)
    run.segment.set_dispatched(0, 0)
    run.dispatch_all(end, newest_index=None)
    report = verify(run.root)
    assert (report.figures["keys_matched"], report.figures["keys_doubled"]) == (1, 1)
    assert [one.text for one in report.findings if one.file.startswith("index")] == [
        "1 keys are indexed a second time, as after a crash"]


def test_records_of_a_topic_that_was_made_again_are_not_missing(tmp_path: Path) -> None:    # VQ3
    leader = Leader(tmp_path / "store")
    leader.send(("a", 0), 3)
    leader.dispatch()
    assert leader.remove(("a", 0)) == 0
    leader.dispatch()
    assert leader.send(("a", 0), 2) == 0
    leader.dispatch()
    report = verify(leader.root)
    assert [one.text for one in report.findings if "consumequeue" in one.file] == []
    assert report.figures["records"] == 6


@pytest.mark.parametrize("again", [0, 2], ids=["not yet", "with messages"])
def test_a_queue_that_a_marker_ended_misses_no_entry(tmp_path: Path, again: int) -> None:   # VQ3
    """Its topic is there again, and the messages of the life that is over are still in the log."""
    leader = Leader(tmp_path / "store")
    for queue in (("a", 0), ("a", 1), ("b", 0)):
        leader.send(queue, 3)
    assert leader.remove(("a", 0), ("a", 1), ("gone", 7)) == 0
    for _ in range(again):
        leader.send(("a", 1))
    leader.dispatch()
    (leader.root / "config").mkdir()
    (leader.root / "config/topics.json").write_text('{"topicConfigTable":{"a":{},"b":{}}}')

    report = verify(leader.root)
    assert [one.text for one in report.findings if "consumequeue" in one.file] == []
    assert {queue["topic"]: queue["superseded"] for queue in report.queues
            if queue["queueId"] == 0} == {"a": 3, "b": 0, "rmq_sys_queue_lives": 0}


def test_numbers_behind_a_marker_begin_at_0(tmp_path: Path) -> None:                          # VQ3
    leader = Leader(tmp_path / "store")
    leader.send(("a", 0), 3)
    assert leader.remove(("a", 0)) == 0
    leader.send(("a", 0), 2)
    end = leader.end
    leader.dispatch()
    (path,) = leader.run.log_folder.iterdir()
    data = bytearray(path.read_bytes())
    for record in leader.run.records(end):
        if record.get("body") in leader.kept["a", 0]:
            at = int(record["physicalOffset"]) + 20            # its queue offset
            data[at:at + 8] = (int.from_bytes(data[at:at + 8], "big") + 1).to_bytes(8, "big")
    path.write_bytes(data)
    shutil.rmtree(leader.root / "checksums")
    assert [one.text for one in verify(leader.root).findings if "expected 0" in one.text] != []


def test_older_records_behind_damage_that_no_queue_knows_are_no_part_of_the_log(           # VL1
    run: Run,
) -> None:
    """A broker that wipes nothing has left them there."""
    first = stored(run, 2)
    run.dispatch_all(first)
    stored(run, 2)
    shutil.rmtree(run.root / "checksums")
    (path,) = run.log_folder.iterdir()
    data = bytearray(path.read_bytes())
    third = int.from_bytes(data[first:first + 4], "big")
    data[first + 4] ^= 1                                # of its magic
    old = first + third + 56                            # the store time of the one behind it
    data[old:old + 8] = (int.from_bytes(data[old:old + 8], "big") - 1000).to_bytes(8, "big")
    path.write_bytes(data)
    report = verify(run.root)
    assert (report.figures["end"], report.figures["records"]) == (first, 2)


def test_behind_a_damaged_record_numbers_may_have_a_gap(run: Run) -> None:                  # VL3
    first = stored(run, 1)
    run.dispatch_all(stored(run, 3))
    shutil.rmtree(run.root / "checksums")
    (path,) = run.log_folder.iterdir()
    data = bytearray(path.read_bytes())
    data[first + 4] ^= 1
    path.write_bytes(data)
    found = [one for one in verify(run.root).findings
             if one.file.startswith("commitlog") and "Host" not in one.text]
    assert [one.position for one in found] == [first]


def test_a_log_that_cannot_be_read_is_no_empty_log(run: Run, stall: Stall) -> None:          # VW1
    run.dispatch_all(stored(run, 3))
    stall.reads(True)
    found = [one for one in verify(run.root).findings if one.file.startswith("commitlog")]
    assert [(one.severity, one.position, one.text) for one in found] == [
        ("damage", 0, "cannot be read (errno 9); no whole record follows")]
