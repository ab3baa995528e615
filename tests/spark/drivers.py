"""Drivers of their own, which tests kill."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from mqcore.bench.cpu import process_tree
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
HELD = ROOT / "tests/spark/programs/held"


def killed(program: str, *arguments: str, folder: Path, when: Callable[[], bool]) -> None:
    """A driver (tests/spark/programs) that is killed, with all its processes, as soon as `when`."""
    log = folder / "driver.log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", f"tests.spark.programs.{program}", *arguments], cwd=ROOT,
            stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": f"{HELD}:{ROOT}"})
    try:
        wait_until(lambda: driver.poll() is not None or when(), "the moment to kill", 300)
        assert driver.poll() is None, log.read_text()
    finally:
        if driver.poll() is None:
            for pid in process_tree(driver.pid):
                os.kill(pid, signal.SIGKILL)
        driver.wait()
