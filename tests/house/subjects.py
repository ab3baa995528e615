"""Subjects of commits: `room: imperative`, at most 72 characters, since the rule began."""
from __future__ import annotations

import re
import subprocess
from pathlib import Path

# the last commit before the rule
SINCE = "5dd5be00"
SUBJECT_LENGTH_MAX = 72
# one character too long, and noticed when others had built on it
EXCUSED = frozenset(("c62efdc4210ff73093e054ef8d5d2668f16bf6ec",))

_SHAPE = re.compile(r"(?P<room>[a-z][a-z0-9_./, -]*): (?P<verb>[A-Za-z][A-Za-z'-]*)( .*)?")
# an imperative ends neither like "adds" nor like "added" or "adding"; these do, and are ones
_IMPERATIVES = frozenset((
    "focus", "embed", "feed", "need", "proceed", "shed", "speed", "exceed", "succeed", "bring",
    "ring", "string", "ping",
))


def fault(subject: str) -> str | None:
    """What is wrong with a subject, or None."""
    if subject.startswith(("Merge ", "Revert ")):
        return None
    if len(subject) > SUBJECT_LENGTH_MAX:
        return f"{len(subject)} characters, {SUBJECT_LENGTH_MAX} are allowed"
    match = _SHAPE.fullmatch(subject)
    if match is None:
        return "expected 'room: imperative', like 'net: wake the writer once'"
    verb = match["verb"].lower()
    if verb not in _IMPERATIVES and re.search(r"(?:[^s]s|ed|ing)$", verb):
        return f"'{match['verb']}' is no imperative"
    if subject.endswith("."):
        return "a subject has no full stop"
    return None


def faults(root: Path) -> list[str]:
    """
    One line for each subject since the rule began that breaks it.

    A clone without that commit (a shallow one, an archive of the sources) has nothing to look at.
    """
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{SINCE}^{{commit}}"], cwd=root, capture_output=True)
    if known.returncode != 0:
        return []
    log = subprocess.run(
        ["git", "log", "--no-merges", "--format=%H %s", f"{SINCE}..HEAD"],
        cwd=root, check=True, capture_output=True, text=True,
    )
    lines = []
    for line in log.stdout.splitlines():
        commit, _, subject = line.partition(" ")
        wrong = fault(subject)
        if wrong is not None and commit not in EXCUSED:
            lines.append(f"commit {commit[:9]} {subject!r}: {wrong}")
    return lines
