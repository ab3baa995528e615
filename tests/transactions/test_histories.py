"""
Whatever happens in which order, and whoever dies: committed is delivered, rolled back is not, open
is asked about.

Twice delivered is a message of which two ends say commit: its producer's own, late one and an
answer, or answers about two copies. It is asked about after its end was stored only when that end
is not dispatched yet, or when a process died while there was a copy of it (docs/operations.md).

A history has 40 steps of eleven kinds, so that a hundred of them have each kind behind each other
one; MQCORE_TEST_ROUNDS says how many there are, MQCORE_TEST_SEED which.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.dice import seed_of_run
from tests.support.memory_folder import memory_folder

SEED = seed_of_run()
HISTORIES = int(os.environ.get("MQCORE_TEST_ROUNDS", "400"))
LIMIT_S = 400


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 20)
def test_random_histories_keep_what_was_decided() -> None:
    with memory_folder("histories") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.transactions.many_histories", str(folder), str(SEED),
             str(HISTORIES)], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    deaths, delivered, twice = json.loads(done.stdout)
    print(f"seed {SEED}: {HISTORIES} histories, {deaths} deaths, {delivered} deliveries, "
          f"{twice} of them not the first")
    assert deaths > HISTORIES
    assert delivered > HISTORIES
