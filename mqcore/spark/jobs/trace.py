"""
The job `trace`: what clients with tracing told of sends and calls of listeners, as spans, latencies
and rates of errors and retries; of what is there, or as a stream by windows of event time.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC
from typing import Any, Final

import click

from mqcore.client.admin.traces import TRACE_TOPIC
from mqcore.spark.jobs import trace_tables as tables
from mqcore.spark.jobs.cluster import Cluster, cluster_of, cluster_options, parsed, read
from mqcore.spark.jobs.frame import Outcome, run, spark_options
from mqcore.spark.options import moment, seconds
from mqcore.spark.session import in_own_session, own_session
from mqcore.spark.topics.positions import nested
from mqcore.spark.topics.source import NAME
from mqcore.spark.tracking import offsets_of

LATEST_S: Final = 3600.0            # between a send and a call of a listener that belongs to it
WINDOW_S: Final = 60.0
DELAY_S: Final = 60.0


# -- frames, of batches and of streams ------------------------------------------------------------


def events(spark: Any, traces: Any, *, delay_s: float | None = None) -> Any:
    """
    One row for each record of trace messages, each once.

    traces   frame with `trace_tables.READ_COLUMNS`; of a stream with delay_s
    delay_s  how much later than others a record may come; None: of a batch
    """
    traces.createOrReplaceTempView("traces")
    found = spark.sql(tables.EVENTS).where(tables.READABLE)
    if delay_s is None:
        return found.dropDuplicates(["kind", "line"])
    return found.withWatermark("at", f"{delay_s:g} seconds").dropDuplicatesWithinWatermark(
        ["kind", "line"])


def figures(spark: Any, found: Any, *, window_s: float | None = None,
            latest_s: float = LATEST_S) -> Any:
    """
    Sends, calls of listeners, and ways end to end: counts, failures, retries, latencies in ms.

    found     of `events`
    window_s  by windows of event time; None: of all time
    latest_s  a call later than that after its send does not belong to it
    """
    found.createOrReplaceTempView("events")
    found.createOrReplaceTempView("after")
    return spark.sql(tables.calls(window_s)).unionByName(spark.sql(tables.ways(window_s, latest_s)))


@contextmanager
def spans(spark: Any, cluster: Cluster, *, topic: str = TRACE_TOPIC, latest_s: float = LATEST_S,
          **options: object) -> Iterator[Any]:
    """
    The frame of spans: one row for each call of a listener, and each send without one.

    cluster  options of `rocketmq`; `options`: more of them, such as startingTimestamp
    It is computed when it is used; what it is made of is cached until the context ends.
    """
    with own_session(spark) as own:
        found = events(own, _traces(own, cluster, topic, options)).persist()
        try:
            found.createOrReplaceTempView("events")
            yield own.sql(tables.spans(latest_s))
        finally:
            found.unpersist()


def _traces(spark: Any, cluster: Cluster, topic: str, options: Mapping[str, object]) -> Any:
    return read(spark, cluster, topic=topic, columns=tables.READ_COLUMNS, **options)


# -- the job ---------------------------------------------------------------------------------------


@in_own_session
def trace(
    spark: Any, cluster: Cluster, *, topic: str = TRACE_TOPIC, since_ms: int | None = None,
    latest_s: float = LATEST_S, output: str | None = None,
) -> Outcome:
    """
    The report of what trace topics hold.

    since_ms  only trace messages stored then or later
    output    where spans go as Parquet files; the folder must not be there yet
    """
    since = {} if since_ms is None else {
        "startingTimestamp": since_ms, "startingOffsetsByTimestampStrategy": "latest"}
    found = events(spark, _traces(spark, cluster, topic, since)).persist()
    try:
        rows = figures(spark, found, latest_s=latest_s).orderBy(
            "what", "topic", "group", "host").collect()
        report: dict[str, Any] = {
            "topic": topic,
            "records": {row.kind: row["count"] for row in found.groupBy("kind").count().collect()},
            **{_member(what): [_shown(row) for row in rows if row.what == what]
               for what in ("produce", "consume", "end to end")},
            "ends": [row.asDict() for row in spark.sql(tables.ENDS).collect()]}
        if output is not None:
            spark.sql(tables.spans(latest_s)).write.parquet(output)
            report["output"] = output
    finally:
        found.unpersist()
    return Outcome(figures=report)


@in_own_session
def stream(
    spark: Any, cluster: Cluster, output: str, checkpoint: str, *, topic: str = TRACE_TOPIC,
    window_s: float = WINDOW_S, delay_s: float = DELAY_S, latest_s: float = LATEST_S,
    every_s: float | None = None, **options: object,
) -> Any:
    """
    The StreamingQuery that writes the figures of each window as Parquet, once, when it is closed.

    output, checkpoint  folders of this query alone
    delay_s             how much later than others a record may come; later ones are left out
    every_s             seconds between two micro-batches; None: it ends with what is there now
    options             more of `rocketmq`, such as maxOffsetsPerTrigger
    """
    reader = spark.readStream.format(NAME).options(**{
        **cluster, "topic": topic, "columns": tables.READ_COLUMNS, "startingOffsets": "earliest",
        **options})
    found = events(spark, reader.load(), delay_s=delay_s)
    writer = figures(spark, found, window_s=window_s, latest_s=latest_s).writeStream.outputMode(
        "append").format("parquet").option("path", output).option("checkpointLocation", checkpoint)
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_s:g} seconds").start()


def stream_job(spark: Any, cluster: Cluster, output: str, checkpoint: str, **options: Any
               ) -> Outcome:
    """`stream`, until it ends: its report."""
    query = stream(spark, cluster, output, checkpoint, **options)
    query.awaitTermination()
    progress = query.recentProgress
    last = progress[-1] if progress else None
    return Outcome(figures={
        "topic": options.get("topic", TRACE_TOPIC), "output": output,
        "readUntil": nested(offsets_of(last["sources"][0]["endOffset"])) if last else {},
        "late": sum(max((each["numRowsDroppedByWatermark"] for each in one["stateOperators"]),
                        default=0) for one in progress),
        "closedUntil": last["eventTime"].get("watermark") if last else None})


def _member(what: str) -> str:
    return "endToEnd" if what == "end to end" else what


def _shown(row: Any) -> dict[str, Any]:
    """A row of `figures` as a member of JSON."""
    said = {name: row[name] for name in ("topic", "group", "host", "begin")
            if row[name] is not None}
    if "begin" in said:
        said["begin"] = said["begin"].astimezone(UTC).isoformat()
    said |= {"calls": row.calls, "failed": row.failed,
             "errorRate": row.failed / row.calls if row.calls else 0.0}
    if row.begun:
        said |= {"withoutEnd": row.begun - row.calls, "retryRate": row.retried / row.begun}
    if row.ms is not None:
        said["ms"] = dict(zip(tables.PERCENTILES, row.ms, strict=True))
    return said


@click.command("trace")
@cluster_options()
@click.option("--topic", default=TRACE_TOPIC, show_default=True, help="Where clients write traces.")
@click.option("--since", "since_ms", metavar="TIME", callback=parsed(moment),
              help="Only trace messages stored then or later.")
@click.option("--latest", "latest_s", metavar="TIME", callback=parsed(seconds), default="1h",
              show_default=True, help="A call later than that after its send is not its end.")
@click.option("--output", metavar="PATH",
              help="Parquet: all spans; with --window the figures of each window that is closed.")
@click.option("--window", "window_s", metavar="TIME", callback=parsed(seconds),
              help="As a stream, by windows of event time, such as 1m.")
@click.option("--delay", "delay_s", metavar="TIME", callback=parsed(seconds), default="1m",
              show_default=True, help="How late records may come, before a window is closed.")
@click.option("--checkpoint", metavar="PATH", help="The stream's own folder.")
@click.option("--every", "every_s", metavar="TIME", callback=parsed(seconds),
              help="Go on for ever, a micro-batch each time [default: end with what is there].")
@spark_options
def command(
    namesrv: str, source: dict[str, str], topic: str, since_ms: int | None, latest_s: float,
    output: str | None, window_s: float | None, delay_s: float, checkpoint: str | None,
    every_s: float | None, master: str, confs: dict[str, str],
) -> None:
    """
    Latencies, errors and retries by what tracing clients told; spans of each message.

    Exit status: 0 done, 2 not done.
    """
    cluster = cluster_of(namesrv, source)
    if window_s is None:
        run("trace", lambda spark: trace(
            spark, cluster, topic=topic, since_ms=since_ms, latest_s=latest_s, output=output),
            master=master, confs=confs)
    if output is None or checkpoint is None:
        raise click.UsageError("--window needs --output and --checkpoint")
    since = {} if since_ms is None else {"startingTimestamp": since_ms}
    run("trace", lambda spark: stream_job(
        spark, cluster, output, checkpoint, topic=topic, window_s=window_s, delay_s=delay_s,
        latest_s=latest_s, every_s=every_s, **since), master=master, confs=confs)


if __name__ == "__main__":
    command()
