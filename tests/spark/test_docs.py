"""docs/spark says what the tables of the code say."""
from __future__ import annotations

import re
from pathlib import Path

from mqcore.spark.columns import COLUMNS
from mqcore.spark.jobs.command import JOBS
from mqcore.spark.lake.options import LAKE
from mqcore.spark.options import ROCKETMQ
from mqcore.spark.store.options import KNOWN, STORE

DOCS = Path(__file__).parents[2] / "docs/spark"
TEXT = (DOCS / "README.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    return cells(TEXT.split(f"## {heading}\n")[1].split("\n## ")[0])


def cells(part: str) -> list[list[str]]:
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


def test_the_page_of_stores_has_their_options_and_columns():
    text = (DOCS / "at-rest.md").read_text(encoding="utf-8")
    told = {tuple(re.findall(r"`([^`]+)`", row[0])): row[2] for row in cells(text)}

    assert told == {(option.name, *option.also): option.says for option in STORE}
    shared = {column.name for column in COLUMNS}
    for columns in KNOWN.values():
        assert {column.name for column in columns} - shared <= set(re.findall(r"`(\w+)`", text))


def test_the_page_of_tables_has_their_options():
    text = (DOCS / "lake.md").read_text(encoding="utf-8").split("\n## ")[0]
    told = {row[0].strip("`"): row[2] for row in cells(text)}

    assert told == {option.name: option.says for option in LAKE}


def test_the_page_of_jobs_has_each():
    text = (DOCS / "jobs.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)$", text, re.M) == list(JOBS)
