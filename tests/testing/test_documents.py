"""The examples of docs/testing.md run as they stand there."""
from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ci import unavailable
from tests.support.stock import SHORT_LIVED, have_stock, stock_classpath

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
JARS = ("org.junit.platform:junit-platform-console-standalone:1.10.2",
        "org.apache.rocketmq:rocketmq-client:4.9.8")
IMPORTS = """
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
"""


def examples(document: str, language: str) -> list[str]:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=100,
        env={"PATH": f"{BIN}:/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.interop
@pytest.mark.slow
def test_the_java_recipe_runs(tmp_path: Path) -> None:
    if not have_stock() or shutil.which("javac") is None:
        unavailable("needs a JDK, and mvn or an earlier download")
    extension, test = examples("testing.md", "java")
    (tmp_path / "MqcoreBroker.java").write_text(extension)
    (tmp_path / "OrdersTest.java").write_text(IMPORTS + test)
    path = f"{stock_classpath(JARS)}:{tmp_path}"
    run("javac", *(f"-J{option}" for option in SHORT_LIVED), "-proc:none", "-cp", path,
        "MqcoreBroker.java", "OrdersTest.java", cwd=tmp_path)
    said = run("java", *SHORT_LIVED, "-cp", path, "org.junit.platform.console.ConsoleLauncher",
               "execute", "--select-class", "OrdersTest", "--disable-banner", cwd=tmp_path)
    assert "1 tests successful" in said


@pytest.mark.slow
def test_the_pytest_example_passes(tmp_path: Path) -> None:
    first, _, memory = examples("testing.md", "python")
    (tmp_path / "test_it.py").write_text(
        f"{first}\n\ndef run(namesrv): assert namesrv\n\n"
        f"def test_memory():\n    {memory.strip().replace(chr(10), chr(10) + '    ')}\n")
    said = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py",
               cwd=tmp_path)
    assert "2 passed" in said
