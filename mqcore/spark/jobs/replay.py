"""
The job `replay`: messages of a table to a topic, each once, each queue in its order.

What is chosen is written down before the first message is sent: queues, their offsets, and which
queue of the target each goes to. It is sent in steps, ranges of offsets. A step that is done is
written down; the one that was under way is sent again under the same identity, by which the sink
finds what is stored.
"""
from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from mqcore.client.errors import RocketMQError
from mqcore.spark.errors import OptionError, SparkSourceError
from mqcore.spark.jobs.cluster import parsed
from mqcore.spark.jobs.frame import Outcome, run, settings, spark_options
from mqcore.spark.lake.opening import existing, open_table, read_lake
from mqcore.spark.options import ROCKETMQ, WRITE, Options, moment, read_options
from mqcore.spark.session import local_rows, own_session
from mqcore.spark.topics.catalog import Offsets, catalog_of
from mqcore.spark.topics.positions import parse_offsets
from mqcore.spark.topics.source import NAME as ROCKETMQ_NAME
from mqcore.spark.whole_files import put_once

FOLDER: Final = "_mqcore_replay"        # below the table's: plans, by the replay's name
PLAN: Final = "plan.json"
VERSION: Final = 1
STEP_ROWS: Final = 5_000_000
REQUEST_ROWS: Final = 512
BURST_S: Final = 0.25                   # of a limited rate, that one request may take
ARROW_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Properties that say where a message comes from, and the expressions of their values.
ORIGIN: Final = {
    "MQCORE_ORIGIN_TOPIC": "topic",
    "MQCORE_ORIGIN_BROKER": "brokerName",
    "MQCORE_ORIGIN_QUEUE_ID": "cast(queueId AS string)",
    "MQCORE_ORIGIN_OFFSET": "cast(queueOffset AS string)",
    "MQCORE_ORIGIN_STORE_TIME": "cast(unix_millis(storeTimestamp) AS string)",
    "MQCORE_ORIGIN_MESSAGE_ID": "coalesce(msgId, '')",
}

log = logging.getLogger("mqcore.spark")


@dataclass(frozen=True)
class Choice:
    """
    Which messages: all of these hold.

    topics            of these; empty: of all
    begin_ms, end_ms  stored from then on, and before then
    begins, ends      JSON by topic, broker and queue: offsets from, and below; other queues are
                      left out
    keys              with one of these keys; empty: whatever keys
    where             SQL over the table's columns
    """

    topics: tuple[str, ...] = ()
    begin_ms: int | None = None
    end_ms: int | None = None
    begins: str | None = None
    ends: str | None = None
    keys: tuple[str, ...] = ()
    where: str | None = None

    def of(self, frame: Any) -> Any:
        """The rows of a table's frame that are chosen. Raises OptionError."""
        from pyspark.errors import AnalysisException, ParseException

        frame = frame.where("gapEnd IS NULL") if "gapEnd" in frame.columns else frame
        if self.topics:
            frame = frame.where(frame.topic.isin(list(self.topics)))
        if self.begin_ms is not None:
            frame = frame.where(f"storeTimestamp >= timestamp_millis({self.begin_ms})")
        if self.end_ms is not None:
            frame = frame.where(f"storeTimestamp < timestamp_millis({self.end_ms})")
        if self.begins is not None:
            frame = frame.where(_bounded(frame, parse_offsets("begins", self.begins), is_end=False))
        if self.ends is not None:
            frame = frame.where(_bounded(frame, parse_offsets("ends", self.ends), is_end=True))
        if self.keys:
            from pyspark.sql.functions import array, arrays_overlap, lit

            frame = frame.where(arrays_overlap(frame["keys"], array(*map(lit, self.keys))))
        if self.where is not None:
            try:
                frame = frame.where(self.where)
            except (AnalysisException, ParseException) as error:
                said = str(error).strip().splitlines()[0]
                raise OptionError(f"where {self.where!r}: {said}") from None
        return frame


