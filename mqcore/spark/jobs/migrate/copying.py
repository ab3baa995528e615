"""Rounds of copying: what the old cluster has now and the new one has not, as one batch each."""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mqcore.client.message import MessageQueue
from mqcore.spark.columns import BROKEN_BODY
from mqcore.spark.errors import SparkSourceError
from mqcore.spark.jobs.migrate.clusters import Cluster
from mqcore.spark.jobs.migrate.table import MigrationTable, Segment
from mqcore.spark.options import READ, ROCKETMQ, read_options
from mqcore.spark.topics.catalog import Offsets, catalog_of
from mqcore.spark.topics.copies import (
    ORIGIN_BODY,
    ORIGIN_BORN_HOST,
    ORIGIN_BROKER,
    ORIGIN_OFFSET,
    ORIGIN_QUEUE_ID,
    ORIGIN_STORE_TIME,
)
from mqcore.spark.topics.positions import nested, shown
from mqcore.spark.topics.stream import allotted

COPIED: Final = ("topic,brokerName,queueId,queueOffset,bornTimestamp,storeTimestamp,body,flag,"
                 "properties,reconsumeTimes,bornHost")

RAW: Final = "raw"


@dataclass
class Round:
    """What one round did: messages that were to be copied, and how many are left over."""

    messages: int
    left: int


