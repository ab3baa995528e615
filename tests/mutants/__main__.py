"""
`make mutants`: breaks each lettered rule in a copy of the project, and runs the tests that hold it.

    python -m tests.mutants                  all
    python -m tests.mutants store E1 H2      those of rooms (files in tests/mutants) and of rules
    python -m tests.mutants --handful HASH   a few, by a commit's hash, in less than a minute
    python -m tests.mutants --bare           the rules that have none, and the open ones

The copy (build/mutants) keeps what it compiled: a second run compiles what changed. Ends with 1
when a mutant survives that is not marked as open, when an open one is noticed, when one cannot be
applied or compiled, or when its tests fail without it.
"""
from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.mutants.catalogue import (
    ROOT,
    SECONDS,
    Mutant,
    MutantError,
    mutants,
    rules,
    without,
)
from tests.mutants.switch import VARIABLE, switched

TREE = ROOT / "build" / "mutants"
LOGS = ROOT / "build" / "mutants-logs"
ALSO = ("mqcore/**/*.so", "mqcore/**/_native.p*", "mqcore/*.pxd", "build/cython/**/*",
        "build/temp*/**/*")
SOURCES = {".py", ".pyx", ".pxd", ".pyi"}
ERROR_PLACE = re.compile(r"(mqcore/[\w/]+\.p[xy][xd]):(\d+):\d+")
NATIVE_OF_A_HANDFUL, PYTHON_OF_A_HANDFUL = 2, 3
QUICK_ROOMS = ("mqcore/filter", "mqcore/net/remoting", "mqcore/store/index",     # by what they take
               "mqcore/store/schedule", "mqcore/store/transactions")             # to compile
BUILD_SECONDS = 3600
WAIT_S = "15"                           # of wait_until, where a test is to fail
FAILED, PASSED = 1, 0                   # what pytest ends with
running: set[subprocess.Popen[bytes]] = set()
FAILED_TEST = re.compile(r"(?m)^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$")


def listed() -> list[str]:
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
        check=True, capture_output=True, text=True).stdout.split("\0")
    return [name for name in names if name and (ROOT / name).exists()]


def update(text: bytes, target: Path) -> None:
    """A file that says what it said keeps its time."""
    if not target.exists() or target.read_bytes() != text:
        target.write_bytes(text)


def lay_out(chosen: Sequence[Mutant], every: Sequence[Mutant]) -> None:
    """The copy, with switches in the files of the chosen; where others are in, they stay."""
    of_file = defaultdict(list)
    for one in every:
        of_file[one.file].append(one)
    wanted = {one.file for one in chosen}
    names = listed()
    known = set(names)
    if not TREE.exists():
        for pattern in ALSO:
            names += [str(path.relative_to(ROOT)) for path in ROOT.glob(pattern)
                      if path.is_file() and path.is_relative_to(ROOT)]
        for name in dict.fromkeys(names):
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name, follow_symlinks=False)
    for name in names:
        source, target = ROOT / name, TREE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.unlink(missing_ok=True)
            target.symlink_to(source.readlink())
            continue
        text = source.read_bytes()
        if name in of_file:
            other = switched(text.decode(), of_file[name],
                             f"mq_mutant_{source.stem}").encode()
            if name in wanted or (target.exists() and target.read_bytes() == other):
                text = other
        update(text, target)
    processes = TREE / "mqcore" / "processes"       # else the editable install finds ROOT's
    if not processes.is_symlink():
        processes.symlink_to("../workers")
    for top in {name.partition("/")[0] for name in names if "/" in name}:
        for path in (TREE / top).rglob("*.p[yx]*"):
            if path.suffix in SOURCES and path.stem != "_native" and (
                    str(path.relative_to(TREE)) not in known):
                path.unlink()


def build() -> list[tuple[str, int]]:
    """Compiles what changed; returns the places of errors, none when all is well."""
    print("mutants: builds what they change", flush=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=TREE,
        env=os.environ | {"MQCORE_PROBES": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False, timeout=BUILD_SECONDS)
    (LOGS / "build").write_text(done.stdout, encoding="utf-8")
    if done.returncode == 0:
        return []
    places = {(name, int(line)) for name, line in ERROR_PLACE.findall(done.stdout)}
    print("\n".join(line for line in done.stdout.splitlines() if ERROR_PLACE.match(line)))
    if not places:
        print(done.stdout)
        raise MutantError(f"the build ended with {done.returncode}")
    return sorted(places)


def unbuildable(places: Iterable[tuple[str, int]], chosen: Sequence[Mutant]) -> list[Mutant]:
    """The mutants whose lines an error of the compiler names."""
    found = []
    for name, line in places:
        above = (TREE / name).read_text(encoding="utf-8").splitlines()[:line + 3]
        for one in reversed(above):
            number = re.search(r"mq_mutant_\w+\(\) == (\d+)", one)
            if number:
                found += [mutant for mutant in chosen if mutant.number == int(number[1])]
                break
    return found


def pytest(tests: Sequence[str], number: int, seconds: float, log: Path,
           *more: str) -> int | None:
    """The exit status of pytest; None: the time was over."""
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "-p",
             "no:cacheprovider", *more, *tests],
            cwd=TREE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {VARIABLE: str(number), "PYTHONPATH": str(TREE)}
            | ({"MQCORE_TEST_WAIT_S": WAIT_S} if number else {}))
        running.add(process)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
        finally:
            running.discard(process)


