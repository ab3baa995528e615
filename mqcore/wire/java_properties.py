"""Java properties: what stock reads the settings of brokers and of TLS from."""
from __future__ import annotations

import re


def parse_properties(raw: bytes) -> dict[str, str]:
    """
    Key and value of each line of a Java properties file (Latin-1, backslash escapes, # and !
    comments, `=`, `:` or blanks between key and value, a backslash at the end continues a line).
    """
    entries = {}
    for line in _logical_lines(raw.decode("latin-1")):
        match = re.match(r"((?:\\.|[^\\=:\s])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", line, re.S)
        if match is not None and match[1]:
            entries[_unescaped(match[1])] = _unescaped(match[2]).strip()
    return entries


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    joined: list[str] = []
    for line in re.split(r"\r\n|\n|\r", text):
        line = line.lstrip(" \t\f")
        if not joined and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            joined += [line[:-1]] if line[:-1] else []
            continue
        lines.append("".join((*joined, line)))
        joined = []
    if joined:
        lines.append("".join(joined))
    return lines


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", one, text, flags=re.S)
