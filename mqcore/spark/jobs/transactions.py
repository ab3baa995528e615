"""
The job `transactions`: half messages, ops and what commits stored, joined to what was decided when,
by whom, after how many questions, and what is open; of a store at rest, or of a live cluster.
"""
from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import click

from mqcore.client.admin.transactions import CHECK_GROUP, HALF_TOPIC, OP_TOPIC
from mqcore.client.errors import RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.spark.columns import picked_by_names
from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.jobs import transaction_tables as tables
from mqcore.spark.jobs.cluster import (
    Cluster,
    checked,
    cluster_of,
    cluster_options,
    parsed,
    read,
    span,
)
from mqcore.spark.jobs.frame import (
    EXIT_FINE,
    EXIT_MISMATCH,
    LIST_COUNT,
    Outcome,
    run,
    spark_options,
)
from mqcore.spark.options import moment, seconds
from mqcore.spark.session import in_own_session, local_rows
from mqcore.spark.store.source import NAME as STORE
from mqcore.spark.topics.catalog import Catalog, Offsets, catalog_of
from mqcore.wire import fastjson
from mqcore.wire.codes import GIVEN_UP_TOPIC

CLOCK_SLACK_MS: Final = 60_000      # that store times may go back
_SUMS: Final = ("transactions", *tables.STATES, "checks", "copies", "conflicts", "opsMissing")


class Source(Protocol):
    """
    What brokers store of transactions; asked for in the order in which brokers write it, so that
    what is decided meanwhile is open, and nothing else.

    passed  by broker: half messages below this offset are settled; who is not in it does not say
    gone    topics of half messages that are not there any more, known after `later`
    as_of   open transactions are open until then, known after `later`; None: until the time of
            the youngest half message
    """

    passed: dict[str, int]
    gone: list[str]
    as_of: datetime | None

    def halves(self) -> Any:
        """Frame of the half topic."""

    def ops(self) -> Any:
        """Frame of op records."""

    def later(self, topics: list[str], from_ms: int) -> tuple[Any, Any]:
        """Frames of what was stored in these topics, and of what was given up, from a time on."""


class AtRest:
    """The records of a store that no broker uses."""

    def __init__(self, spark: Any, store: Path, options: Mapping[str, object]) -> None:
        """`options` as of the source `rocketmq-store`. Raises SparkSourceError."""
        self._spark = spark
        self._store = store
        self._options = dict(options)
        found = _passed(store)
        self.passed = {} if found is None else {str(options.get("brokerName", "")): found}
        self.gone: list[str] = []
        self.as_of: datetime | None = None

    def _read(self, columns: str, **options: object) -> Any:
        return self._spark.read.format(STORE).options(
            columns=columns, **self._options, **options).load(str(self._store))

    def halves(self) -> Any:
        return self._read(tables.HALF_COLUMNS, topic=HALF_TOPIC)

    def ops(self) -> Any:
        return self._read(tables.OP_COLUMNS, topic=OP_TOPIC)

    def later(self, topics: list[str], from_ms: int) -> tuple[Any, Any]:
        return (self._read(tables.FINAL_COLUMNS),
                self._read(tables.HALF_COLUMNS, topic=GIVEN_UP_TOPIC))


def _passed(store: Path) -> int | None:
    """How far the check was, by the broker's own file; None: it does not say."""
    path = store / "config" / "consumerOffset.json"
    try:
        said = fastjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SparkSourceError(f"{path} cannot be read: {error}; without that file the job judges"
                               " by the log alone") from None
    queues = said.get("offsetTable", {}).get(f"{HALF_TOPIC}@{CHECK_GROUP}", {})
    return next((offset for queue, offset in queues.items() if str(queue) == "0"), None)


