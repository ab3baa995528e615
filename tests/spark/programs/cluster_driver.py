"""
A driver on a cluster that gets mqcore as an archive: it copies a topic to another by a stream,
effectively once, and at the same time to a table, exactly once.

Its argument is JSON: master, jvm (its options), namesrv, source, target, table, checkpoints,
archive, path, each, begun (a file that is there as soon as the table's first rows are on their
way), killed (a file for which all of those wait).
"""
from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from mqcore.spark import builder

UNPACKED = "site"                     # where executors find the archive


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = (
        builder("copy").master(asked["master"])
        .config("spark.archives", f"{asked['archive']}#{UNPACKED}")
        .config("spark.executorEnv.PYTHONPATH", f"{UNPACKED}:{asked['path']}")
        .config("spark.executor.memory", "512m").config("spark.driver.memory", "512m")
        .config("spark.executor.cores", "4")            # so there are two
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.extraJavaOptions", asked["jvm"])
        .config("spark.driver.extraJavaOptions", asked["jvm"])
        .config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
        .config("spark.task.maxFailures", "6")
        .config("spark.python.authenticate.socketTimeout", "120s")      # slow machines
        .getOrCreate())
    frame = (
        spark.readStream.format("rocketmq").option("nameServer", asked["namesrv"])
        .option("topic", asked["source"]).option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", asked["each"]).load().drop("queueId"))
    begun = Path(asked["begun"])
    table = (
        waiting(frame, begun, Path(asked["killed"])).writeStream.format("rocketmq-lake")
        .option("checkpointLocation", asked["checkpoints"] + "/table")
        .trigger(availableNow=True).start(asked["table"]))
    wait_for(begun)
    query = (
        frame.writeStream.format("rocketmq").option("nameServer", asked["namesrv"])
        .option("topic", asked["target"]).option("deliveryGuarantee", "effectively-once")
        .option("sendBatchRows", 10).option("sendsInFlight", 2)
        .option("checkpointLocation", asked["checkpoints"] + "/topic")
        .trigger(availableNow=True).start())
    query.awaitTermination()
    table.awaitTermination()
    print(json.dumps({name: [one["numInputRows"] for one in each.recentProgress]
                      for name, each in (("topic", query), ("table", table))}))
    spark.stop()


def waiting(frame: Any, begun: Path, killed: Path) -> Any:
    """The same rows; the first leaves a sign, and none is there before an executor was killed."""
    from pyspark.sql.functions import udf

    @udf("binary", useArrow=False)
    def given(body: bytes) -> bytes:
        if not killed.exists():
            begun.touch()
            wait_for(killed)
        return body

    return frame.withColumn("body", given("body"))


def wait_for(sign: Path) -> None:
    """Whoever started this ends it when that takes too long."""
    while not sign.exists():
        threading.Event().wait(0.05)


if __name__ == "__main__":
    main()
