"""How JVMs of Spark are started in tests."""
from __future__ import annotations

import hashlib
import importlib.util
import shutil
from pathlib import Path

from tests.support.stock import SHORT_LIVED

FOLDER = Path(__file__).parents[2] / "build/spark"
PRELOADED = Path(__file__).parent / "programs/preloaded"
# Room for what they load, from the beginning: else all memory is searched whenever that has grown.
# Spark's own classes are not verified again, which is a fifth of a start.
QUICK = (*SHORT_LIVED, "-Xss2m", "-XX:MetaspaceSize=200m", "-XX:+UnlockDiagnosticVMOptions",
         "-XX:-BytecodeVerificationRemote")
LAUNCHER = " ".join(SHORT_LIVED)        # of the JVM that finds out with what others are started


def jvm_options() -> str:
    """For drivers, executors and standalone clusters."""
    archive = class_archive()
    shared = (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()
    return " ".join((*QUICK, *shared))


def class_archive() -> Path:
    """
    The classes that sessions load, ready in a file: two fifths of a start and its first queries.

    `make spark-classes` makes it, which takes as much as eight starts save: for who runs these
    tests again and again. It is of one Java and one installation of Spark; a JVM for which it is
    wrong loads its classes as ever.
    """
    java = Path(shutil.which("java") or "java").resolve()
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None or not java.exists():
        return FOLDER / "none.jsa"
    jars = Path(spark.origin).parent / "jars"
    said = f"{java} {java.stat().st_mtime_ns} {jars} {jars.stat().st_mtime_ns}"
    return FOLDER / f"classes-{hashlib.sha256(said.encode()).hexdigest()[:10]}.jsa"
