"""Makes the jar: `python -m mqcore.spark.jvm [--if-possible]`."""
from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from mqcore.spark.jvm import FOLDER, JAR

SOURCES = FOLDER / "src"
RELEASE = "17"                      # of Java, the oldest that Spark 4 runs on
WARNINGS = "all,-serial,-classfile,-processing,-path"
SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
SOURCE = b"mqcore.spark.Source\n"
STAMP = (2026, 1, 1, 0, 0, 0)       # of each member: the same sources make the same jar


def missing() -> str | None:
    """The tool that this machine lacks, in words; None: all are there."""
    if shutil.which("javac") is None:
        return "javac of a JDK 17 (Debian, Ubuntu: apt install openjdk-17-jdk-headless)"
    if spark_jars() is None:
        return "PySpark (pip install 'mqcore[spark]')"
    return None


def spark_jars() -> Path | None:
    """The folder of Spark's own jars."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    jars = Path(found.origin).parent / "jars"
    return jars if jars.is_dir() else None


def is_stale() -> bool:
    """Whether a source is younger than the jar."""
    if not JAR.exists():
        return True
    made = JAR.stat().st_mtime_ns
    return any(path.stat().st_mtime_ns > made for path in SOURCES.rglob("*.java"))


def make() -> None:
    """Compile, and write the jar. Raises CalledProcessError; javac has said why."""
    with tempfile.TemporaryDirectory() as folder:
        classes = Path(folder, "classes")
        subprocess.run(
            ["javac", "--release", RELEASE, f"-Xlint:{WARNINGS}", "-Werror", "-proc:none",
             "-cp", f"{spark_jars()}/*", "-d", str(classes),
             *map(str, sorted(SOURCES.rglob("*.java")))], check=True)
        fresh = Path(folder, JAR.name)
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as jar:
            put(jar, SERVICE, SOURCE)
            for path in sorted(classes.rglob("*.class")):
                put(jar, path.relative_to(classes).as_posix(), path.read_bytes())
        shutil.move(fresh, JAR)


def put(jar: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a member."""
    member = zipfile.ZipInfo(name, STAMP)
    member.compress_type = zipfile.ZIP_DEFLATED
    jar.writestr(member, content)


def main(arguments: list[str]) -> int:
    lacking = missing()
    if lacking is not None:
        print(f"{JAR.name} is not made, and `rocketmq` runs in Python without it: there is no"
              f" {lacking}")
        return 0 if "--if-possible" in arguments else 1
    if is_stale():
        make()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
