"""docs/spark says what the tables of the code say."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

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


def test_the_first_page_runs_on_an_empty_broker(world, tmp_path, capsys):
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.S))
    known = {}

    exec(code.replace("127.0.0.1:9876", world.namesrv).replace("/var/spark", str(tmp_path)), known)

    try:
        known["query"].processAllAvailable()
        copied = world.read("orders-copy").collect()
        assert sorted(int(row["body"]) for row in copied) == list(range(1_000))
        counts = known["orders"].groupBy("tags").count().collect()
        assert {row["tags"]: row["count"] for row in counts} == {"paid": 334, "new": 666}
    finally:
        known["query"].stop()
    assert "paid" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_every_block_of_code_has_its_end(path):
    opened = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            assert opened is None or line == "```", f"{path}:{opened}: the block has no end"
            opened = number if opened is None else None
    assert opened is None, f"{path}:{opened}: the block has no end"


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
