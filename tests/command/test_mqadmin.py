"""`mqcore mqadmin`: each command of mqadmin 4.9.8 has one of ours, which exists."""
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mqcore.admin.nouns.mqadmin import REPLACED
from tests.support.command import mqcore

RULES = Path(__file__).parents[2] / "docs/protocol/client.md"


def test_all_commands_of_mqadmin_are_there() -> None:
    section = RULES.read_text().split("### 6.3 ")[1].split("\n### ")[0]
    registered = re.findall(r"(?m)^\| ([a-z]\w+) \|", section.replace("| mqadmin |", ""))

    assert len(registered) == 56
    assert list(REPLACED) == registered


@pytest.mark.parametrize("command", sorted({one for some in REPLACED.values() for one in some}))
def test_the_commands_that_replace_them_exist(command: str) -> None:
    assert mqcore(*command.split(), "-h").returncode == 0


def test_a_name_is_looked_up() -> None:
    done = mqcore("mqadmin", "resetOffsetByTime", "-n", "127.0.0.1:9876")
    assert done.stdout == "mqcore offset reset    (mqcore offset reset -h)\n"
    assert len(json.loads(mqcore("mqadmin", "--json").stdout)["commands"]) == 56
    wrong = mqcore("mqadmin", "topicLst")
    assert wrong.returncode == 3
    assert "did you mean 'topicList'" in wrong.stderr
