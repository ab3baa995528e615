"""
The job `lag`: how far groups and streams are behind, by queue, in messages, bytes and time; which
queues are behind more than others, and which keys and tags there are most of.
"""
from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from mqcore.client.admin import Admin
from mqcore.client.errors import RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.spark.columns import picked_by_names
from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.jobs.cluster import (
    Cluster,
    checked,
    cluster_of,
    cluster_options,
    parsed,
    read,
    span,
)
from mqcore.spark.jobs.frame import EXIT_FINE, EXIT_MISMATCH, Outcome, run, spark_options
from mqcore.spark.options import Options, client_config, seconds
from mqcore.spark.session import in_own_session, local_rows
from mqcore.spark.topics.catalog import Offsets, catalog_of
from mqcore.spark.tracking import Progress, offsets_of

SAMPLE: Final = 200                 # messages of a queue that are looked at
SKEW: Final = 3.0                   # times the mean of the topic's other queues
SKEW_LAG_MIN: Final = 100           # messages, below which no queue is called skewed
HOT_SHARE: Final = 0.2              # of the messages that were looked at
HOT_COUNT_MIN: Final = 10
HOT_LIST_COUNT: Final = 10
SAMPLE_COLUMNS: Final = "topic,brokerName,queueId,queueOffset,storeTimestamp,keys,tags,body"
POSITIONS: Final = ("who string, topic string, brokerName string, queueId int, position bigint,"
                    " first bigint, end bigint, written bigint")

_SAMPLED: Final = """
    SELECT who, found.* FROM positions JOIN (
        SELECT DISTINCT topic, brokerName, queueId, queueOffset, storeTimestamp, keys, tags,
            LENGTH(body) AS bytes FROM stored) AS found
        ON found.topic = positions.topic AND found.brokerName = positions.brokerName
            AND found.queueId = positions.queueId AND queueOffset >= first
            AND queueOffset < first + {sample}"""

_QUEUES: Final = """
    SELECT who, topic, brokerName, queueId, position, end, written, end - position AS lag,
        first - position AS lost, COALESCE(CAST((end - first) * bytes AS bigint), 0) AS bytes,
        COALESCE(GREATEST({now_ms} - oldestMs, 0), 0) AS behindMs
    FROM positions LEFT JOIN (SELECT who, topic, brokerName, queueId, AVG(bytes) AS bytes,
            UNIX_MILLIS(MIN_BY(storeTimestamp, queueOffset)) AS oldestMs
        FROM sampled GROUP BY who, topic, brokerName, queueId)
        USING (who, topic, brokerName, queueId)
    ORDER BY who, topic, brokerName, queueId"""

_HOT: Final = """
    SELECT * FROM (SELECT who, topic, what, value, COUNT(*) AS count, FIRST(total) AS sampled,
            COUNT(*) / FIRST(total) AS share, ROW_NUMBER() OVER (
                PARTITION BY who, topic, what ORDER BY COUNT(*) DESC, value) AS number
        FROM (SELECT *, COUNT(*) OVER (PARTITION BY who, topic) AS total FROM sampled)
            LATERAL VIEW INLINE(FILTER(CONCAT(
                TRANSFORM(ARRAY_DISTINCT(keys), one -> STRUCT('key' AS what, one AS value)),
                ARRAY(STRUCT('tag' AS what, tags AS value))), one -> one.value IS NOT NULL))
            AS what, value
        GROUP BY who, topic, what, value)
    WHERE count >= {count_min} AND share >= {share} AND number <= {list_count}
    ORDER BY who, topic, what, number"""


@dataclass(frozen=True)
class Positions:
    """How far somebody is: the next offset of each queue. `who`: `group G`, `query ID`."""

    who: str
    offsets: Offsets


def of_groups(options: Options, groups: Sequence[str], topics: Sequence[str]) -> list[Positions]:
    """
    What groups have committed, their retries among it.

    groups  none: all that were ever online
    topics  only of these; none: of all
    Raises RocketMQError.
    """
    with Admin(config=client_config(options)) as admin:
        found = [admin.lag(group) for group in groups] if groups else list(admin.lags())
    return [Positions(f"group {one.group}", {
        lag.queue: lag.consumer_offset for lag in one.queues
        if not topics or lag.queue.topic in topics}) for one in found if one.queues]


