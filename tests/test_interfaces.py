"""Beside native modules that Python imports lie interfaces (.pyi), which say what they have."""
from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.imports import imported, module_of, sources, without_comments

NATIVE = {module_of(path): path for path in sources(".pyx", folders=("mqcore",))}
INTERFACES = {module: path.with_suffix(".pyi") for module, path in NATIVE.items()
              if path.with_suffix(".pyi").exists()}

# What Python sees of a native type; of others nothing is known here.
SEEN_AS = dict.fromkeys(
    ("int", "long", "short", "Py_ssize_t", "size_t", "ssize_t", "int8_t", "int16_t", "int32_t",
     "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t"), "int") | {
    "bint": "bool", "double": "float", "float": "float", "str": "str", "bytes": "bytes",
    "list": "list", "dict": "dict", "tuple": "tuple", "set": "set", "Segment": "Segment",
    "BitSource": "BitSource"}
UNSEEN = {"__dealloc__", "__reduce__", "__setstate__"}

BLOCK = re.compile(r"(cdef class|class|cpdef enum)(?: (\w+))?(?:\(([\w., ]*)\))?:")
FUNCTION = re.compile(r"( {4})?(?:def|cpdef(?: \w+)?) (\w+)\(")
ATTRIBUTES = re.compile(r" {4}cdef (?:readonly|public) (.+)")
FIELD = re.compile(r" {4}(\w+) *:[^:]")
MEMBER = re.compile(r" {4}([A-Z]\w*) *(?:=|$)")
CONSTANT = re.compile(r"([A-Z]\w*) *(?::[^=]+)?=")


class Parameter(NamedTuple):
    """`name` with the stars before it; `kind`: the Python type as far as it is known, or ""."""

    name: str
    has_default: bool
    kind: str


class Entry(NamedTuple):
    """What a name is: "class" with its bases, "value", or "function" with the rest."""

    what: str
    parameters: tuple[Parameter, ...] = ()
    result: str = ""


# -- native text -----------------------------------------------------------------------------------


def split(text: str) -> Iterator[str]:
    """At the commas outside of brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()


def closing(text: str, start: int) -> int:
    """The place of the bracket that closes the one before `start`."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0:
            return at
    raise ValueError(f"no end: {text[start:start + 80]}")


def native_parameter(text: str) -> Parameter:
    declared, equals, _ = text.partition("=")
    annotated = re.match(r"(\*{0,2}\w+)\s*:(.*)", declared)
    if annotated:
        return Parameter(annotated[1], bool(equals), annotated[2].strip())
    words = declared.replace(" not None", "").rsplit(None, 1)
    name, kind = words[-1], words[0] if len(words) > 1 else ""
    return Parameter(name, bool(equals), SEEN_AS.get(kind, ""))


def native_function(text: str, start: int) -> Entry:
    end = closing(text, start)
    result = re.match(r"\s*->\s*([^\n]+?)\s*:\s*(?:\n|$)", text[end + 1:])
    return Entry("function", tuple(native_parameter(one) for one in split(text[start:end])),
                 result[1] if result else "")


def native(*texts: str) -> dict[str, Entry]:
    """Dotted name -> what it is, of all that Python sees of a .pyx and its .pxd."""
    found: dict[str, Entry] = {}
    for text in map(without_comments, texts):
        owner, enum, decorator, at = "", False, "", 0
        for line in text.splitlines(keepends=True):
            begin, at = at, at + len(line)
            bare = line.rstrip()
            if not bare:
                continue
            if not bare.startswith((" ", ")", "@")):
                block = BLOCK.match(bare)
                owner, enum = "", bool(block) and block[1] == "cpdef enum"
                if block and block[2]:
                    owner = f"{block[2]}."
                    base = "IntEnum" if enum else block[3] or ""
                    found[block[2]] = Entry(f"class({base})")
                constant = CONSTANT.match(bare)
                if constant:
                    found[constant[1]] = Entry("value")
                inside = bool(block)
            function = FUNCTION.match(bare)
            if bare.strip().startswith("@"):
                decorator = bare.strip()
            elif function and (not function[1] or owner):
                name = function[2].replace("__cinit__", "__init__")
                entry = native_function(text, begin + function.end())
                if decorator == "@property":
                    entry = Entry("value", (), entry.result)
                found[(owner if function[1] else "") + name] = entry
                decorator = ""
            elif inside and enum and (member := MEMBER.match(bare)):
                found[owner + member[1]] = Entry("value")
            elif owner and (attributes := ATTRIBUTES.match(bare)):
                for one in attributes[1].split(","):
                    found[owner + one.split()[-1]] = Entry("value")
            elif owner and (field := FIELD.match(bare)):
                found[owner + field[1]] = Entry("value")
    return public(found)


