"""The session of a driver under test."""
from __future__ import annotations

from typing import Any

from mqcore.spark import builder
from tests.spark.jvm import jvm_options


def local_session(name: str, tasks: int, options: str | None = None) -> Any:
    """So many tasks at a time; options: of the JVM, if others than tests take."""
    return (
        builder(name).master(f"local[{tasks}]").config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", options or jvm_options())
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.authenticate.socketTimeout", "120s")     # slow machines
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate())
