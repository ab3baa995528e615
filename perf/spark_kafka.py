"""
The source and the sink `rocketmq` beside Spark's own for Kafka, on the same rows, in one session.

    python -m perf.spark_kafka [count] [all] [five] [stream] [parquet] [write] [latency]

Needs java, mvn (the first time), and a PySpark for which Maven Central has spark-sql-kafka: 4.2.0
has one, 4.2.1 and 4.3.0 have none. It starts a Kafka broker of one process (KRaft, Java's and
Kafka's defaults, the heap and the collector of its start script) and one of mqcore beside
`local[2]`. Both have the same messages: 1 KiB of letters and digits that no codec makes smaller
than three quarters, a key, four queues.

count    count(*), sum(length(body))
all      all columns to nowhere: 19 of `rocketmq`, 7 of `kafka`
five     body, keys, queueId, queueOffset, storeTimestamp to nowhere, and Kafka's like
stream   these five, in four batches of a stream that ends (AvailableNow), to nowhere
parquet  these five to Parquet with zstd
write    a frame of rows in Parquet files to a topic of each
latency  ten rows a second through a stream that collects them: from the send to the driver

Each case runs RUNS times in turns, kafka and rocketmq, behind a warm-up of both. Printed are the
medians of processor time a row: of the JVM, of Python's workers, of the broker; their sum, and its
ratio to Kafka's. On a busy machine Kafka's side costs more: its consumer fetches more often.
"""
from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mqcore.bench.cpu import cpu_seconds, process_tree
from mqcore.client import Message, Producer
from mqcore.client.admin import Admin
from mqcore.spark import builder
from mqcore.spark.jvm import jar
from mqcore.spark.session import JARS
from mqcore.testing import broker
from perf.spark import SETTINGS
from perf.spark_jvm import session_seconds
from tests.support.stock import StockError, free_port, stock_classpath
from tests.support.waiting import wait_until

KAFKA = "org.apache.kafka:kafka_2.13:3.9.1"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
# as kafka-server-start.sh has them; the heap is that of its manual's smallest example
KAFKA_JVM = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
             "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent")
CASES = ("count", "all", "five", "stream", "parquet", "write", "latency")
SOURCES = ("kafka", "rocketmq")
TOPICS = ("rows", "written", "latency")
QUEUES = 4
BATCHES = 4
SIZE = 1_024
LATENCY_ROWS = 150
FIVE = {"kafka": ["value", "key", "partition", "offset", "timestamp"],
        "rocketmq": ["body", "keys", "queueId", "queueOffset", "storeTimestamp"]}
BODY = {"kafka": "value", "rocketmq": "body"}


@contextlib.contextmanager
def kafka(folder: Path) -> Iterator[tuple[str, int]]:
    """A Kafka broker: its address and pid."""
    jars = stock_classpath([KAFKA])
    port, control = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{control}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={folder}/data\n"
        "offsets.topic.replication.factor=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n")
    java = ["java", "-cp", jars]
    subprocess.run([*java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ",
                    "-c", settings], check=True, stdout=subprocess.DEVNULL)
    log = folder / "kafka.log"
    with log.open("wb") as output, subprocess.Popen(
            [java[0], *KAFKA_JVM, *java[1:], "kafka.Kafka", str(settings)], stdout=output,
            stderr=output) as process:
        try:
            yield f"127.0.0.1:{port}", process.pid
        finally:
            process.kill()


