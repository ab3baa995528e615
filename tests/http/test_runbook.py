"""The run-book: a section for each alert, whose commands, log lines and checks exist."""
from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from docs import alerts
from mqcore.events import EVENTS
from mqcore.http.server import PATHS
from tests.command.tree import parse

TEXT = (Path(__file__).parents[2] / "docs/runbook.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"(?ms)^## Mqcore(\w+)\n(.*?)(?=^## |\Z)", TEXT))
PROGRAMS = {"mqcore", "curl", "grep", "systemctl", "journalctl", "cat", "py-spy", "df", "iostat"}
# In place of words that a command reads: a folder that is there, and an id
WORDS = {"STORE": "/", "ID": "0" * 32}


def commands(text: str) -> list[list[str]]:
    """The lines of the blocks, and what else begins like a command in backquotes."""
    lines = re.findall(r"(?m)^    (\S.*)$", text)
    lines += [" ".join(found.split()) for found in re.findall(r"`(mqcore\s[^`]+)`", text)]
    return [[WORDS.get(word, word) for word in shlex.split(line.partition(" > ")[0])]
            for line in lines]


def test_each_alert_has_its_section_in_the_order_of_the_table() -> None:
    assert list(SECTIONS) == [one.name for one in alerts.ALERTS]
    for one in alerts.ALERTS:
        section = SECTIONS[one.name]
        assert " ".join(section.split()).startswith(f"**Means.** {one.means}"), one.name
        places = [section.index(word) for word in ("**Means.**", "**Look.**\n\n    ", "**Do.**")]
        assert places == sorted(places), one.name


@pytest.mark.parametrize("name", [*SECTIONS, "table"])
def test_each_command_of_a_section_can_be_typed(name: str) -> None:
    text = SECTIONS.get(name) or "".join(one.do for one in alerts.ALERTS)
    found = commands(text)
    assert found
    for words in found:
        assert words[0] in PROGRAMS, words
        if words[0] == "mqcore":
            parse(*words[1:])


@pytest.mark.parametrize("words", [
    ("broker", "gc", "BROKER"), ("check", "stalled", "--for", "soon"), ("dlq", "shw"),
    ("topic", "show"), ("replication", "status", "BROKER", "--no-such-option"),
])
def test_a_command_that_cannot_be_typed_is_found(words: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        parse(*words)


def test_log_lines_and_paths_that_it_names_exist() -> None:
    names = {event.name for event in EVENTS if event.lines}
    asked = re.findall(r"event=([a-z-]+)", TEXT)
    assert asked
    for name in asked:
        assert name in names, name
    paths = re.findall(r"http://HOST:10980(/\w+)", TEXT)
    assert paths
    assert set(paths) <= set(PATHS)
