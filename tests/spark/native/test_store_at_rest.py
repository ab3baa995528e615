"""Stores at rest in parts: each record once, whatever the parts; torn ends told from damage."""
from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from mqcore.spark.store.at_rest import (
    EVERYTHING,
    LogPlan,
    StoreAtRest,
    StoreError,
    Trouble,
    WantedRecords,
    plan,
    read_part,
)
from mqcore.store.log.folders import LogFolders
from mqcore.store.ownership import StoreInUseError, StoreLock
from mqcore.store.verify.store import verify
from mqcore.wire.records import Record, decode_records
from tests.store.golden import NAMES, manifest, unpack
from tests.support.mqcore_process import mqcore_up
from tests.verify.stores import OWN_SETTINGS, changed, copy, flip, kill, load, wait_for_dispatch

WHOLE = 1 << 40
FURTHER = re.compile(r"whole records (?:follow from|go on at) log position (\d+)")


def read(root: Path, split_bytes: int = WHOLE, wanted: WantedRecords = EVERYTHING, *,
         folders: LogFolders | None = None) -> tuple[list[Record], list[Trouble], LogPlan]:
    store, report = StoreAtRest.open(root, folders)
    made = plan(store, report, split_bytes=split_bytes, wanted=wanted)
    records: list[Record] = []
    troubles = list(made.troubles)
    for part in made.parts:
        for found in read_part(store, part, wanted):
            if isinstance(found, Trouble):
                troubles.append(found)
                continue
            cut = list(decode_records(found[0]))
            assert len(cut) == found[1]
            records += cut
    return records, troubles, made


