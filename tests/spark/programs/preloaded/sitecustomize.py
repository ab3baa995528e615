"""
Python runs this first, in each process of a session under test: the parents of what plans reads and
writes load our sources before they fork, as mqcore.spark.daemon does for tasks. Spark has no
setting for it, and each of their children would take most of a second of a processor for that.
"""
from __future__ import annotations

import gc
import sys
from importlib import import_module

from tests.spark.programs.unzipped import leave_zips

DAEMON = ["-m", "pyspark.daemon"]
SOURCES = ("pyspark_rocketmq", "pyspark_rocketmq_archive", "pyspark_rocketmq_lake",
           "pyspark_rocketmq_store", "pyspark_rocketmq_store_audit")

leave_zips()
if sys.orig_argv[1:3] == DAEMON:
    for name in (*sys.orig_argv[3:4], *SOURCES):
        import_module(name)
    gc.collect()
    gc.freeze()
