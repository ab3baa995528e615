"""
Whatever happens in which order, and whoever dies: committed is delivered, rolled back is not, open
is asked about.

Twice delivered is a message of which two ends say commit: its producer's own, late one and an
answer, or answers about two copies. It is asked about after its end was stored only when that end
is not dispatched yet, or when a process died while there was a copy of it (docs/operations.md).
"""
from __future__ import annotations

import json
import os
import random
import shutil
import traceback
from pathlib import Path

import pytest

from tests.transactions.histories import History

SEED = int(os.environ.get("MQCORE_TEST_SEED", random.randrange(1 << 30)))
HISTORIES = int(os.environ.get("MQCORE_TEST_ROUNDS", "2000"))


BATCH = 50                      # in a process of its own: what they open goes with it


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_random_histories_keep_what_was_decided(tmp_path: Path) -> None:
    totals = [0, 0, 0]
    for first in range(SEED, SEED + HISTORIES, BATCH):
        for number, count in enumerate(in_child(
                tmp_path, range(first, min(first + BATCH, SEED + HISTORIES)))):
            totals[number] += count
    deaths, delivered, twice = totals
    print(f"seed {SEED}: {HISTORIES} histories, {deaths} deaths, {delivered} deliveries, "
          f"{twice} of them not the first")
    assert deaths > HISTORIES
    assert delivered > HISTORIES


def in_child(folder: Path, seeds: range) -> list[int]:
    """Lives through the histories; deaths, deliveries, and those that were not the first."""
    said = folder / "said"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            said.write_text(json.dumps(lives(folder, seeds)))
            code = 0
        except BaseException:
            said.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if status:
        pytest.fail(said.read_text())
    counts: list[int] = json.loads(said.read_text())
    return counts


def lives(folder: Path, seeds: range) -> list[int]:
    deaths = delivered = twice = 0
    for seed in seeds:
        root = folder / str(seed)
        try:
            history = History(root, random.Random(seed))
            history.live()
        except Exception as error:
            raise AssertionError(
                f"again: MQCORE_TEST_SEED={seed} MQCORE_TEST_ROUNDS=1") from error
        bodies = history.desk.bodies("Orders")
        deaths += history.deaths
        delivered += len(bodies)
        twice += len(bodies) - len(set(bodies))
        shutil.rmtree(root)
    return [deaths, delivered, twice]
