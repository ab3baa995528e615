"""
Spark data sources and sinks for RocketMQ topics, in Python (docs/spark/README.md).

    from mqcore.spark import builder, read_lake, track
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqcore.spark.lake.opening import read_lake as read_lake
    from mqcore.spark.session import builder as builder
    from mqcore.spark.tracking import Progress as Progress
    from mqcore.spark.tracking import track as track

_HOMES = {"builder": "session", "track": "tracking", "Progress": "tracking",
          "read_lake": "lake.opening"}


def __getattr__(name: str) -> Any:
    """Executors import the package too, and need no session."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"mqcore.spark.{_HOMES[name]}"), name)
