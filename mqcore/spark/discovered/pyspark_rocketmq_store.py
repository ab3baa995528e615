"""Spark looks for modules of such names: here it finds the source `rocketmq-store`."""
from mqcore.spark.store.source import RocketMQStoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