class Sides:
    """Both sides: a session, two brokers, and what each frame is made of."""

    def __init__(self, spark: Any, kafka_address: str, kafka_pid: int, mq: Any, folder: Path,
                 rows: int) -> None:
        self.spark = spark
        self.folder = folder
        self.rows = rows
        self.mq = mq
        self.kafka_address = kafka_address
        self._jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
        self._brokers = {"kafka": kafka_pid, "rocketmq": mq.pid}

    def cpu(self, side: str) -> tuple[float, float, float]:
        """The seconds of the JVM, of Python's workers, of the side's broker."""
        return (*session_seconds(self._jvm),
                sum(map(cpu_seconds, process_tree(self._brokers[side]))))

    def told(self, maker: Any, side: str, topic: str, **options: Any) -> Any:
        """A reader or writer of a side."""
        if side == "kafka":
            maker = maker.format("kafka").option("kafka.bootstrap.servers", self.kafka_address)
            maker = maker.option("subscribe" if hasattr(maker, "load") else "topic", topic)
        else:
            maker = maker.format("rocketmq").option("nameServer", self.mq.namesrv).option(
                "topic", topic)
        return maker.options(**options)

    def kafka_settings(self) -> Any:
        settings = self.spark._jvm.java.util.HashMap()
        settings.put("bootstrap.servers", self.kafka_address)
        return settings

    def frame(self, side: str) -> Any:
        return self.told(self.spark.read, side, "rows").load()

    def fill(self) -> None:
        """The same messages on both sides, and as files."""
        digits = ",".join(f"sha2(concat(id, ' {part}'), 512)" for part in range(12))
        path = str(self.folder / "rows")
        self.spark.range(0, self.rows, 1, QUEUES).selectExpr(
            f"cast(substr(base64(unhex(concat({digits}))), 1, {SIZE}) as binary) bytes",
            "concat('k', id) name", f"cast(id % {QUEUES} as int) place").write.parquet(path)
        with Admin(namesrv=self.mq.namesrv) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, queues=QUEUES)
        jvm = self.spark._jvm
        topics = jvm.java.util.ArrayList()
        for topic in TOPICS:
            topics.add(jvm.org.apache.kafka.clients.admin.NewTopic(topic, QUEUES, 1))
        of_kafka = jvm.org.apache.kafka.clients.admin.Admin.create(self.kafka_settings())
        of_kafka.createTopics(topics).all().get()
        of_kafka.close()
        for side in SOURCES:
            self.write(side, "rows", in_order=True)

    def write(self, side: str, topic: str, *, in_order: bool = False) -> None:
        """The rows of the files to a topic."""
        names = (["bytes value", "cast(name as binary) key", "place partition"]
                 if side == "kafka" else ["bytes body", "name keys", "place queueId"])
        rows = self.spark.read.parquet(str(self.folder / "rows")).selectExpr(
            *(names if in_order else names[:2]))
        self.told(rows.write.mode("append"), side, topic).save()

    def stream(self, side: str) -> None:
        folder = self.folder / f"checkpoint-{side}"
        shutil.rmtree(folder, ignore_errors=True)
        source = self.told(self.spark.readStream, side, "rows", startingOffsets="earliest",
                           maxOffsetsPerTrigger=self.rows // BATCHES)
        query = (source.load().select(FIVE[side]).writeStream.format("noop")
                 .option("checkpointLocation", str(folder)).trigger(availableNow=True).start())
        query.awaitTermination()
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
        assert read == self.rows, f"{side}: {read} rows of {self.rows}"

    def count(self, side: str) -> None:
        found = self.frame(side).selectExpr("count(*)", f"sum(length({BODY[side]}))").first()
        assert tuple(found) == (self.rows, self.rows * SIZE), f"{side}: {found}"

    # -- latency ----------------------------------------------------------------------------------

    def latencies(self, side: str, send: Callable[[bytes], object]) -> list[float]:
        """Milliseconds from the send of a row to its arrival at the driver."""
        took: list[float] = []

        def arrived(rows: Any, _batch: int) -> None:
            bodies = [bytes(row[0]) for row in rows.collect()]
            now = time.time()
            took.extend((now - float(body)) * 1e3 for body in bodies)

        query = (self.told(self.spark.readStream, side, "latency", startingOffsets="latest")
                 .load().select(BODY[side]).writeStream.foreachBatch(arrived)
                 .option("checkpointLocation", tempfile.mkdtemp(dir=self.folder)).start())
        try:
            send(b"%f" % time.time())
            wait_until(lambda: took or send(b"%f" % time.time()), "the stream runs", 120)
            before, begun = len(took), time.monotonic()
            for number in range(LATENCY_ROWS):
                time.sleep(max(0.0, begun + number / 10 - time.monotonic()))
                send(b"%f" % time.time())
            wait_until(lambda: len(took) >= before + LATENCY_ROWS, "all have arrived", 60)
        finally:
            query.stop()
        return sorted(took[-LATENCY_ROWS:])

    def latency(self, runs: int) -> None:
        jvm = self.spark._jvm
        serializer = jvm.org.apache.kafka.common.serialization.ByteArraySerializer
        producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(
            self.kafka_settings(), serializer(), serializer())
        with Producer("perf", namesrv=self.mq.namesrv) as ours:
            senders = {
                "kafka": lambda body: producer.send(
                    jvm.org.apache.kafka.clients.producer.ProducerRecord("latency", body)),
                "rocketmq": lambda body: ours.send(Message("latency", body))}
            found: dict[str, list[float]] = {side: [] for side in SOURCES}
            for number, side in itertools.product(range(runs), SOURCES):
                took = self.latencies(side, senders[side])
                found[side].append(statistics.median(took))
                print(f"latency {side:9} run {number}: median {found[side][-1]:6.0f} ms, of 95 %"
                      f" {took[int(len(took) * 0.95)]:6.0f} ms", flush=True)
            producer.close()
        medians = {side: statistics.median(each) for side, each in found.items()}
        print(f"latency {medians}, ratio {medians['rocketmq'] / medians['kafka']:.2f}", flush=True)


def nowhere(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def compare(case: str, sides: Sides, runs: int, run: Callable[[str], object]) -> None:
    """One case on both sides in turns; prints what it took."""
    spent: dict[str, list[tuple[float, ...]]] = {side: [] for side in SOURCES}
    for _, side in itertools.product(range(runs + 1), SOURCES):
        before, begun = sides.cpu(side), time.perf_counter()
        run(side)
        took_s = time.perf_counter() - begun
        parts = [(after - first) / sides.rows * 1e6
                 for after, first in zip(sides.cpu(side), before, strict=True)]
        spent[side].append((*parts, sum(parts), sides.rows / took_s))
    medians = {side: [statistics.median(one) for one in zip(*each[1:], strict=True)]
               for side, each in spent.items()}
    for side, (jvm, python, mq, together, rate) in medians.items():
        print(f"{case:8} {side:9} JVM {jvm:5.2f} us, Python {python:5.2f} us, broker {mq:5.2f} us,"
              f" together {together:6.2f} us a row, {together / medians['kafka'][3]:.2f};"
              f" {rate:,.0f} rows/s", flush=True)


def connector_jars() -> list[str]:
    """spark-sql-kafka of the installed PySpark, and what it brings."""
    version = importlib.metadata.version("pyspark")
    try:
        found = stock_classpath([f"{CONNECTOR}:{version}"]).split(os.pathsep)
    except StockError as error:
        sys.exit(f"PySpark {version}: Maven has no {CONNECTOR} for it (4.2.0 has one): {error}")
    import pyspark

    there = {path.name for path in Path(pyspark.__file__).parent.glob("jars/*.jar")}
    return [path for path in found if Path(path).name not in there]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    wanted = asked.cases or CASES
    if not set(wanted) <= set(CASES):
        parser.error(f"expected some of {', '.join(CASES)}")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    made = builder("perf").master("local[2]")
    with tempfile.TemporaryDirectory() as name, broker(SETTINGS) as mq, kafka(
            Path(name)) as (address, pid):
        folder = Path(name)
        jars = ",".join([*connector_jars(), jar()])
        spark = (made.config(JARS, jars).config("spark.ui.enabled", "false")
                 .config("spark.ui.showConsoleProgress", "false")
                 .config("spark.driver.memory", "2g").config("spark.local.dir", f"{name}/local")
                 .getOrCreate())
        spark.sparkContext.setLogLevel("ERROR")
        try:
            sides = Sides(spark, address, pid, mq, folder, asked.rows)
            sides.fill()
            cases: dict[str, Callable[[str], object]] = {
                "count": sides.count,
                "all": lambda side: nowhere(sides.frame(side)),
                "five": lambda side: nowhere(sides.frame(side).select(FIVE[side])),
                "stream": sides.stream,
                "parquet": lambda side: sides.frame(side).select(FIVE[side]).write.mode(
                    "overwrite").option("compression", "zstd").parquet(f"{folder}/to-{side}"),
                "write": lambda side: sides.write(side, "written"),
            }
            for case, run in cases.items():
                if case in wanted:
                    compare(case, sides, asked.runs, run)
            if "latency" in wanted:
                sides.latency(asked.runs)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
