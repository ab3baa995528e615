"""
Writes what the model of the settings says of each key where people read it: `make settings`.

A key's default comes into config/broker.toml, behind the `key =` that somebody wrote there below a
comment, and into its row of docs/configuration.md. A key without a row gets one, made of that
comment and of what stock calls it.

usage: python -m docs.settings
"""
from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mqcore.broker.settings.live import LIVE
from mqcore.broker.settings.load import defaults
from mqcore.broker.settings.stock_conf import CONVERTED, RENAMED

ROOT = Path(__file__).parents[1]
SHIPPED, DOCUMENT = Path("config/broker.toml"), Path("docs/configuration.md")
SECTION = re.compile(r"\[([a-z]+)\]")
KEY = re.compile(r"([a-z_]+) *=")
LIVE_HEAD = "| section | keys that are taken at once |\n|---|---|\n"
LIVE_TABLE = re.compile(re.escape(LIVE_HEAD) + r"(?:\|[^\n]*\n)*")
ROW = re.compile(r"\| `([a-z]+\.[a-z_]+)` \| `[^`]*` \|")

Values = dict[str, dict[str, object]]


class NotExplained(ValueError):
    """The shipped file lacks a key, or has one that is no setting; the text says which."""


def toml(value: object) -> str:
    """A default as a settings file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value).replace("'", '"')


def shipped(text: str, values: Values) -> tuple[str, dict[str, str]]:
    """The settings file with all defaults, and the comment above each key. Raises NotExplained."""
    lines, comments = [], {}
    section, comment = "", ""
    for line in text.splitlines():
        if found := SECTION.match(line):
            section = found[1]
        if line.startswith("#"):
            comment = f"{comment} {line.strip('# ')}".strip()
        else:
            if found := KEY.match(line):
                key = found[1]
                if key not in values.get(section, {}):
                    raise NotExplained(f"{SHIPPED}: {section}.{key} is no setting")
                comments[f"{section}.{key}"] = comment
                line = f"{key} = {toml(values[section][key])}"
            comment = ""
        lines.append(line)
    for name, keys in values.items():
        for before, key in zip([f"[{name}]", *keys], keys, strict=False):
            if f"{name}.{key}" not in comments:
                raise NotExplained(f"{SHIPPED} lacks {name}.{key}: write a comment and `{key} =` "
                                   f"there, behind {before}")
    return "\n".join(lines) + "\n", comments


def document(text: str, values: Values, comments: dict[str, str]) -> str:
    """The document with all defaults, and with a row for each key that had none."""
    lines = text.splitlines()
    rows = {found[1]: number for number, line in enumerate(lines) if (found := ROW.match(line))}
    new: dict[int, list[str]] = {}
    for section, keys in values.items():
        behind = lines.index("|---|---|---|---|", next(
            number for number, line in enumerate(lines) if line.startswith(f"## [{section}]")))
        for key, value in keys.items():
            name = f"{section}.{key}"
            cells = f"| `{name}` | `{toml(value)}` |"
            if name in rows:
                behind = rows[name]
                lines[behind] = ROW.sub(lambda _, cells=cells: cells, lines[behind])
            else:
                new.setdefault(behind, []).append(f"{cells} {comments[name]} | {stock(name)} |")
    made = "\n".join(part for number, line in enumerate(lines)
                     for part in [line, *new.get(number, ())]) + "\n"
    return LIVE_TABLE.sub(lambda _: LIVE_HEAD + "".join(live(values)), made, count=1)


def live(values: Values) -> Iterator[str]:
    """A row for each section that has keys which a running broker honours at once."""
    for section, keys in values.items():
        if taken := [f"`{key}`" for key in keys if f"{section}.{key}" in LIVE]:
            yield f"| `[{section}]` | {', '.join(taken)} |\n"


def stock(name: str) -> str:
    """What a stock broker.conf calls a setting."""
    known = [key for key, target in RENAMED.items() if target == name]
    known += [key for key, (target, _) in CONVERTED.items() if target == name]
    return ", ".join(f"`{key}`" for key in known) or "-"


def write(root: Path) -> None:
    """Raises NotExplained, and has written nothing then."""
    values = defaults()
    file, comments = shipped((root / SHIPPED).read_text(encoding="utf-8"), values)
    page = document((root / DOCUMENT).read_text(encoding="utf-8"), values, comments)
    (root / SHIPPED).write_text(file, encoding="utf-8")
    (root / DOCUMENT).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    try:
        write(ROOT)
    except NotExplained as error:
        sys.exit(str(error))
