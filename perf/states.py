"""
Other states of the project to compare with, built below build/states: the oldest known one that
still builds and runs here, and the last one. A ratio to the last one hides what came little by
little. Known are the commits of states.txt, in their order, and then the tags; a commit that this
clone lacks is left out.

    python -m perf.states

Prints options of perf.compare.
"""
from __future__ import annotations

import subprocess
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
COMMITS = "perf/states.txt"            # a line each: the commit, then why
STATES = ROOT / "build" / "states"
BUILD_TIMEOUT_S = 1800


def known(root: Path = ROOT) -> list[str]:
    """By age, the oldest first."""
    file = root / COMMITS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [words[0] for line in lines if (words := line.split())] + tags(root)


def tags(root: Path = ROOT) -> list[str]:
    said = subprocess.run(["git", "-C", str(root), "tag", "--sort=creatordate"],
                          capture_output=True, text=True, check=True)
    return said.stdout.split()


def built(state: str, root: Path = ROOT, states: Path = STATES) -> Path | None:
    """The mqcore command of a commit or tag; None: it does not build or run here."""
    folder = states / state
    command = folder / ".venv" / "bin" / "mqcore"
    if not command.exists():
        states.mkdir(parents=True, exist_ok=True)
        if not (folder.exists() or _well("git", "clone", "--quiet", "--shared", str(root),
                                         str(folder))):
            return None
        if not (_well("git", "-C", str(folder), "checkout", "--quiet", state)
                and _well("make", "-C", str(folder), "build")):
            return None
    return command if _well(str(command), "up", "--help") else None


def chosen(root: Path = ROOT, states: Path = STATES) -> list[Path]:
    """The oldest state that runs, and the newest that does, if that is another one."""
    names = known(root)
    oldest = next((found for name in names if (found := built(name, root, states))), None)
    newest = next((found for name in reversed(names) if (found := built(name, root, states))), None)
    return [found for found in dict.fromkeys((oldest, newest)) if found is not None]


def _well(*command: str) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=BUILD_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    click.echo(" ".join(f"--before {command}" for command in chosen()))