def of_checkpoint(folder: Path) -> Positions:
    """What a streaming query has done, by its checkpoint. Raises OptionError."""
    try:
        query = json.loads((folder / "metadata").read_text())["id"]
        done = max(int(path.name) for path in (folder / "commits").iterdir()
                   if path.name.isdigit())
        lines = (folder / "offsets" / str(done)).read_text().splitlines()
    except (OSError, ValueError, KeyError) as error:
        raise OptionError(f"{folder} is no checkpoint of a query that has ended a batch: {error}"
                          ) from None
    offsets: Offsets = {}
    for line in lines[2:]:                          # a version, what Spark notes, the sources
        offsets |= offsets_of(line)
    if not offsets:
        raise OptionError(f"{folder}: the query reads nothing from the source rocketmq")
    return Positions(f"query {query}", offsets)


def of_progress(one: Progress) -> Positions:
    """What a streaming query has done, as `mqcore.spark.track` tells."""
    return Positions(f"query {one.query}", one.offsets)


class Lags:
    """The joined figures, in views of a session of their own."""

    def __init__(self, spark: Any, cluster: Cluster, positions: Iterable[Positions], sample: int
                 ) -> None:
        """Raises RocketMQError, SparkSourceError."""
        self._spark = spark
        with catalog_of(checked(cluster)) as catalog:
            there: dict[str, list[MessageQueue]] = {}
            for topic in sorted({queue.topic for one in positions for queue in one.offsets}):
                there[topic] = catalog.queues(topic) or []
            queues = [queue for found in there.values() for queue in found]
            self._begins, self._ends = catalog.begins(queues), catalog.ends(queues)
            self._rows = [self._row(one.who, queue, offset) for one in positions
                          for queue, offset in sorted(one.offsets.items()) if queue in self._ends]
            stored = self._stored(cluster, sample)
        local_rows(spark, self._rows, POSITIONS).createOrReplaceTempView("positions")
        stored.createOrReplaceTempView("stored")
        self._sampled = spark.sql(_SAMPLED.format(sample=sample)).persist()
        self._sampled.createOrReplaceTempView("sampled")

    def close(self) -> None:
        self._sampled.unpersist()

    def _row(self, who: str, queue: MessageQueue, offset: int) -> tuple[Any, ...]:
        begin, end = self._begins[queue], self._ends[queue]
        position = min(max(offset, 0), end)
        return (who, queue.topic, queue.broker_name, queue.queue_id, position,
                max(position, begin), end, end - begin)

    def _stored(self, cluster: Cluster, sample: int) -> Any:
        """The first messages that are not consumed, of each queue; each frame has one stretch of a
        queue."""
        frames = []
        left = {(MessageQueue(*row[1:4]), row[5]) for row in self._rows if row[5] < row[6]}
        while left and sample:
            begins: Offsets = {}
            for queue, first in sorted(left):
                begins.setdefault(queue, first)
            left -= set(begins.items())
            ends = {queue: min(first + sample, self._ends[queue])
                    for queue, first in begins.items()}
            names = {queue.topic for queue in begins}
            rest = {queue: self._ends[queue] for queue in self._ends
                    if queue.topic in names and queue not in begins}
            frames.append(read(self._spark, cluster, subscribe=",".join(sorted(names)),
                               columns=SAMPLE_COLUMNS, **span(begins | rest, ends | rest)))
        if not frames:
            return self._spark.createDataFrame([], picked_by_names(SAMPLE_COLUMNS).ddl)
        found = frames[0]
        for frame in frames[1:]:
            found = found.unionByName(frame)
        return found

    def queues(self) -> list[dict[str, Any]]:
        """A row for each queue."""
        now_ms = time.time_ns() // 1_000_000
        return [row.asDict() for row in self._spark.sql(_QUEUES.format(now_ms=now_ms)).collect()]

    def hot(self, share: float) -> list[dict[str, Any]]:
        """Keys and tags that so large a share of what was looked at has."""
        return [row.asDict() for row in self._spark.sql(_HOT.format(
            count_min=HOT_COUNT_MIN, share=share, list_count=HOT_LIST_COUNT)).collect()]


