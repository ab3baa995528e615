"""Tables of files, without Spark: each change once, whole, beside others."""
from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
for needed in ("deltalake", "pyiceberg"):
    pytest.importorskip(needed)

from mqcore.spark.errors import OptionError, SparkSourceError  # noqa: E402
from mqcore.spark.lake.files import FileWriter, Form  # noqa: E402
from mqcore.spark.lake.log_table import LogTable  # noqa: E402
from mqcore.spark.lake.opening import open_table  # noqa: E402
from mqcore.spark.lake.table import Change, ChangedMeanwhile, Shape  # noqa: E402

SCHEMA = pa.schema([
    ("topic", pa.string()), ("body", pa.binary()), ("queueOffset", pa.int64()),
    ("storeTimestamp", pa.timestamp("us", tz="UTC")),
    ("properties", pa.map_(pa.string(), pa.string())), ("keys", pa.list_(pa.string()))])
SHAPE = Shape(SCHEMA, ("topic", "day"))
KINDS = ("parquet", "delta", "iceberg")
DAY_US = 86_400_000_000


def written(root: Path, *rows: tuple[str, int | None, int], row_group_bytes: int = 1 << 20):
    """Files of (topic, day, count)."""
    writer = FileWriter(root, SHAPE, Form("zstd", None, 1 << 30, row_group_bytes))
    for topic, day, count in rows:
        writer.write(pa.RecordBatch.from_pylist([
            {"topic": topic, "body": b"%d" % number, "queueOffset": number,
             "storeTimestamp": None if day is None else day * DAY_US + number * 1000,
             "properties": [("a", "b")], "keys": ["k"]} for number in range(count)],
            schema=SCHEMA))
    return tuple(writer.finish())


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_is_ahead_of_the_last_write_makes_nothing_older(tmp_path, kind):
    """All was written ten days ago, as the clock has it now."""
    pytest.importorskip("pyspark")
    from mqcore.spark.jobs.lake_maintain import _maintained

    def maintained() -> tuple[int, int]:
        figures = _maintained(
            None, root, compact=False, target_bytes=1, wave_bytes=1, check=False,
            keep_s=20 * 86_400, latest=None, latest_format=None, orphans_after_s=86_400,
            catalog=None).figures
        return figures["filesDropped"], figures["filesRemoved"]

    root = tmp_path / "t"
    table = open_table(root, kind)
    today = now_ms() // 86_400_000
    files = written(root, ("orders", today - 25, 3), ("orders", today - 12, 3))
    assert table.commit(Change("query", 0, files), SHAPE)
    orphan = (root / files[0].path).with_name("mq-of-a-dead-try.parquet")
    orphan.write_bytes(b"PAR1")
    for path in root.rglob("*"):
        ten_days_ago = path.stat().st_mtime - 10 * 86_400
        os.utime(path, (ten_days_ago, ten_days_ago))

    assert maintained() == (0, 0)
    assert orphan.exists()
    written(root, ("orders", today, 1))
    assert maintained() == (1, 1)
    assert not orphan.exists()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_there_once_and_what_is_replaced_stays_for_readers(tmp_path, kind):
    table = open_table(tmp_path / "t", kind)
    assert not table.exists()
    first = written(table.root, ("orders", 0, 10), ("%RETRY%g", 0, 5), ("orders", 1, 7))
    second = written(table.root, ("orders", None, 4))

    assert table.commit(Change("query", 0, first), SHAPE)
    assert not table.commit(Change("query", 0, second), SHAPE)
    assert table.committed("another") == -1
    assert table.commit(Change("query", 1, second), SHAPE)
    assert sorted((one.parts["topic"], one.parts["day"], one.rows)
                  for one in open_table(table.root).state().files if one.parts["day"]) == [
        ("%RETRY%g", "1970-01-01", 5), ("orders", "1970-01-01", 10), ("orders", "1970-01-02", 7)]

    before = now_ms()
    old = [one.path for one in first if one.rows == 10]
    with pytest.raises(SparkSourceError, match="9 rows cannot take the place of 10"):
        table.commit(Change("m", 0, written(table.root, ("orders", 0, 9)), tuple(old),
                            same_rows=True), SHAPE)
    again = written(table.root, ("orders", 0, 10))
    assert table.commit(Change("m", 0, again, tuple(old), same_rows=True), SHAPE)
    with pytest.raises(ChangedMeanwhile):
        table.commit(Change("m", 1, again, tuple(old)), SHAPE)
    assert set(old) < table.kept(before)
    assert table.orphans(before - 60_000) == []
    later = now_ms() + 10
    gone = table.orphans(later)
    assert set(old) < set(gone)                     # beside them the files with 9 rows
    table.forget(later)
    assert sorted(table.discard([*gone, again[0].path])) == sorted(gone)
    assert (table.state().rows, table.committed("query")) == (26, 1)

    with pytest.raises(OptionError, match="partitioned by topic"):
        table.commit(Change("query", 2, again), Shape(SCHEMA, ("topic",)))
    with pytest.raises(OptionError, match="the frame has topic"):
        table.commit(Change("query", 2, again), Shape(SCHEMA.remove(5), SHAPE.parts))
    with pytest.raises(OptionError, match=f"has a table of format {kind}"):
        open_table(table.root, KINDS[KINDS.index(kind) - 1])


