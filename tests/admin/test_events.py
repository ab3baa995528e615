"""The names of log lines: every line has one, which is its own for good."""
from __future__ import annotations

import json
import logging
import re
from collections import Counter
from pathlib import Path

import pytest

from docs import events
from mqcore.admin.logs import JsonLines, TextLines
from mqcore.events import EVENTS, name_of

# How many names were given; a row that goes leaves a gap before this number.
GIVEN = 180


def test_every_line_has_a_name_and_every_name_a_line() -> None:
    written = {line.key for line in events.lines()}
    named = [line for event in EVENTS for line in event.lines]
    assert written - set(named) == set(), "lines without a row in mqcore/events.py"
    assert set(named) - written == set(), "a line that has gone: take the text out, keep the row"
    assert [line for line, count in Counter(named).items() if count > 1] == []


def test_a_name_is_given_once_and_its_row_stays() -> None:
    assert [event.number for event in EVENTS] == list(range(1, len(EVENTS) + 1))
    assert len(EVENTS) >= GIVEN
    assert [name for name, count in Counter(one.name for one in EVENTS).items() if count > 1] == []
    assert [one.name for one in EVENTS if not re.fullmatch("[a-z]+(-[a-z]+)*", one.name)] == []


def test_the_document_is_the_tables() -> None:
    text = events.DOCUMENT.read_text(encoding="utf-8")
    assert events.document(text) == text, "python -m docs.events"
    assert {f"`{event.name}`" for event in EVENTS} <= set(text.split())


def record(message: str, *values: object, function: str = "") -> logging.LogRecord:
    return logging.LogRecord("mqcore.writer", logging.ERROR, "/x/supervisor.py", 1, message, values,
                             None, function)


@pytest.mark.parametrize(("message", "function", "name"), [
    ("writes are refused: %s (%s)", "_look", "writes-refused"),
    ("%s ended with %s; %s", "_buried", "process-died"),
    ("%s", "_say_who_reaches_it", "open-to-others"),
    ("%s: %s", "_mark_unclean", "abort-file-not-written"),
    ("%s: %s", "of_another_function", ""),
    ("a line of a library", "_look", ""),
])
def test_a_line_shows_its_name(message: str, function: str, name: str) -> None:
    values = ("a", "b", "c")[:message.count("%s")]
    line = record(message, *values, function=function)
    text = TextLines().format(line)
    assert text.endswith(f"{message % values} event={name}" if name else message % values)
    assert json.loads(JsonLines().format(line))["event"] == name


def test_what_is_logged_need_not_be_text() -> None:
    line = record("x")
    line.msg = {"an": "object"}                      # type: ignore[assignment]
    assert name_of(line) == ""


def test_a_line_whose_text_is_made_while_it_runs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("def f():\n    log.warning(f'{x}')\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"one.py:2: expected a text that stands there"):
        list(events._of_file(file, "one.py"))


def test_a_line_of_a_constant_and_one_without_words_are_found(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("SAID = 'it said %s'\ndef f():\n    log.error(SAID, 1)\n"
                    "    logging.getLogger('x').info('%5.1f%%: %s', 1)\n", encoding="utf-8")
    assert [(line.level, line.key) for line in events._of_file(file, "one.py")] == [
        ("error", "it said %s"), ("info", "one.f %5.1f%%: %s")]
