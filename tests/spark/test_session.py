"""What the builder makes of the surroundings, before a session is there."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.jvm import PRELOADED

pyspark = pytest.importorskip("pyspark")

PROGRAM = """
import os
from mqcore.spark import builder
builder("x")
print(os.environ["PYSPARK_PYTHON"])
"""


@pytest.mark.parametrize("given", ["", "/opt/python3"])
def test_workers_run_under_this_python_unless_another_is_named(monkeypatch, given):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if given:
        monkeypatch.setenv("PYSPARK_PYTHON", given)
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                          check=True).stdout.strip()
    assert said == (given or sys.executable)


def test_parents_of_what_plans_have_loaded_the_sources_before_they_fork() -> None:
    """Those of the session of tests, and Spark's modules from where they are compiled."""
    path = [PRELOADED, *(Path(pyspark.__file__).parent / "python/lib").glob("*.zip")]
    said = subprocess.run(                      # its input has ended, and so it ends
        [sys.executable, "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONVERBOSE": "1"}
    ).stderr
    loaded = dict(re.findall(r"^import '([\w.]+)' # <?([\w.]+)", said, re.MULTILINE))
    assert {"pyspark.sql.worker.create_data_source", "mqcore.spark.broker.source",
            "mqcore.spark.lake.writer", "mqcore.spark.store.source"} <= loaded.keys()
    assert [name for name, loader in loaded.items() if "zipimport" in loader] == []


def test_what_each_of_sparks_processes_loads_is_without_the_calls_of_administration() -> None:
    """These are a sixth of a start, in every parent of workers and for every stream."""
    program = "import sys, pyspark_rocketmq, pyspark_rocketmq_archive; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            check=True).stdout.split()
    assert "mqcore.spark.broker.source" in loaded
    assert [name for name in loaded if name.startswith("mqcore.client.admin")] == []
