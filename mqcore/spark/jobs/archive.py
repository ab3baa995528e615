"""
The job `archive`: topics to a table of Parquet files, each message once (docs/spark/jobs.md).

What was read lies in a checkpoint in the table's folder. Without one the job begins where the table
ends.
"""
from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from mqcore.client.errors import RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.spark.errors import SparkSourceError
from mqcore.spark.jobs.cluster import source_options
from mqcore.spark.jobs.frame import (
    EXIT_FINE,
    EXIT_MISMATCH,
    Outcome,
    run,
    settings,
    spark_options,
)
from mqcore.spark.lake.filing import NAME as FILES_NAME
from mqcore.spark.lake.opening import open_table, read_lake
from mqcore.spark.lake.options import KINDS
from mqcore.spark.lake.rows import FILE_ROWS
from mqcore.spark.lake.writer import NAME as LAKE_NAME
from mqcore.spark.options import ROCKETMQ, STREAM, Options, read_options
from mqcore.spark.session import own_session
from mqcore.spark.topics.catalog import Offsets, catalog_of
from mqcore.spark.topics.positions import (
    EARLIEST,
    Subject,
    begins,
    from_checkpoint,
    nested,
)
from mqcore.spark.topics.source import NAME as ROCKETMQ_NAME
from mqcore.spark.tracking import ROWS, Progress, track

FOLDER: Final = "_mqcore_archive"       # below the table's: checkpoints, by the archive's name
BATCH_ROWS: Final = 1_000_000
LOOK_S: Final = 1
STARTS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
                 "startingOffsetsByTimestampStrategy")
_STARTS: Final = frozenset(name.lower() for name in STARTS)
QUEUE: Final = ("topic", "brokerName", "queueId")

log = logging.getLogger("mqcore.spark")


def archive(
    spark: Any, path: str | Path, source: Mapping[str, str], *, name: str = "archive",
    sink: Mapping[str, str] | None = None, batch_rows: int = BATCH_ROWS, gaps: str = "fail",
    every_s: float | None = None, verify: bool = False, stop: threading.Event | None = None,
) -> Outcome:
    """
    Write what topics hold, and the table in a folder does not have yet, to that table.

    source      options of `rocketmq`: nameServer, the topics, group, rocketmq.*
    name        of this archive: its checkpoint lies below its name in the table's folder
    sink        options of `rocketmq-lake`
    batch_rows  offsets of one change of the table, at most
    gaps        of offsets that are not there: `fail`, or `row`: a row with gapEnd says so
    every_s     None: until what is there now is in the table; else on and on, so often at most
    verify      look through the table at the end: each offset of each queue there once
    stop        ends an archive that goes on
    Raises SparkSourceError, OptionError, StreamingQueryException.
    """
    with own_session(spark) as own:     # whose queries are these alone
        return _archived(own, path, dict(source), dict(sink or {}), name=name,
                         batch_rows=batch_rows, gaps=gaps, every_s=every_s, verify=verify,
                         stop=stop)


