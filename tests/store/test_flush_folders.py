"""A commit log in several folders (store.md 6.7) keeps the rules W1 and W2 of log_folders.pxd."""
from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import SettingsError
from mqcore.layout import PUT_OK
from mqcore.shm.retention import LogWords
from mqcore.store.log.append_loop import AppendLoop
from mqcore.store.log.folders import LogFolders
from mqcore.store.log.log_folders import make_segment, open_segment
from mqcore.store.log.retention import LogCleaner, Policy, Reason
from mqcore.store.queue.dispatch import DispatchLoop
from mqcore.store.reader import StoreReader
from mqcore.store.record import parse
from mqcore.store.recovery.start import DamagedStoreError, Recovery
from mqcore.store.repair.store import repair
from mqcore.store.verify.files import NoLogError
from mqcore.store.verify.report import DAMAGE
from mqcore.store.verify.store import verify
from mqcore.wire import command as wire
from mqcore.wire.codes import RequestCode
from tests.store.harness import Run
from tests.support.ci import unavailable
from tests.support.mqcore_process import MqcoreError, mqcore_up
from tests.support.waiting import wait_until
from tests.verify.stores import kill
from tests.workers.load import Asker, send_request

SEGMENT = 8192
TURN_MS = 1000
BODY = 700                            # ten records to a segment


@dataclass
class SplitRun(Run):
    """A run whose commit log lies in three folders, the last one read only."""

    @property
    def folders(self) -> LogFolders:
        return LogFolders((self.root / "a", self.root / "b"), (self.root / "old",))

    def loop(self, mode: str, end: int) -> AppendLoop:
        self.folders.make()
        loop = AppendLoop(
            self.segment, self.folders.text(), mode, end, flush_interval_ms=500,
            flush_least_bytes=0, flush_thorough_interval_ms=500, sync_timeout_ms=5000,
            commit_interval_ms=1, commit_least_bytes=1, commit_thorough_interval_ms=1)
        loop.publish_start(end if mode == "sync" else 0)
        return loop

    def recovery(self) -> Recovery:
        return Recovery(self.segment, os.fsdecode(self.folders.text()), str(self.queue_folder),
                        self.file_entries)

    def where(self) -> dict[int, str]:
        return {start // SEGMENT: path.parent.name for start, path in self.folders.segments()}


def split_run(root: Path) -> SplitRun:
    return SplitRun(root, segment_size=SEGMENT, file_entries=50)


@pytest.fixture
def run(tmp_path: Path) -> SplitRun:
    return split_run(tmp_path / "store")


def fill(run: SplitRun, loop: AppendLoop, numbers: range) -> None:
    """Append them, with the mode's services at work."""
    probe, found = run.probe(), 0
    services = [threading.Thread(target=loop.run_service, args=[name]) for name in loop.services()]
    for service in services:
        service.start()
    for number in numbers:
        assert probe.send("topic", 0, [b"%-*d" % (BODY, number)], opaque=number)
        loop.run(0)
    for _ in range(len(numbers)):
        loop.run(0)
        results = probe.take()
        assert all(status == PUT_OK for _, status, *_ in results)
        found += len(results)
        if found == len(numbers):
            break
    loop.finish()
    loop.stop_service()
    for service in services:
        service.join()
    assert found == len(numbers)


def bodies(run: SplitRun) -> list[int]:
    reader = StoreReader(run.segment, run.folders.text(), os.fsencode(run.queue_folder),
                         file_entries=run.file_entries, memory_bytes=1 << 30)
    count = run.queue_ranges()[("topic", 0)][1]
    positions = [reader.entry("topic", 0, offset)[0] for offset in range(count)]
    return [int(parse(reader.record(position), position)["body"]) for position in positions]


def dispatch(run: SplitRun) -> None:
    run.queue_folder.mkdir(parents=True, exist_ok=True)
    loop = DispatchLoop(run.segment, run.folders.text(), os.fsencode(run.queue_folder),
                        os.fsencode(run.index_folder), file_entries=run.file_entries,
                        index_slots=500, index_entries=1000, newest_index=None)
    assert loop.run(20_000) == 0, loop.failure()
    loop.sync()
    loop.close()


# -- which folder ----------------------------------------------------------------------------------


def test_new_folders_are_for_their_owner_alone_and_others_keep_their_modes(tmp_path: Path):
    root, disk, shared = tmp_path / "new" / "store", tmp_path / "disk", tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    LogFolders((root / "commitlog", disk / "log", shared), (), root).make()
    own = (root.parent, root, root / "commitlog", root / "checksums", disk, disk / "log")
    assert {path.stat().st_mode & 0o777 for path in own} == {0o700}
    assert shared.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("mode", ["async", "sync", "transient-pool"])
def test_new_segments_go_to_the_writable_folders_in_turn(run: SplitRun, mode: str) -> None:
    fill(run, run.loop(mode, 0), range(60))
    last = run.segment.log_state()["published"] // SEGMENT
    where = run.where()
    assert last >= 5
    assert [where[number] for number in range(last + 1)] == [
        "ab"[number % 2] for number in range(last + 1)]


def test_a_segment_is_used_where_it_is(tmp_path: Path) -> None:                       # W1
    folders = LogFolders((tmp_path / "a", tmp_path / "b"), (tmp_path / "old",))
    folders.make()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / f"{SEGMENT:020d}").write_bytes(b"here")
    fd = make_segment(folders.text(), SEGMENT, SEGMENT)
    os.close(fd)

    assert (tmp_path / "old" / f"{SEGMENT:020d}").stat().st_size == SEGMENT
    fd = open_segment(folders.text(), SEGMENT, os.O_RDONLY)
    assert os.read(fd, 4) == b"here"
    os.close(fd)
    assert folders.path(SEGMENT) == tmp_path / "old" / f"{SEGMENT:020d}"
    with pytest.raises(FileNotFoundError):
        open_segment(folders.text(), 0, os.O_RDONLY)


