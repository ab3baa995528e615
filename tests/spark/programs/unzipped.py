"""
What Spark's JVM starts in Python finds Spark's modules in a zip, first on its path, without byte
code: each process compiles what it imports of them, which takes a second of a processor. The same
modules are installed beside it, compiled.
"""
from __future__ import annotations

import sys

ZIPS = ("/pyspark.zip", "-src.zip")             # the other one is py4j's


def leave_zips() -> None:
    """In a process that has imported nothing of Spark yet."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(ZIPS)]
