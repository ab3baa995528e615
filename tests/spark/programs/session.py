"""The session of a driver under test."""
from __future__ import annotations

from typing import Any

from mqcore.spark import builder

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss2m"


def local_session(name: str, tasks: int) -> Any:
    """So many tasks at a time."""
    return (
        builder(name).master(f"local[{tasks}]").config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", JVM_OPTIONS)
        .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.authenticate.socketTimeout", "120s")     # slow machines
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate())
