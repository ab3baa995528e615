"""
The source `rocketmq`: classes for Spark's own process, in a jar beside this file.

`python -m mqcore.spark.jvm` makes the jar of the Java sources in `src`, with the javac of a JDK 17
and the jars of the installed PySpark. `make tools` does so where both are there.
"""
from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
JAR: Final = FOLDER / "mqcore-spark.jar"


def jar() -> str:
    """The path of the jar, for `spark.jars`. Raises FileNotFoundError that says how to make it."""
    if not JAR.exists():
        raise FileNotFoundError(
            f"{JAR} was not made: this build of mqcore had no JDK 17 or no PySpark;"
            " `python -m mqcore.spark.jvm` makes it where both are there")
    return str(JAR)
