"""
The job `reconcile`: whether two places hold the same messages, by queue, content and last values.

Both sides are frames with the columns of topics. Rows become (queue, place, store time, hash),
which are kept while the job runs, so each side is read once. Blocks of places are compared by
count and hash; only those that differ are looked at message by message.
"""
from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from mqcore.client.message import MessageQueue
from mqcore.spark.broker.copies import (
    ORIGIN_BROKER,
    ORIGIN_OFFSET,
    ORIGIN_PREFIX,
    ORIGIN_QUEUE_ID,
    ORIGIN_STORE_TIME,
)
from mqcore.spark.broker.positions import parse_offsets
from mqcore.spark.columns import MAP
from mqcore.spark.errors import OptionError
from mqcore.spark.jobs.cluster import parsed
from mqcore.spark.jobs.frame import (
    EXIT_FINE,
    EXIT_MISMATCH,
    Outcome,
    run,
    seconds_of,
    settings,
    spark_options,
)
from mqcore.spark.options import moment
from mqcore.spark.session import local_rows
from mqcore.wire.properties import CLUSTER, DELAY, TRANSACTION_PREPARED, WAIT

OFFSET, ORIGIN, ID = "offset", "origin", "id"
BLOCK: Final = 65_536               # places that are compared at once
BUCKETS: Final = 4_096              # the same of ids
SETTLE_S: Final = 60.0
WRONG: Final = ("lost", "extra", "duplicates", "changed")
FINDINGS_OF_A_KIND: Final = 48      # of each kind
COLUMNS_READ: Final = (
    "topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "body", "flag", "tags",
    "keys", "properties", "msgId", "bornTimestamp")
CONTENT: Final = {                  # what has to be the same, by what places are told by
    OFFSET: ("body", "flag", "tags", "keys", "properties", "bornTimestamp"),
    ORIGIN: ("body", "flag", "tags", "keys", "properties", "bornTimestamp"),
    ID: ("body", "flag", "tags", "keys", "properties"),
}
ORIGIN_TOPIC: Final = f"{ORIGIN_PREFIX}TOPIC"               # replays say it
_INSTRUCTIONS = (DELAY, WAIT, TRANSACTION_PREPARED)         # to brokers, which some take out

Queue = tuple[Any, ...]             # topic, broker name, queue id; the last two are NULL by ids


def reconcile(
    left: Any, right: Any, *, by: str = OFFSET, since: int = 0,
    until: int | None = None, fence: Mapping[MessageQueue, int] | None = None, keys: bool = False,
) -> Outcome:
    """
    Compare two frames of messages; `left` is the one that is right.

    by     what says that two rows are the same message: OFFSET: topic, broker, queue and offset;
           ORIGIN: of the right side what `migrate` put into properties; ID: topic and msgId
    since  milliseconds since 1970: only what was stored (at the origin) then or later
    until  only what was stored before it; None: a minute ago
    fence  only offsets below, of these queues; others are compared whole
    keys   compare the last value of each key, too
    Raises OptionError for frames without the columns that this takes.
    """
    comparison = _Comparison(left, right, by)
    until = time.time_ns() // 1_000_000 - round(SETTLE_S * 1000) if until is None else until
    try:
        comparison.read(since, until, fence or {}, keys=keys)
        queues = comparison.queues()
        wrong = any(queue[name] for queue in queues for name in WRONG)
        findings = comparison.findings() if wrong else []
        values = comparison.last_values() if keys else None
    finally:
        comparison.close()
    counts = {name: sum(queue[name] for queue in queues)
              for name in ("left", "right", *WRONG, "expired")}
    if by != ID:
        counts["gaps"] = sum(queue["gaps"] for queue in queues)
    wrong = wrong or (values is not None and bool(values["different"]))
    return Outcome(EXIT_MISMATCH if wrong else EXIT_FINE, {
        "by": by, "until": until, **counts, "queues": queues, "findings": findings,
        **({} if values is None else {"keys": values})})


