"""Spark looks for modules of such names: here it finds the sink `rocketmq-lake`."""
from mqcore.spark.lake.writer import RocketMQLake as DefaultSource

__all__ = ["DefaultSource"]
