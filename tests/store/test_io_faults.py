"""
Each call on a store's files goes wrong in turn (EIO, ENOSPC, EINTR, a short write, a torn one, a
disk that refuses everything from then on): nothing is acknowledged that the next start does not
find, no process ends without a message that says where, and the next start takes messages again.

disk_life.py has the scenario, fault_sweep.py the runs. MQCORE_TEST_FAULTS says which calls fail:
"all" (minutes), or a count of calls beyond the first of each kind on each kind of file; some in CI,
elsewhere 0. The modes differ in what they do to the commit log and its checksums: calls on other
files fail in async mode alone. MQCORE_TEST_SEED chooses them.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.dice import seed_of_run
from tests.support.failing_disk import FailingDisk, build, compiler
from tests.support.memory_folder import memory_folder

SEED = seed_of_run()
CHOICE = os.environ.get("MQCORE_TEST_FAULTS", "")
SWEEP_S_MAX = 900
CALLS_MIN = 250
CALLS_IN_CI = 4
SITES_MIN = {"async": 60, "sync": 12, "transient-pool": 7}


def choice_of() -> str:
    if CHOICE:
        return "all" if CHOICE == "all" else f"{SEED}:{CHOICE}"
    if not os.environ.get("CI"):
        return f"{SEED}:0"
    return f"{SEED}:{CALLS_IN_CI}"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("failing"))


@pytest.fixture
def memory() -> Iterator[Path]:
    with memory_folder("faults") as folder:
        yield folder


def sweep(memory: Path, library: Path, mode: str, choice: str) -> dict[str, Any]:
    root = memory / "store"
    disk = FailingDisk.create(memory / "plan", root)
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.fault_sweep", mode, str(root), str(disk.path), choice],
        env=disk.environment(library), capture_output=True, text=True, check=False,
        timeout=SWEEP_S_MAX)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(SWEEP_S_MAX + 20)
@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
@pytest.mark.parametrize("mode", ["async", "sync", "transient-pool"])
def test_a_call_that_fails_costs_nothing_acknowledged_and_the_next_start_recovers(
    mode: str, memory: Path, library: Path
) -> None:
    print(f"MQCORE_TEST_SEED={SEED} {choice_of()}")
    found = sweep(memory, library, mode, choice_of())
    print(f"{mode}: {found['calls']} calls at {found['sites']} sites; {found['runs']} runs, "
          f"{found['fired']} with a fault")
    assert not found["problems"], "\n".join(found["problems"][:5])
    assert found["missed"] == []
    assert found["calls"] >= CALLS_MIN
    assert found["sites"] >= SITES_MIN[mode]
    assert found["fired"] > 0.8 * found["runs"]


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
@pytest.mark.parametrize(("kind", "said"), [
    ("once", "OSError: [Errno 5] Input/output error"), ("short", "1500 of 3000"),
    ("torn", "OSError: [Errno 5] Input/output error"),
])
def test_the_disk_fails_as_told(kind: str, said: str, memory: Path, library: Path) -> None:
    root = memory / "store"
    root.mkdir()
    disk = FailingDisk.create(memory / "plan", root)
    disk.arm(at=1, error=5, kind=kind)
    script = ("import os, sys; fd = os.open(sys.argv[1] + '/file', os.O_CREAT | os.O_RDWR)\n"
              "print(os.pwrite(fd, bytes(3000), 0), 'of 3000')")
    done = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True,
                          env=disk.environment(library), text=True, check=False)
    assert said in done.stdout + done.stderr
    assert [(call.name, call.path) for call in disk.calls()] == [("open", "file"),
                                                                 ("write", "file")]
    assert (root / "file").stat().st_size == (0 if kind == "once" else 1500)
    assert disk.fired == 1


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
def test_the_first_call_at_a_site_fails_whatever_came_before_it(
    memory: Path, library: Path,
) -> None:
    root = memory / "store"
    (root / "log").mkdir(parents=True)
    disk = FailingDisk.create(memory / "plan", root)
    disk.arm_site("unlink log/N", 5)
    script = ("import os, sys\n"
              "for name in ('log/x1', 'log/17', 'log/18', '17'):\n"
              "    open(path := sys.argv[1] + '/' + name, 'w').close()\n"
              "    try:\n        os.unlink(path)\n"
              "    except OSError as error:\n        print(name, error.errno)")
    done = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True,
                          env=disk.environment(library), text=True, check=True)
    assert done.stdout == "log/17 5\n"