def test_without_a_folder_for_new_segments_there_is_an_error(tmp_path: Path) -> None:
    only_old = LogFolders((tmp_path,), (tmp_path,))
    with pytest.raises(FileNotFoundError):
        make_segment(only_old.text(), 0, SEGMENT)


def test_a_full_folder_is_left_out_until_all_are_full(tmp_path: Path) -> None:         # W2
    free = tmp_path / "b"
    free.mkdir()
    small = mounted_nearly_full(tmp_path / "a")
    try:
        for number in range(4):
            os.close(make_segment(LogFolders((small, free)).text(), number * SEGMENT, SEGMENT))
        assert sorted(int(path.name) // SEGMENT for path in free.iterdir()) == [0, 1, 2, 3]
        os.close(make_segment(LogFolders((small,)).text(), 4 * SEGMENT, SEGMENT))
        assert (small / f"{4 * SEGMENT:020d}").exists()
    finally:
        os.system(f"umount --lazy {small}")


def mounted_nearly_full(folder: Path) -> Path:
    """A tmpfs that is more than 85 % full; no test where mounting is not permitted."""
    folder.mkdir()
    if os.system(f"mount -t tmpfs -o size=1m mqcore-test {folder} 2>/dev/null"):
        unavailable("a tmpfs cannot be mounted here")
    (folder / "filler").write_bytes(bytes(950_000))
    return folder


# -- everybody else finds them ---------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_recovery_dispatch_and_readers_find_all_segments(run: SplitRun, clean: bool) -> None:
    fill(run, run.loop("async", 0), range(60))
    end = run.segment.log_state()["published"]
    dispatch(run)
    assert bodies(run) == list(range(60))

    after = split_run(run.root)
    found = after.recovery().open_store(clean=clean, checkpoint_ms=0)
    after.segment.set_dispatched(found.dispatch_from, found.last_store_time_ms)
    assert found.end == end
    fill(after, after.loop("async", found.end), range(60, 90))
    dispatch(after)
    assert bodies(after) == list(range(90))


def test_segments_moved_to_a_read_only_folder_are_read_there(run: SplitRun) -> None:
    fill(run, run.loop("async", 0), range(60))
    old = run.root / "old"
    old.mkdir()
    for start, path in run.folders.segments()[:3]:
        path.rename(old / f"{start:020d}")
    after = split_run(run.root)
    found = after.recovery().open_store(clean=False, checkpoint_ms=0)
    after.segment.set_dispatched(found.dispatch_from, found.last_store_time_ms)
    fill(after, after.loop("async", found.end), range(60, 90))
    dispatch(after)

    assert bodies(after) == list(range(90))
    assert sorted(int(path.name) // SEGMENT for path in old.iterdir()) == [0, 1, 2]


def test_one_segment_in_two_folders_is_damage(run: SplitRun) -> None:
    fill(run, run.loop("async", 0), range(30))
    path = run.folders.path(0)
    (run.root / "b" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(DamagedStoreError, match="is there twice"):
        split_run(run.root).recovery().open_store(clean=True, checkpoint_ms=0)


def test_the_oldest_segment_is_deleted_wherever_it_is(run: SplitRun) -> None:
    fill(run, run.loop("async", 0), range(60))
    dispatch(run)
    policy = Policy(frozenset(), 0, 75, 85, True, 90)
    cleaner = LogCleaner(run.folders, SEGMENT, policy, LogWords(run.segment))
    asked = Reason("it was asked for", any_age=True)

    gone = [cleaner.delete_oldest(lambda _: 0, asked) for _ in range(3)]
    assert [path and path.parent.name for path in gone] == ["a", "b", "a"]
    assert run.segment.log_state()["first"] == 3 * SEGMENT


def test_the_folder_with_most_room_counts_for_the_disk_ratio(run: SplitRun) -> None:
    percents = {"a": 95, "b": 70}
    cleaner = LogCleaner(run.folders, SEGMENT, Policy(frozenset(), 0, 75, 85, True, 90),
                         LogWords(run.segment), usage=lambda folder: percents[folder.name])
    assert cleaner.disk_full_percent() == 0
    assert cleaner.reason(0, manual=False) is None
    percents["b"] = 96
    assert cleaner.disk_full_percent() == 95


def test_verification_reads_all_folders(run: SplitRun) -> None:
    fill(run, run.loop("async", 0), range(60))
    dispatch(run)
    report = verify(run.root, index=False, log_folders=run.folders)
    wrong = [finding.line() for finding in report.findings
             if finding.severity == DAMAGE and "Host's port" not in finding.text]   # the probe's
    assert (wrong, report.figures["records"]) == ([], 60)
    run.folders.path(SEGMENT).unlink()
    report = verify(run.root, index=False, log_folders=run.folders)
    assert any("no segment" in finding.text for finding in report.findings)


# -- settings, and a whole broker ------------------------------------------------------------------


def test_a_text_of_folders_says_what_they_are() -> None:
    folders = LogFolders((Path("/b"), Path("/a")), (Path("/c"),))
    assert folders.text() == b"/a\n/b\n-/c"
    assert LogFolders.parse(folders.text()) == LogFolders((Path("/a"), Path("/b")), (Path("/c"),))
    assert LogFolders.parse(b"/one") == LogFolders((Path("/one"),))
    elsewhere = LogFolders((Path("/b"),), (Path("/a"),), Path("/store"))
    assert elsewhere.text() == b"-/a\n/b\n+/store/checksums"
    assert LogFolders.parse(elsewhere.text()) == elsewhere
    assert LogFolders((Path("/store/commitlog"),), (), Path("/store")).text() == b"/store/commitlog"


@pytest.mark.parametrize("setting", [
    "store.commit_log_paths=/a,/a", "store.commit_log_paths=/" + "x" * 5000,
    "store.commit_log_paths=" + ",".join(f"/{number}" for number in range(65))])
def test_wrong_paths_are_named(setting: str) -> None:
    with pytest.raises(SettingsError, match="commit_log_paths"):
        load(None, {}, [setting])


def test_stock_paths_are_taken(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={tmp_path}\nstorePathCommitLog=/x/a,/x/b\n"
                    "readOnlyCommitLogStorePaths=/x/old\n")
    assert load(conf, {}).log_folders == LogFolders(
        (Path("/x/a"), Path("/x/b")), (Path("/x/old"),), tmp_path)


@pytest.mark.slow
def test_a_broker_spreads_its_log_and_starts_again(tmp_path: Path) -> None:
    paths = [tmp_path / "disk1", tmp_path / "disk2"]
    settings: dict[str, object] = {
        "store.commit_log_paths": paths, "store.segment_size_bytes": 131072,
        "store.message_size_max_bytes": 4096}

    def send(asker: Asker, numbers: range) -> None:
        for number in numbers:
            assert asker.ask(send_request("TBW102", (0, number), 1)).code == 0

    with mqcore_up(tmp_path, settings) as broker, Asker(broker.broker_addr) as asker:
        send(asker, range(1000))
        said = json.loads(asker.ask(wire.request(RequestCode.GET_BROKER_RUNTIME_INFO, {})).body)
        assert {f"commitLogDiskRatio_{path}" for path in paths} <= set(said["table"])
    assert not list((tmp_path / "store" / "commitlog").glob("*"))
    assert all(len(list(path.iterdir())) >= 1 for path in paths)
    assert ({path.name for path in (tmp_path / "store" / "checksums").iterdir()}
            == {path.name for folder in paths for path in folder.iterdir()})
    with mqcore_up(tmp_path, settings) as broker, Asker(broker.broker_addr) as asker:
        send(asker, range(1000, 1200))
        wait_until(lambda: sum(len(asker.queue("TBW102", queue)) for queue in range(4)) == 1200,
                   "all messages")


@pytest.mark.slow
def test_logs_of_two_brokers_in_one_folder_do_not_touch_each_other(tmp_path: Path) -> None:
    """Both are killed and start again with all that was acknowledged."""
    names = ("one", "two")
    settings: dict[str, dict[str, object]] = {name: {
        "store.commit_log_paths": [tmp_path / "disk" / f"log-{name}"], "broker.name": name,
    } for name in names}
    counts = {"one": 100, "two": 70}
    for name in names:
        with mqcore_up(tmp_path / name, settings[name]) as broker, Asker(
                broker.broker_addr) as asker:
            for number in range(counts[name]):
                assert asker.ask(send_request("TBW102", (0, 4 * number), 0)).code == 0
            kill(broker)
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["log-one", "log-two"]
    for name in names:
        assert verify(tmp_path / name / "store", log_folders=LogFolders(
            (tmp_path / "disk" / f"log-{name}",))).status in (0, 3)
        with mqcore_up(tmp_path / name, settings[name]) as broker, Asker(
                broker.broker_addr) as asker:
            assert len(asker.queue("TBW102", 0, counts[name])) == counts[name]


@pytest.mark.slow
def test_a_log_elsewhere_is_named_by_a_start_and_asked_for_by_verify_and_repair(
    tmp_path: Path
) -> None:
    disk = tmp_path / "a disk"
    settings: dict[str, object] = {"store.commit_log_paths": [disk]}
    with mqcore_up(tmp_path, settings) as broker, Asker(broker.broker_addr) as asker:
        for number in range(20):
            assert asker.ask(send_request("TBW102", (0, 4 * number), 0)).code == 0
        kill(broker)
    store = broker.store
    there = sorted(str(path) for path in store.rglob("*"))
    with pytest.raises(NoLogError, match="--commit-log"):
        verify(store)
    with pytest.raises(NoLogError, match="a link to its folder"):
        repair(store, tmp_path / "found", dry=False)
    assert sorted(str(path) for path in store.rglob("*")) == there
    with (disk / f"{0:020d}").open("r+b") as file:
        raw = bytearray(file.read(1 << 16))
        size = int.from_bytes(raw[:4], "big")
        raw[size + 90:size + 92] = b"??"
        file.seek(0)
        file.write(raw)
    with pytest.raises(MqcoreError) as refused, mqcore_up(tmp_path, settings):
        pytest.fail("it started on damage")
    assert f"mqcore store verify --commit-log '{disk}' {store}" in str(refused.value)
    assert verify(store, log_folders=LogFolders((disk,))).status == 1

    (store / "commitlog").symlink_to(disk)
    assert repair(store, tmp_path / "found", dry=False).status in (0, 3)
    (store / "commitlog").unlink()
    with mqcore_up(tmp_path, settings) as broker, Asker(broker.broker_addr) as asker:
        assert len(asker.queue("TBW102", 0, 20)) == 20
