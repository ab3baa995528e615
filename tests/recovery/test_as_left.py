"""
A start after a clean stop looks at folders, not at files; whatever became of the files meanwhile,
nothing wrong is read, and the start after it has all queues whole.
"""
from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.store.index import files as index_files
from mqcore.store.queue.as_left import LeftQueues
from mqcore.store.reader import StoreReader
from mqcore.store.recovery import queue_ends
from mqcore.store.recovery.compare import queue_ends as ends_of
from mqcore.store.recovery.queue_ends import QueueEnds
from mqcore.store.recovery.recovered import Recovered
from mqcore.wire.codes import RequestCode
from mqcore.wire.records import decode_records
from tests.recovery.conftest import FILE_ENTRIES, MESSAGES, QUEUES, SIZES, TOPIC, Store, send
from tests.recovery.test_queue_ends import CHANGES, NAMES, short_file, wrong_tag_code
from tests.store.harness import ENTRY, Run
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields

TICK_NS = 20_000_000                   # inodes have the time of the last tick
EACH = MESSAGES // QUEUES


def stop(store: Store, run: Run) -> None:
    """What a clean stop leaves of the queues."""
    queue_ends.write(store.ends, ends_of(run.segment, index_files.ends(run.index_folder),
                                         stopped=True), time.time_ns())
    clock = store.root / "clock"
    wait_until(lambda: _touched(clock) > store.ends.stat().st_mtime_ns, "a later time for a file")


def _touched(path: Path) -> int:
    path.touch()
    return path.stat().st_mtime_ns


def learned(store: Store) -> QueueEnds:
    ends = queue_ends.read(store.ends)
    assert ends is not None
    return ends


def recovered(store: Store, *, clean: bool = True) -> tuple[Run, Recovered]:
    run = Run(store.root, **SIZES)
    found = run.recover(clean=clean, ends=learned(store), same_boot=not clean)
    run.segment.publish_for_test(found.end)
    return run, found


def left_queues(run: Run) -> LeftQueues:
    return LeftQueues(run.segment, os.fsencode(run.queue_folder), FILE_ENTRIES)


def looked(run: Run) -> list[str]:
    """One pass: the queues that somebody has changed."""
    return [str(Path(folder).relative_to(run.queue_folder))
            for folder in left_queues(run).look(0, 1 << 20, 1)]


def reader(run: Run) -> StoreReader:
    return StoreReader(run.segment, os.fsencode(run.log_folder), os.fsencode(run.queue_folder),
                       file_entries=FILE_ENTRIES, memory_bytes=1 << 30)


@pytest.fixture
def stopped(store: Store) -> Store:
    """A store where it was made, stopped cleanly by a run that had looked at everything."""
    run, _ = store.start(ends=queue_ends.read(store.ends))
    assert left_queues(run).left == 0
    stop(store, run)
    assert learned(store).by_folders
    return store


def by_its_folder(store: Store) -> None:
    """What a change of the folder's entries shows, a start sees at once."""
    run, found = recovered(store)
    assert left_queues(run).left == QUEUES - 1
    run.dispatch_all(found.end, index_enabled=False)


def test_a_start_after_a_stop_looks_at_no_file(stopped: Store) -> None:
    wrong_tag_code(stopped)
    run, found = recovered(stopped)

    assert (found.as_left, found.records_checked, found.dispatch_from) == (True, 0, stopped.end)
    assert left_queues(run).left == QUEUES
    assert run.queue_ranges() == {(TOPIC, number): (0, EACH) for number in range(QUEUES)}


def test_a_pass_over_whole_files_ends_the_doubt(stopped: Store) -> None:
    run, _ = recovered(stopped)

    assert looked(run) == []
    assert left_queues(run).left == 0
    assert ends_of(run.segment, stopped=True).since_ns == 0


def backed_up(store: Store) -> None:
    """An older copy of a file, with its times and of its size, over the file."""
    path = store.files(1)[-1]
    status = path.stat()
    content = path.read_bytes()
    path.write_bytes(content[:ENTRY.size].ljust(len(content), b"\0"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 10**12))


def backed_up_by_renaming(store: Store) -> None:
    path = store.files(1)[-1]
    backup = store.root / "backup"
    shutil.copy2(path, backup)
    content = path.read_bytes()
    backup.write_bytes(content[:ENTRY.size].ljust(len(content), b"\0"))
    os.utime(backup, ns=(0, 0))
    backup.replace(path)


