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