def _same_queue(one: str, other: str) -> str:
    """In SQL."""
    return (f"{one}.topic = {other}.topic AND {one}.brokerName <=> {other}.brokerName"
            f" AND {one}.queueId <=> {other}.queueId")


class _Comparison:
    """Two frames as rows of places and hashes."""

    def __init__(self, left: Any, right: Any, by: str) -> None:
        self._spark = left.sparkSession
        self._frames = (left, right)
        self._by = by
        self._kept: list[Any] = []
        self._begins: dict[Queue, int] = {}         # of the left side, where it has messages
        self._views: dict[str, Any] = {}

    def close(self) -> None:
        """Let go of what is kept."""
        for frame in self._kept:
            frame.unpersist()

    def _keep(self, name: str, frame: Any) -> None:
        self._views[name] = frame.persist()
        self._kept.append(self._views[name])

    def _of_queues(self, name: str, values: Mapping[Queue, Any]) -> Any:
        """A frame of (topic, brokerName, queueId) and a value of each."""
        return local_rows(self._spark, [(*queue, value) for queue, value in values.items()],
                          f"topic string, brokerName string, queueId int, {name} bigint")

    def _sql(self, text: str) -> Any:
        """A query of frames that have names here, as in `FROM {kept}`."""
        return self._spark.sql(text, **self._views)

    # -- reading ----------------------------------------------------------------------------------

    def read(self, since: int, until: int, fence: Mapping[MessageQueue, int], *, keys: bool
             ) -> None:
        """Both sides, once."""
        content = self._content()
        frame = None
        for side, given in enumerate(self._frames):
            rows = self._rows(given, side, content, keys).where(
                f"storeMs >= {since} AND storeMs < {until}")
            frame = rows if frame is None else frame.unionByName(rows)
        self._views["kept"] = frame
        if fence:
            self._views["fences"] = self._of_queues("fence", {
                (queue.topic, queue.broker_name, queue.queue_id): offset
                for queue, offset in fence.items()})
            self._views["kept"] = self._sql(f"""
                SELECT e.* FROM {{kept}} e LEFT JOIN {{fences}} f ON {_same_queue("e", "f")}
                WHERE f.fence IS NULL OR e.place < f.fence""")
        self._keep("kept", self._views["kept"])
        sides = ", ".join(f"""
            COUNT_IF(side = {side}) AS {name}Count,
            COALESCE(BIT_XOR(IF(side = {side}, hash, NULL)), 0L) AS {name}Mixed,
            SUM(IF(side = {side}, SHIFTRIGHT(hash, 24), 0L)) AS {name}Added"""
                          for side, name in enumerate(("l", "r")))
        self._keep("blocks", self._sql(f"""
            SELECT *, lCount <> rCount OR lMixed <> rMixed OR lAdded <> rAdded AS isDifferent
            FROM (SELECT topic, brokerName, queueId, block, {sides},
                         MIN(IF(side = 0, place, NULL)) AS first,
                         MAX(IF(side = 0, place, NULL)) AS last
                  FROM {{kept}} GROUP BY ALL)"""))

    def _content(self) -> list[str]:
        """The columns that both sides have, of those that have to be the same."""
        kinds = [{field.name: field.dataType.simpleString() for field in frame.schema.fields}
                 for frame in self._frames]
        for side, known in zip(("left", "right"), kinds, strict=True):
            missing = [name for name in self._needed(side) if name not in known]
            if missing:
                raise OptionError(f"the {side} side has no column {missing[0]}: expected the"
                                  f" columns of topics, at least {', '.join(self._needed(side))}")
        both = [name for name in CONTENT[self._by] if all(name in known for known in kinds)]
        for name in both:
            if name != "properties" and kinds[0][name] != kinds[1][name]:
                raise OptionError(f"column {name} is {kinds[0][name]} on the left side, and"
                                  f" {kinds[1][name]} on the right: expected the same")
        return both

    def _needed(self, side: str) -> tuple[str, ...]:
        if self._by == ID:
            return "topic", "msgId", "storeTimestamp", "body"
        if self._by == ORIGIN and side == "right":
            return "topic", "properties", "body"
        return "topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "body"

    def _rows(self, frame: Any, side: int, content: list[str], keys: bool) -> Any:
        """A side's rows: where a message is, when it was stored, what it is."""
        properties = "properties"
        if "properties" in frame.columns and frame.schema["properties"].dataType.simpleString(
                ) != MAP:
            properties = f"from_json(properties, '{MAP}')"
        left_out = (CLUSTER,) if self._by == OFFSET else (CLUSTER, *_INSTRUCTIONS)
        own = ", ".join(f"'{name}'" for name in left_out)
        shown = {"properties": "array_sort(map_entries(map_filter("
                               f"{properties}, (k, v) -> k NOT IN ({own})"
                               f" AND NOT startswith(k, '{ORIGIN_PREFIX}'))))"}
        hashed = ", ".join(shown.get(name, name) for name in content)
        store_ms = "unix_millis(storeTimestamp)"
        topic, broker, queue, place = "topic", "brokerName", "queueId", "queueOffset"
        if self._by == ORIGIN and side == 1:
            topic = f"coalesce({properties}['{ORIGIN_TOPIC}'], topic)"
            broker = f"{properties}['{ORIGIN_BROKER}']"
            queue = f"cast({properties}['{ORIGIN_QUEUE_ID}'] AS int)"
            place = f"cast({properties}['{ORIGIN_OFFSET}'] AS bigint)"
            store_ms = f"cast({properties}['{ORIGIN_STORE_TIME}'] AS bigint)"
        block = f"{place} DIV {BLOCK}"
        if self._by == ID:
            broker, queue, place = "cast(NULL AS string)", "cast(NULL AS int)", "msgId"
            block = f"pmod(xxhash64(msgId), {BUCKETS})"
        values = ["keys", "xxhash64(body) AS value"] if keys else []
        rows = frame.selectExpr(
            f"{side} AS side", f"{topic} AS topic", f"{broker} AS brokerName",
            f"{queue} AS queueId",
            f"{place} AS place", f"{block} AS block", f"{store_ms} AS storeMs",
            f"xxhash64({place}, {hashed}) AS hash", *values)
        return rows.where("place IS NOT NULL")

    # -- what it comes to -------------------------------------------------------------------------

    def queues(self) -> list[dict[str, Any]]:
        """
        Of each queue (each topic, by ids): counts, hash of the left side, what is wrong.

        What is wrong in a queue is looked for where blocks of it differ, and else not at all.
        """
        gaps = "0L" if self._by == ID else "GREATEST(MAX(last) - MIN(first) + 1 - SUM(lCount), 0)"
        first = "NULL" if self._by == ID else "MIN(first)"
        rows = self._sql(f"""
            SELECT topic, brokerName, queueId, SUM(lCount) AS left, SUM(rCount) AS right,
                BIT_XOR(lMixed) AS mixed, COALESCE({gaps}, 0L) AS gaps,
                {first} AS begin, COUNT_IF(isDifferent) AS different
            FROM {{blocks}} GROUP BY ALL""").collect()
        rows.sort(key=lambda row: (row.topic, row.brokerName or "", row.queueId or 0))
        self._begins = {row[:3]: row.begin for row in rows if row.begin is not None}
        wrong = self._wrong() if any(row.different for row in rows) else {}
        found = []
        for row in rows:
            lacks = dict(zip((*WRONG, "expired"), wrong.get(row[:3], (0,) * 5), strict=True))
            found.append({"topic": row.topic, "brokerName": row.brokerName, "queueId": row.queueId,
                          "left": row.left, "right": row.right, **lacks, "gaps": row.gaps,
                          "hash": f"{row.mixed & ((1 << 64) - 1):016x}"})
            if self._by == ID:
                for name in ("brokerName", "queueId", "gaps"):
                    del found[-1][name]
        return found

    def _wrong(self) -> dict[Queue, tuple[int, ...]]:
        """How much of WRONG, and what has expired; the places themselves are kept."""
        expired, begins = "FALSE", ""
        if self._by != ID:
            self._views["firsts"] = self._of_queues("begin", self._begins)
            expired = "l = 0 AND (begin IS NULL OR place < begin)"
            begins = f"LEFT JOIN {{firsts}} f ON {_same_queue('p', 'f')}"
        self._keep("places", self._sql(f"""
            SELECT *, CASE WHEN isExpired THEN NULL WHEN r < l THEN 'lost' WHEN l = 0 THEN 'extra'
                WHEN r > l THEN 'duplicate' WHEN lHash <> rHash THEN 'changed' END AS kind
            FROM (SELECT p.*, {expired} AS isExpired
                  FROM (SELECT topic, brokerName, queueId, place, COUNT_IF(side = 0) AS l,
                               COUNT_IF(side = 1) AS r, MIN(IF(side = 0, hash, NULL)) AS lHash,
                               MIN(IF(side = 1, hash, NULL)) AS rHash
                        FROM {{kept}} k
                        LEFT SEMI JOIN (SELECT * FROM {{blocks}} WHERE isDifferent) d
                            ON {_same_queue("k", "d")} AND k.block = d.block
                        GROUP BY ALL) p {begins})"""))
        rows = self._sql("""
            SELECT topic, brokerName, queueId, SUM(IF(kind = 'lost', l - r, 0)),
                SUM(IF(kind = 'extra', r, 0)), SUM(IF(kind = 'duplicate', r - l, 0)),
                SUM(IF(kind = 'changed', 1, 0)), SUM(IF(isExpired, r, 0))
            FROM {places} GROUP BY ALL""").collect()
        return {row[:3]: row[3:] for row in rows}

    def findings(self) -> list[dict[str, Any]]:
        """Which messages are lost, too many or not the same: the first of each kind, in runs."""
        if self._by == ID:
            rows = self._sql(f"""
                SELECT kind, topic, place AS msgId FROM (
                    SELECT *, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY topic, place) AS number
                    FROM {{places}} WHERE kind IS NOT NULL)
                WHERE number <= {FINDINGS_OF_A_KIND}""").collect()
        else:
            rows = self._sql(f"""
                SELECT kind, topic, brokerName, queueId, begin, end FROM (
                    SELECT *, ROW_NUMBER() OVER (
                        PARTITION BY kind ORDER BY topic, brokerName, queueId, begin) AS number
                    FROM (SELECT kind, topic, brokerName, queueId, MIN(place) AS begin,
                                 MAX(place) + 1 AS end
                          FROM (SELECT *, place - ROW_NUMBER() OVER (
                                    PARTITION BY kind, topic, brokerName, queueId ORDER BY place)
                                    AS island
                                FROM {{places}} WHERE kind IS NOT NULL)
                          GROUP BY kind, topic, brokerName, queueId, island))
                WHERE number <= {FINDINGS_OF_A_KIND}""").collect()
        rows.sort(key=lambda row: [(value is not None, value) for value in row])
        return [row.asDict() for row in rows]

    def last_values(self) -> dict[str, Any]:
        """How many keys there are, and those whose last value is not the same on both sides."""
        rows = "{kept} k"
        if self._by != ID:
            self._views["firsts"] = self._of_queues("begin", self._begins)
            rows = f"""{{kept}} k LEFT JOIN {{firsts}} f ON {_same_queue("k", "f")}
                WHERE side = 0 OR place >= begin"""
        self._views["values"] = self._sql(f"""
            SELECT topic, key, MAX_BY(IF(side = 0, value, NULL), IF(side = 0, at, NULL)) AS l,
                   MAX_BY(IF(side = 1, value, NULL), IF(side = 1, at, NULL)) AS r
            FROM (SELECT k.topic, side, value, explode(keys) AS key,
                         struct(storeMs, k.brokerName, k.queueId, place) AS at
                  FROM {rows})
            GROUP BY topic, key""")
        row = self._sql(
            "SELECT COUNT(*) AS all, COUNT_IF(NOT l <=> r) AS wrong FROM {values}").first()
        which = self._sql(f"""
            SELECT topic, key FROM {{values}} WHERE NOT l <=> r ORDER BY topic, key
            LIMIT {FINDINGS_OF_A_KIND}""").collect() if row["wrong"] else []
        return {"count": row["all"], "different": row["wrong"],
                "findings": [one.asDict() for one in which]}