def _archived(
    own: Any, path: str | Path, source: dict[str, str], sink: dict[str, str], *, name: str,
    batch_rows: int, gaps: str, every_s: float | None, verify: bool,
    stop: threading.Event | None,
) -> Outcome:
    from pyspark.sql.functions import sum as sum_of

    table = open_table(path, sink.get("tableFormat"))
    folder = table.root / FOLDER / name
    checkpoint = folder / "checkpoint"
    given = {
        **source, "maxOffsetsPerTrigger": str(batch_rows),
        "failOnDataLoss": str(gaps == "fail").lower(), "stateDir": str(folder / "begin"),
        "minPartitions": str(2 * own.sparkContext.defaultParallelism)}
    options = read_options(given, ROCKETMQ, STREAM, ROCKETMQ_NAME)
    if not (checkpoint / "metadata").exists():
        begin = nested(_begins(own, options, table, path))
        given = {key: value for key, value in given.items() if key.lower() not in _STARTS}
        given["startingOffsets"] = json.dumps(begin)
    frame = own.readStream.format(FILES_NAME).options(**given, **sink).load(str(table.root))
    writer = frame.observe(ROWS, sum_of(FILE_ROWS).alias("rows")).writeStream.format(
        LAKE_NAME).options(**sink).option("checkpointLocation", str(checkpoint))
    writer = (writer.trigger(availableNow=True) if every_s is None
              else writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds"))
    heard: list[Progress] = []
    rows = [0, 0]                       # and batches: of a long run only the last is kept

    def hear(progress: Progress) -> None:
        heard[:] = [progress]
        rows[0] += progress.rows
        rows[1] += progress.rows > 0

    committing = {key: value for key, value in source.items()
                  if key.lower() in ("nameserver", "namesrv", "group")
                  or key.lower().startswith("rocketmq.")}
    tracker = track(own, on_progress=hear, **committing)
    try:
        query = writer.start(str(table.root))
        while not query.awaitTermination(LOOK_S):
            if stop is not None and stop.is_set():
                query.stop()
        tracker.wait(query)
    finally:
        tracker.stop()
    figures: dict[str, Any] = {
        "path": str(table.root), "rows": rows[0], "batches": rows[1],
        "lag": heard[-1].total_lag if heard else 0,
        "groupCommitted": _commit_group(options, checkpoint)}
    if table.exists():
        figures |= {"tableRows": table.state().rows, "tableFiles": len(table.state().files)}
    wrong = _wrong_queues(read_lake(own, table.root)) if verify and table.exists() else None
    if wrong is not None:
        figures["wrongQueues"] = wrong
    return Outcome(EXIT_MISMATCH if wrong else EXIT_FINE, figures)


def _begins(spark: Any, options: Options, table: Any, path: str | Path) -> Offsets:
    """Of each queue: where the table ends, or a later offset that options say; of queues that it
    does not have: what options say, or their begin."""
    ends: Offsets = {}
    if table.exists() and table.state().files:
        ends = table_ends(read_lake(spark, path))
    try:
        with catalog_of(options) as catalog:
            queues = Subject(options).existing(catalog)
            told = (begins(options, catalog, queues, "earliest")
                    if any(options.has(name) for name in STARTS) else {})
    except RocketMQError as error:
        raise SparkSourceError(f"nameServer: {error}") from None
    return {queue: max(ends.get(queue, EARLIEST), told.get(queue, EARLIEST)) for queue in queues}


def table_ends(frame: Any) -> Offsets:
    """The offset behind the last row of each queue of a table."""
    found = frame.groupBy(*QUEUE).agg({"queueOffset": "max", "gapEnd": "max"}).collect()
    return {MessageQueue(row["topic"], row["brokerName"], row["queueId"]):
            max(row["max(queueOffset)"] + 1, row["max(gapEnd)"] or 0) for row in found}


def _commit_group(options: Options, checkpoint: Path) -> bool:
    """Tell brokers how far the table is; also when a run before could not."""
    group = options["group"]
    done = _last_done(checkpoint)
    if group is None or not done:
        return False
    try:
        with catalog_of(options) as catalog:
            known = catalog.committed(group, done)
            catalog.commit(group, {queue: offset for queue, offset in done.items()
                                   if offset > known.get(queue, -1)})
    except RocketMQError as error:
        raise SparkSourceError(f"all is in the table, but the offsets of group {group} are not"
                               f" committed: {error}; the next run commits them") from None
    return True


def _last_done(checkpoint: Path) -> Offsets:
    """The offsets behind the last batch that is in the table."""
    done = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()]
    if not done:
        return {}
    lines = (checkpoint / "offsets" / str(max(done))).read_text(encoding="utf-8").splitlines()
    return from_checkpoint(json.loads(lines[-1]))


def _wrong_queues(frame: Any) -> list[dict[str, Any]]:
    """Queues of a table that have an offset twice, or lack one between first and last."""
    frame.createOrReplaceTempView("mqcore_archived")
    rows = frame.sparkSession.sql(f"""
        SELECT * FROM (
            SELECT {', '.join(QUEUE)}, COUNT(*) AS rows, COUNT(DISTINCT queueOffset) AS offsets,
                   SUM(COALESCE(gapEnd - queueOffset, 1)) AS covered, MIN(queueOffset) AS first,
                   MAX(COALESCE(gapEnd, queueOffset + 1)) AS end
            FROM mqcore_archived GROUP BY {', '.join(QUEUE)})
        WHERE rows <> offsets OR covered <> end - first ORDER BY {', '.join(QUEUE)}""").collect()
    return [row.asDict() for row in rows]


# -- the command -----------------------------------------------------------------------------------


@click.command("archive")
@click.argument("path", type=click.Path(file_okay=False, path_type=Path))
@source_options
@click.option("--group", metavar="GROUP", help="A consumer group, whose offsets are committed when"
              " messages are in the table.")
@click.option("--name", default="archive", show_default=True,
              help="Of this archive, where several write to one table.")
@click.option("--format", "table_format", type=click.Choice(KINDS),
              help="Of the table [default: that of the table; of a new one parquet].")
@click.option("--sink", "sink", multiple=True, metavar="NAME=VALUE", callback=settings,
              help="An option of the sink rocketmq-lake; may be repeated.")
@click.option("--batch-rows", type=click.IntRange(1), default=BATCH_ROWS, show_default=True,
              help="Offsets of one change of the table, at most.")
@click.option("--gaps", type=click.Choice(["fail", "row"]), default="fail", show_default=True,
              help="Of offsets that are not there.")
@click.option("--every", "every_s", type=click.FloatRange(0), metavar="SECONDS",
              help="Go on until SIGTERM, so often at most; else what is there now is archived.")
@click.option("--verify", is_flag=True, help="Look through the table at the end.")
@spark_options
def command(path: Path, source: dict[str, str], group: str | None, table_format: str | None,
            sink: dict[str, str], master: str, confs: dict[str, str], **options: Any) -> None:
    """
    Write topics to a table of Parquet files in PATH, each message once.

    Exit status: 0 done; 1 --verify found offsets that are there twice, or missing; 2 not done.
    """
    if group is not None:
        source["group"] = group
    if table_format is not None:
        sink["tableFormat"] = table_format
    stop = threading.Event()
    if options["every_s"] is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    run("archive", lambda spark: archive(spark, path, source, sink=sink, stop=stop, **options),
        master=master, confs=confs)


if __name__ == "__main__":
    command()
