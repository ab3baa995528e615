"""
The build under sanitizers, in build/debug: by clang, whose modules tests/fuzz runs, too; by gcc
where clang is not.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from platform import machine

ROOT = Path(__file__).resolve().parents[2]     # through the link in build/debug
BUILT = ROOT / "build" / "debug"
LINKED = ("tests", "docs", "pyproject.toml")     # what the tests need besides the package


def library(compiler: str, name: str) -> str:
    """Where a compiler has it; the name alone: nowhere."""
    return subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True,
                          check=True).stdout.strip()


def runtime(part: str, suffix: str) -> str:
    """clang's, of one of its sanitizers; empty: clang, or that, is not installed."""
    if shutil.which("clang") is None:
        return ""
    # the latter where each machine's are in a folder of their own
    found = (library("clang", f"libclang_rt.{part}{of}{suffix}") for of in (f"-{machine()}", ""))
    return next((path for path in found if Path(path).is_absolute()), "")


@cache
def sanitizers() -> tuple[str, str]:
    """The compiler of the build, and what a process that loads its modules has to load first."""
    if by_clang := runtime("asan", ".so"):
        return "clang", by_clang
    return "gcc", library("gcc", "libasan.so")


def build() -> None:
    """Compile what changed."""
    compiler, _ = sanitizers()
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build", "--build-base", BUILT / "objects",
         "--build-lib", BUILT], cwd=ROOT, check=True,
        env={**os.environ, "CC": compiler, "MQCORE_DEBUG": "1"})
    for name in LINKED:
        if not (BUILT / name).is_symlink():
            (BUILT / name).symlink_to(ROOT / name)


if __name__ == "__main__":
    build()
