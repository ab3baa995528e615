"""
Other states of the project to compare with, built below build/states: the oldest tagged one that
still builds and runs here, and the last one. A ratio to the last one hides what came little by
little.

    python -m perf.states

Prints options of perf.compare; nothing where nothing is tagged.
"""
from __future__ import annotations

import subprocess
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
STATES = ROOT / "build" / "states"
BUILD_TIMEOUT_S = 1800


def tags(root: Path = ROOT) -> list[str]:
    """By age, the oldest first."""
    said = subprocess.run(["git", "-C", str(root), "tag", "--sort=creatordate"],
                          capture_output=True, text=True, check=True)
    return said.stdout.split()


def built(tag: str, root: Path = ROOT, states: Path = STATES) -> Path | None:
    """The mqcore command of a tagged state; None: it does not build or run here."""
    folder = states / tag
    command = folder / ".venv" / "bin" / "mqcore"
    if not command.exists():
        states.mkdir(parents=True, exist_ok=True)
        if not (folder.exists() or _well("git", "clone", "--quiet", "--shared", str(root),
                                         str(folder))):
            return None
        if not (_well("git", "-C", str(folder), "checkout", "--quiet", tag)
                and _well("make", "-C", str(folder), "build")):
            return None
    return command if _well(str(command), "up", "--help") else None


def chosen(root: Path = ROOT, states: Path = STATES) -> list[Path]:
    """The oldest state that runs, and the newest that does, if that is another one."""
    known = tags(root)
    oldest = next((found for tag in known if (found := built(tag, root, states))), None)
    newest = next((found for tag in reversed(known) if (found := built(tag, root, states))), None)
    return [found for found in dict.fromkeys((oldest, newest)) if found is not None]


def _well(*command: str) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=BUILD_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    click.echo(" ".join(f"--before {command}" for command in chosen()))