@in_own_session
def lag(
    spark: Any, cluster: Cluster, *, groups: Sequence[str] = (), topics: Sequence[str] = (),
    checkpoints: Sequence[Path] = (), progress: Sequence[Progress] = (),
    lag_max: int | None = None, behind_max_s: float | None = None, skew: float = SKEW,
    hot_share: float = HOT_SHARE, sample: int = SAMPLE,
) -> Outcome:
    """
    The job.

    groups        consumer groups; none, and no query either: all that were ever online
    topics        of groups only these; none: all
    checkpoints   folders of streaming queries
    progress      of streaming queries, as `mqcore.spark.track` tells it
    lag_max       more messages than that, of a group or query and topic, are a mismatch
    behind_max_s  an oldest message that waits for longer is one, too
    skew          a queue that is behind so many times as far as the mean of others is skewed
    hot_share     of what was looked at, from which on a key or tag is hot
    sample        messages of each queue that are looked at, the oldest that wait
    Raises SparkSourceError, OptionError.
    """
    positions = [*map(of_checkpoint, checkpoints), *map(of_progress, progress)]
    try:
        if groups or not positions:
            positions += of_groups(checked(cluster), groups, topics)
        lags = Lags(spark, cluster, positions, sample)
        try:
            rows, hot = lags.queues(), lags.hot(hot_share)
        finally:
            lags.close()
    except RocketMQError as error:
        raise SparkSourceError(f"asking how far groups are: {error}") from None
    figures = _figures(rows, hot, skew)
    over = [one for one in figures["topics"]
            if (lag_max is not None and one["lag"] > lag_max)
            or (behind_max_s is not None and one["behindMs"] > behind_max_s * 1000)]
    return Outcome(EXIT_MISMATCH if over else EXIT_FINE, {**figures, "overLimit": [
        {"who": one["who"], "topic": one["topic"]} for one in over]})


def _figures(rows: list[dict[str, Any]], hot: list[dict[str, Any]], skew: float) -> dict[str, Any]:
    topics: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        who, topic = row.pop("who"), row.pop("topic")
        one = topics.setdefault((who, topic), {
            "who": who, "topic": topic, "lag": 0, "behindMs": 0, "bytes": 0, "lost": 0,
            "queues": [], "hot": []})
        one["behindMs"] = max(one["behindMs"], row["behindMs"])
        for name in ("lag", "bytes", "lost"):
            one[name] += row[name]
        one["queues"].append(row)
    for one in topics.values():
        for flag, name in (("isSkewed", "lag"), ("isWrittenMore", "written")):
            whole = sum(queue[name] for queue in one["queues"])
            for queue in one["queues"]:
                queue[flag] = _stands_out(queue[name], whole, len(one["queues"]), skew)
    for found in hot:
        topics[found["who"], found["topic"]]["hot"].append(
            {name: found[name] for name in ("what", "value", "count", "sampled", "share")})
    return {"lag": sum(one["lag"] for one in topics.values()),
            "skewed": sum(queue["isSkewed"] for one in topics.values() for queue in one["queues"]),
            "topics": list(topics.values())}


def _stands_out(mine: int, whole: int, queues: int, factor: float) -> bool:
    """Against the mean of the other queues."""
    return mine >= SKEW_LAG_MIN and queues > 1 and mine > factor * (whole - mine) / (queues - 1)


@click.command("lag")
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@cluster_options()
@click.option("--topic", "topics", multiple=True, help="Of groups only this; may be repeated.")
@click.option("--checkpoint", "checkpoints", multiple=True, metavar="PATH",
              type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Of a streaming query; may be repeated.")
@click.option("--lag-max", type=click.IntRange(0), metavar="N",
              help="More messages of a topic that wait are a mismatch.")
@click.option("--behind-max", "behind_max_s", metavar="TIME", callback=parsed(seconds),
              help="An oldest message that waits for longer is one, too, such as 10m.")
@click.option("--skew", type=click.FloatRange(1.0), default=SKEW, show_default=True,
              help="Times the mean of a topic's other queues, from which on a queue is skewed.")
@click.option("--hot", "hot_share", type=click.FloatRange(0, 1), default=HOT_SHARE,
              show_default=True, help="Share from which on a key or tag is hot.")
@click.option("--sample", type=click.IntRange(0, 100_000), default=SAMPLE, show_default=True,
              help="Messages of each queue that are looked at: the oldest that wait.")
@spark_options
def command(groups: tuple[str, ...], namesrv: str, source: dict[str, str], master: str,
            confs: dict[str, str], **options: Any) -> None:
    """
    How far groups (all, without GROUP) and streaming queries are behind, by queue.

    Exit status: 0 within the limits, 1 not, 2 not done.
    """
    run("lag", lambda spark: lag(spark, cluster_of(namesrv, source), groups=groups, **options),
        master=master, confs=confs)


if __name__ == "__main__":
    command()
