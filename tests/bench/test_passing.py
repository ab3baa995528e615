"""The yardsticks of figures: two C programs that pass messages on, and older states."""
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from perf.contenders import ContenderError
from perf.passing import passed, passing_program
from perf.states import ROOT, chosen, known


def test_two_c_programs_pass_all_messages_on(tmp_path: Path) -> None:
    found = passed(passing_program(tmp_path), 2_000, 1)

    assert found["count"] == 2_000
    assert 0 < found["p50_us"] <= found["p99_us"] <= found["p99.9_us"] <= found["max_us"]


def test_a_load_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContenderError, match="expected at least 1, 1, and 8 to 65536"):
        passed(passing_program(tmp_path), 2_000, 1, 7)


def test_the_oldest_state_that_runs_and_the_last_one_are_chosen(tmp_path: Path) -> None:
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
        if number > 2:
            git("tag", f"v{number}")
    (root / "perf").mkdir()
    commits = [subprocess.run(["git", "-C", str(root), "rev-parse", f"v3~{back}"], text=True,
                              check=True, capture_output=True).stdout.strip() for back in (2, 1)]
    (root / "perf" / "states.txt").write_text("".join(f"{one}  why\n\n" for one in commits))
    states = tmp_path / "states"

    assert known(root) == [*commits, "v3", "v4"]
    assert chosen(root, states) == [
        states / name / ".venv/bin/mqcore" for name in (commits[1], "v3")]


def test_the_project_knows_states_to_compare_with() -> None:
    commits = known(ROOT)
    assert commits
    assert all(len(commit) == 40 for commit in commits[:2])
