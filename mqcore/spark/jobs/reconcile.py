"""
The job `reconcile`: whether two places hold the same messages, by queue, content and last values.

Both sides are frames with the columns of topics. Rows become (queue, place, store time, hash),
which are kept while the job runs, so each side is read once. Blocks of places are compared by
count and hash; only those that differ are looked at message by message.
"""
from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import click

from mqcore.client.message import MessageQueue
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
from mqcore.spark.topics.copies import (
    ORIGIN_BROKER,
    ORIGIN_OFFSET,
    ORIGIN_PREFIX,
    ORIGIN_QUEUE_ID,
    ORIGIN_STORE_TIME,
)
from mqcore.spark.topics.positions import parse_offsets
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

# how many rows each side has of something; contents are the same where both others are 0
_SIDES: Final = """
    COUNT_IF(side = 0) AS l, COUNT_IF(side = 1) AS r, BIT_XOR(hash) AS mixed,
    SUM(IF(side = 0, SHIFTRIGHT(hash, 24), -SHIFTRIGHT(hash, 24))) AS added"""
# of the left side in a block: from where to where
_ENDS: Final = f"""
    MIN(IF(side = 0, place, NULL)) AS first, MAX(IF(side = 0, place, NULL)) AS last,
    SUM(IF(side = 0, place % {BLOCK}, NULL)) AS summed,
    SUM(IF(side = 0, (place % {BLOCK}) * (place % {BLOCK}), NULL)) AS squares"""
# ... and whether all between is there once: number, sum and sum of squares are those of a run
_IS_RUN: Final = f"""l = 0 OR l = last - first + 1
    AND 2 * summed = l * (first % {BLOCK} + last % {BLOCK})
    AND 6 * squares = (last % {BLOCK}) * (last % {BLOCK} + 1) * (2 * (last % {BLOCK}) + 1)
        - (first % {BLOCK}) * (first % {BLOCK} - 1) * (2 * (first % {BLOCK}) - 1)"""

Queue = tuple[Any, ...]             # topic, broker name, queue id; the last two are NULL by ids


def reconcile(
    left: Any, right: Any, *, by: str = OFFSET, since: int = 0,
    until: int | None = None, fence: Mapping[MessageQueue, int] | None = None, keys: bool = False,
) -> Outcome:
    """
    Compare two frames of messages; `left` is the one that is right.

    by     what says that two rows are the same message: OFFSET: topic, broker, queue and offset;
           ORIGIN: of the right side what `migrate` put into properties; ID: topic and msgId
    since  milliseconds since 1970: only what was stored (on the left side, if it is there) then
           or later
    until  only what was stored before it; None: a minute ago
    fence  only offsets below, of these queues; others are compared whole
    keys   compare the last value of each key, too
    Raises OptionError for frames without the columns that this takes, and for a fence by ids.
    """
    if fence and by == ID:
        raise OptionError("fence: expected none with by=id: ids have no offsets")
    comparison = _Comparison(left, right, by)
    until = time.time_ns() // 1_000_000 - round(SETTLE_S * 1000) if until is None else until
    try:
        comparison.read(since, until, fence or {}, keys=keys)
        queues = comparison.queues()
        wrong = any(queue[name] for queue in queues for name in WRONG)
        findings = comparison.findings() if wrong else []
        unplaced = comparison.unplaced
        # others may write into what messages are copied to
        wrong = wrong or bool(unplaced["left"] or (unplaced["right"] and by != ORIGIN))
        values = comparison.last_values() if keys else None
    finally:
        comparison.close()
    counts = {name: sum(queue[name] for queue in queues)
              for name in ("left", "right", *WRONG, "expired")}
    if by != ID:
        counts["gaps"] = sum(queue["gaps"] for queue in queues)
    wrong = wrong or (values is not None and bool(values["different"]))
    return Outcome(EXIT_MISMATCH if wrong else EXIT_FINE, {
        "by": by, "until": until, "compared": comparison.content, **counts, "unplaced": unplaced,
        "queues": queues, "findings": findings, **({} if values is None else {"keys": values})})


def _same_queue(one: str, other: str) -> str:
    """In SQL."""
    return (f"{one}.topic = {other}.topic AND {one}.brokerName <=> {other}.brokerName"
            f" AND {one}.queueId <=> {other}.queueId")


def _properties(kind: str) -> str:
    """As a map, in SQL; kind: of the column."""
    return "properties" if kind == MAP else f"from_json(properties, '{MAP}')"


