"""Figures, participants and native enums stand once: nothing repeats them by hand."""
from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.figures import FIGURES, PLACES, Figure, trouble
from mqcore.participants import (
    COORDINATOR,
    DISPATCHER,
    PARTICIPANTS,
    SERVING,
    SLOT_COUNT,
    SUPERVISOR,
    WRITER,
    Holds,
    processes,
)
from mqcore.wire import codes as codes_in_python
from mqcore.wire.codes import RequestCode, ResponseCode
from tests.imports import statements

ROOT = Path(__file__).parents[1]
PYTHON = [path for folder in ("mqcore", "workers", "tests", "perf")
          for path in sorted((ROOT / folder).rglob("*.py"))]
NATIVE = [path for suffix in ("pyx", "pxd")
          for path in sorted((ROOT / "mqcore").rglob(f"*.{suffix}"))]
WORD = re.compile(r"\w+")
OF_FIGURES = re.compile(r"figures\s*\[([^\]]*)\]")


# -- native enums ----------------------------------------------------------------------------------


def shown_enums(paths: list[Path]) -> set[str]:
    """Members of all enums that Python can import."""
    members, inside = set(), False
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.match(r"(cp?def) enum\b", line):
                inside = line.startswith("cpdef")
            elif line.strip() and not line.startswith(" "):
                inside = False
            elif inside and (found := re.match(r"    ([A-Z]\w*) *(=|$|#)", line)):
                members.add(found[1])
    return members


def is_literal(value: ast.expr) -> bool:
    """Numbers, tuples of them, range(): a value that somebody typed."""
    return not any(isinstance(node, ast.Attribute | ast.Subscript) or (
        isinstance(node, ast.Name) and node.id != "range") for node in ast.walk(value))


def repeated(source: str, members: set[str]) -> Iterator[tuple[int, str]]:
    """(line, name) of each constant that has a member's name and a value that was typed again."""
    if members.isdisjoint(WORD.findall(source)):
        return
    for node in statements(source):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        names = [name.id for target in targets for name in ast.walk(target)
                 if isinstance(name, ast.Name)]
        if is_literal(value):
            yield from ((node.lineno, name) for name in names if name in members)


@pytest.mark.parametrize("source", [
    "PUT_OK = 0", "PUT_OK, OTHER = 0, 3", "REFUSAL_NONE, PUT_OK = range(2)", "PUT_OK: Final = 0",
    "class PutStatus(IntEnum):\n    PUT_OK = 0"])
def test_a_number_that_is_typed_again_is_found(source: str) -> None:
    assert "PUT_OK" in {name for _, name in repeated(source, {"PUT_OK", "REFUSAL_NONE"})}


@pytest.mark.parametrize("source", [
    "PUT_OK = native.PUT_OK", "STORED = (PutStatus.PUT_OK,)", "OTHER = 0",
    "from mqcore.layout import PUT_OK"])
def test_what_is_taken_from_the_native_side_is_not(source: str) -> None:
    assert list(repeated(source, {"PUT_OK"})) == []


def test_no_python_file_repeats_the_numbers_of_a_native_enum() -> None:
    members = shown_enums(NATIVE)
    assert {"PUT_OK", "REFUSAL_DISK_FULL", "WORKER_RUNNING", "CLOSE_SLOW", "FOUND_FIELD"} <= members

    assert [f"{path.relative_to(ROOT)}:{line} {name}" for path in PYTHON
            for line, name in repeated(path.read_text(encoding="utf-8"), members)] == []


# -- codes -----------------------------------------------------------------------------------------


def typed(source: str) -> list[tuple[str, int]]:
    """Members of native enums with their numbers."""
    return [(name, int(number)) for name, number in re.findall(
        r"^    ([A-Z]\w+) = (\d+)\b", source, re.M)]


def test_native_codes_are_those_of_the_wire_and_stand_in_one_file() -> None:
    codes = ROOT / "mqcore/wire/codes.pxd"
    found = typed(codes.read_text(encoding="utf-8"))
    named = {f"REQUEST_{code.name}": code.value for code in RequestCode} | {
        f"RESPONSE_{name}": code.value for name, code in ResponseCode.__members__.items()} | {
        name: value for name, value in vars(codes_in_python).items() if name.startswith("PERM_")}

    assert len(found) > 20
    assert [(name, number) for name, number in found if named.get(name) != number] == []
    assert [f"{path.relative_to(ROOT)}: {name}" for path in NATIVE if path != codes
            for name, _ in typed(path.read_text(encoding="utf-8"))
            if name in named or f"RESPONSE_{name}" in named or name.startswith("CODE_")] == []


