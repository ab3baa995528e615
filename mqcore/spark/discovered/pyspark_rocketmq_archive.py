"""Spark looks for modules of such names: here it finds what the job `archive` reads."""
from mqcore.spark.lake.filing import RocketMQArchive as DefaultSource

__all__ = ["DefaultSource"]