class Live:
    """The records of a cluster's brokers."""

    def __init__(self, spark: Any, cluster: Cluster, since_ms: int | None) -> None:
        """`since_ms`: only half messages that were stored then or later. Raises OptionError."""
        self._spark = spark
        self._cluster = cluster
        self._options = checked(cluster)
        self._since_ms = since_ms
        self.passed: dict[str, int] = {}
        self.gone: list[str] = []
        self.as_of: datetime | None = None

    def halves(self) -> Any:
        with catalog_of(self._options) as catalog:
            queues = catalog.queues(HALF_TOPIC) or []
            self.passed = {queue.broker_name: offset for queue, offset
                           in catalog.committed(CHECK_GROUP, queues).items()}
            return self._read(tables.HALF_COLUMNS, catalog, queues, self._since_ms)

    def ops(self) -> Any:
        with catalog_of(self._options) as catalog:
            return self._read(tables.OP_COLUMNS, catalog, catalog.queues(OP_TOPIC) or [], None)

    def later(self, topics: list[str], from_ms: int) -> tuple[Any, Any]:
        with catalog_of(self._options) as catalog:
            found: list[MessageQueue] = []
            for topic in topics:
                queues = catalog.queues(topic)
                if queues is None:
                    self.gone.append(topic)
                found += queues or []
            given_up = catalog.queues(GIVEN_UP_TOPIC) or []
            self.as_of = datetime.fromtimestamp(time.time(), UTC)
            return (self._read(tables.FINAL_COLUMNS, catalog, found, from_ms),
                    self._read(tables.HALF_COLUMNS, catalog, given_up, from_ms))

    def _read(self, columns: str, catalog: Catalog, queues: list[MessageQueue],
              since_ms: int | None) -> Any:
        """The frame of what these queues have now; without any, of nothing."""
        if not queues:
            return self._spark.createDataFrame([], picked_by_names(columns).ddl)
        begins: Offsets = catalog.begins(queues)
        if since_ms is not None:
            begins |= catalog.at_times(dict.fromkeys(queues, since_ms))
        topics = ",".join(sorted({queue.topic for queue in queues}))
        return read(self._spark, self._cluster, subscribe=topics, columns=columns,
                    **span(begins, catalog.ends(queues)))


class Joined:
    """The joined rows in `frame`, one for each transaction; cached until `close`."""

    def __init__(self, spark: Any, source: Source) -> None:
        """`spark`: a session of its own, for the names of views."""
        self._spark = spark
        self._cached: list[Any] = []
        try:
            self.frame = self._join(source)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for frame in reversed(self._cached):
            frame.unpersist()

    def _join(self, source: Source) -> Any:
        spark = self._spark
        self._view("halves", source.halves())
        self._view("half", spark.sql(tables.half_view("halves")), cache=True)
        known = spark.sql("SELECT COLLECT_SET(topic) AS topics, UNIX_MILLIS(MIN(stored)) AS from_ms"
                          " FROM half").first()
        self._view("ops", source.ops())
        finals, given_up = source.later(
            sorted(known.topics), max((known.from_ms or 0) - CLOCK_SLACK_MS, 0))
        self._view("finals", finals)
        self._view("given_up", given_up)
        self._view("lost", spark.sql(tables.half_view("given_up")))
        self._view("passed", local_rows(
            spark, source.passed.items(), "broker string, half bigint"))
        self._view("clock", spark.sql("SELECT MAX(stored) AS asOf FROM half")
                   if source.as_of is None
                   else spark.createDataFrame([(source.as_of,)], "asOf timestamp"))
        self._view("named", spark.sql(tables.NAMED), cache=True)
        self._view("committed", spark.sql(tables.COMMITTED), cache=True)
        self._view("copies", spark.sql(tables.COPIES))
        self._view("together", spark.sql(tables.TOGETHER))
        return self._view("transactions", spark.sql(tables.transactions(source.gone)), cache=True)

    def _view(self, name: str, frame: Any, *, cache: bool = False) -> Any:
        if cache:
            frame = frame.persist()
            self._cached.append(frame)
        frame.createOrReplaceTempView(name)
        return frame

    def figures(self, count: int) -> dict[str, Any]:
        """Members of the report; `count`: of each list at most."""
        spark = self._spark
        sums = [_sum(row) for row in spark.sql(tables.SUMS).collect()]
        listed: dict[str, list[dict[str, Any]]] = {"open": [], "given up": [], "conflicts": []}
        for row in spark.sql(tables.lists(count)).collect():
            listed[row.kind].append(_row(row))
        whole = next((one for one in sums if "producerGroup" not in one),
                     {_member(name): 0 for name in _SUMS})      # there are none
        return {
            **whole, **spark.sql(tables.STRANGERS).first().asDict(),
            "byTopic": [one for one in sums if "topic" in one],
            "byHost": [one for one in sums if "host" in one],
            "openOldest": listed["open"], "givenUpOldest": listed["given up"],
            "conflictsOldest": listed["conflicts"]}


def _sum(row: Any) -> dict[str, Any]:
    found = {name: row[name] for name in ("producerGroup", "topic", "host")
             if row[name] is not None}
    found |= {_member(name): row[name] or 0 for name in _SUMS}
    if row.openMs is not None:
        low, (middle, high, top) = row.openMsMin, row.openMs
        found["openMs"] = {"min": low, "p50": middle, "p95": high, "max": top}
    return found