def _bounded(frame: Any, offsets: Offsets, *, is_end: bool) -> Any:
    from pyspark.sql.functions import lit

    found = lit(False)
    for queue, offset in offsets.items():
        of_queue = ((frame.topic == queue.topic) & (frame.brokerName == queue.broker_name)
                    & (frame.queueId == queue.queue_id))
        found = found | (of_queue & ((frame.queueOffset < offset) if is_end
                                     else (frame.queueOffset >= offset)))
    return found


@dataclass(frozen=True)
class Way:
    """The chosen messages of one queue: offsets `first` to `last`, and where they go."""

    topic: str
    broker: str
    queue_id: int
    first: int
    last: int
    count: int
    to_broker: str
    to_queue: int
    part: int


@dataclass(frozen=True)
class Plan:
    """
    What a replay was begun with.

    identity      of all its messages
    steps, parts  ranges of offsets, and tasks of each
    request_rows, arrow_rows  which the sink's ids depend on
    """

    identity: str
    target: str
    choice: Choice
    ways: tuple[Way, ...]
    steps: int
    parts: int
    request_rows: int
    arrow_rows: str

    @property
    def messages(self) -> int:
        return sum(way.count for way in self.ways)

    def encoded(self) -> bytes:
        return json.dumps({"v": VERSION, **asdict(self)}, indent=1).encode()

    @classmethod
    def read(cls, path: Path) -> Plan | None:
        """The plan that is there; None: there is none. Raises SparkSourceError."""
        try:
            said = json.loads(path.read_bytes())
            if said.pop("v") != VERSION:
                raise SparkSourceError(f"{path}: was written by another version of mqcore")
            choice = said.pop("choice")
            choice |= {name: tuple(choice[name]) for name in ("topics", "keys")}
            return cls(choice=Choice(**choice), ways=tuple(Way(**way) for way in said.pop("ways")),
                       **said)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise SparkSourceError(f"{path}: is no plan of a replay: {error}") from None


def replay(
    spark: Any, path: str | Path, target: str, sink: Mapping[str, str], choice: Choice, *,
    name: str = "replay", rate: int | None = None, step_rows: int = STEP_ROWS,
    into_source: bool = False, dry_run: bool = False, broken: str = "fail",
) -> Outcome:
    """
    Send the chosen messages of a table to a topic, which is there already.

    sink         options of `rocketmq`: nameServer, rocketmq.*
    name         of this replay: run again under its name it goes on, and does nothing when all
                 is sent
    rate         messages a second, of all tasks together, at most
    step_rows    messages of one step, about
    into_source  also when the target is one of the topics that the messages come from
    dry_run      say what would be sent
    broken       of messages without a body, as nobody could decompress it: `fail`, or `skip`
    Raises SparkSourceError, OptionError.
    """
    with own_session(spark) as own:
        return _replayed(own, path, target, sink, choice, name=name, rate=rate,
                         step_rows=step_rows, into_source=into_source, dry_run=dry_run,
                         broken=broken)


def _replayed(
    own: Any, path: str | Path, target: str, sink: Mapping[str, str], choice: Choice, *,
    name: str, rate: int | None, step_rows: int, into_source: bool, dry_run: bool, broken: str,
) -> Outcome:
    table = existing(open_table(path))
    folder = table.root / FOLDER / name
    options = read_options({**sink, "topic": target}, ROCKETMQ, WRITE, ROCKETMQ_NAME)
    plan = Plan.read(folder / PLAN)
    resumed = plan is not None
    if plan is None:
        plan = _planned(own, path, target, options, choice, rate, step_rows)
    elif plan.choice != choice or plan.target != target:
        raise OptionError(f"replay {name} was begun with other choices or another target: see"
                          f" {folder / PLAN}, or give another name")
    sources = sorted({way.topic for way in plan.ways})
    if target in sources and not into_source:
        raise OptionError(f"topic {target} is where the messages come from: give into_source"
                          " (--into-source) if that is meant, or another target")
    done = {step for step in range(plan.steps) if _sign(folder, step).exists()}
    figures = {
        "path": str(table.root), "target": target, "topics": sources, "messages": plan.messages,
        "queues": len(plan.ways), "steps": plan.steps, "stepsBefore": len(done),
        "resumed": resumed, "dryRun": dry_run}
    if dry_run or not plan.ways:
        return Outcome(figures=figures)
    folder.mkdir(parents=True, exist_ok=True)
    if not resumed and not put_once(folder / PLAN, plan.encoded()):
        raise SparkSourceError(f"replay {name} was begun by another just now: give another name")
    if resumed and len(done) < plan.steps:
        _check_still(own, path, plan)
    own.conf.set(ARROW_ROWS, plan.arrow_rows)
    for step in range(plan.steps):
        if step not in done:
            left_out = _send(own, path, plan, step, {**sink, "nullBodies": broken}, rate)
            put_once(_sign(folder, step), json.dumps({"broken": left_out}).encode())
    figures["broken"] = sum(json.loads(_sign(folder, step).read_bytes()).get("broken", 0)
                            for step in range(plan.steps))
    return Outcome(figures=figures)