@pytest.mark.parametrize("kind", KINDS)
def test_of_many_writers_at_a_time_each_change_is_there_once(tmp_path, kind):
    root = tmp_path / "t"
    open_table(root, kind).commit(Change("begin", 0, written(root, ("orders", 0, 1))), SHAPE)
    took: list[tuple[str, int]] = []
    troubles: list[BaseException] = []
    start = threading.Barrier(3)

    def write(name: str) -> None:
        try:
            table = open_table(root)
            files = [written(root, ("orders", 0, 1)) for _ in range(4)]
            start.wait()
            for number, one in enumerate(files[:3]):
                if table.commit(Change(name, number, one), SHAPE):
                    took.append((name, number))
            if table.commit(Change("both", 0, files[3]), SHAPE):
                took.append(("both", 0))
        except BaseException as error:
            troubles.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert troubles == []
    assert sorted(took) == sorted([(name, number) for name in "abc" for number in range(3)]
                                  + [("both", 0)])
    assert open_table(root).state().rows == 11


def test_the_log_of_parquet_tables_is_summed_up_and_may_be_cut_there(tmp_path):
    table = LogTable(tmp_path)
    for number in range(40):
        table.commit(Change("query", number, written(tmp_path, ("orders", number, 1))), SHAPE)
    known = table.state()
    assert table.forget(now_ms() + 10) == 32
    assert sorted(path.name for path in table.log.iterdir())[0] == f"{31:020d}.summary.json"
    assert (table.state(), table.committed("query")) == (known, 39)
    (table.log / f"{35:020d}.json").unlink()
    with pytest.raises(SparkSourceError, match="version 35 is missing"):
        table.state()


def test_a_task_has_two_row_groups_in_memory_whatever_its_partitions(tmp_path):
    import pyarrow.parquet as pq

    files = written(tmp_path, *[("orders", day % 5, 100) for day in range(20)],
                    row_group_bytes=10_000)
    groups = [pq.read_metadata(tmp_path / one.path).num_row_groups for one in files]
    assert sum(one.rows for one in files) == 2_000
    assert len(files) == 5 < sum(groups)
    assert files[0].stats["minValues"]["queueOffset"] == 0
    assert files[0].stats["maxValues"]["queueOffset"] == 99
    unknown = FileWriter(tmp_path / "gone", SHAPE, Form("zstd", None, 1, 1))
    unknown.write(pa.RecordBatch.from_pylist([{"topic": "a"}], schema=SCHEMA))
    unknown.discard()
    assert list((tmp_path / "gone").rglob("*.parquet")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_sender_may_say_any_time(tmp_path, kind):
    """Of its messages; the largest time that Python knows is much less."""
    schema = pa.schema([("topic", pa.string()), ("bornTimestamp", pa.timestamp("us", tz="UTC"))])
    shape = Shape(schema, ("topic",))
    table = open_table(tmp_path, kind)
    for number, time_us in enumerate((2**63 - 1, -2**63, 253402300800000000, -62135596800000000)):
        writer = FileWriter(tmp_path, shape, Form("zstd", None, 1 << 30, 1 << 20))
        writer.write(pa.RecordBatch.from_arrays(
            [pa.array(["orders"] * 2), pa.array([time_us, 0], schema.types[1])], schema=schema))
        [file] = writer.finish()
        assert table.commit(Change("query", number, (file,)), shape)
    assert file.stats["minValues"] == {"bornTimestamp": "0001-01-01T00:00:00.000Z"}
    assert open_table(tmp_path).state().rows == 8


def test_a_writer_that_slept_behind_a_cut_of_the_log_finds_its_place(tmp_path, monkeypatch):
    slow, others = LogTable(tmp_path), LogTable(tmp_path)
    others.commit(Change("others", 0, written(tmp_path, ("orders", 0, 1))), SHAPE)
    seen = slow._known()
    for number in range(1, 40):
        others.commit(Change("others", number, written(tmp_path, ("orders", 0, 1))), SHAPE)
    others.forget(now_ms() + 10)
    looks = iter([seen])
    monkeypatch.setattr(slow, "_known", lambda: next(looks, None) or LogTable._known(slow))

    change = Change("slow", 0, written(tmp_path, ("orders", 0, 5)))
    assert slow._change(change, SHAPE) is False        # it took number 1, which was free again
    assert slow.commit(change, SHAPE)
    assert (others.state().rows, others.committed("slow")) == (45, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_files_that_were_swept_is_refused(tmp_path, kind):
    table = open_table(tmp_path, kind)
    table.commit(Change("query", 0, written(tmp_path, ("orders", 0, 1))), SHAPE)
    late = written(tmp_path, ("orders", 0, 5))
    table.discard(table.orphans(now_ms() + 10))
    with pytest.raises(SparkSourceError, match="was removed before its change came"):
        table.commit(Change("query", 1, late), SHAPE)
    assert (table.state().rows, table.committed("query")) == (1, 0)