@pytest.mark.parametrize("change", [*CHANGES, backed_up, backed_up_by_renaming],
                         ids=[*NAMES, "backup", "backup-by-renaming"])
def test_a_change_is_seen_before_anything_is_read_and_mended_by_the_next_start(
    change: Callable[[Store], None], stopped: Store,
) -> None:
    before = stopped.content()
    change(stopped)
    run, found = recovered(stopped)
    if left_queues(run).left == QUEUES:                # the folder is as it was
        read = [reader(run).entry(TOPIC, 1, offset) for offset in range(EACH)]
        assert read.count(None) >= EACH % FILE_ENTRIES       # of one file, the last at least
        assert all(entry is None or stopped_entry(before, offset) == entry
                   for offset, entry in enumerate(read))
        assert looked(run) == [f"{TOPIC}/1"]
        run.dispatch_all(found.end, index_enabled=False)
        stop(stopped, run)
        assert (learned(stopped).since_ns > 0, learned(stopped).by_folders) == (True, False)
        run, found = recovered(stopped)
        assert left_queues(run).left == 0
    run.dispatch_all(found.end, index_enabled=False)

    assert stopped.content() == before
    assert run.queue_ranges() == {(TOPIC, number): (0, EACH) for number in range(QUEUES)}


def stopped_entry(content: dict[str, bytes], offset: int) -> tuple[int, ...]:
    first = offset // FILE_ENTRIES * FILE_ENTRIES
    raw = content[f"consumequeue/{TOPIC}/1/{first * ENTRY.size:020d}"]
    return tuple(ENTRY.unpack_from(raw, (offset - first) * ENTRY.size))


@pytest.mark.parametrize("change", [shutil.rmtree, lambda folder: folder.rename(
    folder.with_name("aside")), lambda folder: (folder / "note").touch()],
    ids=["deleted", "renamed", "another-file"])
def test_a_start_sees_at_once_what_becomes_of_a_folder(
    change: Callable[[Path], None], stopped: Store,
) -> None:
    before = stopped.content()
    change(stopped.queue(1))
    by_its_folder(stopped)

    assert {name: raw for name, raw in stopped.content().items() if name in before} == before


