"""
Lives through many histories, in small processes one after the other:

    python -m tests.transactions.many_histories FOLDER SEED COUNT

Prints [deaths, deliveries, those of them that were not the first]; ends with 1 at the first history
that goes wrong.
"""
from __future__ import annotations

import json
import os
import random
import shutil
import sys
import traceback
from pathlib import Path

from tests.transactions.histories import History

BATCH = 50                      # in a process of its own: what they open goes with it


def in_child(folder: Path, seeds: range) -> list[int]:
    """Lives through the histories; deaths, deliveries, and those that were not the first."""
    said = folder / "said"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            said.write_text(json.dumps(lives(folder, seeds)))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        sys.exit(1)
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


def main(folder: Path, seed: int, count: int) -> None:
    totals = [0, 0, 0]
    for first in range(seed, seed + count, BATCH):
        found = in_child(folder, range(first, min(first + BATCH, seed + count)))
        totals = [total + one for total, one in zip(totals, found, strict=True)]
    print(json.dumps(totals))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
