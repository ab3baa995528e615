"""
    python -m tests.spark.programs.classes

A driver that does something of all that tests do, once, and ends: what its JVM has loaded then is
in a file for others (tests/spark/jvm.py).
"""
from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from mqcore.client import Message, Producer
from mqcore.testing import MemoryBroker
from tests.spark.jvm import FOLDER, PRELOADED, QUICK, class_archive
from tests.spark.programs.session import local_session

# of a standalone cluster
DAEMONS = ("deploy.master.Master", "deploy.worker.Worker", "deploy.worker.ExecutorRunner",
           "executor.CoarseGrainedExecutorBackend")


def use(spark: Any, namesrv: str, folder: Path) -> None:
    """Reads a topic, writes it to another and to files, sorts and counts, streams."""
    frame = spark.read.format("rocketmq").options(nameServer=namesrv, topic="T").load()
    frame.selectExpr("topic", "cast(split(cast(body as string), ':')[0] as int) n",
                     "properties['n'] p").where("n < 50").groupBy("topic").count().collect()
    frame.drop("queueId").write.format("rocketmq").options(nameServer=namesrv, topic="U").mode(
        "append").save()
    frame.write.parquet(str(folder / "files"))
    spark.read.parquet(str(folder / "files")).orderBy("queueId", "queueOffset").collect()
    spark.readStream.format("rate").load().writeStream.format("noop").option(
        "checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True).start().awaitTermination()


def main() -> None:
    archive = class_archive()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.jsa"):
        old.unlink()
    made = archive.with_suffix(".new")
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(PRELOADED)}
    spark = local_session("classes", 2, " ".join((*QUICK, f"-XX:ArchiveClassesAtExit={made}")))
    jvm = spark.sparkContext._gateway.proc
    with (tempfile.TemporaryDirectory() as folder, MemoryBroker() as broker,
          Producer("classes", namesrv=broker.namesrv) as producer):
        producer.send_many([Message("T", f"{number}:x", properties={"n": "1"})
                            for number in range(100)])
        use(spark, broker.namesrv, Path(folder))
        for name in DAEMONS:
            spark._jvm.java.lang.Class.forName(f"org.apache.spark.{name}")
        spark.stop()
    jvm.stdin.close()                   # which ends it; it writes the file
    jvm.wait()
    made.rename(archive)
    print(f"{archive}: {archive.stat().st_size >> 20} MB")


if __name__ == "__main__":
    main()
