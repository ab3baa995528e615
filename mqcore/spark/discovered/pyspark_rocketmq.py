"""Spark looks for data sources in modules of such a name: `spark.read.format("rocketmq")`."""
from mqcore.spark.topics.source import RocketMQ as DefaultSource

__all__ = ["DefaultSource"]
