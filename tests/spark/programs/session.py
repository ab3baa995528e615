"""The session of a driver under test."""
from __future__ import annotations

from typing import Any

from mqcore.spark import builder
from tests.spark.jvm import jvm_options

# Queries of a few rows are interpreted: else each makes Java of its plan and compiles that, which
# takes longer than the query. Spark neither checks its own plans after each step nor writes them
# out at length, and a stream that has nothing to do looks ten times a second, not a hundred.
FEW_ROWS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.python.authenticate.socketTimeout": "120s",          # slow machines
}


def local_session(name: str, tasks: int, options: str | None = None) -> Any:
    """So many tasks at a time; options: of the JVM, if others than tests take."""
    return (
        builder(name).master(f"local[{tasks}]").config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", options or jvm_options())
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.authenticate.socketTimeout", "120s")     # slow machines
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate())