class _Comparison:
    """
    Two frames as rows of places and hashes.

    content   the columns that are compared: of both sides
    unplaced  by `queues`: messages of each side that could not be compared, for they have no
              topic, place or store time
    """

    def __init__(self, left: Any, right: Any, by: str) -> None:
        self._spark = left.sparkSession
        self._frames = (left, right)
        self._by = by
        self._kept: list[Any] = []
        self._fence: Mapping[Queue, int] = {}
        self._views: dict[str, Any] = {}
        self.content = self._content()
        self.unplaced = {"left": 0, "right": 0}

    def close(self) -> None:
        """Let go of what is kept."""
        for frame in self._kept:
            frame.unpersist()

    def _keep(self, name: str, frame: Any) -> None:
        self._views[name] = frame.persist()
        self._kept.append(self._views[name])

    def _of_queues(self, names: str, rows: Iterable[tuple[Any, ...]]) -> Any:
        """A frame of (topic, brokerName, queueId) and values of each."""
        values = "".join(f", {name} bigint" for name in names.split())
        return local_rows(
            self._spark, rows, f"topic string, brokerName string, queueId int{values}")

    def _sql(self, text: str) -> Any:
        """A query of frames that have names here, as in `FROM {kept}`."""
        return self._spark.sql(text, **self._views)

    # -- reading ----------------------------------------------------------------------------------

    def read(self, since: int, until: int, fence: Mapping[MessageQueue, int], *, keys: bool
             ) -> None:
        """Both sides, once."""
        left, right = (
            self._rows(given, side, keys).selectExpr(
                "*", f"storeMs >= {since} AND storeMs < {until} AS isWithin")
            for side, given in enumerate(self._frames))
        frame = left.unionByName(right)
        if self._by == ID:
            self._keep("read", frame)
            frame = self._chosen_by_ids(frame)
        else:
            frame = frame.where("COALESCE(isWithin, TRUE)")
        self._views["kept"] = frame
        self._fence = {(queue.topic, queue.broker_name, queue.queue_id): offset
                       for queue, offset in fence.items()}
        if fence:
            self._views["fences"] = self._of_queues(
                "fence", [(*queue, offset) for queue, offset in self._fence.items()])
            self._views["kept"] = self._sql(f"""
                SELECT e.* FROM {{kept}} e LEFT JOIN {{fences}} f ON {_same_queue("e", "f")}
                WHERE f.fence IS NULL OR e.place < f.fence""")
        self._keep("kept", self._views["kept"])
        ends, is_run = ("", "TRUE") if self._by == ID else (f", {_ENDS}", _IS_RUN)
        self._keep("blocks", self._sql(f"""
            SELECT *, topic IS NOT NULL
                AND (l <> r OR mixed <> 0 OR added <> 0) AS isDifferent,
                {is_run} AS isRun
            FROM (SELECT topic, brokerName, queueId, block, {_SIDES}{ends},
                         MIN(IF(side = 0, storeMs, NULL)) AS firstMs,
                         BIT_XOR(IF(side = 0, hash, 0L)) AS content
                  FROM {{kept}} GROUP BY topic, brokerName, queueId, block)"""))

    def _chosen_by_ids(self, frame: Any) -> Any:
        """
        Ids have a store time on each side.

        All rows of an id are compared when one of the left side is of the time asked for; those
        of an id that the left side does not have, when they are of it themselves.
        """
        if frame.where("NOT isWithin").isEmpty():
            return frame
        return self._sql("""
            SELECT r.* FROM {read} r LEFT JOIN (
                SELECT topic, place, MAX(isWithin) AS isChosen FROM {read}
                WHERE side = 0 AND topic IS NOT NULL GROUP BY topic, place) l
            ON r.topic = l.topic AND r.place = l.place
            WHERE COALESCE(isChosen, isWithin, TRUE)""")

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

    def _rows(self, frame: Any, side: int, keys: bool) -> Any:
        """A side's rows: where a message is, when it was stored, what it is."""
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        properties = _properties(kinds.get("properties", MAP))
        store_ms = "unix_millis(storeTimestamp)"
        topic, broker, queue, place = "topic", "brokerName", "queueId", "queueOffset"
        if self._by == ORIGIN and side == 1:        # whoever sends may write anything there
            topic = f"coalesce({properties}['{ORIGIN_TOPIC}'], topic)"
            broker = f"{properties}['{ORIGIN_BROKER}']"
            queue = f"try_cast({properties}['{ORIGIN_QUEUE_ID}'] AS int)"
            place = (f"IF({broker} IS NULL OR {queue} IS NULL, NULL,"
                     f" try_cast({properties}['{ORIGIN_OFFSET}'] AS bigint))")
            store_ms = f"try_cast({properties}['{ORIGIN_STORE_TIME}'] AS bigint)"
        block = f"place DIV {BLOCK}"
        if self._by == ID:
            broker, queue, place = "cast(NULL AS string)", "cast(NULL AS int)", "msgId"
            block = f"pmod(xxhash64(place), {BUCKETS})"
        rows = frame.selectExpr(
            f"{topic} AS topic", f"{broker} AS brokerName", f"{queue} AS queueId",
            f"{place} AS place", f"{store_ms} AS storeMs",
            f"xxhash64({', '.join(self._told_apart(name, kinds[name]) for name in self.content)})"
            " AS content", *(["keys", "xxhash64(body) AS value"] if keys else []))
        is_placed = "topic IS NOT NULL AND place IS NOT NULL AND storeMs IS NOT NULL"
        return rows.selectExpr(
            f"{side} AS side",
            *(f"IF({is_placed}, {value}, NULL) AS {name}" for name, value in (
                ("topic", "topic"), ("brokerName", "brokerName"), ("queueId", "queueId"),
                ("place", "place"), ("block", block))),
            "storeMs", "xxhash64(place, content) AS hash", *(["keys", "value"] if keys else []))

    def _told_apart(self, name: str, kind: str) -> str:
        """
        A column as what is hashed of it.

        A hash of columns passes over NULL, and a list is its items: without saying which is
        which, a value in the next column, or a key that is a property, makes the same hash.
        """
        if name == "properties":
            left_out = (CLUSTER,) if self._by == OFFSET else (CLUSTER, *_INSTRUCTIONS)
            own = ", ".join(f"'{one}'" for one in left_out)
            all_of = _properties(kind)
            entries = (f"array_sort(map_entries(map_filter({all_of}, (k, v) -> k NOT IN ({own})"
                       f" AND NOT startswith(k, '{ORIGIN_PREFIX}'))))")
            # what is no JSON is compared as it is
            unread = ("cast(NULL AS string)" if kind == MAP
                      else f"IF({all_of} IS NULL, properties, NULL)")
            return (f"coalesce(size({entries}), -1),"
                    f" transform({entries}, e -> struct(e.key, e.value IS NULL, e.value)),"
                    f" {unread} IS NULL, {unread}")
        if kind.startswith("array<"):
            return f"coalesce(size({name}), -1), transform({name}, e -> struct(e IS NULL, e))"
        return f"{name} IS NULL, {name}"

    # -- what it comes to -------------------------------------------------------------------------

    def queues(self) -> list[dict[str, Any]]:
        """
        Of each queue (each topic, by ids): counts, hash of the left side, what is wrong.

        What is wrong in a queue is looked for where blocks of it differ, and else not at all.
        """
        ends = "NULL AS begin, NULL AS last" if self._by == ID else (
            "MIN(first) AS begin, MAX(last) AS last")
        rows = self._sql(f"""
            SELECT topic, brokerName, queueId, SUM(l) AS left, SUM(r) AS right,
                BIT_XOR(content) AS content, {ends}, MIN(firstMs) AS beginMs,
                COUNT_IF(isDifferent) AS different, SUM(IF(isRun, l, 0L)) AS inRuns,
                COUNT_IF(NOT isRun) AS broken
            FROM {{blocks}} GROUP BY topic, brokerName, queueId""").collect()
        for row in rows:
            if row.topic is None:
                self.unplaced = {"left": row.left, "right": row.right}
        rows = sorted((row for row in rows if row.topic is not None), key=lambda row: (
            row.topic, row.brokerName or "", row.queueId or 0))
        if self._by != ID:
            self._views["firsts"] = self._of_queues("begin beginMs", self._firsts(rows))
        wrong = self._wrong() if any(row.different for row in rows) else {}
        others = self._others() if any(row.broken for row in rows) else {}
        found = []
        for row in rows:
            lacks = dict(zip((*WRONG, "expired"), wrong.get(row[:3], (0,) * 5), strict=True))
            queue = {} if self._by == ID else {
                "brokerName": row.brokerName, "queueId": row.queueId}
            gaps = {} if self._by == ID else {
                "gaps": row.left and row.last - row.begin + 1 - row.inRuns - others.get(row[:3], 0)}
            found.append({"topic": row.topic, **queue, "left": row.left, "right": row.right,
                          **lacks, **gaps, "hash": f"{row.content & ((1 << 64) - 1):016x}"})
        return found

    def _firsts(self, rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """
        Where each queue of the left side begins: an offset, or a store time.

        A queue of which the left side has nothing begins at its fence, or when the first message
        stored that the left side has of its broker: brokers delete the oldest of all queues. With
        neither, nothing says that it ever was there.
        """
        of_brokers: dict[str | None, int] = {}
        for row in rows:
            if row.beginMs is not None:
                of_brokers[row.brokerName] = min(
                    row.beginMs, of_brokers.get(row.brokerName, row.beginMs))
        for row in rows:
            begin = self._fence.get(row[:3]) if row.begin is None else row.begin
            yield *row[:3], begin, of_brokers.get(row.brokerName)

    def _others(self) -> dict[Queue, int]:
        """How many places the left side has in blocks that are no runs."""
        rows = self._sql(f"""
            SELECT topic, brokerName, queueId, COUNT(DISTINCT place)
            FROM {{kept}} k
            LEFT SEMI JOIN (SELECT * FROM {{blocks}} WHERE NOT isRun) b
                ON {_same_queue("k", "b")} AND k.block = b.block
            WHERE side = 0 GROUP BY topic, brokerName, queueId""").collect()
        return {row[:3]: row[3] for row in rows}

    def _wrong(self) -> dict[Queue, tuple[int, ...]]:
        """How much of WRONG, and what has expired; the places themselves are kept."""
        expired, begins = "FALSE", ""
        if self._by != ID:
            expired = "l = 0 AND COALESCE(place < begin, storeMs < beginMs, FALSE)"
            begins = f"LEFT JOIN {{firsts}} f ON {_same_queue('p', 'f')}"
        self._keep("places", self._sql(f"""
            SELECT *, CASE WHEN isExpired THEN NULL WHEN r < l THEN 'lost' WHEN l = 0 THEN 'extra'
                WHEN r > l THEN 'duplicate' WHEN mixed <> 0 OR added <> 0 THEN 'changed'
                END AS kind
            FROM (SELECT p.*, {expired} AS isExpired
                  FROM (SELECT topic, brokerName, queueId, place, {_SIDES},
                               MAX(storeMs) AS storeMs
                        FROM {{kept}} k
                        LEFT SEMI JOIN (SELECT * FROM {{blocks}} WHERE isDifferent) d
                            ON {_same_queue("k", "d")} AND k.block = d.block
                        GROUP BY topic, brokerName, queueId, place) p {begins})"""))
        rows = self._sql("""
            SELECT topic, brokerName, queueId, SUM(IF(kind = 'lost', l - r, 0)),
                SUM(IF(kind = 'extra', r, 0)), SUM(IF(kind = 'duplicate', r - l, 0)),
                SUM(IF(kind = 'changed', 1, 0)), SUM(IF(isExpired, r, 0))
            FROM {places} GROUP BY topic, brokerName, queueId""").collect()
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
                SELECT kind, topic, brokerName, queueId, begin, last FROM (
                    SELECT *, ROW_NUMBER() OVER (
                        PARTITION BY kind ORDER BY topic, brokerName, queueId, begin) AS number
                    FROM (SELECT kind, topic, brokerName, queueId, MIN(place) AS begin,
                                 MAX(place) AS last
                          FROM (SELECT *, cast(place AS decimal(20, 0)) - ROW_NUMBER() OVER (
                                    PARTITION BY kind, topic, brokerName, queueId ORDER BY place)
                                    AS island
                                FROM {{places}} WHERE kind IS NOT NULL)
                          GROUP BY kind, topic, brokerName, queueId, island))
                WHERE number <= {FINDINGS_OF_A_KIND}""").collect()
        rows.sort(key=lambda row: [(value is not None, value) for value in row])
        found = [row.asDict() for row in rows]
        for one in found:
            if self._by != ID:
                one["end"] = one.pop("last") + 1
        return found

    def last_values(self) -> dict[str, Any]:
        """How many keys there are, and those whose last value is not the same on both sides."""
        rows = "{kept} k WHERE topic IS NOT NULL"
        if self._by != ID:
            rows = f"""{{kept}} k JOIN {{firsts}} f ON {_same_queue("k", "f")}
                WHERE side = 0 OR COALESCE(place >= begin, storeMs >= beginMs, TRUE)"""
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
