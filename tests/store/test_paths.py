"""What may be a queue, and where it lies: O1 to O5 (mqcore/names.pxd, store/queue/place.pxd)."""
from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from mqcore.layout import PUT_MESSAGE_ILLEGAL, PUT_OK
from mqcore.shm.tables import QueueTable, TableWriter
from mqcore.store import paths
from mqcore.store.paths import PathError, folder_name_trouble, queue_folder, remove_queue
from mqcore.store.queue.place import late_queue_id, may_open
from tests.attacks.forged_half import record
from tests.store.harness import Run, new_segment

LAWFUL = ("a", "TopicTest", "%RETRY%g.with:free name", "группа", "...", "a..b", "x" * 127, "a\nb",
          "%LMQ%q", "\U0001f600")
UNLAWFUL = ("", ".", "..", "a/b", "/", "../x", "a\0", "\x01", "a\x02b", "x" * 128, "é" * 64)


@pytest.mark.parametrize("name", LAWFUL)
def test_a_lawful_name_is_a_folder_below_the_root(tmp_path: Path, name: str) -> None:
    assert folder_name_trouble(name) is None
    assert queue_folder(tmp_path, name, 3).parent.parent == tmp_path
    assert may_open(new_segment(), name.encode(), 0)


@pytest.mark.parametrize("name", UNLAWFUL)
def test_another_name_makes_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(PathError, match="topic"):
        queue_folder(tmp_path, name, 0)
    assert not may_open(new_segment(), name.encode(), 0)


@pytest.mark.parametrize("queue_id", [-1, 65_535, 2**31 - 1])
def test_no_queue_has_a_number_beyond_what_a_topic_may_have(tmp_path: Path, queue_id: int) -> None:
    with pytest.raises(PathError, match="expected 0 to 65534"):
        queue_folder(tmp_path, "topic", queue_id)
    assert not may_open(new_segment(), b"topic", queue_id)


def test_native_code_and_python_agree_about_every_name() -> None:
    """Names of random bytes; those that are no UTF-8 have no text, and are no queue's."""
    segment, dice, lawful = new_segment(), random.Random(7), 0
    pieces = [b"a", b".", b"/", b"\0", b"\1", b"\2", b"\3", b"%", "é".encode(), "\ud7ff".encode(),
              b"\xed\xa0\x80", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf4\x8f\xbf\xbf",
              b"\xf4\x90\x80\x80", b"\x80", b"\xff", "\U0001f600".encode()]
    for _ in range(20_000):
        raw = b"".join(dice.choices(pieces, k=dice.choice((1, 2, 2, 3, 40))))
        try:
            expected = folder_name_trouble(raw.decode()) is None
        except UnicodeDecodeError:
            expected = False
        assert may_open(segment, raw, 0) == expected, raw
        lawful += expected
    assert 1_000 < lawful < 19_000


def test_a_message_opens_only_queues_that_its_topic_has() -> None:
    segment = new_segment()
    TableWriter(segment).publish_topic("t", read_queues=4, write_queues=2, perm=6)
    assert [may_open(segment, b"t", queue) for queue in (0, 3, 4, 65_534)] == [
        True, True, False, False]
    assert may_open(segment, b"gone", 7), "its topic may have been removed meanwhile"
    assert may_open(segment, b"SCHEDULE_TOPIC_XXXX", 30), "its queues are the delay levels"


def test_a_late_message_comes_to_a_queue_that_its_topic_still_has() -> None:
    segment = new_segment()
    TableWriter(segment).publish_topic("t", read_queues=4, write_queues=4, perm=6)
    assert [late_queue_id(segment, b"t", queue) for queue in (0, 3, 4, 7, 2**31 - 1)] == [
        0, 3, 0, 3, 3]
    assert late_queue_id(segment, b"gone", 7) == 7
    assert late_queue_id(segment, b"gone", 2**31 - 1) == -1
    assert late_queue_id(segment, b"a/b", 0) == -1


def test_the_writer_refuses_a_queue_that_cannot_be(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.recover(clean=True)
    probe, loop = run.probe(), run.writer("async", 0)
    for topic, queue in (("a/b", 0), ("..", 0), ("fine", 65_535), ("fine", 2**31 - 1), ("fine", 1)):
        assert probe.send(topic, queue, [b"x"], opaque=1)
    loop.run(1000)
    statuses = [status for _, status, _, _, _ in probe.take()]
    assert statuses == [*[PUT_MESSAGE_ILLEGAL] * 4, PUT_OK]
    assert [name[:2] for name in QueueTable(run.segment).all()] == [("fine", 1)]


def test_a_record_that_can_have_no_queue_stays_in_the_log_without_one(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.log_folder.mkdir(parents=True, exist_ok=True)
    places = [("../../outside", 0), ("fine", 2**31 - 1), ("fine", 0), ("a/b", 1), ("fine", 0)]
    made, offset = b"", 0
    for topic, queue in places:
        at = len(made)
        made += record(topic, at, b"body", {}, queue_id=queue, queue_offset=offset)
        offset += (topic, queue) == ("fine", 0)
    (run.log_folder / f"{0:020d}").write_bytes(made.ljust(run.segment_size, b"\0"))
    for _ in range(2):
        again = Run(tmp_path)
        assert again.recover(clean=False).end == len(made)
        writer = again.writer("async", len(made))
        dispatcher = again.dispatcher()
        assert dispatcher.run(1000) == 0
        assert dispatcher.odd() == (3, 0)
        assert QueueTable(again.segment).all() == [("fine", 0, 0, 2)]
        assert sorted(os.listdir(again.queue_folder)) == ["fine"]
        del writer
    assert not (tmp_path.parent / "outside").exists()


def test_a_queue_is_removed_and_nothing_else(tmp_path: Path) -> None:
    root, outside = tmp_path / "queues", tmp_path / "outside"
    for queue in (0, 1):
        (root / "t" / str(queue)).mkdir(parents=True)
        for start in (0, 200):
            (root / "t" / str(queue) / f"{start:020d}").write_bytes(b"x" * 200)
    outside.mkdir()
    (outside / f"{0:020d}").write_bytes(b"stays")
    folder = root / "t" / "0"
    (folder / "notes").write_text("mine")
    (folder / f"{100:020d}").write_bytes(b"begins where no file does")
    (folder / f"{400:020d}").write_bytes(b"x" * 201)
    (folder / f"{600:020d}").symlink_to(outside / f"{0:020d}")
    foreign = remove_queue(root, "t", 0, 200)
    assert [path.name for path in foreign] == [
        f"{100:020d}", f"{400:020d}", f"{600:020d}", "notes"]
    assert (outside / f"{0:020d}").read_bytes() == b"stays"
    assert remove_queue(root, "t", 1, 200) == []
    assert sorted(os.listdir(root / "t")) == ["0"]
    (root / "t" / "2").symlink_to(outside)
    assert remove_queue(root, "t", 2, None) == [root / "t" / "2"]
    assert (outside / f"{0:020d}").read_bytes() == b"stays"
    for topic, queue in (("..", 0), ("../outside", 0), ("t", -1)):
        with pytest.raises(PathError):
            remove_queue(root, topic, queue, None)


def test_folders_of_other_names_are_passed_over(tmp_path: Path) -> None:
    for name in ("t/0", "t/01", "t/²", "t/x", "t/65535", "t/1", "%RETRY%g.h/0"):
        (tmp_path / name).mkdir(parents=True)
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    assert sorted(found[:2] for found in paths.queue_folders(tmp_path)) == [
        ("%RETRY%g.h", 0), ("t", 0), ("t", 1)]
