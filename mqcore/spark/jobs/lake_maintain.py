"""
The job `lake-maintain`: what a table needs beside those who write it (docs/spark/jobs.md).

Each of its changes takes files out of the table, under one writer's name, in numbers: of two
maintenances at a time one gives up. Appends go on beside it; readers keep the files that they saw.
"""
from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from mqcore.spark.errors import OptionError
from mqcore.spark.jobs.frame import EXIT_FINE, EXIT_MISMATCH, Outcome, run, spark_options
from mqcore.spark.lake.content import content
from mqcore.spark.lake.opening import existing, frame_of, open_table
from mqcore.spark.lake.options import KINDS, properties
from mqcore.spark.lake.table import DAY, TOPIC, Change, ChangedMeanwhile, DataFile, Table
from mqcore.spark.lake.writer import MAINTAINER
from mqcore.spark.lake.writer import NAME as LAKE_NAME
from mqcore.spark.options import seconds
from mqcore.spark.session import own_session

TARGET_BYTES: Final = 256 << 20
WAVE_BYTES: Final = 8 << 30             # of one change: what is sorted at a time
SMALL: Final = 2                        # a file below the target's 2nd part is small
DAY_S: Final = 86_400.0
PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")

log = logging.getLogger("mqcore.spark")


def lake_maintain(
    spark: Any, path: str | Path, *, compact: bool = True, target_bytes: int = TARGET_BYTES,
    wave_bytes: int = WAVE_BYTES, check: bool = True, keep_s: float | None = None,
    latest: str | Path | None = None, latest_format: str | None = None,
    orphans_after_s: float = DAY_S, catalog: Mapping[str, str] | None = None,
) -> Outcome:
    """
    Maintain the table in a folder, beside who writes and reads it.

    compact          files that are small become one of about `target_bytes`, sorted by queue and
                     offset, for each partition; `wave_bytes` with one change
    check            read what was compacted again: its content is what it was
    keep_s           drop days that ended so long ago; None: keep all
    latest           write to this table, anew, the latest message of each topic and key
    orphans_after_s  remove files that are none of the table's for so long; longer than any batch,
                     and any query of a reader, takes
    catalog          of Iceberg: see the option icebergCatalog
    Raises SparkSourceError, OptionError.
    """
    with own_session(spark) as own:
        return _maintained(own, path, compact=compact, target_bytes=target_bytes,
                           wave_bytes=wave_bytes, check=check, keep_s=keep_s, latest=latest,
                           latest_format=latest_format, orphans_after_s=orphans_after_s,
                           catalog=catalog)


def _maintained(
    own: Any, path: str | Path, *, compact: bool, target_bytes: int, wave_bytes: int, check: bool,
    keep_s: float | None, latest: str | Path | None, latest_format: str | None,
    orphans_after_s: float, catalog: Mapping[str, str] | None,
) -> Outcome:
    table = existing(open_table(path, catalog=catalog))
    figures: dict[str, Any] = {"path": str(table.root), "format": table.kind}
    now_ms = _now_ms(table)
    figures["filesDropped"] = 0 if keep_s is None else _retain(table, keep_s, now_ms)
    before = table.state()
    wrong = 0
    if compact:
        done = [_compacted(own, table, wave, target_bytes, catalog, check=check)
                for wave in _waves(before.files, target_bytes, wave_bytes)]
        wrong = sum(not is_same for _, _, is_same in done)
        figures |= {"filesCompacted": sum(count for count, _, _ in done),
                    "filesMade": sum(count for _, count, _ in done), "changes": len(done),
                    "contentChecked": check, "contentWrong": wrong}
    if latest is not None:
        figures["latestRows"] = _latest(own, table, latest, latest_format)
    if not wrong:                       # else what was replaced is still wanted
        figures |= _swept(table, orphans_after_s, now_ms)
        if latest is not None:
            _swept(open_table(latest), orphans_after_s, now_ms)
    after = table.state()
    figures |= {"rows": after.rows, "filesBefore": len(before.files),
                "filesAfter": len(after.files)}
    return Outcome(EXIT_MISMATCH if wrong else EXIT_FINE, figures)


