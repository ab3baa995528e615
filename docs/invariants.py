"""
Writes docs/invariants.md: each rule of the native core with the words of the file that states it.

A rule is `#   H2  Text` in the head of a .pxd (`  Q1  Text` in a docstring), with lines below that
are indented further. The tests behind a file's name are written by hand, and kept.

usage: python -m docs.invariants
"""
from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = Path("docs/invariants.md")
ROOMS = ("replication", "shm", "store", "net")
APART = ("probes", "verify", "repair")        # no process of a broker runs these
RULE = re.compile(r"^(?P<margin>#   |  )(?P<id>[A-Z]{1,2}\d+)  +(?P<text>\S.*)$")
TESTS = re.compile(r"^\| \*\*`(?P<file>[^`]+)`\*\* \| (?P<tests>.*) \|$", re.M)
NO_TESTS = "no test of its own"
HEAD = """\
# Invariants

Made by `make invariants` from the heads of the files; the tests are written here by hand.

A rule is stated in the interface of its module. Code and documents cite it with the module
(`held H2`), and by its id only in the file that states it. The tests behind a file would fail
first, directly or through a running broker.

Where processes or threads meet without a lock, `tests/models` has the protocol in its smallest
form, and a small explorer looks at every order of its steps on a machine that is weaker than x86
(stores pass each other, plain loads too). Each protocol is shown to break without any one of its
fences.
"""


class Rule(NamedTuple):
    """One invariant: its id, and its text on one line."""

    id: str
    text: str


def rules(text: str) -> list[Rule]:
    """The rules that a file states, in its order."""
    found: list[Rule] = []
    margin = ""                  # of the lines that continue the last rule
    for line in text.splitlines():
        if match := RULE.match(line):
            margin = f"{match['margin']}    "
            found.append(Rule(match["id"], match["text"]))
        elif margin and line.startswith(margin) and line.strip("# "):
            last = found[-1]
            found[-1] = last._replace(text=f"{last.text} {line[len(margin):].strip()}")
        else:
            margin = ""
    return found


def stated(root: Path) -> dict[Path, list[Rule]]:
    """The files that state rules, with these."""
    found = [path for room in ROOMS for path in (root / "mqcore" / room).rglob("*.p[xy][dx]")
             if path.stem != "_native" and not set(path.relative_to(root).parts) & set(APART)]
    files = sorted([*found, *(root / "mqcore").glob("*.p[xy][dx]")],
                   key=lambda path: (path.parent, path.name))
    texts = {path.relative_to(root): rules(path.read_text(encoding="utf-8")) for path in files}
    return {path: of_file for path, of_file in texts.items() if of_file}


def page(root: Path) -> str:
    """The page as it has to be, with the tests that it names now."""
    now = (root / PAGE).read_text(encoding="utf-8") if (root / PAGE).exists() else ""
    tests = {match["file"]: match["tests"] for match in TESTS.finditer(now)}
    return "\n".join([HEAD, *lines(stated(root), tests)]) + "\n"


def lines(files: dict[Path, list[Rule]], tests: dict[str, str]) -> Iterator[str]:
    """A table for each folder."""
    folder = Path()
    for path, of_file in files.items():
        if path.parent != folder:
            if folder != Path():
                yield ""
            folder = path.parent
            yield from (f"## {folder}", "", "| rule | says |", "|---|---|")
        yield f"| **`{path}`** | {tests.get(str(path), NO_TESTS)} |"
        yield from (f"| {rule.id} | {cell(rule.text)} |" for rule in of_file)


def cell(text: str) -> str:
    """A text within a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(ROOT), encoding="utf-8")
    sys.exit()
