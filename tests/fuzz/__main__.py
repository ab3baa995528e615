"""
Fuzzes decoders and readers: `make fuzz`, or `python -m tests.fuzz [TARGET ...]`.

FUZZ_SECONDS   for all targets together, on FUZZ_JOBS processors: each gets the same part; 180
FUZZ_JOBS      how many at a time; 2
FUZZ_SEED      of the order of mutations; 0: another one each time
FUZZ_KEEP      if set, what was found is merged into tests/fuzz/corpus afterwards

Each target begins with its part of tests/fuzz/corpus, with recordings (seeds.py), and with what an
earlier run has left in build/fuzz/corpus. An input that breaks something is written to
build/fuzz/findings, and the run fails; `python -m tests.fuzz TARGET build/fuzz/findings/FILE`
repeats it.
"""
from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.debug import building as modules
from tests.fuzz.building import BUILT, HARNESS, PYTHON_LINES, TARGETS, build, missing
from tests.fuzz.seeds import seeds
from tests.support.ci import in_ci

CORPUS = Path(__file__).parent / "corpus"       # TARGET.gz: an input a line, in hexadecimal
FINDINGS = BUILT / "findings"
GROWN = BUILT / "corpus"
SCRATCH = Path("/dev/shm")
LENGTH_MAX = 1024
KEPT_BYTES_MAX = 48 << 10                       # of one target, before it is packed
SLOW = ("timeout", "slow-unit", "oom")          # what a full machine may do to any input
LIMITS = ("-timeout=10", "-rss_limit_mb=2048", "-detect_leaks=0", f"-max_len={LENGTH_MAX}")


@dataclass
class Run:
    target: str
    status: int
    said: str

    @property
    def executions(self) -> int:
        found = re.search(r"^stat::number_of_executed_units:\s*(\d+)", self.said, re.M)
        return int(found[1]) if found else 0

    @property
    def edges(self) -> int:
        found = re.findall(r" cov: (\d+) ", self.said)
        return int(found[-1]) if found else 0


def environment(target: str) -> dict[str, str]:
    lines = PYTHON_LINES.get(TARGETS[target])
    return {
        **os.environ, "MQCORE_FUZZ_PYTHON": sys.executable, "MQCORE_FUZZ_TARGET": target,
        "PYTHONPATH": str(modules.BUILT), "PYTHONMALLOC": "malloc",
        **({"MQCORE_FUZZ_LINES": lines} if lines else {}),
        # the interpreter has leaks of its own; a stack for each allocation costs most of the time
        "ASAN_OPTIONS": "detect_leaks=0:malloc_context_size=1:quarantine_size_mb=16:handle_abort=1:"
                        "abort_on_error=1:allocator_may_return_null=1:allow_addr2line=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:allow_addr2line=1",
    }


def called(target: str, *arguments: str | Path) -> Run:
    done = subprocess.run([HARNESS, *LIMITS, *arguments], cwd=modules.ROOT, env=environment(target),
                          capture_output=True, check=False)
    return Run(target, done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace"))


def name_of(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def kept(target: str) -> set[bytes]:
    """What tests/fuzz/corpus has of a target."""
    packed = CORPUS / f"{target}.gz"
    if not packed.exists():
        return set()
    lines = gzip.decompress(packed.read_bytes()).decode().splitlines()
    return {bytes.fromhex(line) for line in lines}


def fill(target: str, known: set[bytes]) -> Path:
    """The target's folder in build/fuzz/corpus, with all that there is to begin with."""
    folder = GROWN / target
    folder.mkdir(parents=True, exist_ok=True)
    for data in known | kept(target):
        (folder / name_of(data)).write_bytes(data)
    return folder


def fuzz(target: str, known: set[bytes], seconds: int) -> Run:
    """An input that took too long, or too much memory, beside others has to do so alone, too."""
    before = findings(target)
    run = called(target, fill(target, known), f"-max_total_time={seconds}",
                 f"-seed={int(os.environ.get('FUZZ_SEED', '0'))}",
                 "-print_final_stats=1", f"-artifact_prefix={FINDINGS}/{target}-")
    new = sorted(findings(target) - before)
    slow = [path for path in new if path.name.removeprefix(f"{target}-").startswith(SLOW)]
    if run.status and new and slow == new:
        again = called(target, *slow)
        print(f"fuzz: {target}: {', '.join(path.name for path in slow)} once more: {again.status}")
        run.status = again.status
    return run


def findings(target: str) -> set[Path]:
    return {*FINDINGS.glob(f"{target}-*")}


def keep(target: str) -> None:
    """The smallest part of what there is that reaches as much, packed into tests/fuzz/corpus."""
    least = BUILT / "merged" / target
    shutil.rmtree(least, ignore_errors=True)
    least.mkdir(parents=True)
    run = called(target, "-merge=1", least, GROWN / target)
    if run.status:
        raise SystemExit(run.said)
    taken = 0
    lines = []
    found = [path.read_bytes() for path in least.iterdir()]
    for data in sorted(found, key=lambda one: (len(one), one)):
        taken += len(data)
        if taken > KEPT_BYTES_MAX:
            break
        lines.append(data.hex())
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / f"{target}.gz").write_bytes(gzip.compress("\n".join(lines).encode(), 9, mtime=0))


def repeat(target: str, inputs: list[str]) -> int:
    run = called(target, *inputs)
    print(run.said)
    return run.status


def main(arguments: list[str]) -> int:
    lacking = missing()
    if lacking:
        print(f"fuzz: {'failed' if in_ci() else 'skipped'}, {lacking} is not installed")
        return int(in_ci())
    build()
    # a target's files outlive its process, which ends without the interpreter's end
    where = SCRATCH if SCRATCH.exists() else None
    with TemporaryDirectory(prefix="mqcore-fuzz-", dir=where) as files:
        os.environ["TMPDIR"] = files
        if len(arguments) > 1 and arguments[1] not in TARGETS:
            return repeat(arguments[0], arguments[1:])
        return run_all(arguments)


def run_all(arguments: list[str]) -> int:
    targets = arguments or list(TARGETS)
    jobs = int(os.environ.get("FUZZ_JOBS", "2"))
    seconds = max(1, int(os.environ.get("FUZZ_SECONDS", "180")) * jobs // len(targets))
    FINDINGS.mkdir(parents=True, exist_ok=True)
    known = seeds()
    with ThreadPoolExecutor(jobs) as pool:
        runs = list(pool.map(
            lambda target: fuzz(target, known.get(target, set()), seconds), targets))
    for run in runs:
        print(f"fuzz: {run.target:<16} {run.executions:>12,} executions {run.edges:>6} edges"
              f"{'' if run.status == 0 else '  FAILED'}")
    print(f"fuzz: {sum(run.executions for run in runs):,} executions, {seconds} s each")
    failed = [run for run in runs if run.status]
    for run in failed:
        print(f"\n== {run.target}\n{run.said[-6000:]}")
    if os.environ.get("FUZZ_KEEP") and not failed:
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(keep, targets))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
