"""
How processes under test begin that Spark's JVM starts in Python.

Spark's modules are in a zip for them, first on their path, without byte code: each process would
compile what it imports of them, which takes a second of a processor. The same modules are installed
beside it, compiled. And the parents of what plans reads and writes load our sources before they
fork, as mqcore.spark.daemon does for tasks. Spark has no setting for it, and each of their children
would take most of a second for that.
"""
from __future__ import annotations

import gc
import sys
from importlib import import_module

ZIPS = ("/pyspark.zip", "-src.zip")             # the other one is py4j's
DAEMON = ["-m", "pyspark.daemon"]
SOURCES = ("pyspark_rocketmq", "pyspark_rocketmq_archive", "pyspark_rocketmq_lake",
           "pyspark_rocketmq_store", "pyspark_rocketmq_store_audit")


def begin() -> None:
    """In a process that has imported nothing of Spark yet."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(ZIPS)]
    if sys.orig_argv[1:3] == DAEMON:
        for name in (*sys.orig_argv[3:4], *SOURCES):
            import_module(name)
        gc.collect()
        gc.freeze()
