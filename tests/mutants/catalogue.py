"""
The lettered rules of the code, and the mutants that break them: one-line changes, by room in
*.toml, each with the tests that fail for it.

    [[mutant]]
    rule = "E1"                       # of a .pxd's head; `member.M1` for that of a Python file
    file = "mqcore/net/serving/transaction.pyx"
    old = "what stands there once"
    new = "what is put in its place"
    tests = ["tests/transactions/test_ends.py"]
    seconds = 300                     # only where the tests take longer than SECONDS
    open = "why"                      # only where it survives: its rule waits for a test

A rule that no single line keeps has its reason in place of a mutant:

    [[without]]
    rules = ["T1"]
    why = "..."
"""
from __future__ import annotations

import re
import tomllib
import zlib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
SECONDS = 120                           # that the tests of a mutant may take
STATED = re.compile(r"(?m)^(?:#   |  ?)?([A-Z]{1,2}\d+) +(?=\S)")
COMMENT = re.compile(r"(?:[ \t]+#[^\n]*)?[ \t]*\n$")       # of a whole line ...
ANY_COMMENT = r"(?:[ \t]+#[^\n]*)?[ \t]*\n"                # ... which may have another one by now
KEYS = {"rule", "file", "old", "new", "tests", "seconds", "open"}


class MutantError(Exception):
    """A mutant that cannot be made: which one, and why."""


@dataclass(frozen=True)
class Mutant:
    room: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    seconds: int = SECONDS
    open: str = ""

    @property
    def number(self) -> int:
        """Chooses it at run time; the same for the same change."""
        return zlib.crc32(f"{self.file}\0{self.old}\0{self.new}".encode()) & 0x7FFFFFFF

    @property
    def native(self) -> bool:
        return not self.file.endswith(".py")

    def __str__(self) -> str:
        line = self.new.strip().partition("\n")[0] or "(removed)"
        return f"{self.rule} {self.file}: {line}"

    def place(self, text: str) -> tuple[int, int]:
        """Begin and end of its line in the text of its file, whatever comments say there."""
        pattern = "(?m)^" if self.old.startswith(" ") else ""
        pattern += "".join(
            re.escape(COMMENT.sub("", line)) + ANY_COMMENT if line.endswith("\n")
            else re.escape(line) for line in self.old.splitlines(keepends=True))
        found = [match.span() for match in re.finditer(pattern, text)]
        if len(found) != 1:
            raise MutantError(
                f"{self.room}.toml: {self}: `old` stands there {len(found)} times, not once")
        return found[0]


def rules(root: Path = ROOT) -> dict[str, str]:
    """Each rule's id -> the file that states it."""
    found: dict[str, str] = {}
    for path in sorted([*root.glob("mqcore/**/*.pxd"), *root.glob("mqcore/**/*.pyx"),
                        *root.glob("mqcore/**/*.py")]):
        if path.stem == "_native" or not (head := head_of(path)):
            continue
        for rule in STATED.findall(head):
            name = rule if path.suffix != ".py" else f"{path.stem}.{rule}"
            found.setdefault(name, str(path.relative_to(root)))
    return found


def head_of(path: Path) -> str:
    """The comment that a .pxd begins with; the docstring of others."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".pxd":
        return "\n".join(line for line in text.splitlines() if line.startswith("#   "))
    docstring = re.match(r'(?:#.*\n)*"""(.*?)"""', text, re.S)
    return docstring[1] if docstring else ""


def mutants(folder: Path = FOLDER) -> list[Mutant]:
    found = []
    for path in sorted(folder.glob("*.toml")):
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            if unknown := row.keys() - KEYS:
                raise MutantError(f"{path.name}: {row.get('rule')}: unknown keys {sorted(unknown)}")
            found.append(Mutant(path.stem, **(row | {"tests": tuple(row["tests"])})))
    return found


def without(folder: Path = FOLDER) -> dict[str, str]:
    """Rules that need no mutant -> why."""
    return {rule: row["why"] for path in sorted(folder.glob("*.toml"))
            for row in tomllib.loads(path.read_text(encoding="utf-8")).get("without", ())
            for rule in row["rules"]}
