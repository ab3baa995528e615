"""What the builder makes of the surroundings, before a session is there."""
from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

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


def test_what_each_of_sparks_processes_loads_is_without_the_calls_of_administration() -> None:
    """These are a quarter of a start, in every parent of workers and for every stream."""
    program = "import sys, pyspark_rocketmq, pyspark_rocketmq_archive; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            check=True).stdout.split()
    assert "mqcore.spark.broker.source" in loaded
    assert [name for name in loaded if name.startswith("mqcore.client.admin")] == []