def end(number: int, frame: object) -> None:
    """Told to end: no run of tests stays behind."""
    for process in running.copy():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    os._exit(128 + number)


def verdict(mutant: Mutant) -> str:
    log = LOGS / f"{mutant.rule}-{mutant.number}"
    began = time.monotonic()
    ended = pytest(mutant.tests, mutant.number, mutant.seconds, log, "-x")
    took = f"{time.monotonic() - began:.0f} s"
    if ended == PASSED:
        word = "open    " if mutant.open else "SURVIVES"
        return f"{word}   {mutant} ({took}; {', '.join(mutant.tests)})"
    if ended is None or ended == FAILED or ended < 0:
        word = "NOTICED" if mutant.open else "noticed"        # its mark is to go
        return f"{word}    {mutant} ({took})"
    return f"NOT TESTED {mutant} (pytest ended with {ended}: {log})"


def is_bad(line: str) -> bool:
    """Whether the run fails for it."""
    return not line.startswith(("noticed", "open"))


def failing(chosen: Sequence[Mutant], jobs: int) -> set[str]:
    """Their tests that fail in the unchanged code, twice: the second time one after the other."""
    tests = sorted({test for one in chosen for test in one.tests})
    limit = sum({one.tests: one.seconds for one in chosen}.values())
    found: set[str] = set()
    for more in (["-n", str(jobs), "--dist", "worksteal"], []):
        log = LOGS / "without"
        ended = pytest(tests, 0, limit, log, *more)
        text = log.read_text(encoding="utf-8")
        found = set(FAILED_TEST.findall(text))
        if ended == PASSED:
            return set()
        if ended != FAILED or not found:
            print(text[-20_000:])
            raise MutantError(f"pytest ended with {ended}: {log}")
        tests = sorted(found)
    return found


def is_held_by(mutant: Mutant, test: str) -> bool:
    return any(test == one or test.startswith((f"{one}::", f"{one}/", f"{one}["))
               for one in mutant.tests)


def handful(every: Sequence[Mutant], commit: str) -> list[Mutant]:
    """Some for this commit: of one small native room, which is compiled once, and of Python."""
    dice = random.Random(commit)
    quick = [one for one in every if one.seconds <= SECONDS and not one.open]
    room = dice.choice(QUICK_ROOMS)
    native = [one for one in quick if one.native and one.file.rpartition("/")[0] == room]
    python = [one for one in quick if not one.native]
    return [*dice.sample(native, min(NATIVE_OF_A_HANDFUL, len(native))),
            *dice.sample(python, PYTHON_OF_A_HANDFUL)]


def bare(every: Sequence[Mutant]) -> None:
    """Prints the rules that have no mutant, by the file that states them, or by why."""
    known, reasons = rules(), without()
    left = defaultdict(list)
    for rule in known.keys() - {one.rule for one in every}:
        left[reasons.get(rule, known[rule])].append(rule)
    for place, names in sorted(left.items()):
        print(f"  {' '.join(sorted(names, key=lambda name: (len(name), name))):30} {place}")
    count = sum(map(len, left.values()))
    for one in every:
        if one.open:
            print(f"  {one.rule:8} {one.file}, open: {one.open}")
    bare_count = sum(len(names) for place, names in left.items() if place in known.values())
    print(f"mutants: {len(every)}, of {len(known) - count} rules; "
          f"{count} of {len(known)} have none, {bare_count} without a reason; "
          f"{sum(bool(one.open) for one in every)} are open")


def run(chosen: Sequence[Mutant], every: Sequence[Mutant], jobs: int) -> int:
    left = list(chosen)
    others = list(every)
    lines: list[str] = []
    lay_out(left, others)
    if any(one.native for one in left):
        while places := build():
            broken = unbuildable(places, others)
            if not broken:
                print((LOGS / "build").read_text(encoding="utf-8"))
                raise MutantError("the build failed, not by a mutant")
            lines += [f"NOT BUILT  {one}" for one in dict.fromkeys(broken)]
            left = [one for one in left if one not in broken]
            others = [one for one in others if one not in broken]
            lay_out(left, others)
    LOGS.mkdir(parents=True, exist_ok=True)
    for test in sorted(failing(left, jobs)):
        lines.append(f"FAILS      {test} without any mutant")
        left = [one for one in left if not is_held_by(one, test)]
    with ThreadPoolExecutor(jobs) as pool:
        for line in pool.map(verdict, left):
            print(line, flush=True)
            lines.append(line)
    bad = [line for line in lines if is_bad(line)]
    print("\n".join(["", *bad]))
    noticed = sum(line.startswith("noticed") for line in lines)
    print(f"mutants: {noticed} of {len(chosen)} noticed, "
          f"{sum(line.startswith('open') for line in lines)} open")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.mutants")
    parser.add_argument("names", nargs="*", metavar="ROOM|RULE")
    parser.add_argument("--handful", metavar="HASH")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    every = mutants()
    if options.bare:
        bare(every)
        return 0
    chosen = [one for one in every
              if not options.names or {one.room, one.rule} & set(options.names)]
    if options.handful is not None:
        chosen = handful(every, options.handful)
    if not chosen:
        parser.error(f"no mutants of {' '.join(options.names)}")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    try:
        return run(chosen, every, options.jobs)
    except MutantError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
