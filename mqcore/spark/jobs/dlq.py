"""
The job `dlq`: what dead letters and retries of a group have in common; and dead letters sent to the
topics where they came from, each message once, whatever dies meanwhile.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from mqcore.client.core.options import check_group
from mqcore.client.errors import ConfigError, RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.spark.columns import picked_by_names
from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.jobs import dlq_tables as tables
from mqcore.spark.jobs.cluster import (
    Cluster,
    checked,
    cluster_of,
    cluster_options,
    parsed,
    read,
    span,
)
from mqcore.spark.jobs.dlq_ledger import Ledger, Run
from mqcore.spark.jobs.frame import LIST_COUNT, Outcome, run, spark_options
from mqcore.spark.options import Options, moment
from mqcore.spark.session import in_own_session, local_rows
from mqcore.spark.topics.catalog import Catalog, Offsets, catalog_of
from mqcore.spark.topics.source import NAME
from mqcore.wire.codes import DLQ_PREFIX, RETRY_PREFIX

REDRIVE_COUNT_MAX: Final = 1_000
RATE: Final = 100
REQUEST_ROWS: Final = 32            # on which, as on ARROW_ROWS, the sink's ids depend
ARROW_ROWS: Final = 1_024
LEDGER: Final = ("brokerName string, queueId int, queueOffset bigint, storeMs bigint, msgId string,"
                 " firstId string, topic string")


@dataclass(frozen=True)
class DeadLetterChoice:
    """
    Which dead letters: all of these hold.

    topics, tags, keys  of these, where some are given
    begin_ms, end_ms    given up from then on, and before then
    where               SQL over topic, tags, keys, host, tries, cause, properties, storeTimestamp
    """

    topics: Sequence[str] = ()
    tags: Sequence[str] = ()
    keys: Sequence[str] = ()
    begin_ms: int | None = None
    end_ms: int | None = None
    where: str | None = None

    def conditions(self) -> list[str]:
        """In SQL."""
        found = [f"{name} IN ({_texts(values)})" for name, values in (
            ("topic", self.topics), ("tags", self.tags)) if values]
        if self.keys:
            found.append(f"ARRAYS_OVERLAP(keys, ARRAY({_texts(self.keys)}))")
        if self.begin_ms is not None:
            found.append(f"storeMs >= {self.begin_ms}")
        if self.end_ms is not None:
            found.append(f"storeMs < {self.end_ms}")
        return [*found, *([self.where] if self.where else [])]


def _texts(values: Sequence[str]) -> str:
    return ", ".join("'" + one.replace("\\", "\\\\").replace("'", "\\'") + "'" for one in values)


class Letters:
    """The dead letters and retries of a group, in views of a session of their own."""

    def __init__(self, spark: Any, cluster: Cluster, group: str, causes: Sequence[str]) -> None:
        """Raises OptionError, RocketMQError."""
        try:
            check_group(group)
        except ConfigError as error:
            raise OptionError(str(error)) from None
        self._spark = spark
        self._cluster = cluster
        self._options: Options = checked(cluster)
        self._dead = DLQ_PREFIX + group
        with catalog_of(self._options) as catalog:
            queues = self._queues(catalog, self._dead)
            retries = self._queues(catalog, RETRY_PREFIX + group)
            done = catalog.committed(group, retries)
            stored = self._read(queues + retries, tables.READ_COLUMNS,
                                catalog.begins(queues + retries), catalog.ends(queues + retries))
        stored.createOrReplaceTempView("stored")
        self._letters = spark.sql(tables.letters(self._dead, causes)).persist()
        self._letters.createOrReplaceTempView("letters")
        local_rows(
            spark, [(queue.broker_name, queue.queue_id, offset) for queue, offset in done.items()],
            "brokerName string, queueId int, upTo bigint").createOrReplaceTempView("done")

    def close(self) -> None:
        self._letters.unpersist()

    def _queues(self, catalog: Catalog, topic: str) -> list[MessageQueue]:
        return catalog.queues(topic) or []

    def _read(self, queues: list[MessageQueue], columns: str, begins: Offsets, ends: Offsets
              ) -> Any:
        if not queues:
            return self._spark.createDataFrame([], picked_by_names(columns).ddl)
        topics = ",".join(sorted({queue.topic for queue in queues}))
        return read(self._spark, self._cluster, subscribe=topics, columns=columns,
                    **span(begins, ends))

    def know(self, runs: Sequence[Run]) -> None:
        """What was sent again before."""
        import pyarrow

        tables_of_runs = [one.table() for one in runs]
        frame = (self._spark.createDataFrame(pyarrow.concat_tables(tables_of_runs))
                 if tables_of_runs else local_rows(self._spark, [], LEDGER))
        frame.createOrReplaceTempView("ledger")

    def report(self, list_count: int) -> dict[str, Any]:
        """Counts, and the largest clusters."""
        counts = {row.fate: row.asDict() for row in self._spark.sql(tables.COUNTS).collect()}
        dead, retried = counts.get(tables.DEAD, {}), counts.get(tables.RETRIED, {})
        found: dict[str, Any] = {
            "letters": {name: dead.get(name, 0) for name in (
                "rows", "messages", "notSendable", "redriven", "cameBack")},
            "retries": {name: retried.get(name, 0) for name in ("rows", "messages", "waiting")},
            "clusters": {tables.DEAD: {}, tables.RETRIED: {}}}
        for row in self._spark.sql(tables.largest(list_count)).collect() if list_count else ():
            found["clusters"][row.fate].setdefault(row.by, []).append(_shown(row))
        return found

    def chosen(self, choice: DeadLetterChoice, count: int, *, again: bool) -> Any:
        """A pyarrow.Table of what to send again. Raises OptionError for SQL that cannot be."""
        from pyspark.errors import AnalysisException, ParseException

        try:
            return self._spark.sql(
                tables.chosen(choice.conditions(), count, again=again)).toArrow()
        except (AnalysisException, ParseException) as error:
            said = str(error).strip().splitlines()[0]
            raise OptionError(f"where {choice.where!r}: {said}") from None

    def check_topics(self, table: Any) -> None:
        """Raises SparkSourceError when one of the topics to send to is not there any more."""
        with catalog_of(self._options) as catalog:
            for topic in sorted(set(table.column("topic").to_pylist())):
                if catalog.queues(topic) is None:
                    raise SparkSourceError(
                        f"topic {topic} is not there any more: make it again, or leave it out:"
                        f" where \"topic <> '{topic}'\"")

    def send(self, one: Run, rate: int) -> int:
        """
        Send a run's messages that are not stored yet; how many it has.

        Raises SparkSourceError when retention has deleted some: the others' ids depend on them.
        """
        import pyarrow

        spark, table = self._spark, one.table()
        plan = table.append_column(
            "number", pyarrow.array(range(table.num_rows), pyarrow.int64()))
        spark.createDataFrame(plan).createOrReplaceTempView("plan")
        self._planned(table).createOrReplaceTempView("stored")
        frame = spark.sql(tables.again()).persist()
        try:
            there = frame.count()
            if there < table.num_rows:
                raise SparkSourceError(
                    f"{table.num_rows - there} dead letters of {one.path} are not there any more,"
                    " and some of it may be sent: give --abandon to leave it as it is")
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS))
            frame.repartition(1).sortWithinPartitions("number").drop("number").write.format(
                NAME).options(**self._cluster).options(
                deliveryGuarantee="effectively-once", identity=one.identity,
                rowsPerSecond=rate, sendBatchRows=REQUEST_ROWS).mode(
                "append").save()
        finally:
            frame.unpersist()
        return int(table.num_rows)

    def _planned(self, table: Any) -> Any:
        """The dead letters among which those of a run are."""
        begins: Offsets = {}
        ends: Offsets = {}
        for name, queue_id, offset in zip(*(table.column(column).to_pylist() for column in (
                "brokerName", "queueId", "queueOffset")), strict=True):
            queue = MessageQueue(self._dead, name, queue_id)
            begins[queue] = min(begins.get(queue, offset), offset)
            ends[queue] = max(ends.get(queue, 0), offset + 1)
        with catalog_of(self._options) as catalog:
            known = self._queues(catalog, self._dead)
        for queue in known:
            begins.setdefault(queue, 0)
            ends.setdefault(queue, 0)
        return read(self._spark, self._cluster, topic=self._dead, columns=tables.SENT_COLUMNS,
                    **span(begins, ends))


def _shown(row: Any) -> dict[str, Any]:
    names = ("topic", "tags", row.by, "rows", "messages", "first", "last", "example")
    return {name: row[name].astimezone(UTC).isoformat(timespec="milliseconds")
            if isinstance(row[name], datetime) else row[name] for name in names}


@in_own_session
def dlq(
    spark: Any, cluster: Cluster, group: str, *, choice: DeadLetterChoice | None = None,
    redrive: bool = False, ledger: Path | None = None, count_max: int = REDRIVE_COUNT_MAX,
    rate: int = RATE, again: bool = False, abandon: bool = False, list_count: int = LIST_COUNT,
    causes: Sequence[str] = tables.CAUSES,
) -> Outcome:
    """
    The job.

    redrive    send what is chosen; else only say what would be sent
    ledger     a folder of this group on this cluster: what was sent again; needed to redrive
    count_max  messages of one run, at most
    rate       messages a second, at most
    again      also messages that were sent again before, and came back
    abandon    give up a run that was not ended: none of it is sent any more
    causes     properties that may say what was wrong
    A run that was not ended is ended first, with what was chosen then; that counts to count_max.
    Raises SparkSourceError, OptionError.
    """
    if redrive and ledger is None:
        raise OptionError("redrive needs a ledger: a folder of this group, kept between runs")
    book = None if ledger is None else Ledger(ledger, group, write=redrive)
    letters: Letters | None = None
    try:
        letters = Letters(spark, cluster, group, causes)
        if book is None or not redrive:
            return _work(letters, book, group, choice, count_max, list_count, again=again)
        with book.alone():
            resumed = _end_runs(letters, book, rate, abandon=abandon)
            outcome = _work(letters, book, group, choice, max(count_max - resumed, 0), list_count,
                            again=again, rate=rate)
            outcome.figures["resumed"] = resumed
            return outcome
    except RocketMQError as error:
        raise SparkSourceError(f"dead letters of {group}: {error}") from None
    finally:
        if letters is not None:
            letters.close()


def _end_runs(letters: Letters, book: Ledger, rate: int, *, abandon: bool) -> int:
    """End what was begun; how many messages that was about."""
    count = 0
    for one in book.runs():
        if not one.is_done:
            count += one.table().num_rows if abandon else letters.send(one, rate)
            book.finish(one)
    return count


def _work(
    letters: Letters, book: Ledger | None, group: str, choice: DeadLetterChoice | None,
    count_max: int, list_count: int, *, again: bool, rate: int | None = None,
) -> Outcome:
    """Look, choose, and send at this rate; None: say what would be sent."""
    letters.know(book.runs() if book is not None else [])
    table = letters.chosen(choice or DeadLetterChoice(), count_max, again=again)
    sent = 0
    figures = {"group": group, **letters.report(list_count), "chosen": table.num_rows,
               "dryRun": rate is None}
    if rate is not None and book is not None and table.num_rows:
        letters.check_topics(table)
        planned = book.begin(table)
        sent = letters.send(planned, rate)
        book.finish(planned)
    return Outcome(figures={**figures, "sent": sent})


@click.command("dlq")
@click.argument("group")
@cluster_options()
@click.option("--redrive", is_flag=True, help="Send what is chosen; else say what would be sent.")
@click.option("--ledger", type=click.Path(file_okay=False, path_type=Path),
              help="A folder of this group, that says what was sent again; needed to redrive.")
@click.option("--topic", "topics", multiple=True, help="Only of this topic; may be repeated.")
@click.option("--tag", "tags", multiple=True, help="Only with this tag; may be repeated.")
@click.option("--key", "keys", multiple=True, help="Only with this key; may be repeated.")
@click.option("--since", "begin_ms", metavar="TIME", callback=parsed(moment),
              help="Only what was given up then or later.")
@click.option("--until", "end_ms", metavar="TIME", callback=parsed(moment),
              help="Only what was given up before.")
@click.option("--where", metavar="SQL", help="Only this: SQL over topic, tags, keys, host, tries,"
              " cause, properties, storeTimestamp.")
@click.option("--max", "count_max", type=click.IntRange(1, 1_000_000), default=REDRIVE_COUNT_MAX,
              show_default=True, help="Messages of this run.")
@click.option("--rate", type=click.IntRange(1), default=RATE, show_default=True,
              help="Messages a second.")
@click.option("--again", is_flag=True, help="Also what was sent again before, and came back.")
@click.option("--abandon", is_flag=True,
              help="Leave a run that was not ended as it is; none of it is sent any more.")
@click.option("--cause", "causes", multiple=True, default=tables.CAUSES, show_default=True,
              help="A property that may say what was wrong; may be repeated.")
@click.option("--list", "list_count", type=click.IntRange(0, 10_000), default=LIST_COUNT,
              show_default=True, metavar="N", help="Clusters of each kind in the report.")
@spark_options
def command(
    group: str, namesrv: str, source: dict[str, str], topics: tuple[str, ...],
    tags: tuple[str, ...], keys: tuple[str, ...], begin_ms: int | None, end_ms: int | None,
    where: str | None, master: str, confs: dict[str, str], **options: Any,
) -> None:
    """
    What dead letters of GROUP have in common; with --redrive they go back to their topics.

    Exit status: 0 done, 2 not done.
    """
    choice = DeadLetterChoice(topics, tags, keys, begin_ms, end_ms, where)
    run("dlq", lambda spark: dlq(spark, cluster_of(namesrv, source), group, choice=choice,
                                 **options), master=master, confs=confs)


if __name__ == "__main__":
    command()