@pytest.mark.parametrize("copied", [False, True], ids=["in-place", "copied"])
def test_queues_that_took_each_others_place_are_compared_with_the_log(
    copied: bool, store: Store, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their folders and files are all older than the stop; what is above them is not."""
    run, _ = store.start(ends=queue_ends.read(store.ends))
    before = store.content()
    topic = store.queue(0).parent
    shutil.copytree(topic, store.root / "other")
    for name, place in (("0", "x"), ("1", "0"), ("x", "1")):
        (store.root / "other" / name).rename(store.root / "other" / place)
    stop(store, run)
    if copied:
        monkeypatch.setattr(queue_ends, "COPIED_NS", 50_000_000)
        copy_in_place(store)
    shutil.move(topic, store.root / "aside")
    (store.root / "other").rename(topic)
    shutil.rmtree(store.root / "aside")
    run, found = recovered(store)
    read = [reader(run).entry(TOPIC, 1, offset) for offset in range(EACH)]
    run.dispatch_all(found.end, index_enabled=False)

    assert found.end == store.end
    assert all(one is None or one == stopped_entry(before, offset)
               for offset, one in enumerate(read))
    assert store.content() == before
    assert run.queue_ranges() == {(TOPIC, number): (0, EACH) for number in range(QUEUES)}


def copy_in_place(store: Store) -> None:
    """As a copy that keeps times leaves it: those of inodes are the copy's."""
    status = store.ends.stat()
    whole = store.ends.read_bytes()
    later_ns = status.st_mtime_ns + queue_ends.COPIED_NS + TICK_NS
    wait_until(lambda: time.time_ns() > later_ns, "a later time")
    store.ends.write_bytes(whole)
    os.utime(store.ends, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (learned(store).in_place, learned(store).unchanged_ns) == (False, status.st_mtime_ns)


def test_a_run_writes_and_reads_queues_before_the_pass_comes_to_them(stopped: Store) -> None:
    run, found = recovered(stopped)
    end = send(run, found.end, 1)                      # into queue 0
    run.dispatch_all(end, index_enabled=False)

    assert left_queues(run).left == QUEUES - 1
    assert None not in [reader(run).entry(TOPIC, 0, offset) for offset in range(EACH + 1)]
    assert None not in [reader(run).entry(TOPIC, 1, offset) for offset in range(EACH)]
    assert looked(run) == []


def test_a_stop_before_the_pass_leaves_the_doubt_to_the_next_start(stopped: Store) -> None:
    run, found = recovered(stopped)
    end = send(run, found.end, QUEUES)
    run.dispatch_all(end, index_enabled=False)         # looked at, and written
    whole = stopped.content()
    run, found = recovered_after_stop(stopped, run)
    assert left_queues(run).left == QUEUES
    wrong_tag_code(stopped)
    run, found = recovered_after_stop(stopped, run)    # the pass never came to queue 1

    assert left_queues(run).left == 0
    run.dispatch_all(found.end, index_enabled=False)
    assert stopped.content() == whole


def recovered_after_stop(store: Store, run: Run) -> tuple[Run, Recovered]:
    stop(store, run)
    return recovered(store)


@pytest.mark.parametrize("change", [wrong_tag_code, short_file, backed_up])
def test_a_kill_before_the_pass_launders_nothing(
    change: Callable[[Store], None], stopped: Store,
) -> None:
    """The killed run believed the folders, and wrote to a queue meanwhile."""
    before = stopped.content()
    change(stopped)
    run, found = recovered(stopped)
    send(run, found.end, 1)
    end = int(run.segment.log_state()["published"])
    run.dispatch_all(end, index_enabled=False)

    run, found = recovered(stopped, clean=False)
    assert left_queues(run).left == 0
    run.dispatch_all(found.end, index_enabled=False)

    assert found.end == end
    entries = [reader(run).entry(TOPIC, 1, offset) for offset in range(EACH)]
    assert entries == [stopped_entry(before, offset) for offset in range(EACH)]
    assert run.queue_ranges()[TOPIC, 0] == (0, EACH + 1)


def test_what_a_stock_broker_wrote_in_between_ends_the_belief(stopped: Store) -> None:
    ends = learned(stopped)
    run = Run(stopped.root, **SIZES)
    found = run.recover(clean=True)                    # as one that passes over our file
    end = send(run, found.end, 10)
    run.dispatch_all(end, index_enabled=False)

    run = Run(stopped.root, **SIZES)
    found = run.recover(clean=True, ends=ends)

    assert (found.as_left, found.end, left_queues(run).left) == (False, end, 0)


def test_a_log_whose_beginning_went_in_between_ends_the_belief(stopped: Store) -> None:
    segments = sorted((stopped.root / "commitlog").iterdir())
    segments[0].unlink()
    run, _ = recovered(stopped)

    assert left_queues(run).left == 0


def test_a_store_that_was_copied_is_looked_at_file_by_file(stopped: Store) -> None:
    ends = learned(stopped)
    os.utime(stopped.ends, ns=(ends.unchanged_ns - 10**10, ends.unchanged_ns - 10**10))
    assert not learned(stopped).by_folders
    run, found = recovered(stopped)

    assert (left_queues(run).left, found.dispatch_from) == (0, stopped.end)


def test_a_broker_that_finds_a_changed_file_starts_again_and_serves_every_message(
    tmp_path: Path,
) -> None:
    bodies = [b"%d" % number for number in range(50)]
    with mqcore_up(tmp_path) as broker, Peer(broker.broker_addr) as peer:
        assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1)).code == 0
        for body in bodies:
            assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC), body).code == 0
    [path] = (tmp_path / "store" / "consumequeue" / TOPIC / "0").iterdir()
    with path.open("r+b") as file:
        file.seek(20 * ENTRY.size)
        file.write(bytes(10 * ENTRY.size))

    with mqcore_up(tmp_path) as broker:
        wait_until(lambda: broker.output.read_text().count("mqcore ready") == 2, "a second start")
        with Peer(broker.broker_addr) as peer:
            found: list[bytes] = []
            while len(found) < len(bodies):
                answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(TOPIC, offset=len(found)))
                assert answer.code == 0, answer
                found += [record.body for record in decode_records(answer.body)]
    assert found == bodies
    assert "were changed while no broker ran" in broker.output.read_text()