# -- texts in native code --------------------------------------------------------------------------


def test_no_text_in_native_code_has_its_length_beside_it() -> None:
    beside = re.compile(r'\bb"(?:[^"\\]|\\.)+", *\d+[,)]')
    assert beside.search('memcmp(at, b"TAGS", 4)')

    assert [f"{path.relative_to(ROOT)}:{number}" for path in NATIVE
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if beside.search(line)] == []


# -- figures ---------------------------------------------------------------------------------------


def test_the_table_of_figures_is_sound() -> None:
    assert trouble(FIGURES) == ""
    assert {figure.unit for figure in FIGURES} <= {"1", "bytes", "us", "ms"}
    shown = [figure.shown for figure in FIGURES if figure.shown]
    assert len(set(shown)) == len(shown)
    assert [name for name in shown if not re.fullmatch(r"[a-z]+\.[a-z_]+", name)] == []


@pytest.mark.parametrize("figure", [
    Figure(FIGURES[0].id, "other", FIGURES[0].role, "1", "on a place that is taken"),
    Figure(PLACES - 1, "other", WRITER, "1", "where every process has one"),
    Figure(PLACES, "other", WRITER, "1", "behind the end"),
    Figure(30, FIGURES[0].name, COORDINATOR, "1", "called like another one"),
], ids=lambda figure: figure.help)
def test_a_row_that_takes_the_place_of_another_is_refused(figure: Figure) -> None:
    assert trouble([*FIGURES, figure]) != ""


def test_native_code_names_every_figure_that_it_counts() -> None:
    named = {figure.constant for figure in FIGURES} | {"FIGURE_COUNT"}
    used = {(path.name, index) for path in NATIVE
            for index in OF_FIGURES.findall(path.read_text(encoding="utf-8"))}

    assert {index for _, index in used} >= {"FIGURE_APPENDS", "FIGURE_PULLS"}
    assert {(file, index) for file, index in used if index not in named} == {
        ("segment.pyx", "checked_figure(id)")}


# -- participants ----------------------------------------------------------------------------------


def test_every_process_has_a_slot_of_its_own() -> None:
    slots = [row.slot + index for row, index in processes(SERVING.count_max)]

    assert sorted(slots) == list(range(SLOT_COUNT))


def test_processes_are_called_as_their_files() -> None:
    files = {path.stem for path in (ROOT / "workers").glob("*.py")} - {"__init__"}

    assert {row.name.replace("-", "_") for row in PARTICIPANTS} == files
    assert [row.process_name(index) for row, index in processes(2)][1:3] == [
        "pull-serving-0", "pull-serving-1"]


def test_every_row_has_a_file_with_its_life() -> None:
    for row in PARTICIPANTS:
        if row is not SUPERVISOR:
            code = importlib.import_module(row.module)
            assert callable(code.live), row.name
            assert hasattr(code, "wanted") == row.optional, row.name


def test_serving_processes_are_the_first_that_append_and_hear() -> None:
    """Native code takes their index for their number."""
    assert (SERVING.producer, SERVING.listener) == (0, 0)


def test_rings_have_numbers_of_their_own() -> None:
    for numbers in ([(row.producer, row.count_max) for row in PARTICIPANTS if row.results],
                    [(row.listener, row.count_max) for row in PARTICIPANTS if row.hears]):
        taken = [first + index for first, count in numbers for index in range(count)]
        assert sorted(taken) == list(range(len(taken)))


def test_nobody_who_may_append_stops_after_the_writer_and_the_dispatcher_stops_after_it() -> None:
    late = [row.name for row in PARTICIPANTS if row.results and row.stop >= WRITER.stop]

    assert late == []
    assert DISPATCHER.stop > WRITER.stop
    assert [row.name for row in PARTICIPANTS if row.stores and row.holds is Holds.NOTHING] == []
