"""
A driver: copies a topic to another by a stream, effectively once, on a cluster that gets mqcore as
an archive. Its argument is JSON: master, namesrv, source, target, checkpoint, archive, path, each.
"""
from __future__ import annotations

import json
import sys

from mqcore.spark import builder

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
UNPACKED = "site"                     # where executors find the archive


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = (
        builder("copy").master(asked["master"])
        .config("spark.archives", f"{asked['archive']}#{UNPACKED}")
        .config("spark.executorEnv.PYTHONPATH", f"{UNPACKED}:{asked['path']}")
        .config("spark.executor.memory", "512m").config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.extraJavaOptions", JVM_OPTIONS)
        .config("spark.driver.extraJavaOptions", JVM_OPTIONS)
        .config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
        .config("spark.task.maxFailures", "6")
        .getOrCreate())
    frame = (
        spark.readStream.format("rocketmq").option("nameServer", asked["namesrv"])
        .option("topic", asked["source"]).option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", asked["each"]).load().drop("queueId"))
    query = (
        frame.writeStream.format("rocketmq").option("nameServer", asked["namesrv"])
        .option("topic", asked["target"]).option("deliveryGuarantee", "effectively-once")
        .option("sendBatchRows", 10).option("sendsInFlight", 2)
        .option("checkpointLocation", asked["checkpoint"]).trigger(availableNow=True).start())
    query.awaitTermination()
    print(json.dumps({"rows": [one["numInputRows"] for one in query.recentProgress]}))
    spark.stop()


if __name__ == "__main__":
    main()
