"""What the documents say in tables, commands and links agrees with the code."""
from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import mqcore
from docs import admin, invariants, requests
from mqcore import figures, participants
from mqcore.admin.cli import COMMANDS
from mqcore.broker.requests.table import HANDLERS
from mqcore.broker.settings.model import Settings
from mqcore.wire.codes import RequestCode
from tests.support.mqcore_process import mqcore_up

ROOT = Path(__file__).parents[2]
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
LAYOUT = "".join([*((ROOT / "mqcore" / name).read_text(encoding="utf-8")
                    for name in ("layout.pxd", "file_layout.pxd")),
                  participants.declarations(), figures.declarations()])
PROOFS = (ROOT / "mqcore/layout.pyx").read_text(encoding="utf-8")
SEGMENT = (ROOT / "mqcore/shm/segment.pyx").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
FEATURES = (ROOT / "docs/features.md").read_text(encoding="utf-8")
HACKING = (ROOT / "HACKING.md").read_text(encoding="utf-8")
FAIRNESS = (ROOT / "docs/fairness.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SIZES = {"KiB": 1 << 10, "MiB": 1 << 20}
DEFAULT_MESSAGE_BYTES = 4 << 20
SNIPPET_LIMIT_S = 60


def table(text: str, first: str) -> list[list[str]]:
    """The rows of the table whose first column is called `first`, without its head."""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |")) + 2
    rows = []
    while at < len(lines) and lines[at].startswith("|"):
        rows.append([cell.strip() for cell in lines[at].strip("|").split(" | ")])
        at += 1
    assert rows
    return rows


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# -- docs/architecture.md and the native core ------------------------------------------------------


def test_the_ring_table_names_every_ring_of_the_shared_memory() -> None:
    places = set(re.findall(r"^    RingPlace (\w+)", LAYOUT, re.MULTILINE))
    declared = places - {"access"}         # the place of a table

    assert {quoted(row[0])[0] for row in table(ARCHITECTURE, "ring")} == declared


def test_the_ring_table_says_how_large_rings_are() -> None:
    rows = {quoted(row[0])[0]: row[4] for row in table(ARCHITECTURE, "ring")}
    places = re.findall(r"place_ring\(&head\.(\w+)(?:\[\w+\])?, &?end, (.+)\)", SEGMENT)
    assert {ring for ring, _ in places} == rows.keys()
    for ring, size in places:
        sizes = {int(number) * SIZES[unit]
                 for number, unit in re.findall(r"(\d+) (KiB|MiB)", rows[ring])}
        column = re.fullmatch(r"row\.(\w+)", size)
        assert sizes == ({ring_bytes(size)} if column is None else {
            getattr(row, column[1]) for row in participants.PARTICIPANTS
            if getattr(row, column[1])}), ring


def test_the_ring_table_names_who_appends_and_who_hears() -> None:
    rows = {quoted(row[0])[0]: row for row in table(ARCHITECTURE, "ring")}
    producers = {row.name for row in participants.PARTICIPANTS if row.results}
    listeners = {row.name for row in participants.PARTICIPANTS if row.hears}

    assert names(rows["appends"][1]) == names(rows["append_results"][2]) == producers
    assert names(rows["arrivals"][2]) == listeners


def names(cell: str) -> set[str]:
    return {name.removesuffix("-N") for name in cell.split(", ")}


def ring_bytes(expression: str) -> int:
    """`1 << N`, or what the loop of segment.plan makes of the largest message by default."""
    shift = re.fullmatch(r"1 << (\d+)", expression)
    if shift:
        return 1 << int(shift[1])
    assert expression == "append_bytes"
    room = re.search(r"while append_bytes < 2 \* \(message_bytes_max \+ (\d+)\)", SEGMENT)
    assert room is not None
    size = 1 << 20
    while size < 2 * (DEFAULT_MESSAGE_BYTES + int(room[1])):
        size *= 2
    return size


def test_the_ring_table_names_every_kind_of_record() -> None:
    kinds = set(re.findall(
        r"^    ((?:APPEND|RESULT|ARRIVAL|FORWARD|ANSWER|CHECK)_[A-Z]+) = \d", LAYOUT, re.MULTILINE))
    said = {kind for row in table(ARCHITECTURE, "ring") for kind in quoted(row[5])}

    assert said == kinds


def test_the_number_table_agrees_with_the_layout() -> None:
    for name, value, _ in table(ARCHITECTURE, "number"):
        (word,) = quoted(name)
        assert layout_number(word) == int(value), word


def layout_number(name: str) -> int:
    """An enum's value, with the few names that it is made of, or a struct's proved size."""
    proved = re.search(rf"layout_assert\(sizeof\({name}\) == ([^)]+)\)", PROOFS)
    given = proved or re.search(rf"^    {name} = ([^#\n]+)", LAYOUT, re.MULTILINE)
    assert given is not None, name
    value = 1 if " * " in given[1] else 0
    for part in re.split(r" ([*+]) ", given[1].strip())[::2]:
        number = int(part) if part.isdigit() else layout_number(part)
        value = value * number if " * " in given[1] else value + number
    return value


def test_the_page_of_invariants_has_the_words_of_the_files_that_state_them() -> None:
    """`make invariants` writes it."""
    assert (ROOT / "docs/invariants.md").read_text(encoding="utf-8") == invariants.page(ROOT)


def test_an_id_is_that_of_one_invariant() -> None:
    ids = [rule.id for of_file in invariants.stated(ROOT).values() for rule in of_file]

    assert len(ids) > 200
    assert [id for id, count in Counter(ids).items() if count > 1] == []


def test_a_rule_goes_on_as_long_as_its_lines_are_indented() -> None:
    text = ("# A ring.\n#\n#   R1  One reader,\n#       one writer.\n#   R2  No lock.\n#\n"
            "#       Not this.\n# Nor this.\n\n  Q1  Three\n      steps.\n    Nor that.\n")

    assert invariants.rules(text) == [
        ("R1", "One reader, one writer."), ("R2", "No lock."), ("Q1", "Three steps.")]


def test_the_table_of_shares_names_rules_where_they_are_stated() -> None:
    rows = table(FAIRNESS, "resource")
    wrong = [row for row in rows if not re.search(
        rf"(^#   |\bclass ){re.escape(row[4].strip('`').split()[-1])}\b",
        (ROOT / quoted(row[5])[0]).read_text(encoding="utf-8"), re.MULTILINE)]

    assert len(rows) >= 20
    assert wrong == []


def test_the_tests_that_the_page_of_invariants_names_exist() -> None:
    page = (ROOT / "docs/invariants.md").read_text(encoding="utf-8")
    named = [path for row in invariants.TESTS.finditer(page) for path in quoted(row["tests"])]

    assert len(named) > 50
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_code_table_names_every_request_that_is_answered() -> None:
    said = {int(code): name
            for code, name in re.findall(r"\| (\d+) \| ([A-Z][A-Z0-9_]+) \|", HACKING)}

    assert said.keys() >= {*HANDLERS, 103, 105, 318}
    assert said == {code: RequestCode(code).name for code in said}
    assert requests.document(HACKING) == HACKING               # `make settings`


@pytest.mark.parametrize(("file", "made"), [
    (admin.BLOCKING, admin.blocking), (admin.DOCUMENT, admin.document)], ids=["Admin", "page"])
def test_all_methods_of_asyncadmin_are_written_where_they_belong(
        file: Path, made: Callable[[str], str]) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")

    assert made(text) == text                                  # `make settings`


def test_the_process_table_names_every_worker_and_its_file() -> None:
    files = {quoted(row[1])[0] for row in table(ARCHITECTURE, "process") if quoted(row[1])}
    slots = {row.name for row in participants.PARTICIPANTS}
    said = {row[0].removesuffix("-N") for row in table(ARCHITECTURE, "process")}

    assert said == slots
    assert [file for file in files if not (ROOT / file).exists()] == []


HOP = re.compile(r"`([A-Za-z0-9_/]+\.(?:pyx|pxd|py|java)):([A-Za-z0-9_]+)`")
DEFINED = r"^ *(?:async )?(?:def|cdef|cpdef)\b[^\n=]*\b{}\("
DEFINED_IN_JAVA = r"^  +(?:[\w<>\[\], ]+ )?{}\([^;]*?\{{$"


def test_each_life_names_its_hops_and_they_exist() -> None:
    lives = re.findall(r"^##+ (Life of [^\n]*)\n(.*?)(?=^##)", ARCHITECTURE, re.M | re.S)
    assert len(lives) >= 11
    for life, text in lives:
        hops = HOP.findall(text)
        assert len(hops) >= 3, life
        wrong = [f"{file}:{name}" for file, name in hops if not re.search(
            (DEFINED_IN_JAVA if file.endswith(".java") else DEFINED).format(name),
            (ROOT / "mqcore" / file).read_text(encoding="utf-8"), re.M)]
        assert wrong == [], life


# -- all documents ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_are_there(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    inside = [target for target in targets if "://" not in target]

    assert [target for target in inside if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_documents_name_are_there(path: Path) -> None:
    folders, suffixes = "mqcore|workers|tests|perf|config|docs", "pyx?|pxd|pyi|h|toml|md"
    named = re.findall(rf"`((?:{folders})/[\w/.-]+\.(?:{suffixes}))`",
                       path.read_text(encoding="utf-8"))

    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_that_documents_name_exist(path: Path) -> None:
    sections = {field.name: field.type for field in msgspec.structs.fields(Settings)
                if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)}
    known = {f"{section}.{field.name}" for section, kind in sections.items()
             for field in msgspec.structs.fields(kind)}
    named = re.findall(
        rf"(?<![\w/.])((?:{'|'.join(sections)})\.[a-z]+_[a-z_]+)(?!\w|\()",
        path.read_text(encoding="utf-8"))

    assert known
    assert sorted({name for name in named if name not in known}) == []


def test_the_commands_of_readme_and_features_are_all_that_there_are() -> None:
    others = r"mqcore (ready|demo)"              # a line of output, and its title
    named = set(re.findall(r"mqcore ([a-z]+)\b", re.sub(others, "", README + FEATURES)))
    rows = dict(table(FEATURES, "works"))
    listed = {word.removeprefix("mqcore ") for word in quoted(rows["commands"])}

    assert named <= COMMANDS.keys()
    assert listed == COMMANDS.keys()


def test_the_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"(?:^    |`|\$ )make (\w+)", README, re.MULTILINE)) <= targets


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    version = mqcore.__version__.partition(".dev")[0]
    first = re.search(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert first is not None
    assert first[1] == version


def test_the_readmes_python_example_prints_what_it_says(tmp_path: Path) -> None:
    example = re.search(
        r"```python\n(.*?)```\n\nIt prints `(.+?)`, then `(.+?)`\.", README, re.DOTALL)
    assert example is not None
    with mqcore_up(tmp_path) as broker:
        script = tmp_path / "example.py"
        script.write_text(example[1].replace("127.0.0.1:9876", broker.namesrv_addr))
        run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                             timeout=SNIPPET_LIMIT_S, check=False)

    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [example[2], example[3]]
