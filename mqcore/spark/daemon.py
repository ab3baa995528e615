"""
The parent of Spark's Python workers, with everything imported that our sources need.

Workers are forked from it. After each task Spark collects garbage: what was imported before the
fork is left out of that.
"""
from __future__ import annotations

import gc

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pyspark.daemon
import pyspark.sql.conversion
import pyspark.sql.pandas.serializers
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker

import mqcore.spark.lake.filing
import mqcore.spark.lake.writer
import mqcore.spark.topics.source

PRELOADED = (pyarrow.ipc, pyarrow.parquet, pyspark.sql.conversion,
             pyspark.sql.pandas.serializers, pyspark.worker,
             pyspark.sql.worker.plan_data_source_read, mqcore.spark.topics.source,
             mqcore.spark.lake.filing, mqcore.spark.lake.writer)

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
