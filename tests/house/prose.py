"""
Finds phrases that a reader has to translate back, in documents, comments, docstrings and messages.

`counts.toml` has the number of findings for each folder. A folder may have fewer, never more.
`python -m tests.house --lower` writes smaller numbers into it.
"""
from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MADE = "docs/invariants.md"         # of words that are counted where they stand
COUNTS = Path(__file__).with_name("counts.toml")

# Each phrase with the advice that a finding shows. HACKING.md, "Plain English", has pairs.
PHRASES = {
    "such a one": (r"\bsuch\s+(?:a\s+)?ones?\b", "repeat the noun"),
    "of it": (r"\bof\s+(?:it|them|these|those)\b", "use 'its', 'their', or the noun"),
    "opens with What or Who": (
        r"(?:\A|[.;:!]\s|\n\s*\n\s*|[-*|]\s)\s*(?:What|Who|Whoever|Whatever)\s+"
        r"(?!to\b|it\s+means\b)[a-z]+\b(?![^.!?|\n]*\?)",
        "begin with a noun that names the thing",
    ),
    "who is": (
        r"\bwho\s+(?:is|are|was|were|has|have|had|does|comes|waits|asks|reads|sends)\b",
        "name the client, process or person",
    ),
    "nobody": (r"\b(?:nobody|somebody|everybody|whoever)\b", "name the client, process or person"),
    "goes on": (r"\b(?:go|goes|went|going)\s+on\b", "'continues'"),
    "comes new": (r"\bcomes?\s+new\b", "'a new ...'"),
    "as it is": (r"\bas\s+(?:it\s+is|they\s+are|it\s+was|they\s+were)\b", "'unchanged'"),
    "alone": (r"\balone\b", "'only', or 'by itself'"),
}
_AS_WRITTEN = ("opens with What or Who", "who is")
_PATTERNS = {
    name: re.compile(pattern, 0 if name in _AS_WRITTEN else re.IGNORECASE)
    for name, (pattern, _) in PHRASES.items()
}

# comments and strings of Python and Cython; a quote in a comment ends nothing
_PIECES = re.compile(
    r"""(?P<comment>\#[^\n]*(?:\n[ \t]*\#[^\n]*)*)
      | (?P<string>[rbfuRBFU]{0,2}(?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''
                   |"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))""",
    re.VERBOSE,
)
_C_PIECES = re.compile(r"/\*[\s\S]*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*")
_FENCE = re.compile(r"^[ \t]*```.*?^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`[^`\n]+`")


@dataclass(frozen=True)
class Finding:
    """One phrase: where it stands and what to write instead."""

    path: str
    line: int
    phrase: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: {PHRASES[self.phrase][1]}"


def _blanked(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _texts(path: str, source: str) -> Iterator[tuple[int, str]]:
    """What a reader reads in a file, as (index in the file, text)."""
    suffix = Path(path).suffix
    if suffix == ".md":
        yield 0, _INLINE.sub(_blanked, _FENCE.sub(_blanked, source))
        return
    pieces = _C_PIECES if suffix in (".h", ".c", ".java") else _PIECES
    for match in pieces.finditer(source):
        text = re.sub(r"(?m)^([ \t]*)(#+|//+|\*)", lambda m: " " * len(m.group()), match.group())
        yield match.start(), text.replace('"', " ")


def findings(path: str, source: str) -> list[Finding]:
    """
    The phrases of one file.

    :param path: names the file in findings; its suffix says how it is read
    :param source: the file's text
    """
    found = []
    for start, text in _texts(path, source):
        for phrase, pattern in _PATTERNS.items():
            for match in pattern.finditer(text):
                shown = " ".join(match.group().split()).lstrip(".;:!-*| ")
                at = match.end()
                line = source.count("\n", 0, start + at) + 1
                found.append(Finding(path, line, phrase, shown))
    return sorted(found, key=lambda finding: (finding.path, finding.line))


def folder_of(path: str) -> str:
    """The folder whose count a file belongs to: two names at most, for files at the top '.'."""
    return "/".join(Path(path).parts[:-1][:2]) or "."


def tracked(root: Path) -> list[str]:
    """The files that git knows, or would take, of the kinds that are read here."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--",
         "*.md", "*.py", "*.pyi", "*.pyx", "*.pxd", "*.h", "*.c", "*.java", "*.toml"],
        cwd=root, check=True, capture_output=True, text=True,
    )
    return [
        path for path in sorted(set(listed.stdout.split("\n")))
        if path and (root / path).is_file() and not path.startswith(("tests/house/", MADE))
    ]


def all_findings(root: Path) -> list[Finding]:
    """The phrases of all files below `root`."""
    return [
        finding
        for path in tracked(root)
        for finding in findings(path, (root / path).read_text(errors="replace"))
    ]


def allowed() -> dict[str, int]:
    """How many findings each folder may have."""
    return {folder: int(count) for folder, count in tomllib.loads(COUNTS.read_text()).items()}


def write(counts: Counter[str]) -> None:
    """Write `counts` as the new limits."""
    lines = [f'"{folder}" = {count}' for folder, count in sorted(counts.items()) if count]
    COUNTS.write_text(
        "# Phrases of tests/house/prose.py by folder. Numbers only fall:"
        " `python -m tests.house --lower`.\n" + "\n".join(lines) + "\n"
    )