def _member(name: str) -> str:
    """`rolled back` as a member of JSON: rolledBack."""
    first, *rest = name.split(" ")
    return first + "".join(word.capitalize() for word in rest)


def _row(row: Any) -> dict[str, Any]:
    """A transaction as a member of JSON; times are ISO, UTC."""
    said = row.asDict()
    for name in ("kind", "number"):
        del said[name]
    return {name: value.astimezone(UTC).isoformat(timespec="milliseconds")
            if isinstance(value, datetime) else value
            for name, value in said.items() if value is not None}


@in_own_session
def join(spark: Any, *, store: str | Path | None = None, cluster: Cluster | None = None,
         since_ms: int | None = None, store_options: Mapping[str, object] | None = None) -> Joined:
    """
    The transactions of a store at rest, or of a cluster.

    store          its folder; `store_options` are those of `rocketmq-store`
    cluster        options of `rocketmq`: nameServer, rocketmq.*, timeout ...
    since_ms       only half messages that were stored then or later, ms since 1970
    Raises SparkSourceError; what Spark raises.
    """
    if (store is None) == (cluster is None):
        raise OptionError("transactions: expected a store, or a cluster")
    if store is not None:
        since = {} if since_ms is None else {"startingTimestamp": since_ms}
        return Joined(spark, AtRest(spark, Path(store), {**(store_options or {}), **since}))
    assert cluster is not None
    try:
        return Joined(spark, Live(spark, cluster, since_ms))
    except RocketMQError as error:
        raise SparkSourceError(f"asking for transactions: {error}") from None


@in_own_session
def transactions(
    spark: Any, *, list_count: int = LIST_COUNT, open_max_s: float | None = None,
    output: str | None = None, **of: Any,
) -> Outcome:
    """
    The job.

    list_count   transactions in each list of the report, at most
    open_max_s   what is open for longer is a mismatch; None: for as long as it likes
    output       where all transactions go as Parquet files; the folder must not be there yet
    of           as of `join`
    """
    joined = join(spark, **of)
    try:
        figures = joined.figures(list_count)
        if output is not None:
            joined.frame.write.parquet(output)
            figures["output"] = output
        late = 0
        if open_max_s is not None:
            late = joined.frame.where(f"state = 'open' AND openMs > {open_max_s * 1000}").count()
            figures["openTooLong"] = late
    finally:
        joined.close()
    wrong = figures["givenUp"] or figures["conflicts"] or late
    return Outcome(EXIT_MISMATCH if wrong else EXIT_FINE, figures)


@click.command("transactions")
@click.option("--store", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="A store at rest, instead of a cluster.")
@cluster_options(required=False)
@click.option("--commit-log", "commit_logs", multiple=True, metavar="PATH",
              help="A folder of the store's commit log, where it is not in it; may be repeated.")
@click.option("--force", is_flag=True, help="Also while a broker runs on the store.")
@click.option("--since", "since_ms", metavar="TIME", callback=parsed(moment),
              help="Only half messages stored then or later.")
@click.option("--open-max", "open_max_s", metavar="TIME", callback=parsed(seconds),
              help="What is open for longer is a mismatch, such as 10m.")
@click.option("--list", "list_count", type=click.IntRange(0, 10_000), default=LIST_COUNT,
              show_default=True, metavar="N", help="Transactions of each list in the report.")
@click.option("--output", metavar="PATH", help="Write all transactions there, as Parquet.")
@spark_options
def command(
    store: Path | None, namesrv: str | None, source: dict[str, str], commit_logs: tuple[str, ...],
    force: bool, master: str, confs: dict[str, str], **options: Any,
) -> None:
    """
    What was decided about transactional messages, when, by whom, and what is open.

    Exit status: 0 all were decided once, or are open; 1 some were given up, decided twice,
    forgotten, or are open for too long; 2 not done.
    """
    if store is not None:
        of: dict[str, Any] = {"store": store, "store_options": {
            **({"commitLogPaths": ",".join(commit_logs)} if commit_logs else {}),
            **({"force": True} if force else {})}}
    elif namesrv is not None:
        of = {"cluster": cluster_of(namesrv, source)}
    else:
        raise click.UsageError("give --namesrv of a cluster, or --store of a store at rest")
    run("transactions", lambda spark: transactions(spark, **of, **options), master=master,
        confs=confs)


if __name__ == "__main__":
    command()
