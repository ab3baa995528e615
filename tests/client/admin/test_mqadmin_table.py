"""The page that names our call for each command of mqadmin names all, and calls that there are."""
from __future__ import annotations

import re
from pathlib import Path

import mqcore
from mqcore.client import AsyncAdmin

PAGE = Path(mqcore.__file__).parent.parent / "docs/protocol/client.md"
ROW = re.compile(r"^\| (\w+) \| (.*`\w+`.*) \|$", re.M)


def table():
    section = PAGE.read_text(encoding="utf-8").partition("### 6.3 ")[2].partition("\n#")[0]
    return {command: re.findall(r"`(\w+)`", ours) for command, ours in ROW.findall(section)}


def test_every_call_that_is_named_is_there():
    named = [call for calls in table().values() for call in calls]
    assert [call for call in named if not hasattr(AsyncAdmin, call)] == []


def test_every_command_of_mqadmin_is_named(mqadmin):
    shown = mqadmin.ask("mqadmin", 5_000)
    commands = set(re.findall(r"^   (\w+) +", shown, re.M))
    assert len(commands) == 56
    assert commands == set(table())