def public(found: dict[str, Entry]) -> dict[str, Entry]:
    """Without what begins with `_`, and what every object has."""
    return {name: entry for name, entry in found.items()
            if not (name.endswith(".__init__") and len(entry.parameters) == 1)
            and not any((part.startswith("_") and not part.endswith("__")) or part in UNSEEN
                        for part in name.split("."))}


# -- interfaces ------------------------------------------------------------------------------------


def parameters(function: ast.FunctionDef) -> Iterator[Parameter]:
    def one(argument: ast.arg, default: ast.expr | None, stars: str = "") -> Parameter:
        kind = ast.unparse(argument.annotation) if argument.annotation else ""
        return Parameter(stars + argument.arg, default is not None, kind)

    said = function.args
    before = [*said.posonlyargs, *said.args]
    defaults = [None] * (len(before) - len(said.defaults)) + said.defaults
    yield from map(one, before, defaults)
    if said.vararg:
        yield one(said.vararg, None, "*")
    elif said.kwonlyargs:
        yield Parameter("*", False, "")
    yield from map(one, said.kwonlyargs, said.kw_defaults)
    if said.kwarg:
        yield one(said.kwarg, None, "**")


def interface(text: str) -> dict[str, Entry]:
    """The same of a .pyi."""
    found: dict[str, Entry] = {}

    def look(body: list[ast.stmt], owner: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                bases = ", ".join(ast.unparse(base) for base in node.bases)
                found[owner + node.name] = Entry(f"class({bases})")
                look(node.body, f"{owner}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                result = ast.unparse(node.returns) if node.returns else ""
                shown = {ast.unparse(one) for one in node.decorator_list}
                found[owner + node.name] = (
                    Entry("value", (), result) if "property" in shown
                    else Entry("function", tuple(parameters(node)), result))
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update((owner + ast.unparse(target), Entry("value")) for target in targets)

    look(ast.parse(text).body, "")
    return public(found)


# -- both ------------------------------------------------------------------------------------------


def fits(kind: str, told: str) -> bool:
    """Whether the interface says at least as much of a type as the native text."""
    kind, told = kind.replace(" ", "").replace("object", "Any"), told.replace(" ", "")
    bare = kind.removesuffix("|None")
    return told.startswith(bare) and (bare == kind or told.endswith("|None"))


def differences(has: dict[str, Entry], said: dict[str, Entry]) -> Iterator[str]:
    """What the interface `said` leaves out, adds, or says otherwise than the module `has` it."""
    for name in has.keys() - said.keys():
        yield f"{name} is not in the interface"
    for name in said.keys() - has.keys():
        yield f"{name} is in the interface only"
    for name in has.keys() & said.keys():
        one, other = has[name], said[name]
        if one.what != other.what:
            yield f"{name}: {one.what}, and the interface says {other.what}"
        if [p[:2] for p in one.parameters] != [p[:2] for p in other.parameters]:
            yield f"{name}{signature(one)}, and the interface says {signature(other)}"
        kinds = [(p.kind, q.kind)
                 for p, q in zip(one.parameters, other.parameters, strict=False)]
        for kind, told in [*kinds, (one.result, other.result)]:
            if not fits(kind, told):
                yield f"{name}: {kind}, and the interface says {told}"


def signature(entry: Entry) -> str:
    return f"({', '.join(p.name + '=' * p.has_default for p in entry.parameters)})"


def texts_of(path: Path) -> list[str]:
    declarations = path.with_suffix(".pxd")
    return [one.read_text(encoding="utf-8") for one in (declarations, path) if one.exists()]


def exists(module: str, name: str) -> bool:
    """Whether a running module has a value that its text does not show."""
    thing: object = importlib.import_module(module)
    for part in name.split("."):
        thing = getattr(thing, part, None)
    return thing is not None


@pytest.mark.parametrize("module", sorted(INTERFACES))
def test_an_interface_says_what_its_module_has(module: str) -> None:
    has = native(*texts_of(NATIVE[module]))
    said = interface(INTERFACES[module].read_text(encoding="utf-8"))
    made = {name: entry for name, entry in said.items()
            if name not in has and entry.what == "value" and exists(module, name)}
    assert list(differences(has | made, said)) == []


def test_every_native_module_that_python_imports_has_an_interface() -> None:
    files = sources(".py", ".pyi", folders=("mqcore", "workers", "tests", "perf"))
    wanted = {name if name in NATIVE else name.rpartition(".")[0]
              for path in files for name in imported(path, module_of(path), by_line=True)}
    assert sorted((wanted & NATIVE.keys()) - INTERFACES.keys()) == []


def test_every_interface_belongs_to_a_native_module() -> None:
    assert [path for path in sources(".pyi", folders=("mqcore",))
            if not path.with_suffix(".pyx").exists()] == []


PYX = '''
LIMIT = 8
class Item(NamedTuple):
    key: str
cdef class Table(Base):
    cdef readonly int64_t size
    def __cinit__(self, Segment segment not None, const uint8_t[::1] memory, *, bint late=False,
                  **rest):
        pass
    @property
    def room(self) -> int:
        return 1
    cdef int hidden(self):
        return 0
    def find(self, str name, int64_t most=1 << 4) -> tuple[int, int] | None:
        return None
def load(bytes raw, *_more) -> list:
    return []
'''
PYI = '''
LIMIT: int
class Item(NamedTuple):
    key: str
class Table(Base):
    size: int
    def __init__(self, segment: Segment, memory: Buffer, *, late: bool = False, **rest: int): ...
    @property
    def room(self) -> int: ...
    def find(self, name: str, most: int = ...) -> tuple[int, int] | None: ...
def load(raw: bytes, *_more: int) -> list[int]: ...
'''


def test_an_interface_of_the_same_shape_differs_in_nothing() -> None:
    assert list(differences(native(PYX), interface(PYI))) == []


@pytest.mark.parametrize(("native_text", "changed"), [
    ("str name, int64_t most", "str name, bint exact, int64_t most"),
    ("str name, int64_t most", "str title, int64_t most"),
    ("most=1 << 4", "most"), ("str name", "bytes name"), ("*, bint late", "bint late"),
    ("bint late=False", "bint late=False, int more=0"), ("bytes raw, *_more", "bytes raw"),
    ("def find", "def look"), ("def find", "cdef find"), ("    @property\n", ""),
    ("readonly int64_t size", "int64_t size"), ("LIMIT = 8", "OTHER = 8"),
    ("key: str", "name: str"), ("(Base)", "(Other)"), ("-> list:", "-> dict:"),
    ("tuple[int, int] | None", "int"), (", **rest", "")])
def test_a_change_in_the_native_code_alone_is_seen(native_text: str, changed: str) -> None:
    text = re.sub(r",\s+\*\*rest", ", **rest", PYX)
    assert text.count(native_text) == 1
    assert list(differences(native(text.replace(native_text, changed)), interface(PYI))) != []


@pytest.mark.parametrize(("said", "changed"), [
    ("name: str, ", "name: str, exact: bool, "), ("most: int = ...", "most: int"),
    ("*, late", "late"), ("def load", "def store"), ("    @property\n", ""),
    ("size: int", "size: int\n    count: int")])
def test_a_change_in_the_interface_alone_is_seen(said: str, changed: str) -> None:
    assert PYI.count(said) == 1
    assert list(differences(native(PYX), interface(PYI.replace(said, changed)))) != []
