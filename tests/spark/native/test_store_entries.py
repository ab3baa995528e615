"""The entries of consume queues and of the key index as they come to Spark."""
from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from mqcore.spark.columns import Picked
from mqcore.spark.store.entries import index_batches, index_files, queue_batches, queue_files
from mqcore.spark.store.options import INDEX_COLUMNS, QUEUE_COLUMNS
from mqcore.store.verify.files import StoreListing
from tests.store.golden import NAMES, manifest, unpack

SOUND = sorted(set(NAMES) - {"crashed", "crashed_torn", "crashed_lost_all", "crashed_lost_cq",
                             "basic_lost_cq"})
QUEUE = Picked(tuple((column.name, column.type) for column in QUEUE_COLUMNS))
INDEX = Picked(tuple((column.name, column.type) for column in INDEX_COLUMNS))


def queue_rows(root: Path, topics: set[str] | None = None,
               queue_ids: set[int] | None = None) -> list[dict[str, object]]:
    return [row for file in queue_files(root, topics, queue_ids)
            for batch in queue_batches(file, QUEUE) for row in batch.to_pylist()]


def index_rows(root: Path, slots: int | None = None) -> list[dict[str, object]]:
    files, wrong = index_files(StoreListing(root), slots)
    assert wrong == []
    return [row for file in files for batch in index_batches(file, INDEX)
            for row in batch.to_pylist()]


@pytest.mark.parametrize("name", SOUND)
def test_every_entry_of_every_queue_comes_once(name: str, tmp_path: Path) -> None:
    rows = queue_rows(unpack(name, tmp_path))

    found: dict[tuple[object, object], list[object]] = {}
    for row in rows:
        if row["size"] != 0x7FFFFFFF:
            found.setdefault((row["topic"], row["queueId"]), []).append(row["queueOffset"])
    assert found == {(queue["topic"], queue["queueId"]): list(range(queue["min"], queue["max"]))
                     for queue in manifest(name)["consumeQueues"] if queue["max"]}


def test_folders_that_are_no_queues_are_passed_over(tmp_path: Path) -> None:
    root = unpack("basic", tmp_path)
    rows = queue_rows(root)
    topic = next(path for path in (root / "consumequeue").iterdir() if path.is_dir())
    for name in ("99999999999", "4294967296", "x"):
        shutil.copytree(topic / "0", topic / name)

    assert queue_rows(root) == rows


@pytest.mark.parametrize(("options", "each"), [
    ({}, [20]), ({"splitBytes": "25k"}, [2] * 10), ({"minPartitions": "20"}, [1] * 20),
    ({"splitBytes": "1"}, [1] * 20)])
def test_tasks_take_files_of_queues_by_their_length(
        options: dict[str, str], each: list[int], tmp_path: Path) -> None:
    source = pytest.importorskip("mqcore.spark.store.source", exc_type=ImportError)
    root = unpack("basic", tmp_path)
    reader = source.RocketMQStoreDataSource(
        {"path": str(root), "what": "consumequeue", **options}).reader(None)

    tasks = [[Path(file.path) for file in task.files] for task in reader.partitions()]

    assert [len(files) for files in tasks] == each      # of 2,000 bytes, and 8,192 for each file
    assert sorted(itertools.chain(*tasks)) == sorted((root / "consumequeue").glob("*/*/*"))


def test_entries_say_where_their_records_lie(tmp_path: Path) -> None:
    messages = {message["physicalOffset"]: message for message in manifest("basic")["messages"]}

    for row in queue_rows(unpack("basic", tmp_path)):
        message = messages[row["commitLogOffset"]]
        assert (row["topic"], row["queueId"], row["queueOffset"], row["size"]) == (
            message["topic"], message["queueId"], message["queueOffset"], message["size"])


def test_only_the_queues_that_are_wanted_are_read(tmp_path: Path) -> None:
    root = unpack("delay_retry_dlq", tmp_path)
    rows = queue_rows(root)

    assert queue_rows(root, {"SCHEDULE_TOPIC_XXXX"}, {2, 3}) == [
        row for row in rows
        if row["topic"] == "SCHEDULE_TOPIC_XXXX" and row["queueId"] in (2, 3)]


def test_units_of_the_extension_are_resolved(tmp_path: Path) -> None:
    root = unpack("filter_ext", tmp_path)
    rows = [row for row in queue_rows(root) if row["tagsCode"] <= -2147483649]
    times = {message["physicalOffset"]: message["storeTimestamp"]
             for message in manifest("filter_ext")["messages"]}

    assert len(rows) > 100
    for row in rows:
        assert -2**31 <= row["unitTagsCode"] < 2**31
        stored = row["unitStoreTimestamp"]
        assert round(stored.timestamp() * 1000) == times[row["commitLogOffset"]]


@pytest.mark.parametrize("name", SOUND)
def test_every_entry_of_the_index_comes_once(name: str, tmp_path: Path) -> None:
    rows = index_rows(unpack(name, tmp_path))

    positions = {message["physicalOffset"] for message in manifest(name)["messages"]}
    assert len(rows) == sum(file["indexCount"] - 1 for file in manifest(name)["indexFiles"])
    assert {row["commitLogOffset"] for row in rows} <= positions
    assert len({(row["file"], row["entry"]) for row in rows}) == len(rows)


def test_what_is_no_file_of_a_queue_has_no_entries(tmp_path: Path) -> None:
    """A folder of another name, a file that begins elsewhere, and what lies behind a file's end."""
    root = unpack("basic", tmp_path)
    before = queue_rows(root)
    file = min((root / "consumequeue").glob("*/*/*"))
    shutil.copytree(file.parent, file.parent.with_name(f"0{file.parent.name}"))
    file.with_name(f"{int(file.name) + 20:020d}").write_bytes(file.read_bytes()[:40])
    with file.open("ab") as longer:
        longer.write(file.read_bytes()[:20])

    assert queue_rows(root) == before


def test_of_an_entry_that_is_cut_off_the_rest_counts_as_zeros(tmp_path: Path) -> None:
    root = unpack("basic", tmp_path)
    file = min((root / "consumequeue").glob("*/*/*"))
    whole = file.read_bytes()
    file.write_bytes(whole[:27])

    cut = [row for row in queue_rows(root, {file.parts[-3]}, {int(file.parts[-2])})
           if row["queueOffset"] == int(file.name) // 20 + 1]

    position = int.from_bytes(whole[20:27], "big") << 8
    assert position
    assert [(row["commitLogOffset"], row["size"]) for row in cut] == [(position, 0)]