def _sign(folder: Path, step: int) -> Path:
    return folder / f"step-{step:06d}.done"


def _planned(spark: Any, path: str | Path, target: str, options: Options, choice: Choice,
             rate: int | None, step_rows: int) -> Plan:
    rows = _counted(choice.of(read_lake(spark, path)))
    try:
        with catalog_of(options) as catalog:
            if catalog.queues(target) is None:
                raise SparkSourceError(f"topic {target} has no route: make it first, with as many"
                                       f" queues as the messages come from: {len(rows)}")
            queues = sorted(catalog.queues_to_write(catalog.wrap(target)))
    except RocketMQError as error:
        raise SparkSourceError(f"topic {target}: {error}") from None
    parts = max(1, min(spark.sparkContext.defaultParallelism, len(queues), len(rows)))
    ways = []
    for index, (topic, broker, queue_id, first, last, count) in enumerate(rows):
        queue = queues[index % len(queues)]
        ways.append(Way(topic, broker, queue_id, first, last, count, queue.broker_name,
                        queue.queue_id, index % len(queues) % parts))
    total = sum(way.count for way in ways)
    request_rows = REQUEST_ROWS if rate is None else max(
        1, min(REQUEST_ROWS, int(rate / parts * BURST_S)))
    return Plan(uuid.uuid4().hex, target, choice, tuple(ways), max(1, -(-total // step_rows)),
                parts, request_rows, spark.conf.get(ARROW_ROWS))


def _counted(frame: Any) -> list[tuple[Any, ...]]:
    """Of each queue: topic, broker, id, first and last offset, how many; in order."""
    frame.createOrReplaceTempView("mqcore_chosen")
    return sorted(tuple(row) for row in frame.sparkSession.sql("""
        SELECT topic, brokerName, queueId, MIN(queueOffset), MAX(queueOffset), COUNT(*)
        FROM mqcore_chosen GROUP BY topic, brokerName, queueId""").collect())


def _check_still(spark: Any, path: str | Path, plan: Plan) -> None:
    """Raises SparkSourceError unless the table still has what was planned."""
    still = {row[:3]: row[5] for row in _counted(_planned_rows(spark, path, plan, None))}
    for way in plan.ways:
        count = still.get((way.topic, way.broker, way.queue_id), 0)
        if count != way.count:
            raise SparkSourceError(
                f"the table has {count} of the {way.count} messages that were chosen of queue"
                f" {way.queue_id} of topic {way.topic} on {way.broker}: begin another replay, from"
                " where this one ended")


def _planned_rows(spark: Any, path: str | Path, plan: Plan, step: int | None) -> Any:
    """The rows of one step, or of all, with the columns of their Way beside them."""
    from pyspark.sql.functions import broadcast

    ranges = [(way.topic, way.broker, way.queue_id, *_range(way, plan.steps, step), way.to_broker,
               way.to_queue, way.part) for way in plan.ways]
    ways = local_rows(
        spark, ranges, "topic string, brokerName string, queueId int, first bigint, end bigint,"
        " toBroker string, toQueue int, part int")
    frame = plan.choice.of(read_lake(spark, path))
    low, high = min(one[3] for one in ranges), max(one[4] for one in ranges)
    return (frame.where(f"queueOffset >= {low} AND queueOffset < {high}")
            .join(broadcast(ways), ["topic", "brokerName", "queueId"])
            .where("queueOffset >= first AND queueOffset < end"))


def _range(way: Way, steps: int, step: int | None) -> tuple[int, int]:
    size = way.last + 1 - way.first
    if step is None:
        return way.first, way.last + 1
    return way.first + size * step // steps, way.first + size * (step + 1) // steps


def _send(spark: Any, path: str | Path, plan: Plan, step: int, sink: Mapping[str, str],
          rate: int | None) -> int:
    """Send one step; how many of its messages have no body."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import col, count_if

    counted = Observation()
    names = ", ".join(f"'{name}'" for name in ORIGIN)
    origin = ", ".join(f"'{name}', {value}" for name, value in ORIGIN.items())
    rows = (_planned_rows(spark, path, plan, step)
            .repartitionById(plan.parts, col("part"))
            .sortWithinPartitions("topic", "brokerName", "queueId", "queueOffset")
            .selectExpr(
                "body", "tags", "keys", "flag",
                f"map_concat(map_filter(properties, (k, v) -> k NOT IN ({names})), map({origin}))"
                " AS properties", "toBroker AS brokerName", "toQueue AS queueId")
            .observe(counted, count_if(col("body").isNull()).alias("broken")))
    writer = rows.write.format(ROCKETMQ_NAME).mode("append").options(**sink).options(
        topic=plan.target, deliveryGuarantee="effectively-once",
        identity=f"{plan.identity}/{step}", sendBatchRows=str(plan.request_rows))
    if rate is not None:
        writer = writer.option("rowsPerSecond", str(max(1, rate // plan.parts)))
    writer.save()
    return int(counted.get["broken"])


# -- the command -----------------------------------------------------------------------------------


@click.command("replay")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("target", metavar="TOPIC")
@click.option("--namesrv", "-n", envvar="NAMESRV_ADDR", required=True, metavar="HOST:PORT;...",
              help="Name servers.")
@click.option("--topic", "topics", multiple=True, metavar="NAME",
              help="Only of this topic; may be repeated.")
@click.option("--from", "begin_ms", callback=parsed(moment), metavar="TIME",
              help="Stored then or later, as in 2026-01-31T12:00:00Z.")
@click.option("--to", "end_ms", callback=parsed(moment), metavar="TIME", help="Stored before then.")
@click.option("--from-offsets", "begins", metavar="JSON",
              help='{"topic":{"broker-a":{"0":123}}}; other queues are left out.')
@click.option("--to-offsets", "ends", metavar="JSON", help="The same: below these offsets.")
@click.option("--key", "keys", multiple=True, metavar="KEY",
              help="Only with this key; may be repeated.")
@click.option("--where", metavar="SQL", help="Over the table's columns.")
@click.option("--name", default="replay", show_default=True,
              help="Of this replay: run again under its name it goes on.")
@click.option("--rate", type=click.IntRange(1), metavar="N", help="Messages a second, at most.")
@click.option("--step-rows", type=click.IntRange(1), default=STEP_ROWS, show_default=True,
              help="Messages of one step, about.")
@click.option("--into-source", is_flag=True,
              help="Also into a topic that the messages come from.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@click.option("--broken", type=click.Choice(["fail", "skip"]), default="fail", show_default=True,
              help="Of messages without a body, as nobody could decompress it.")
@click.option("--sink", multiple=True, metavar="NAME=VALUE", callback=settings,
              help="An option of the sink rocketmq; may be repeated.")
@spark_options
def command(path: Path, target: str, namesrv: str, topics: Sequence[str], begin_ms: int | None,
            end_ms: int | None, begins: str | None, ends: str | None, keys: Sequence[str],
            where: str | None, sink: dict[str, str], master: str, confs: dict[str, str],
            **options: Any) -> None:
    """
    Send messages of the table in PATH to TOPIC, each once, each queue in its order.

    Exit status: 0 done; 2 not done: run it again, and it goes on.
    """
    choice = Choice(tuple(topics), begin_ms, end_ms, begins, ends, tuple(keys), where)
    run("replay", lambda spark: replay(spark, path, target, {"nameServer": namesrv, **sink}, choice,
                                       **options), master=master, confs=confs)


if __name__ == "__main__":
    command()
