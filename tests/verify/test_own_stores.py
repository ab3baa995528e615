"""Stores that mqcore itself writes, and whether a start mends what verification says it will."""
from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.store.ownership import StoreInUseError
from mqcore.store.verify.store import verify
from tests.support.mqcore_process import mqcore_up
from tests.verify.stores import (
    KILLED_MESSAGES,
    OWN_SETTINGS,
    SEGMENT_BYTES,
    STOPPED_MESSAGES,
    TOPIC,
    copy,
    load,
)


def test_a_store_after_a_clean_stop_is_sound(stopped: Path) -> None:
    report = verify(stopped)

    assert report.findings == []
    assert report.status == 0
    assert report.figures["records"] == report.figures["entries"] == STOPPED_MESSAGES
    assert report.figures["keys"] == report.figures["keys_matched"] == 2 * STOPPED_MESSAGES
    assert report.figures["index_slots"] == OWN_SETTINGS["store.index_slot_count"]


def test_a_store_whose_processes_were_killed_is_mended_by_the_next_start(killed: Path) -> None:
    report = verify(killed)

    assert report.status == 3
    assert report.figures["records"] == KILLED_MESSAGES
    assert "abort" in {finding.file for finding in report.findings}


def test_a_running_store_is_refused_unless_forced(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, OWN_SETTINGS) as broker:
        load(broker, 100)
        with pytest.raises(StoreInUseError, match="a broker runs on this store"):
            verify(broker.store)

        report = verify(broker.store, force=True)

    assert report.status == 3
    assert ("note", "lock") in {(finding.severity, finding.file) for finding in report.findings}
    assert report.figures["records"] == 100


def test_no_broker_starts_on_a_store_that_is_being_verified(stopped: Path, tmp_path: Path) -> None:
    root = copy(stopped, tmp_path)
    refused: list[str] = []

    def while_it_is_read(done: int, total: int) -> None:
        if not refused:
            with pytest.raises(AssertionError) as start, mqcore_up(tmp_path, OWN_SETTINGS):
                pass
            refused.append(str(start.value))

    verify(root, progress=while_it_is_read)

    assert "is in use" in refused[0]


def remove(*parts: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for part in parts:
            path = root / part
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return change


def remove_file(folder: str, number: int) -> Callable[[Path], None]:
    return lambda root: sorted((root / folder).iterdir())[number].unlink()


def tear(root: Path) -> None:
    """Overwrite the end of the last record, as a power cut may."""
    end = verify(root).figures["end"]
    with (root / "commitlog" / f"{end // SEGMENT_BYTES * SEGMENT_BYTES:020d}").open("r+b") as file:
        file.seek(end % SEGMENT_BYTES - 100)
        file.write(b"\xff" * 60)


def nothing(root: Path) -> None:
    """The store as it was left."""


def unclean(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """As after a crash with everything dispatched and no checkpoint yet; then `change`."""
    def changes(root: Path) -> None:
        (root / "abort").touch()
        (root / "checkpoint").unlink()
        change(root)
    return changes


def begin_index(root: Path) -> None:
    """A next index file, made and mapped, its header not yet filled in from the full one's end."""
    newest = max((root / "index").iterdir())
    content = bytearray(newest.stat().st_size)
    content[36:40] = (1).to_bytes(4, "big")
    (root / "index" / f"{int(newest.name) + 1:017d}").write_bytes(content)


QUEUE = f"consumequeue/{TOPIC}/0"
STOPPED, KILLED = "stopped", "killed"


@pytest.mark.parametrize(("state", "change"), [
    pytest.param(STOPPED, remove("consumequeue"), id="all-queues-missing"),
    pytest.param(STOPPED, remove("consumequeue", "index"), id="queues-and-index-missing"),
    pytest.param(STOPPED, remove("checkpoint"), id="checkpoint-missing"),
    pytest.param(STOPPED, remove(QUEUE), id="one-queue-missing"),
    pytest.param(STOPPED, remove_file(QUEUE, -1), id="queue-behind"),
    pytest.param(STOPPED, remove_file(QUEUE, 0), id="queue-begins-late"),
    pytest.param(STOPPED, remove("index"), id="index-missing"),
    pytest.param(STOPPED, remove_file("index", -1), id="index-behind"),
    pytest.param(STOPPED, remove_file("index", 0), id="index-begins-late"),
    pytest.param(STOPPED, remove_file("index", 1), id="index-with-a-hole"),
    pytest.param(STOPPED, remove(QUEUE, "index"), id="one-queue-and-index-missing"),
    pytest.param(KILLED, remove(QUEUE), id="killed-and-one-queue-missing"),
    pytest.param(KILLED, remove_file(QUEUE, 0), id="killed-and-queue-begins-late"),
    pytest.param(KILLED, nothing, id="killed"),
    pytest.param(KILLED, remove("consumequeue"), id="killed-and-all-queues-missing"),
    pytest.param(STOPPED, unclean(nothing), id="unclean"),
    pytest.param(STOPPED, unclean(remove(QUEUE)), id="unclean-one-queue-missing"),
    pytest.param(STOPPED, unclean(remove("index")), id="unclean-index-missing"),
    pytest.param(STOPPED, unclean(remove_file(QUEUE, -1)), id="unclean-queue-behind"),
    pytest.param(STOPPED, unclean(remove_file("index", -1)), id="unclean-index-behind"),
    pytest.param(STOPPED, unclean(begin_index), id="unclean-index-begun"),
    pytest.param(STOPPED, unclean(tear), id="unclean-torn"),
])
def test_what_is_said_to_be_mended_is_mended_by_the_next_start(
    state: str, change: Callable[[Path], None], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = copy(request.getfixturevalue(state), tmp_path)
    change(root)
    before = verify(root)
    assert before.status == 3

    with mqcore_up(tmp_path, OWN_SETTINGS):
        pass

    after = verify(root)
    assert [finding.line() for finding in after.findings] == []
    assert after.figures["records"] == before.figures["records"]
    assert after.figures["entries"] == after.figures["records"]
    assert after.figures["keys_matched"] == 2 * after.figures["records"]


def test_a_broken_record_in_the_middle_names_the_message_that_is_lost(
    stopped: Path, tmp_path: Path
) -> None:
    root = copy(stopped, tmp_path)
    segment = root / "commitlog" / f"{SEGMENT_BYTES:020d}"
    with segment.open("r+b") as file:
        file.seek(100)
        file.write(b"\0" * 40)

    report = verify(root)

    assert report.status == 1
    bad = [finding for finding in report.findings if finding.file.endswith(segment.name)]
    assert [finding.position for finding in bad] == [0]
    lost = [finding for finding in report.findings if finding.file.startswith(QUEUE[:-1])]
    assert len(lost) == 1
    assert f"points to log position {SEGMENT_BYTES}," in lost[0].text
    assert report.figures["records"] == STOPPED_MESSAGES - 1
