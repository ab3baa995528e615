"""The ledger of costs finds each of six that are planted, and nothing where none is."""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf.ledger import instructions
from perf.ledger.bench import alone
from perf.ledger.counts import LedgerError, counting, look, preloaded
from perf.ledger.paths import modules, one_send
from perf.ledger.table import FILE, HEAD, Table, excess, read, write
from tests.support.ci import unavailable

PLANTED = Path(FILE).with_name("planted.c")
SEND = "send, one in flight"


@pytest.fixture(autouse=True, scope="module")
def one_processor() -> Iterator[None]:
    processors, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
    alone()
    yield
    os.sched_setaffinity(0, processors)
    os.sched_setscheduler(0, policy, os.sched_param(0))


@pytest.fixture(scope="module")
def agreed(tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder = tmp_path_factory.mktemp("agreed")
    with counting(folder) as numbers:
        return one_send(numbers, folder / "broker")


@pytest.mark.slow
@pytest.mark.parametrize(("cost", "figure"), [
    ("wake", "switches"), ("copy", "copied"), ("clock", "clocks"), ("page", "pages"), ("", "")])
def test_a_planted_cost_of_each_message_is_found_in_its_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agreed: Table, cost: str, figure: str
) -> None:
    if cost:
        monkeypatch.setenv("MQCORE_PLANTED", cost)
    with counting(tmp_path, preloaded(PLANTED, tmp_path)) as numbers:
        counted = one_send(numbers, tmp_path / "broker")
    found = excess(agreed, counted)
    print(*found, sep="\n")

    assert any(line.startswith(f"{SEND} / writer / {figure}:") for line in found) == bool(cost)
    assert cost or found == []


@pytest.mark.slow
def test_instructions_more_of_each_message_are_found_in_the_process_that_executes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := instructions.lacking():
        unavailable(why)
    monkeypatch.setenv("MQCORE_PLANTED", "work")
    counted = instructions.one_send(tmp_path / "broker", preloaded(PLANTED, tmp_path))
    agreed = {row: value for row, value in read().items() if row in counted}
    found = excess(agreed, counted)
    print(*found, sep="\n")

    assert {row[1] for row in agreed} == {"pull-serving-0", "writer"}
    assert any(line.startswith(f"{SEND} / writer / instructions:") for line in found)
    assert not any(line.startswith(f"{SEND} / pull-serving-0 /") for line in found)


@pytest.mark.slow
def test_an_import_more_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ("start", "all", "modules")
    agreed = {row: modules(tmp_path / "agreed")}
    assert excess(agreed, {row: modules(tmp_path / "again")}) == []
    (tmp_path / "sitecustomize.py").write_text("import this_costs\n")
    (tmp_path / "this_costs.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    (line,) = excess(agreed, {row: modules(tmp_path / "more")})
    assert line.startswith("start / all / modules:")


def test_every_figure_has_a_limit_of_its_own_and_what_one_side_lacks_is_said() -> None:
    copied, calls = ("a", "writer", "copied"), ("a", "writer", "calls")
    agreed = {copied: 1000.0, calls: 10.0}
    assert excess(agreed, {copied: 1038.0, calls: 11.2}) == []
    assert [line.split(":")[0] for line in excess(agreed, {copied: 1039.0, calls: 11.3})] == [
        "a / writer / copied", "a / writer / calls"]
    assert excess(agreed, {copied: 1.0}) == ["a / writer / calls: was not counted"]
    assert excess({copied: 1.0}, agreed)[-1] == "a / writer / calls: is not in the table"


def test_a_table_is_read_as_it_was_written_and_nothing_else_is_taken_for_one(
    tmp_path: Path
) -> None:
    table = {("a", "writer", "copied"): 1.25, ("a", "writer", "calls"): 3.0}
    write(table, tmp_path / "table.tsv")
    assert read(tmp_path / "table.tsv") == table
    for wrong in ("a\twriter\tspeed\t1", "a\twriter\tcalls\t1\na\twriter\tcalls\t2"):
        (tmp_path / "wrong.tsv").write_text("\t".join(HEAD) + "\n" + wrong + "\n")
        with pytest.raises(ValueError, match="no figure, or one that is there twice"):
            read(tmp_path / "wrong.tsv")


def test_a_process_that_does_not_count_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=f"process {os.getpid()} is not counted"):
        look(tmp_path, os.getpid())
