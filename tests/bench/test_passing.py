"""The yardsticks of figures: two C programs that pass messages on, and older states."""
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from perf.contenders import ContenderError
from perf.passing import passed, passing_program
from perf.states import chosen, tags


def test_two_c_programs_pass_all_messages_on(tmp_path: Path) -> None:
    found = passed(passing_program(tmp_path), 2_000, 1)

    assert found["count"] == 2_000
    assert 0 < found["p50_us"] <= found["p99_us"] <= found["p99.9_us"] <= found["max_us"]


def test_a_load_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContenderError, match="expected at least 1, 1, and 8 to 65536"):
        passed(passing_program(tmp_path), 2_000, 1, 7)


def test_the_oldest_tagged_state_that_runs_and_the_last_one_are_chosen(tmp_path: Path) -> None:
    """Four states: the first does not build, and of the last one the command fails."""
    root = tmp_path / "project"
    root.mkdir()

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e", *words],
                       check=True, capture_output=True, env={
                           "PATH": "/usr/bin:/bin", "HOME": str(tmp_path),
                           "GIT_COMMITTER_DATE": f"2026-01-0{number} 00:00"})

    for number, (status, built) in enumerate(((0, False), (0, True), (0, True), (1, True)), 1):
        if number == 1:
            git("init", "--quiet")
        recipe = (f"mkdir -p .venv/bin && printf '#!/bin/sh\\nexit {status}\\n' > "
                  ".venv/bin/mqcore && chmod +x .venv/bin/mqcore") if built else "false"
        (root / "Makefile").write_text(f"build:\n\t{recipe}\n")
        git("add", "-A")
        git("commit", "--quiet", "--allow-empty", "-m", f"state {number}")
        git("tag", f"v{number}")
    states = tmp_path / "states"

    assert tags(root) == ["v1", "v2", "v3", "v4"]
    assert chosen(root, states) == [states / tag / ".venv/bin/mqcore" for tag in ("v2", "v3")]
