"""
A driver on a cluster that gets mqcore as an archive: it copies a topic to another by a stream,
effectively once, and then to a table, exactly once and slowly.

Its argument is JSON: master, jvm (its options), namesrv, source, target, table, checkpoints,
archive, path, each, begun (a file that is there as soon as the table's first rows are on their
way).
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
        .config("spark.executor.cores", "1")            # so there are two
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
    query = (
        frame.writeStream.format("rocketmq").option("nameServer", asked["namesrv"])
        .option("topic", asked["target"]).option("deliveryGuarantee", "effectively-once")
        .option("sendBatchRows", 10).option("sendsInFlight", 2)
        .option("checkpointLocation", asked["checkpoints"] + "/topic")
        .trigger(availableNow=True).start())
    query.awaitTermination()
    table = (
        slowly(frame, Path(asked["begun"])).writeStream.format("rocketmq-lake")
        .option("checkpointLocation", asked["checkpoints"] + "/table")
        .trigger(availableNow=True).start(asked["table"]))
    table.awaitTermination()
    print(json.dumps({name: [one["numInputRows"] for one in each.recentProgress]
                      for name, each in (("topic", query), ("table", table))}))
    spark.stop()


def slowly(frame: Any, begun: Path) -> Any:
    """The same rows; each takes a moment, and the first leaves a sign."""
    from pyspark.sql.functions import udf

    @udf("binary", useArrow=False)
    def given(body: bytes) -> bytes:
        begun.touch()
        threading.Event().wait(0.0005)
        return body

    return frame.withColumn("body", given("body"))


if __name__ == "__main__":
    main()
