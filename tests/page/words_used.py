"""All English texts that the page shows, found in its templates, tables and forms."""
from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import mqcore.page
from mqcore.admin.shell.view import Column
from mqcore.client.admin import TrackState
from mqcore.figures import LATENCIES
from mqcore.page import changes, meanings

HERE = Path(mqcore.page.__file__).parent
TRANSLATED = re.compile(r'\bt\((["\'])(.+?)\1\)')
CAPTIONS = re.compile(r'm\.listing\([^,]+, (?:one\.title or )?"([^"]+)"(?:, "([^"]+)")?')
CHARTS = re.compile(r'm\.chart\(.+?\], "([^"]+)"')
BUTTONS = re.compile(r'm\.change\("[^"]+", "([^"]+)"')
MENU = re.compile(r'\("/[^"]*", "([^"]+)"\)')
TITLES = re.compile(r'page\.render\(\s*"[^"]+", "([^"]+)"')
EMPTY = re.compile(r'Table\([^"]*?, "([^"]+)"')
TABLES = ("topic", "group", "dlq", "transaction", "client", "cluster", "check", "top", "stored",
          "message", "broker", "acl", "offset")
LEVELS = ("critical", "warning", "unknown", "user", "retry", "dead letters", "system", "all",
          "producers", "consumers")


def texts() -> set[str]:
    """The keys that a table of another language must have."""
    return {text for text in _texts() if text and re.search("[A-Za-z]", text)}


def _texts() -> Iterator[str]:
    for file in (HERE / "templates").glob("*.html"):
        text = file.read_text()
        yield from (found[1] for found in TRANSLATED.findall(text))
        for pattern in (CHARTS, BUTTONS, MENU):
            yield from pattern.findall(text)
        for found in CAPTIONS.findall(text):
            yield from found
    for file in (HERE / "pages").glob("*.py"):
        yield from TITLES.findall(file.read_text())
        yield from EMPTY.findall(file.read_text())
    pages = [file.stem for file in (HERE / "pages").glob("[a-z]*.py")]
    for module in (*(f"mqcore.admin.nouns.{name}" for name in TABLES),
                   *(f"mqcore.page.pages.{name}" for name in pages)):
        for value in vars(importlib.import_module(module)).values():
            if isinstance(value, tuple):
                yield from (one.title for one in value if isinstance(one, Column))
    for verb, (_, _, title, _) in changes.CHANGES.items():
        found = changes.change(verb)
        assert found is not None
        yield title
        yield from (field.label for field in found.fields)
    yield from meanings.MEANINGS.values()
    yield from LEVELS
    yield from (str(state) for state in TrackState)
    yield from (one.name for one in LATENCIES)