def positions(records: Iterable[Record]) -> list[int]:
    return [record.physical_offset for record in records]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of ours, with checksums, after a clean stop: 600 messages."""
    folder = tmp_path_factory.mktemp("stopped")
    with mqcore_up(folder, OWN_SETTINGS) as broker:
        load(broker, 600)
    return broker.store


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    with mqcore_up(folder, OWN_SETTINGS) as broker:
        load(broker, 600)
        wait_for_dispatch(broker, 600)
        kill(broker)
    return broker.store


# -- parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("split_bytes", [WHOLE, 30_000, 4_000, 500])
@pytest.mark.parametrize("name", NAMES)
def test_parts_of_any_size_have_each_record_of_a_stock_store_once(
        name: str, split_bytes: int, tmp_path: Path) -> None:
    expected = sorted(message["physicalOffset"] for message in manifest(name)["messages"])

    records, troubles, made = read(unpack(name, tmp_path), split_bytes)

    assert positions(records) == expected
    assert made.end == manifest(name)["afterRecovery"]["maxPhyOffset"]
    assert [trouble for trouble in troubles if trouble.damaged] == []


@pytest.mark.parametrize("name", ["basic", "basic_lost_cq"])
def test_a_log_is_split_about_where_it_is_asked_with_queues_and_without(
        name: str, tmp_path: Path) -> None:
    _, _, made = read(unpack(name, tmp_path), 5_000)

    sizes = [part.stop - part.start for part in made.parts]
    assert len(sizes) > 45
    assert max(sizes) < 11_000
    assert [part.start for part in made.parts[1:]] == [part.stop for part in made.parts[:-1]]


@pytest.mark.parametrize("kept", [("checksums", "consumequeue"), ("checksums",), ("consumequeue",),
                                  ()])
def test_parts_of_our_own_store_have_each_record_once(
        kept: tuple[str, ...], stopped: Path, tmp_path: Path) -> None:
    whole = positions(read(stopped)[0])
    root = copy(stopped, tmp_path)
    for name in {"checksums", "consumequeue"} - set(kept):
        shutil.rmtree(root / name)
    if "checksums" not in kept:
        (root / "lock").write_bytes(b"lock")

    records, troubles, made = read(root, 7_000)

    assert len(whole) == 600
    assert positions(records) == whole
    assert troubles == []
    assert len(made.parts) > 20


def test_at_least_so_many_parts_are_made_as_are_asked_for(stopped: Path) -> None:
    store, report = StoreAtRest.open(stopped)

    assert len(plan(store, report, split_bytes=WHOLE, parts_min=8).parts) == 8


def test_parts_outside_the_log_positions_that_are_wanted_are_left_out(stopped: Path) -> None:
    everything = positions(read(stopped, 7_000)[0])
    low, high = everything[200], everything[300]

    records, _, made = read(stopped, 7_000, WantedRecords(first=low, end=high))

    assert set(everything[200:300]) <= set(positions(records))
    assert len(made.parts) < 20


def test_a_log_in_several_folders_is_one(stopped: Path, tmp_path: Path) -> None:
    root = copy(stopped, tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        if number % 2:
            path.rename(other / path.name)

    records, troubles, _ = read(root, 7_000, folders=LogFolders((root / "commitlog", other)))

    assert positions(records) == positions(read(stopped)[0])
    assert troubles == []


# -- what is wanted --------------------------------------------------------------------------------


def test_only_the_records_that_are_wanted_come(tmp_path: Path) -> None:
    root = unpack("delay_retry_dlq", tmp_path)
    records = read(root)[0]
    topics = sorted({record.topic for record in records})[:2]
    times = sorted(record.store_timestamp_ms for record in records)
    low, high = times[len(times) // 4], times[len(times) // 2]

    found = read(root, 4_000, WantedRecords(topics=tuple(topics)))[0]
    assert positions(found) == positions(one for one in records if one.topic in topics)
    found = read(root, 4_000, WantedRecords(queue_ids=(1, 2)))[0]
    assert positions(found) == positions(one for one in records if one.queue_id in (1, 2))
    found = read(root, 4_000, WantedRecords(from_ms=low, to_ms=high))[0]
    assert positions(found) == positions(
        one for one in records if low <= one.store_timestamp_ms <= high)
    assert read(root, 4_000, WantedRecords(topics=("no such",)))[0] == []
    assert read(root, 4_000, WantedRecords(topics=("x" * 200,)))[0] == []


def test_decided_transactions_are_the_messages_that_consumers_see(tmp_path: Path) -> None:
    root = unpack("transactions", tmp_path)
    records = read(root)[0]

    found = read(root, 4_000, WantedRecords(decided=True))[0]

    assert {one.topic for one in records} - {one.topic for one in found} == {
        "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"}
    assert any(one.sys_flag & 0xC == 8 for one in found)
    assert positions(found) == positions(
        one for one in records if "TRANS" not in one.topic and one.sys_flag & 0xC in (0, 8))


# -- torn ends and damage --------------------------------------------------------------------------


def test_a_torn_end_is_none_of_the_damage(tmp_path: Path) -> None:
    _, troubles, _ = read(unpack("crashed_torn", tmp_path), 30_000)

    assert [(trouble.position, trouble.damaged) for trouble in troubles] == [(282_812, False)]
    assert "a torn end" in str(troubles[0])


def test_a_record_that_is_cut_off_after_a_crash_is_a_torn_end(killed: Path, tmp_path: Path) -> None:
    root = copy(killed, tmp_path)
    end = read(root)[2].end
    path, size = last_segment(root, end)
    with changed(path, end % size, b"\x00\x00\x04\x00\xda\xa3\x20\xa7torn"):
        _, troubles, made = read(root, 7_000)

    assert made.end == end
    assert [(trouble.position, trouble.damaged) for trouble in troubles] == [(end, False)]


def last_segment(root: Path, position: int) -> tuple[Path, int]:
    size = int(OWN_SETTINGS["store.segment_size_bytes"])        # type: ignore[call-overload]
    return root / "commitlog" / f"{position // size * size:020d}", size


def test_after_a_clean_stop_a_lost_end_of_the_log_is_damage(tmp_path: Path) -> None:
    root = unpack("basic", tmp_path)
    records = read(root)[0]
    last = records[-1]
    segment = sorted((root / "commitlog").iterdir())[-1]
    start = int(segment.name)

    with changed(segment, last.physical_offset - start, bytes(last.size)):
        found, troubles, made = read(root, 7_000)

    assert positions(found) == positions(records[:-1])
    assert made.end == last.physical_offset
    assert len(troubles) == 1
    assert troubles[0].damaged
    assert "has entries up to log position" in str(troubles[0])


def test_a_lost_segment_is_damage_and_the_others_are_read(tmp_path: Path) -> None:
    root = unpack("basic", tmp_path)
    records = read(root)[0]
    lost = sorted((root / "commitlog").iterdir())[1]
    start, size = int(lost.name), lost.stat().st_size
    lost.unlink()

    found, troubles, _ = read(root, 7_000)

    assert positions(found) == positions(
        one for one in records if not start <= one.physical_offset < start + size)
    assert any(trouble.damaged and lost.name in str(trouble) for trouble in troubles)


@pytest.mark.parametrize("split_bytes", [WHOLE, 9_000])
def test_flipped_bits_are_found_where_verification_finds_them(
        split_bytes: int, stopped: Path, tmp_path: Path) -> None:
    root = copy(stopped, tmp_path)
    records = read(root)[0]
    chance = random.Random(4)
    for _ in range(25):
        record = chance.choice(records[1:-1])
        path, size = last_segment(root, record.physical_offset)
        place = record.physical_offset % size + chance.randrange(record.size)
        with flip(path, place, chance.randrange(8)):
            found, troubles, _ = read(root, split_bytes)
            verified = [
                (one.file, one.position, FURTHER.search(one.text)) for one in verify(root).findings
                if one.file.startswith("commitlog") and "whole records follow" in one.text]

        assert positions(found) == [at for at in positions(records) if at != record.physical_offset]
        assert [(trouble.position, str(trouble.further)) for trouble in troubles] == [
            (int(file.split("/")[1]) + (at or 0), further[1])
            for file, at, further in verified if further is not None]
        assert all(trouble.damaged for trouble in troubles)
        assert len(troubles) == 1


# -- what is no store ------------------------------------------------------------------------------


def test_what_is_no_store_is_said_in_one_line(stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    queues = tmp_path / "queues"
    shutil.copytree(stopped / "consumequeue", queues / "consumequeue")
    for path, said in ((tmp_path / "none", "there is no such directory"),
                       (tmp_path / "file", "no directory"), (tmp_path / "empty", "no store"),
                       (queues, "there is no commitlog in this store.*commitLogPaths")):
        with pytest.raises(StoreError, match=said) as caught:
            StoreAtRest.open(path)
        assert "\n" not in str(caught.value)


def test_a_store_without_a_message_has_no_part(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    assert read(tmp_path)[0] == []


def test_a_store_that_a_broker_uses_is_refused_and_no_broker_starts_while_it_is_read(
        stopped: Path, tmp_path: Path) -> None:
    with mqcore_up(tmp_path, OWN_SETTINGS) as broker:
        load(broker, 50)
        with pytest.raises(StoreInUseError):
            StoreAtRest.open(broker.store)
        StoreAtRest.open(broker.store, force=True)
    store, report = StoreAtRest.open(stopped)
    reading = read_part(store, plan(store, report, split_bytes=WHOLE).parts[0], EVERYTHING)
    next(reading)

    with pytest.raises(AssertionError, match="is in use"):
        start_on(stopped.parent)
    assert sum(found[1] for found in reading if not isinstance(found, Trouble)) >= 0
    StoreLock(stopped).release()


def start_on(folder: Path) -> None:
    with mqcore_up(folder, OWN_SETTINGS):
        raise RuntimeError("a broker started on a store that is read")
