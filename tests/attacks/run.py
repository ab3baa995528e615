"""
One attack in a process of its own, so that it takes no time of the honest client's interpreter.

    python -m tests.attacks.run NAME BROKER NAMESRV SECONDS SEED

NAME is a module of this folder that has

    def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None

which attacks for that long, closes what it opened and returns; it asserts nothing about others.
"""
from __future__ import annotations

import importlib
import pkgutil
import random
import subprocess
import sys
from pathlib import Path

from tests import attacks

END_S = 60.0                    # what an attack may take beyond its time, on a busy machine


def names() -> list[str]:
    """All attacks that can run as long as asked."""
    found = sorted(one.name for one in pkgutil.iter_modules(attacks.__path__)
                   if not one.name.startswith("test_"))
    return [name for name in found if "\ndef run(" in _source(name) and name != "run"]


def attack(name: str, broker_addr: str, namesrv_addr: str, seconds: float, seed: int) -> None:
    """Run one attack to its end; AssertionError with its output when it failed itself."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.attacks.run", name, broker_addr, namesrv_addr, str(seconds),
         str(seed)], capture_output=True, text=True, timeout=seconds + END_S, check=False)
    assert done.returncode == 0, f"{name}, seed {seed}:\n{done.stderr[-4000:]}"


def _source(name: str) -> str:
    return (Path(attacks.__path__[0]) / f"{name}.py").read_text(encoding="utf-8")


if __name__ == "__main__":
    module = importlib.import_module(f"tests.attacks.{sys.argv[1]}")
    module.run(sys.argv[2], sys.argv[3], float(sys.argv[4]), random.Random(int(sys.argv[5])))
