"""A number has a name, and a name one place: in native code, and over all modules."""
from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.imports import ROOT, module_of, sources, without_comments

NATIVE = [path for path in sources(".pyx", ".pxd", folders=("mqcore",))
          if path.name not in ("figures.pxd", "participants.pxd")]       # made by setup.py
OF_C = re.compile(r"^cdef extern [^\n]*\n(?:(?: +[^\n]*)?\n)*", re.M)
NO_TYPE = r"(?!(?:return|if|elif|while|assert|yield|and|or|not|in|else)\b)"
TYPE = rf"^ +(?:cdef )?(?:const )?{NO_TYPE}[\w.]+\*?"
ARRAY = re.compile(rf"{TYPE}(?:\[\d+\] +(\w+)|(?: +(?:\w+, *)*| *\* *)(\w+)\[\d+\])", re.M)
ERROR_NUMBER = re.compile(r"\berrno *(?:[=!]=|=|in) *[(-]?\d|\breturn +E?errno_\d")
BYTE = r"\w+\[[^][]*\] *(?:[=!<>]=|<|>|=) *"
PRINTED = r"(?:0x(?:2[1-9a-f]|[3-6][\da-f]|7[\da-e])|3[3-9]|[4-9]\d|1[01]\d|12[0-6])\b"
CHARACTER = re.compile(BYTE + PRINTED, re.I)
MEMBER = re.compile(r"^(?:    )?([A-Z][A-Z\d_]*) = ([^#\n]+)", re.M)

PACE = re.compile(r"_M?S$|_MS_M(?:AX|IN)$|_S_M(?:AX|IN)$")      # how patient a module is
OWN = {"VERSION",                        # of each file format
       "MIB"}                            # what it is says its name
PUBLIC_NAMES_ALONE = ("mqcore.client.patterns", "mqcore.contrib")      # of the client, no others


# -- bare numbers ----------------------------------------------------------------------------------


def bare_sizes(text: str) -> list[str]:
    """Arrays whose size is a number; what C declares, and padding, has no name for it."""
    return [name for found in ARRAY.finditer(OF_C.sub("", without_comments(text)))
            if not (name := found[1] or found[2]).endswith("pad")]


@pytest.mark.parametrize("text", [
    "    cdef char name[32]", "    cdef uint8_t[8] name", "    const Piece* name[2]",
    "    cdef int a, name[4]"])
def test_an_array_with_a_bare_size_is_found(text: str) -> None:
    assert bare_sizes(text) == ["name"]


@pytest.mark.parametrize("text", [
    "    cdef char name[NAME_ROOM]", "    uint8_t head_pad[120]", "    x = name[32]",
    "    cdef char name[2 * NAME_ROOM]", "    # cdef char name[32]", "    return name[32]",
    'cdef extern from "a.h":\n    struct A:\n\n        char name[256]\n'])
def test_others_are_not(text: str) -> None:
    assert bare_sizes(text) == []


def test_native_arrays_have_sizes_with_names() -> None:
    """Those of the shared memory are drawn in its layout, to the last byte of each line pair."""
    assert [f"{path.relative_to(ROOT)}: {name}" for path in NATIVE if path.name != "layout.pxd"
            for name in bare_sizes(path.read_text(encoding="utf-8"))] == []


def bare_numbers(text: str) -> list[str]:
    """Error numbers, and characters that a byte is compared with."""
    plain = OF_C.sub("", without_comments(text))
    return [found[0] for pattern in (ERROR_NUMBER, CHARACTER) for found in pattern.finditer(plain)]


@pytest.mark.parametrize(("text", "count"), [
    ("    if errno == 11:", 1), ("    errno = 5", 1), ("    if at[0] == 34:", 1),
    ("    at[i + 1] = 0x7b", 1), ("    if errno == EAGAIN or at[0] == c'\"':", 0),
    ("    if left[0] < 8 or high[1] == 0:", 0), ("    at[0] = 0x1F", 0)])
def test_which_numbers_are_bare(text: str, count: int) -> None:
    assert len(bare_numbers(text)) == count


def test_native_code_names_errors_and_characters() -> None:
    assert [f"{path.relative_to(ROOT)}: {found}" for path in NATIVE
            for found in bare_numbers(path.read_text(encoding="utf-8"))] == []


# -- constants in two files ------------------------------------------------------------------------


def number_or_text(source: str) -> int | float | str | bytes | None:
    """What was typed; None: something else than numbers and what is reckoned of them, or a text."""
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except SyntaxError:
        return None
    if any(not isinstance(node, ast.Expression | ast.BinOp | ast.UnaryOp | ast.operator
                          | ast.unaryop | ast.Constant) for node in ast.walk(tree)):
        return None
    value = eval(compile(tree, "constant", "eval"), {"__builtins__": {}})
    plain = isinstance(value, int | float | str | bytes) and not isinstance(value, bool)
    return value if plain else None


def typed(path: Path) -> Iterator[tuple[str, int | float | str | bytes]]:
    """Names and values of a file's constants; what is a module's own alone (_NAME) is left out."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = [(target.id, ast.unparse(node.value)) for node in ast.parse(text).body
                 if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
                 for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                 if isinstance(target, ast.Name) and target.id.isupper()]
    else:
        found = MEMBER.findall(OF_C.sub("", without_comments(text)))
    for name, source in found:
        value = number_or_text(source)
        if value is not None and not name.startswith("_"):
            yield name, value


def twice(paths: list[Path]) -> list[str]:
    """Constants of one name and value in several modules; an interface is part of its module."""
    found: dict[tuple[str, object], set[str]] = defaultdict(set)
    for path in paths:
        module = module_of(path)
        for name, value in () if module.startswith(PUBLIC_NAMES_ALONE) else typed(path):
            if name not in OWN and not PACE.search(name):
                found[name, value].add(module)
    return sorted(f"{name}: {', '.join(sorted(modules))}" for (name, _), modules in found.items()
                  if len(modules) > 1)


def test_no_constant_stands_in_two_files() -> None:
    assert twice([*NATIVE, *sources(".py", folders=("mqcore",))]) == []


@pytest.mark.parametrize(("first", "second", "said"), [
    ("a.pyx:cdef enum:\n    SIZE = 1 << 10  # of it", "b.py:SIZE: Final = 1024", ["SIZE"]),
    ("a.py:TOPIC = 'T'", "b.py:TOPIC = 'T'", ["TOPIC"]),
    ("a.py:SIZE = 1", "b.py:SIZE = 2", []), ("a.py:LOOK_S = 1", "b.py:LOOK_S = 1", []),
    ("a.py:_SIZE = 1", "b.py:_SIZE = 1", []), ("a.py:SIZE = 1", "b.py:SIZE = OF", []),
    ("a.pxd:cdef enum:\n    SIZE = 1", "a.pyx:cdef enum:\n    SIZE = 1", [])])
def test_which_constants_stand_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str,
                                     second: str, said: list[str]) -> None:
    monkeypatch.setattr("tests.imports.ROOT", tmp_path)
    (tmp_path / "mqcore").mkdir()
    paths = []
    for one in (first, second):
        name, _, text = one.partition(":")
        paths.append(tmp_path / "mqcore" / name)
        paths[-1].write_text(text)
    assert [line.partition(":")[0] for line in twice(paths)] == said
