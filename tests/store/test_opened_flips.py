"""
Whatever byte of a small store changes, a broker that opens it either refuses and names the file, or
says what it has cut or built again, or serves exactly what was stored: never a wrong byte.

The worker processes' own start, dispatch and reading, in a forked child for each byte
(opened_flips.py). After a crash a start reads the log; after a clean stop it does not, and
`mqcore store verify` finds what has changed in it (tests/verify/test_flips.py).
MQCORE_TEST_FLIPS is the distance of the bytes that are flipped. The eight records are of several
lengths and the entries of 20 bytes, so that every part of either is met in one of them; each run
begins at other bytes.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dice import seed_of_run
from tests.support.memory_folder import memory_folder

SEED = seed_of_run()
DISTANCE = int(os.environ.get("MQCORE_TEST_FLIPS", "17"))
LIMIT_S = 300


@pytest.fixture
def memory() -> Iterator[Path]:
    with memory_folder("flips") as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.parametrize("life", ["after-crash", "after-stop"])
def test_a_start_serves_no_wrong_byte_whatever_was_flipped(memory: Path, life: str) -> None:
    """After a clean stop the log is left alone: a start does not read it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.opened_flips", str(memory), life, str(SEED),
         str(DISTANCE)], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, f"MQCORE_TEST_SEED={SEED}: {done.stdout}{done.stderr}"
    print(f"MQCORE_TEST_SEED={SEED}: {done.stdout}")
    assert json.loads(done.stdout)["same"] > 0
