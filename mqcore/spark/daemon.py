"""
The parent of Spark's Python workers, with everything imported that our sources need.

Workers are forked from it. After each task Spark collects garbage: what was imported before the
fork is left out of that.

A query that needs no more rows, as that of `.show()`, closes its connection to a worker. The worker
ends without a word then.
"""
from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from functools import wraps

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

Worker = Callable[[socket.socket, bool], int]


def quiet(worker: Worker) -> Worker:
    """Spark's function of a worker process; it ends the process when the connection is closed."""
    @wraps(worker)
    def run(link: socket.socket, authenticated: bool) -> int:
        try:
            return worker(link, authenticated)
        except BrokenPipeError:
            os._exit(1)
    return run


if __name__ == "__main__":
    pyspark.daemon.worker = quiet(pyspark.daemon.worker)
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