# -- the command -----------------------------------------------------------------------------------


def read_side(spark: Any, given: str, options: Mapping[str, str]) -> Any:
    """
    The frame of `--left` or `--right`: `FORMAT`, or `FORMAT:PATH`, with the reader's options.

    Of the source rocketmq only the columns that are compared are read, unless options say others.
    """
    name, _, path = given.partition(":")
    if name == "rocketmq" and not any(key.lower() == "columns" for key in options):
        options = {**options, "columns": ",".join(COLUMNS_READ)}
    reader = spark.read.format(name).options(**options)
    return reader.load(path) if path else reader.load()


def _fence(_ctx: click.Context, _param: click.Parameter, value: str | None
           ) -> dict[MessageQueue, int]:
    try:
        return {} if value is None else parse_offsets("--fence", value)
    except OptionError as error:
        raise click.BadParameter(str(error)) from None


@click.command("reconcile")
@click.option("--left", required=True, metavar="FORMAT[:PATH]",
              help="What is right: rocketmq, or a table such as parquet:/lake/orders.")
@click.option("--left-option", "left_options", multiple=True, callback=settings,
              metavar="NAME=VALUE", help="Of the left side's reader; may be repeated.")
@click.option("--right", required=True, metavar="FORMAT[:PATH]", help="What is compared with it.")
@click.option("--right-option", "right_options", multiple=True, callback=settings,
              metavar="NAME=VALUE", help="Of the right side's reader; may be repeated.")
