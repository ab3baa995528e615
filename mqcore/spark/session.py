"""
A Spark session with settings under which small tasks and micro-batches cost little.

A task in Python costs 60 ms of a core with Spark's defaults, and about 14 ms with these.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from mqcore.spark.jvm import JAR

P = ParamSpec("P")
R = TypeVar("R")

DAEMON = "mqcore.spark.daemon"
JARS = "spark.jars"

SETTINGS: Final = {
    # what is imported once, and collected never, in the parent of Python's workers
    "spark.python.daemon.module": DAEMON,
    # between the JVM and Python: TCP stalls for 40 ms now and then
    "spark.python.unix.domain.socket.enabled": "true",
    # record batches of a few MB for the sink
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4000",
    # offsets and commits of a stream: the other one starts programs (chmod, readlink) for each file
    "spark.sql.streaming.checkpointFileManagerClass":
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager",
    # a second try of a task that still runs would send its messages twice
    "spark.speculation": "false",
}


def builder(name: str = "mqcore") -> SparkSession.Builder:
    """
    `SparkSession.builder` with the settings; more of them, and the master, by its own methods.

    Python's workers, and what looks for data sources, run under this interpreter unless the
    environment's PYSPARK_PYTHON names another: Spark would take the first `python3` of the path.
    On a cluster mqcore has to be installed where executors run: they import the daemon.

    `spark.jars` has the jar of the source `rocketmq`, where this installation has one. A
    program that sets `spark.jars` itself adds `mqcore.spark.jvm.jar()`.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    made = SparkSession.builder.appName(name)
    for key, value in SETTINGS.items():
        made = made.config(key, value)
    if JAR.exists():
        made = made.config(JARS, ",".join(dict.fromkeys([*_submitted_jars(), str(JAR)])))
    return made


def _submitted_jars() -> list[str]:
    """The jars of `spark-submit --jars`: the builder's setting would stand in their place."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return []
    SparkContext._ensure_initialized()
    return [one for one in (SparkConf().get(JARS) or "").split(",") if one]


def local_rows(spark: Any, rows: Iterable[tuple[Any, ...]], ddl: str) -> Any:
    """
    A frame of rows that are at hand; of columns that are string, int or bigint.

    Whoever plans sees how few they are, or that there are none, and no task makes them:
    `createDataFrame` of a list is a job of unknown size.
    """
    import pyarrow

    kinds = {"string": pyarrow.string(), "int": pyarrow.int32(), "bigint": pyarrow.int64()}
    named = (one.split() for one in ddl.split(","))
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in named])
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return spark.createDataFrame(pyarrow.Table.from_arrays(
        [pyarrow.array(column, one.type) for column, one in zip(columns, schema, strict=True)],
        schema=schema))


@contextmanager
def own_session(spark: Any) -> Iterator[Any]:
    """
    A session beside another, with views, settings and streams of its own, in the calling thread.

    Spark looks for Python data sources in the thread's active session; new threads have none.
    """
    sessions = SparkSession._get_j_spark_session_class(spark.sparkContext._jvm)
    before = sessions.getActiveSession()
    own = spark.newSession()
    sessions.setActiveSession(own._jsparkSession)
    try:
        yield own
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def in_own_session(work: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A function on a session that does its work in one of its own: see `own_session`."""

    @wraps(work)
    def run(spark: Any, /, *args: P.args, **options: P.kwargs) -> R:
        with own_session(spark) as own:
            return work(own, *args, **options)

    return run
