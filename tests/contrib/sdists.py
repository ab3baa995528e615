"""Other projects' own tests, from the archive of their sources: fetched, run, and not kept here."""
from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.archives import extract
from tests.support.ci import unavailable
from tests.support.stock import CACHE

DOWNLOAD_S = 60
RUN_S = 110


def cached(name: str) -> Path:
    """Where the sources of `package-version` are, or will be."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return CACHE / name


def checkout(package: str, repository: str) -> Path:
    """
    The repository of an installed package at the tag of its version, for packages whose archive has
    no tests; kept in the cache folder. Skips the test when it cannot be had, in CI too: that has
    what package registries have.
    """
    name = f"{package}-{version(package)}"
    folder = cached(name)
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=folder.parent) as passing:
        target = Path(passing) / name
        try:
            done = subprocess.run(
                ["git", "clone", "--quiet", "--depth=1", f"--branch={version(package)}", repository,
                 str(target)], capture_output=True, text=True, timeout=DOWNLOAD_S, check=False,
                env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
        except subprocess.TimeoutExpired:
            pytest.skip(f"{repository} does not answer")
        if done.returncode != 0:
            pytest.skip(f"{repository} cannot be had: {done.stderr[-500:]}")
        if not folder.is_dir():
            target.rename(folder)
    return folder


def sources(package: str) -> Path:
    """
    The unpacked source archive of an installed package's version, kept in the cache folder.

    Skips the test when it cannot be had (offline); fails it in CI.
    """
    name = f"{package}-{version(package)}"
    folder = cached(name)
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=folder.parent) as passing:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
             f"--no-binary={package}", "--dest", passing, f"{package}=={version(package)}"],
            capture_output=True, text=True, timeout=DOWNLOAD_S, check=False)
        archives = list(Path(passing).glob("*.tar.gz"))
        if not archives:
            unavailable(f"the sources of {name} cannot be had: {done.stderr[-500:]}")
        with tarfile.open(archives[0]) as archive:
            extract(archive, Path(passing))
        if not folder.is_dir():
            (Path(passing) / name).rename(folder)
    return folder


def run_tests(
    program: str, tmp_path: Path, *paths: Path, env: dict[str, str], ini: str = "",
) -> dict[str, int]:
    """Run a module of tests in a pytest of its own; how many passed, failed, were skipped."""
    module = tmp_path / "test_theirs.py"
    module.write_text(program, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "--timeout=60",
         str(module)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=RUN_S,
        env={**os.environ, **env, "PYTHONPATH": os.pathsep.join(map(str, paths))})
    assert done.returncode in (0, 1), done.stdout + done.stderr
    counts = {word: int(number) for number, word in re.findall(
        r"(\d+) (passed|failed|skipped|error)", done.stdout.splitlines()[-1])}
    assert "failed" not in counts, done.stdout
    assert "error" not in counts, done.stdout
    return counts