class Copying:
    """Copies from one cluster to the other; the table says what is there."""

    def __init__(self, spark: Any, source: Cluster, target: Cluster, table: MigrationTable, *,
                 messages_max: int, sink: Mapping[str, str], broken: str) -> None:
        """
        spark         a session of its own
        messages_max  of a round
        sink          more options of the sink
        broken        of bodies that nobody can decompress: `fail`, or `raw`: they stay as they are
        """
        self._spark = spark
        self._spark.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
        self._source = source
        self._target = target
        self._table = table
        self._messages_max = messages_max
        self._sink = sink
        self._is_raw = broken == RAW

    def round(self, queues: list[MessageQueue], until: Offsets | None = None) -> Round:
        """
        Read back what is there, and copy what is missing; of `until` nothing beyond it.

        Raises SparkSourceError, RocketMQError, and what Spark says of a task that failed.
        """
        self.read_back(queues)
        begins, backlog = self._backlog(queues, until)
        if not backlog:
            return Round(0, 0)
        shares = allotted(backlog, self._messages_max)
        ends = {queue: begins[queue] + count for queue, count in shares.items() if count}
        self._write({queue: begins[queue] for queue in ends}, ends)
        self.read_back(list(ends))
        for queue, end in ends.items():
            if self._table.of(queue).end != end:
                raise SparkSourceError(f"{shown(self._table.target(queue))} does not hold all that"
                                       f" was copied, up to {end - 1} of {queue.broker_name}: do"
                                       " others delete from the new cluster? run again")
        return Round(sum(shares.values()), sum(backlog.values()) - sum(shares.values()))

    def ends(self, queues: list[MessageQueue]) -> Offsets:
        """Where the old queues end now. Raises RocketMQError."""
        with catalog_of(self._options(self._source)) as catalog:
            return catalog.ends(self._there(catalog, queues))

    def behind(self, queues: list[MessageQueue]) -> int:
        """How many messages of the old cluster are not copied. Raises RocketMQError."""
        return sum(self._backlog(queues, None)[1].values())

    def frames(self) -> tuple[Any, Any, Offsets]:
        """What was copied, on the old and the new cluster, and up to which old offsets."""
        from pyspark.sql.functions import coalesce

        copied = [queue for queue, one in self._table.queues.items() if one.segments]
        with catalog_of(self._options(self._source)) as catalog:
            first = catalog.begins(self._there(catalog, copied))
        maps = {queue: self._table.queues[queue] for queue in first}
        ends = {queue: max(part.end for part in one.segments) for queue, one in maps.items()}
        begins = {queue: min(max(first[queue], min(part.begin for part in one.segments)),
                             ends[queue]) for queue, one in maps.items()}
        target = self._table.target
        columns = (f"topic,brokerName,queueId,queueOffset,storeTimestamp,bornTimestamp,body,flag,"
                   f"tags,keys,properties,{BROKEN_BODY}")
        left, right = (
            frame.withColumn("body", coalesce("body", BROKEN_BODY)).drop(BROKEN_BODY) for frame in (
                self._read(self._source, begins, ends, columns),
                self._read(self._target,
                           {target(queue): min(part.target for part in one.segments)
                            for queue, one in maps.items()},
                           {target(queue): one.read_to for queue, one in maps.items()}, columns)))
        return left, right, ends

    # -- reading back -----------------------------------------------------------------------------

    def read_back(self, queues: list[MessageQueue]) -> None:
        """Let the table have what the new cluster holds of these queues (table M2)."""
        back = {self._table.target(queue): queue for queue in queues}
        with catalog_of(self._options(self._target)) as catalog:
            ends = catalog.ends(self._there(catalog, list(back)))
        begins = {target: self._table.of(back[target]).read_to for target in ends}
        for target, end in ends.items():
            if end < begins[target]:
                raise SparkSourceError(f"{shown(target)} ends at {end}, and had {begins[target]}:"
                                       " it was made anew; begin again with a fresh --state")
        begins = {target: offset for target, offset in begins.items() if offset < ends[target]}
        if not begins:
            return
        frame = self._read(self._target, begins, {target: ends[target] for target in begins},
                           "topic,brokerName,queueId,queueOffset,properties")
        frame.selectExpr(
            "topic", "brokerName", "queueId", "queueOffset",
            f"concat(properties['{ORIGIN_BROKER}'], ':', properties['{ORIGIN_QUEUE_ID}'])"
            " AS origin",
            f"cast(properties['{ORIGIN_OFFSET}'] AS bigint) AS place",
            f"properties['{ORIGIN_BODY}'] AS broken",
        ).createOrReplaceTempView("back")
        rows = self._spark.sql("""
            SELECT topic, brokerName, queueId, origin, MIN(queueOffset) AS target,
                   MIN(place) AS begin, COUNT(*) AS count, COUNT(broken) AS broken
            FROM (SELECT *, queueOffset - ROW_NUMBER() OVER (
                      PARTITION BY topic, brokerName, queueId, origin, place - queueOffset
                      ORDER BY queueOffset) AS island FROM back)
            GROUP BY topic, brokerName, queueId, origin, place - queueOffset, island""").collect()
        found: dict[MessageQueue, list[Segment]] = {}
        for row in rows:
            target = MessageQueue(row.topic, row.brokerName, row.queueId)
            queue = back[target]
            one = self._table.of(queue)
            if row.origin != f"{queue.broker_name}:{queue.queue_id}":
                one.foreign = row.target if one.foreign is None else min(one.foreign, row.target)
                continue
            one.broken += row.broken
            found.setdefault(queue, []).append(
                Segment(row.begin, row.begin + row["count"], row.target))
        for queue, segments in found.items():
            self._table.of(queue).add(segments)
        for target in begins:
            self._table.of(back[target]).read_to = ends[target]

    # -- copying ----------------------------------------------------------------------------------

    def _backlog(self, queues: list[MessageQueue], until: Offsets | None
                 ) -> tuple[Offsets, Offsets]:
        """Where copying goes on in each queue, and how many messages are to come."""
        with catalog_of(self._options(self._source)) as catalog:
            there = self._there(catalog, queues)
            first, last = catalog.begins(there), catalog.ends(there)
        begins: Offsets = {}
        for queue in there:
            one = self._table.of(queue)
            copied = one.end
            if copied is not None and last[queue] < copied:
                raise SparkSourceError(f"{shown(queue)} ends at {last[queue]}, and was copied up to"
                                       f" {copied}: it was made anew; delete the topic on the new"
                                       " cluster and begin with a fresh --state")
            begins[queue] = first[queue] if copied is None else max(copied, first[queue])
            one.expired = max(one.expired, sum(
                max(later.begin - before.end, 0) for before, later in
                zip(one.segments, one.segments[1:], strict=False))
                + (0 if copied is None else begins[queue] - copied))
        ends = last if until is None else {
            queue: min(end, until.get(queue, end)) for queue, end in last.items()}
        return begins, {queue: ends[queue] - begin for queue, begin in begins.items()
                        if ends[queue] > begin}

    def _write(self, begins: Offsets, ends: Offsets) -> None:
        cases = " ".join(f"WHEN '{old}' THEN '{new}'" for old, new in self._table.brokers.items())
        origin = ", ".join((
            f"'{ORIGIN_BROKER}', brokerName",
            f"'{ORIGIN_QUEUE_ID}', cast(queueId AS string)",
            f"'{ORIGIN_OFFSET}', cast(queueOffset AS string)",
            f"'{ORIGIN_STORE_TIME}', cast(unix_millis(storeTimestamp) AS string)",
            f"'{ORIGIN_BORN_HOST}', bornHost"))
        columns, more, marked = COPIED, [], ""
        if self._is_raw:
            columns, more = f"{COPIED},sysFlag,{BROKEN_BODY}", ["sysFlag", BROKEN_BODY]
            marked = f", IF({BROKEN_BODY} IS NULL, map(), map('{ORIGIN_BODY}', '{RAW}'))"
        rows = self._read(self._source, begins, ends, columns).selectExpr(
            "topic", f"CASE brokerName {cases} END AS brokerName", "queueId", "queueOffset",
            "bornTimestamp", "reconsumeTimes", "flag", "body", *more,
            f"map_concat(properties, map({origin}){marked}) AS properties")
        (rows.write.format("rocketmq").mode("append").options(**{
            **self._target.options, **self._sink, "copies": "true"}).save())

    def _read(self, cluster: Cluster, begins: Offsets, ends: Offsets, columns: str) -> Any:
        """Ranges of queues; one task reads one of them."""
        assigned: dict[str, dict[str, list[int]]] = {}
        for queue in begins:
            assigned.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(
                queue.queue_id)
        return self._spark.read.format("rocketmq").options(**{
            **cluster.options, "assign": json.dumps(assigned), "columns": columns,
            "startingOffsets": json.dumps(nested(begins)),
            "endingOffsets": json.dumps(nested(ends))}).load()

    def _there(self, catalog: Any, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Those that can be read now."""
        known = {queue for topic in {queue.topic for queue in queues}
                 for queue in catalog.queues(topic) or ()}
        return [queue for queue in queues if queue in known]

    def _options(self, cluster: Cluster) -> Any:
        return read_options(cluster.options, ROCKETMQ, READ, cluster.word)
