"""Backups beside a broker under load: a restored store has what was acknowledged before it."""
from __future__ import annotations

import asyncio
import copy
import os
from pathlib import Path

import pytest

from mqcore.admin.store import records
from mqcore.backup import make, source
from mqcore.backup.make import Made, to_folder
from mqcore.backup.pieces import Pace, data_size
from mqcore.backup.restore import restore
from mqcore.backup.source import Log, Source
from mqcore.store.log.folders import LogFolders
from mqcore.store.verify.report import STATUS_MEND
from tests.backup.stores import SETTINGS, assert_prefix, assert_starts, copied
from tests.support.dice import seed_of_run
from tests.support.mqcore_process import mqcore_up
from tests.workers.load import TOPIC, Promises, body_of, load, name_of

SEED = seed_of_run()


def assert_kept(restored: Path, promises: Promises) -> None:
    """Every message that was promised is where its answer said, with its bytes."""
    there = {name_of(record.body): (record.queue_id, record.queue_offset, record.physical_offset)
             for record in records(restored, topic=TOPIC)
             if record.body == body_of(promises.seed, name_of(record.body))}
    wrong = {name: (where, there.get(name)) for name, where in promises.acknowledged.items()
             if there.get(name) != (*where, promises.positions[name])}
    assert not wrong, f"seed {promises.seed}: {len(wrong)}: {list(wrong.items())[:3]}"


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["async", "sync", "transient-pool"])
def test_a_chain_made_under_load_has_what_was_acknowledged_before_each_of_its_links(
    tmp_path: Path, flush: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    print(f"seed {SEED}")
    monkeypatch.setattr(source, "POOL_WAIT_S", 0.4)         # of commits every 50 ms
    settings = {**SETTINGS, "store.flush": flush, "store.pool_bytes": 1 << 20,
                "store.queue_file_entry_count": 1000, "store.commit_interval_ms": 50,
                "store.commit_thorough_interval_ms": 50}
    made: list[tuple[Made, Promises]] = []

    async def back_up() -> None:
        async with load(broker.broker_addr, SEED, producers=1) as running:
            for number in range(2):
                await running.acknowledged(300)
                promised = copy.deepcopy(running.promises)
                made.append((await asyncio.to_thread(
                    to_folder, broker.store, tmp_path / "backups", incremental=number > 0),
                    promised))

    with mqcore_up(tmp_path / "broker", settings) as broker:
        asyncio.run(back_up())

    for number, (one, promised) in enumerate(made):
        restored = restore(Path(one.path), tmp_path / f"restored-{number}")
        assert restored.end == one.manifest.end
        assert restored.report.status in (0, STATUS_MEND)
        assert_prefix(broker.store, tmp_path / f"restored-{number}", 0, restored.end)
        assert_kept(tmp_path / f"restored-{number}", promised)
    assert made[1][0].manifest.parent == made[0][0].manifest.id
    first, second = made[0][0].manifest, made[1][0].manifest
    assert second.end - first.end == sum(
        part.size for entry in second.files if entry.name.startswith("commitlog/")
        for part in entry.parts if part.backup == second.id)
    assert_starts(tmp_path / "restored-1", tmp_path / "again", made[1][1], settings)


def test_a_segment_that_is_deleted_meanwhile_is_in_the_backup(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retention takes its name, the backup has it open."""
    running = copied(store, tmp_path / "store")
    oldest = LogFolders((running / "commitlog",)).segments()[0][1]
    content = oldest.read_bytes()

    with monkeypatch.context() as patch:
        before = Source.log

        def log_then_delete(self: Source, begun: int, pace: Pace, *, damaged: bool) -> Log:
            found = before(self, begun, pace, damaged=damaged)
            oldest.unlink()
            return found

        patch.setattr(Source, "log", log_then_delete)
        made = to_folder(running, tmp_path / "backups")

    restored = restore(tmp_path / "backups", tmp_path / "restored")
    assert made.manifest.first == 0
    assert (tmp_path / "restored" / "commitlog" / oldest.name).read_bytes() == content
    assert restored.report.status == 0


def test_a_file_that_grows_while_it_is_read_is_in_the_backup_as_it_was(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Checksums of records are appended while a broker runs."""
    running = copied(store, tmp_path / "store")
    folders = LogFolders((running / "commitlog",), store=running)
    newest = folders.checksums_of(folders.segments()[-1][0])
    before = newest.read_bytes()

    def grown_size(fd: int) -> int:
        if os.path.samestat(os.fstat(fd), newest.stat()):
            with newest.open("ab") as file:
                file.write(b"appended")
        return data_size(fd)

    monkeypatch.setattr(make, "data_size", grown_size)
    made = to_folder(running, tmp_path / "backups")

    restored = restore(tmp_path / "backups", tmp_path / "restored")
    assert newest.stat().st_size > len(before)
    assert restored.end == made.manifest.end
    assert restored.report.status == 0
    parts = [part for entry in made.manifest.files if entry.name.endswith(newest.name)
             for part in entry.parts if entry.name.startswith("checksums/")]
    assert [part.size for part in parts] == [len(before)]


def test_a_chain_goes_on_when_retention_has_deleted_the_oldest_segments(
    tmp_path: Path, store: Path,
) -> None:
    running = copied(store, tmp_path / "store")
    to_folder(running, tmp_path / "backups")
    folders = LogFolders((running / "commitlog",), store=running)
    start, path = folders.segments()[0]
    folders.remove_checksums(start)
    path.unlink()

    made = to_folder(running, tmp_path / "backups", incremental=True)

    restored = restore(tmp_path / "backups", tmp_path / "restored")
    assert made.manifest.first == folders.segments()[0][0] > 0
    assert_prefix(running, tmp_path / "restored", made.manifest.first, restored.end)
    assert_starts(tmp_path / "restored", tmp_path / "again")


def test_what_changed_without_its_time_is_in_the_next_backup(tmp_path: Path, store: Path) -> None:
    """A page that is written through a map has its first write's time until it is on the disk."""
    running = copied(store, tmp_path / "store")
    first = to_folder(running, tmp_path / "backups")
    index = max((running / "index").iterdir())
    status = index.stat()
    with index.open("r+b") as file:
        file.seek(4000)
        file.write(b"changed")
    os.utime(index, ns=(status.st_atime_ns, status.st_mtime_ns))

    second = to_folder(running, tmp_path / "backups", incremental=True)

    new = {entry.name for entry in second.manifest.files
           for part in entry.parts if part.backup != first.manifest.id}
    assert f"index/{index.name}" in new
    assert [name for name in new if not name.startswith(("index/", "config/"))] == []