def _now_ms(table: Table) -> int:
    """
    The time from which ages count back: the wall clock's, but not later than the table's last
    write. A clock that has stepped ahead since makes nothing older.
    """
    return min(time.time_ns() // 1_000_000, table.last_write_ms())


def _retain(table: Table, keep_s: float, now_ms: int) -> int:
    """Drop the files of days that ended so long ago; how many."""
    if DAY not in table.parts():
        raise OptionError(f"{table.root}: the table is not partitioned by day, so that nothing can"
                          " be dropped by its age")
    number = table.committed(MAINTAINER) + 1
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    last = (now - timedelta(seconds=keep_s)).date() - timedelta(days=1)
    old = tuple(one.path for one in table.state().files
                if (day := one.parts[DAY]) is not None and day <= last.isoformat())
    if old:
        _put(table, Change(MAINTAINER, number, remove=old))
    return len(old)


def _put(table: Table, change: Change) -> None:
    if not table.commit(change):
        raise ChangedMeanwhile(f"{table.root}: another maintenance changed the table meanwhile: run"
                               " this one again")


# -- compaction ------------------------------------------------------------------------------------


def _waves(files: tuple[DataFile, ...], target_bytes: int, wave_bytes: int
           ) -> Iterator[list[DataFile]]:
    """The small files of partitions that have several, so many that one change takes."""
    by_parts: dict[tuple[str | None, ...], list[DataFile]] = {}
    for one in files:
        if one.bytes * SMALL < target_bytes:
            by_parts.setdefault(tuple(one.parts.values()), []).append(one)
    wave: list[DataFile] = []
    for _, small in sorted(by_parts.items(), key=lambda item: [part or "" for part in item[0]]):
        if len(small) < 2:
            continue
        wave += small
        if sum(one.bytes for one in wave) >= wave_bytes:
            yield wave
            wave = []
    if wave:
        yield wave


def _compacted(spark: Any, table: Table, wave: list[DataFile], target_bytes: int,
               catalog: Mapping[str, str] | None, *, check: bool) -> tuple[int, int, bool]:
    """Put few files in the place of many; how many, and whether they hold the same."""
    number = table.committed(MAINTAINER) + 1
    paths = [one.path for one in wave]
    state = table.state()
    frame = frame_of(spark, table, state, paths)
    tag = f"c{uuid.uuid4().hex[:8]}-"
    expected = content(frame) if check else None
    place = [name for name in PLACE if name in frame.columns]
    count = max(1, -(-sum(one.bytes for one in wave) // target_bytes))
    order = [*_day(frame, table), *place]
    rows = frame.coalesce(1) if count == 1 else frame.repartitionByRange(count, *order)
    if order:
        rows = rows.sortWithinPartitions(*order)
    writer = rows.write.format(LAKE_NAME).mode("append").options(
        tableFormat=table.kind, replaces=json.dumps(paths), txnAppId=MAINTAINER,
        txnVersion=str(number), fileTag=tag, fileBytes=str(2 * target_bytes))
    if catalog is not None:
        writer = writer.option("icebergCatalog", json.dumps(dict(catalog)))
    writer.save(str(table.root))
    state = table.state()
    made = [one.path for one in state.files if f"/{one.path}".rpartition("/")[2].startswith(
        f"mq-{tag}")]
    is_same = True
    if check:
        is_same = content(frame_of(spark, table, state, made)) == expected
        if not is_same:
            log.error("%s: what was compacted is not what it was: the files before are still there:"
                      " %s", table.root, ", ".join(paths))
    return len(paths), len(made), is_same


def _day(frame: Any, table: Table) -> list[Any]:
    """What orders rows by the table's days, so that a task has few of them open."""
    from pyspark.sql.functions import to_date

    return [to_date(frame["storeTimestamp"])] if DAY in table.parts() else []


# -- the latest of each key ------------------------------------------------------------------------


def _latest(spark: Any, table: Table, latest: str | Path, kind: str | None) -> int:
    """Write the latest message of each topic and key to a table of its own; how many."""
    target = open_table(latest, kind)
    if target.root == table.root:
        raise OptionError(f"latest {latest}: expected a folder of its own")
    frame_of(spark, table, table.state()).createOrReplaceTempView("mqcore_messages")
    rows = spark.sql("""
        SELECT * EXCEPT (mqcore_place) FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY topic, key ORDER BY storeTimestamp DESC,
                       queueOffset DESC, brokerName, queueId) AS mqcore_place
            FROM (SELECT explode(keys) AS key, * FROM mqcore_messages))
        WHERE mqcore_place = 1""")
    rows.write.format(LAKE_NAME).mode("overwrite").options(
        tableFormat=target.kind, partitionBy=TOPIC).save(str(target.root))
    return target.state().rows


# -- sweeping --------------------------------------------------------------------------------------


def _swept(table: Table, after_s: float, now_ms: int) -> dict[str, Any]:
    before_ms = now_ms - round(after_s * 1000)
    forgotten = table.forget(before_ms)
    orphans = table.orphans(before_ms)
    return {"historyRemoved": forgotten, "filesRemoved": len(table.discard(orphans))}


# -- the command -----------------------------------------------------------------------------------


def _time(_ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else seconds(f"--{param.name}", value)
    except OptionError as error:
        raise click.BadParameter(str(error)) from None


def _catalog(_ctx: click.Context, _param: click.Parameter, value: str | None
             ) -> dict[str, str] | None:
    try:
        return None if value is None else properties("--iceberg-catalog", value)
    except OptionError as error:
        raise click.BadParameter(str(error)) from None


@click.command("lake-maintain")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--compact/--no-compact", default=True, show_default=True,
              help="Make few sorted files of many small ones.")
@click.option("--target-bytes", type=click.IntRange(1), default=TARGET_BYTES, show_default=True,
              help="Of a compacted file, about.")
@click.option("--wave-bytes", type=click.IntRange(1), default=WAVE_BYTES, show_default=True,
              help="Compacted with one change, about.")
@click.option("--check/--no-check", default=True, show_default=True,
              help="Read again what was compacted: its content is what it was.")
@click.option("--keep", "keep_s", callback=_time, metavar="TIME",
              help="Drop days that ended so long ago, as in 30d [default: keep all].")
@click.option("--latest", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
              help="Write to this table, anew, the latest message of each topic and key.")
@click.option("--latest-format", type=click.Choice(KINDS), help="Of that table.")
@click.option("--orphans-after", "orphans_after_s", callback=_time, default="1d",
              show_default=True, metavar="TIME",
              help="Remove files that are none of the table's for so long.")
@click.option("--iceberg-catalog", "catalog", callback=_catalog, metavar="JSON",
              help="Properties of its catalog, where it is not in PATH.")
@spark_options
def command(path: Path, master: str, confs: dict[str, str], **options: Any) -> None:
    """
    Maintain the table in PATH, beside who writes and reads it.

    Exit status: 0 done; 1 what was compacted is not what it was; 2 not done.
    """
    run("lake-maintain", lambda spark: lake_maintain(spark, path, **options), master=master,
        confs=confs)


if __name__ == "__main__":
    command()
