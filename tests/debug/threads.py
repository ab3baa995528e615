"""
Threads at both ends of rings, and in the table of limits, under ThreadSanitizer: `make sanitize`,
or `python -m tests.debug.threads`.

The functions are those that processes call; here they run in two threads of one process, without
the interpreter's lock, so that the sanitizer sees whether each byte that one side reads was handed
over by the other. It does not know fences, so copies under a sequence are left to tests/models.
That it does report is shown by two producers on one ring.
"""
from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from mmap import mmap
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "threads"
WATCHED = ("mqcore.shm.ring", "mqcore.shm.limits")
FOUND = 66                           # status of a process in which something was found
RECORDS = 5_000
SPINS_MAX = 1 << 40
ENTRIES = 5_000
SEED = 20_261_123
CAPACITIES = (1024, 1 << 16)
ROOMY = 1 << 23


def watched(name: str) -> ModuleType:
    """A module as it was built for the sanitizer, in place of the ordinary one."""
    place = BUILT / (name.replace(".", "/") + EXTENSION_SUFFIXES[0])
    spec = spec_from_file_location(name, place, loader=ExtensionFileLoader(name, str(place)))
    assert spec is not None
    assert spec.loader is not None
    importlib.import_module(name.rpartition(".")[0])
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def together(*works: Callable[[], object]) -> None:
    """Each in a thread of its own; raises what one of them raised."""
    raised: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def rings() -> None:
    """One at each end, through a small ring and through one in which they hardly meet."""
    ring = watched("mqcore.shm.ring")
    from mqcore.layout import sizes

    for capacity in CAPACITIES:
        memory = mmap(-1, sizes()["RING_CURSORS_SIZE"] + capacity)
        together(partial(ring.produce_numbered, memory, capacity, RECORDS, SEED),
                 partial(ring.consume_numbered, memory, capacity, 0, RECORDS, SEED, SPINS_MAX))


def two_producers() -> None:
    """Against R2: they write over each other; there is room for all of it."""
    ring = watched("mqcore.shm.ring")
    from mqcore.layout import sizes

    memory = mmap(-1, sizes()["RING_CURSORS_SIZE"] + ROOMY)
    together(*[partial(ring.produce_fixed, memory, ROOMY, ROOMY // 64, 8)] * 2)


def limits() -> None:
    """Two processes' worth of threads want the same few places for different keys."""
    module = watched("mqcore.shm.limits")
    from tests.store.harness import new_segment

    table = module.LimitTable(new_segment(serving_count=2))

    def come_and_go(serving: int) -> None:
        for number in range(ENTRIES):
            place = table.enter((number * 7 + serving) % 24 << 32 | 1, serving, number)
            if place >= 0:
                table.leave(place, serving)

    together(lambda: come_and_go(0), lambda: come_and_go(1))
    assert all(now == 0 for now, _ in table.places().values())


PARTS: dict[str, Callable[[], None]] = {
    "rings": rings, "limits": limits, "two producers": two_producers}
REPORTED = {"two producers"}         # what is wrong by itself


def build() -> None:
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", BUILT, "--build-temp",
         BUILT / "objects"], cwd=ROOT, check=True,
        env={**os.environ, "MQCORE_THREADS": "1", "MQCORE_BUILD_ONLY": " ".join(WATCHED)})


def run(part: str) -> subprocess.CompletedProcess[str]:
    library = subprocess.run(["gcc", "-print-file-name=libtsan.so"], capture_output=True,
                             text=True, check=True).stdout.strip()
    return subprocess.run(
        [*fixed_layout(), sys.executable, "-m", "tests.debug.threads", part],
        cwd=ROOT, capture_output=True, text=True, check=False, env={
            **os.environ, "LD_PRELOAD": library, "PYTHONPATH": str(ROOT),
            "TSAN_OPTIONS": f"exitcode={FOUND}:halt_on_error=1"})


def fixed_layout() -> list[str]:
    """
    The sanitizer's shadow has fixed places, which a random layout may take; how a process gets
    none, where that is allowed.
    """
    command = ["setarch", platform.machine(), "-R"]
    allowed = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if allowed else []


def main() -> int:
    build()
    failed = 0
    for part in PARTS:
        done = run(part)
        if "unexpected memory mapping" in done.stderr:
            print("threads: skipped, this machine gives each process a random layout")
            return 0
        expected = FOUND if part in REPORTED else 0
        print(f"threads: {part} ended with {done.returncode}, expected {expected}")
        if done.returncode != expected:
            failed = 1
            print(done.stdout + done.stderr)
    return failed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PARTS[sys.argv[1]]()
    else:
        sys.exit(main())
