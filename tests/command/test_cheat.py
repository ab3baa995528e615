"""`mqcore cheat`: each of our lines can be typed, and mqadmin's words are mqadmin's."""
from __future__ import annotations

import json
import shlex

import pytest

from mqcore.admin.nouns.cheat import SHEET, Row
from mqcore.admin.nouns.mqadmin import REPLACED
from tests.command.tree import parse
from tests.support.command import mqcore

# In place of words that a command reads
WORDS = {"STORE": "/", "FOLDER": "/", "ID": "0" * 32, "TO": "/tmp/none"}


@pytest.mark.parametrize("row", SHEET, ids=lambda row: row.task)
def test_our_line_can_be_typed_and_replaces_mqadmins(row: Row) -> None:
    first, *words = shlex.split(row.mqcore)
    assert first == "mqcore"
    parse(*(WORDS.get(word, word) for word in words))
    if row.mqadmin:
        name = row.mqadmin.split()[0]
        ours = " ".join(words)
        assert any(ours.startswith(command) for command in REPLACED[name]), (name, ours)


def test_words_of_other_tools_find_the_task() -> None:
    assert len(json.loads(mqcore("cheat", "--json").stdout)["tasks"]) == len(SHEET) > 40
    found = mqcore("cheat", "nats", "sub").stdout
    assert "see messages as they come\nmqcore   mqcore message tail -t orders\n" in found
    assert "mqcore topic rm" not in found
    table = mqcore("cheat", "--from", "kafka").stdout.splitlines()
    assert table[0].split() == ["TASK", "KAFKA", "MQCORE"]
    assert all("kafka-" in line for line in table[1:])
    done = mqcore("cheat", "no-such-word")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