@click.option("--by", type=click.Choice([OFFSET, ORIGIN, ID]), default=OFFSET, show_default=True,
              help="What tells messages apart: their place; of the right side the place where it"
              " was copied from; or their id.")
@click.option("--since", callback=parsed(moment), metavar="TIME",
              help="Only what was stored then or later.")
@click.option("--until", callback=parsed(moment), metavar="TIME",
              help="Only what was stored before it [default: --settle ago].")
@click.option("--settle", callback=seconds_of, default="60s", show_default=True, metavar="TIME",
              help="How long a message may take to the right side.")
@click.option("--fence", callback=_fence, metavar="JSON",
              help='Only offsets below: {"topic":{"broker-a":{"0":123}}}.')
@click.option("--keys", is_flag=True, help="Compare the last value of each key, too.")
@spark_options
def command(
    left: str, left_options: dict[str, str], right: str, right_options: dict[str, str], by: str,
    since: int | None, until: int | None, settle: float, fence: dict[MessageQueue, int],
    keys: bool, master: str, confs: dict[str, str],
) -> None:
    """
    Compare two places that should hold the same messages: a topic, a lake's table, a cluster.

    Exit status: 0 the same; 1 not; 2 not compared.
    """
    if until is None:
        until = time.time_ns() // 1_000_000 - round(settle * 1000)
    run("reconcile", lambda spark: reconcile(
        read_side(spark, left, left_options), read_side(spark, right, right_options), by=by,
        since=since or 0, until=until, fence=fence, keys=keys), master=master, confs=confs)


if __name__ == "__main__":
    command()
