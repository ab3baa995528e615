"""
Native modules that are compiled as one (setup.py, Units): a name means one thing in all of them,
and each says what it takes from the others. Cython says nothing of a second `import` or `def` of a
name, nor of a name that only another file has.
"""
import re
from pathlib import Path

import pytest

from tests.imports import STATEMENT, UNIT, module_of, without_comments

ROOT = Path(__file__).parents[1]
UNITS = sorted((ROOT / "mqcore").rglob(f"{UNIT}.pyx"))
NAMED = [re.compile(pattern, re.MULTILINE) for pattern in (
    r"^(?:cdef class|class|def|c(?:p)?def enum|cdef struct|cdef packed struct|cdef union) (\w+)",
    r"^cp?def (?!class|enum|struct|packed|union|extern)(?:inline )?"
    r"[\w.\[\], ]+?[ *\]]+(\w+)\s*(?:\(|=|$)",
    r"^(\w+) *(?::[^=\n]+)?= ")]
BLOCK = re.compile(r"^c(?:p)?def (enum|extern)[^\n]*:\n((?: {4}[^\n]*\n|\n)+)", re.MULTILINE)
INSIDE = {"enum": re.compile(r"^ {4}(\w+)", re.MULTILINE),
          "extern": re.compile(r"^ {4}(?!enum)[\w *]+?(\w+)(?: \"\w+\")?(?=\(|,|$)|, (\w+)(?=,|$)",
                               re.MULTILINE)}
# -- what a function has for itself, and fields of structs
LOCAL = re.compile(
    r"^\s*c?p?def [^(\n]*\([^)]*\)|^\s+cdef [^\n]*|lambda [^:]*:|\bfor [\w, ]+ in|\bas \w+"
    r"|^\s+[\w, ]+ [-+|&^]?= |^ {4}[\w *]+\([\w *,]*\)[\w ?+*]*$"
    r"|^ {4}(?!return|raise|global|del|yield)(?:const )?[\w.]+[ *]+\w+(?:\[[^\]]*\])?\s*$",
    re.MULTILINE)
WORD = re.compile(r"(?<![.\w\"'])([A-Za-z_]\w*)\b(?!\s*=[^=])")


def members(unit: Path) -> dict[str, list[Path]]:
    """Module -> its files."""
    found: dict[str, list[Path]] = {}
    for made in (unit.with_suffix(".pxd"), unit):
        for name in re.findall(r'include "(.*)"', made.read_text(encoding="utf-8")):
            found.setdefault(name.partition(".")[0], []).append(made.with_name(name))
    return found


def text_of(path: Path) -> str:
    return without_comments(path.read_text(encoding="utf-8"))


def meanings(text: str, own: str) -> set[tuple[str, str]]:
    """The names of a native file, each with where it is from."""
    found = set()
    for one in STATEMENT.finditer(text):
        for name in (one["names"] or one["modules"] or "").strip("() \n").split(","):
            words = name.split()
            if words and one["source"]:
                found.add((words[-1], f"{one['source']}.{words[0]}"))
            elif words:
                found.add((words[-1].partition(".")[0], one[0].split()[0] + " " + words[0]))
    found |= {(name, f"{own}.{name}") for pattern in NAMED for name in pattern.findall(text)}
    for block in BLOCK.finditer(text):
        for one in INSIDE[block[1]].finditer(block[2]):
            name = next(filter(None, one.groups()))
            found.add((name, f"C: {name}" if block[1] == "extern" else f"{own}.{name}"))
    return found


def meant_twice(files: dict[str, str]) -> dict[str, set[str]]:
    """Of the files of a room: names with all that they mean, where that is more than one thing."""
    known: dict[str, set[str]] = {}
    for own, text in files.items():
        for name, where in meanings(text, own):
            known.setdefault(name, set()).add(where)
    for name, places in known.items():
        if f"C: {name}" in places:
            places -= {f"{own}.{name}" for own in files}
    return {name: places for name, places in known.items() if len(places) > 1}


def borrowed(files: dict[str, str]) -> dict[str, set[str]]:
    """Module -> names that only others of the room have."""
    has = {own: {name for name, _ in meanings(text, own)} for own, text in files.items()}
    found = {}
    for own, text in files.items():
        text = re.sub(r'"[^"\n]*"', "", text)
        local = {word for one in LOCAL.findall(text) for word in re.findall(r"\w+", one)}
        of_others = set().union(*(names for other, names in has.items() if other != own))
        if words := (set(WORD.findall(STATEMENT.sub("", text))) & of_others) - has[own] - local:
            found[own] = words
    return found


def files_of(unit: Path) -> dict[str, str]:
    room = module_of(unit).rpartition(".")[0]
    return {f"{room}.{name}": "\n".join(map(text_of, files))
            for name, files in members(unit).items()}


@pytest.mark.parametrize("unit", UNITS, ids=module_of)
def test_no_name_means_two_things_in_one_module(unit: Path) -> None:
    assert meant_twice(files_of(unit)) == {}


@pytest.mark.parametrize("unit", UNITS, ids=module_of)
def test_each_file_says_what_it_takes_from_the_others(unit: Path) -> None:
    assert borrowed(files_of(unit)) == {}


ROOM = {"room.one": """
from libc.errno cimport errno
cdef const char* text = NULL
cdef void set_text(const char* given) noexcept nogil:
    global text
    text = given
""", "room.two": """
from room.one cimport set_text
cdef enum:
    PLACES = 4
cdef bint has(Kind* kind) noexcept nogil:
    set_text("one")
    return kind.text != NULL and errno_of(PLACES)
"""}


def test_a_room_in_order_has_neither() -> None:
    assert (meant_twice(ROOM), borrowed(ROOM)) == ({}, {})


@pytest.mark.parametrize(("added", "name"), [
    ("import errno", "errno"), ("from other cimport text", "text"),
    ("def set_text():\n    pass", "set_text"), ("cdef enum:\n    errno = 1", "errno"),
    ("text = 1", "text")])
def test_a_second_meaning_is_seen(added: str, name: str) -> None:
    assert set(meant_twice(ROOM | {"room.two": f"{ROOM['room.two']}\n{added}\n"})) == {name}


@pytest.mark.parametrize(("added", "name"), [
    ("    if text != NULL:\n        return 1", "text"), ("    return errno", "errno")])
def test_what_only_another_file_has_is_seen(added: str, name: str) -> None:
    assert borrowed(ROOM | {"room.two": f"{ROOM['room.two']}{added}\n"}) == {"room.two": {name}}
