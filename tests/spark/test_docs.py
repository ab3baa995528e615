"""docs/spark.md says what the tables of the code say."""
from __future__ import annotations

import re
from pathlib import Path

from mqcore.spark.columns import COLUMNS
from mqcore.spark.options import ROCKETMQ

TEXT = (Path(__file__).parents[2] / "docs/spark.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    part = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in part.splitlines() if line.startswith("|")][2:]


def test_every_option_is_in_the_table_with_its_meaning():
    told = {tuple(re.findall(r"`([^`]+)`", row[0])): row for row in rows("Options")}

    assert set(told) == {(option.name, *option.also) for option in ROCKETMQ}
    for option in ROCKETMQ:
        row = told[(option.name, *option.also)]
        assert row[1] == ", ".join(option.on)
        assert row[3].replace("\\|", "|") == option.says


def test_every_column_is_in_the_table():
    named = [name for row in rows("Columns") for name in re.findall(r"`([^`]+)`", row[0])]
    assert sorted(named) == sorted(column.name for column in COLUMNS)
