"""The stock classes of 4.9.8, asked line by line (AclOracle.java)."""
from __future__ import annotations

import base64
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.ci import unavailable
from tests.support.stock import (
    SHORT_LIVED,
    StockError,
    java_classes,
    require_stock,
    stock_classpath,
)

ARTIFACTS = ("org.apache.rocketmq:rocketmq-acl:4.9.8",)
SOURCE = Path(__file__).with_name("AclOracle.java")
TIMEOUT_S = 120
QUIET = '<configuration><root level="OFF"/></configuration>'


def home(folder: Path) -> str:
    """The rules of the following lines are those below `folder`/conf."""
    return f"home\t{folder}"


def judge(host: str, frame: bytes) -> str:
    return f"judge\t{host}:5000\t{base64.b64encode(frame).decode()}"


def pattern(text: str, host: str) -> str:
    return f"pattern\t{text}\t{host}"


def ask(lines: Sequence[str]) -> list[str]:
    """An answer for each line. Skips the test where there is no Java, or no stock jar."""
    require_stock()
    try:
        classpath = stock_classpath(ARTIFACTS)
    except StockError as error:
        unavailable(str(error))
    classes = java_classes(SOURCE, classpath)
    with tempfile.TemporaryDirectory() as folder:
        quiet = Path(folder) / "quiet.xml"
        quiet.write_text(QUIET)
        done = subprocess.run(
            ["java", *SHORT_LIVED, f"-Dlogback.configurationFile={quiet}", "-cp",
             f"{classes}{os.pathsep}{classpath}", SOURCE.stem],
            input="".join(f"{line}\n" for line in lines), capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False)
    answers = done.stdout.splitlines()
    if len(answers) != len(lines):
        pytest.fail(f"{len(answers)} answers to {len(lines)} lines: {done.stderr[-2000:]}")
    return answers
