"""
Runs the scenario of disk_life.py again and again, each time with one call that goes wrong. Started
with the library of tests/support/failing_disk.c preloaded:

    python -m tests.store.fault_sweep MODE ROOT PLAN CHOICE

CHOICE is "all" for every call with every fault, or SEED:COUNT: the first call of each kind on each
kind of file, and COUNT other calls, meet each fault. Prints one line for each run with a problem,
and at the end a JSON object: {"calls", "runs", "fired", "problems", "sites", "missed"}; a site is a
kind of call on a kind of file.
"""
from __future__ import annotations

import errno
import gc
import json
import os
import random
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.store import disk_life
from tests.support.failing_disk import Call, FailingDisk

RUN_S_MAX = 20
FAULTS = {
    "EIO": ("once", errno.EIO), "ENOSPC": ("once", errno.ENOSPC), "EINTR": ("once", errno.EINTR),
    "short": ("short", 0), "torn": ("torn", errno.EIO),
    "EIO from then on": ("sticky", errno.EIO), "ENOSPC from then on": ("sticky", errno.ENOSPC),
}
PARTS = "log position|commit log|consume queue|key index"       # what a message may name
ENDED_WELL, ENDED_CLEARLY, ENDED_BADLY, STORE_DAMAGED = 0, 7, 8, 3


def site_of(call: Call) -> str:
    """The kind of call on the kind of file."""
    return f"{call.name} {re.sub(r'[0-9]+', 'N', call.path)}"


@dataclass
class Sweep:
    """All runs of one mode. root: where the store is made; notes beside it."""

    mode: str
    root: Path
    disk: FailingDisk

    def __post_init__(self) -> None:
        self.notes = self.root.with_name("notes")
        self.said = self.root.with_name("said")
        self.last_problem = ""
        self.hit: Call | None = None                    # the call that went wrong last

    def in_child(self, body: Callable[[], int]) -> int:
        """The exit code of a forked process; a signal as its negative number."""
        pid = os.fork()
        if pid == 0:
            code = ENDED_BADLY
            try:
                signal.alarm(RUN_S_MAX)
                said = os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                os.dup2(said, 1)
                os.dup2(said, 2)
                code = body()
            except disk_life.CLEAR as error:
                print(f"{type(error).__name__}: {error}")
                code = ENDED_CLEARLY if str(error) else ENDED_BADLY
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.disk.disarm()
        return code

    def life(self, *, at: int = -1, error: int = 0, kind: str = "once", site: str = "") -> int:
        """Two lives in which call `at`, or the first at `site`, goes wrong; the exit code."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()

        def body() -> int:
            with open(self.notes, "w") as notes:
                if site:
                    self.disk.arm_site(site, error)
                else:
                    self.disk.arm(at=at, error=error, kind=kind)
                disk_life.live_twice(self.root, self.mode, notes)
            return ENDED_WELL

        return self.in_child(body)

    def afterwards(self) -> tuple[int, str]:
        """Start again and check; (exit code, what was said)."""
        notes = [json.loads(line) for line in self.notes.read_text().splitlines()]

        def body() -> int:
            problem = disk_life.mend_and_check(self.root, self.mode, notes)
            print(problem, end="")
            return ENDED_BADLY if problem else ENDED_WELL

        code = self.in_child(body)
        return code, self.said.read_text()

    def problem(self, at: int, fault: str) -> str:
        """What is wrong with a run in which call `at` fails; "" for nothing."""
        kind, error = FAULTS[fault]
        code = self.life(at=at, error=error, kind=kind)
        self.hit = self.disk.call(at) if self.disk.fired else None
        return self.judged(code)

    def judged(self, code: int) -> str:
        """What is wrong with a life that ended so, or with the next start; "" for nothing."""
        said = self.said.read_text()
        if code not in (ENDED_WELL, ENDED_CLEARLY, STORE_DAMAGED):
            return f"ended with {code}:\n{said}"
        if code != ENDED_WELL and not re.search(f"{re.escape(str(self.root))}|{PARTS}", said):
            return f"ended with {code}, and does not say where:\n{said}"
        code, said = self.afterwards()
        return "" if code == ENDED_WELL else f"the next start: {code}:\n{said}"

    def reach(self, site: str) -> bool:
        """Let a call of one site fail, wherever threads have moved it; whether it came at all."""
        self.last_problem = self.judged(self.life(site=site, error=errno.EIO))
        return self.disk.fired > 0


def concerns(mode: str, call: Call) -> bool:
    """
    Modes differ only in what they do to the log, and to its checksums: async mode has all other
    files. A pool, which takes its time, leaves the checksums to async mode as well.
    """
    return mode == "async" or call.path.startswith("commitlog") or (
        mode == "sync" and call.path.startswith("checksums"))


def can_meet(call: Call, fault: str) -> bool:
    """
    Short and torn are writes of some bytes. No signal interrupts what changes folders; what frees
    room, or reads, meets no full disk.
    """
    if fault in ("short", "torn"):
        return call.name == "write" and call.size > 1
    if fault == "EINTR":
        return call.name not in ("mkdir", "rmdir", "rename", "unlink")
    return fault != "ENOSPC" or call.name not in ("read", "rmdir", "unlink")


def chosen(mode: str, calls: list[Call], choice: str, fault: str) -> list[int]:
    """Numbers of the calls that are to fail in turn."""
    fitting = [number for number, call in enumerate(calls)
               if concerns(mode, call) and can_meet(call, fault)]
    if choice == "all":
        return fitting
    seed, _, count = choice.partition(":")
    firsts = {site_of(calls[number]): number for number in reversed(fitting)}
    others = sorted(set(fitting) - set(firsts.values()))
    dice = random.Random(f"{seed} {fault}")
    return sorted([*firsts.values(), *dice.sample(others, min(int(count), len(others)))])


def main(mode: str, root: str, plan: str, choice: str) -> None:
    sweep = Sweep(mode, Path(root), FailingDisk(Path(plan)))
    disk_life.small_settings(sweep.root, mode)            # once, not in every child
    gc.collect()
    gc.freeze()             # no child looks through what is here, and copies it for that
    code = sweep.life()
    calls = sweep.disk.calls()
    problems = [] if code == ENDED_WELL else [
        f"without any fault it ended with {code}: {sweep.said.read_text()}"]
    code, said = sweep.afterwards()
    if code != ENDED_WELL:
        problems.append(f"without any fault, the next start: {said}")
    runs = fired = 0
    sites: set[str] = set()
    for fault in FAULTS if not problems else ():
        for number in chosen(mode, calls, choice, fault):
            problem = sweep.problem(number, fault)
            runs += 1
            if sweep.hit is not None:           # threads: not always the call of the first run
                fired += 1
                sites.add(site_of(sweep.hit))
            if problem:
                problems.append(f"{fault} at call {number} of {len(calls)}, "
                                f"{calls[number]}: {problem}")
                print(problems[-1], flush=True)
    missed = {site_of(call) for call in calls if concerns(mode, call)} - sites
    for site in sorted(missed) if not problems else ():
        if sweep.reach(site):
            missed.remove(site)
            problems += [sweep.last_problem] if sweep.last_problem else []
    print(json.dumps({"calls": len(calls), "runs": runs, "fired": fired, "problems": problems,
                      "sites": len(sites), "missed": sorted(missed)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
