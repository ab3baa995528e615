"""
The log lines of the project's processes, found in its code. Run as a program it writes the table of
docs/events.md.
"""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mqcore.events import EVENTS, place

DOCUMENT = Path(__file__).parent / "events.md"
ROOT = Path(__file__).parents[1]
HEAD = "| event | level | line |\n|---|---|---|\n"
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error",
          "exception": "error"}
# Programs of users run the one part; the other part are commands, whose words are their output.
OTHERS = ("client", "contrib", "spark", "testing", "bench", "admin/demo", "admin/nouns",
          "admin/shell")


@dataclass(frozen=True)
class Line:
    """One call of a logger. key: by which the table of events has it."""

    file: str
    level: str
    text: str
    key: str


def lines() -> Iterator[Line]:
    """All lines. Raises ValueError for one whose text is made while it runs."""
    for path in sorted((ROOT / "mqcore").rglob("*.py")):
        name = str(path.relative_to(ROOT / "mqcore"))
        if not name.startswith(OTHERS):
            yield from _of_file(path, name)


def _of_file(path: Path, name: str) -> Iterator[Line]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {target.id: one.value.value for one in tree.body
                 if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant)
                 for target in one.targets if isinstance(target, ast.Name)}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in ast.walk(function):
            if not _logs(call):
                continue
            assert isinstance(call, ast.Call)
            assert isinstance(call.func, ast.Attribute)
            first = call.args[0]
            text = (constants.get(first.id) if isinstance(first, ast.Name)
                    else getattr(first, "value", None))
            if not isinstance(text, str):
                raise ValueError(f"{name}:{call.lineno}: expected a text that stands there")
            words = re.search("[a-zA-Z]", re.sub(r"%[-.\d]*[a-z]", "", text))
            yield Line(name, LEVELS[call.func.attr], text,
                       text if words else place(path.stem, function.name, text))


def _logs(node: ast.AST) -> bool:
    """Whether it is `log.warning(...)`, or what is like it."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS and node.args):
        return False
    logger = ast.unparse(node.func.value)
    return logger.endswith("log") or "getLogger(" in logger


def table() -> str:
    """The rows of docs/events.md, by name."""
    found = list(lines())
    rows = []
    for event in sorted(EVENTS, key=lambda one: one.name):
        here = [one for one in found if one.key in event.lines]
        levels = sorted({one.level for one in here})
        texts = list(dict.fromkeys(_shown(one.text) for one in here))
        rows.append(f"| `{event.name}` | {', '.join(levels) or 'not written any more'} | "
                    f"{'; '.join(texts)} |")
    return HEAD + "\n".join(rows) + "\n"


def _shown(text: str) -> str:
    """A text for a reader: `...` for what changes."""
    return re.sub(r"%[-.\d]*[a-z]", "...", text).replace("%%", "%").replace("|", "\\|")


def document(text: str) -> str:
    """The document with the table of today."""
    head, _, rest = text.partition(HEAD)
    after = rest.partition("\n\n")[2]
    return head + table() + (f"\n{after}" if after else "")


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
